"""Figures of the changes of one row, and of the rows that each action helps, with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from plausiflow.errors import MissingExtraError

INK, ACCENT, WARM, QUIET = "#1f2933", "#2563eb", "#ea580c", "#9aa5b1"

NAME_WIDTH = 60
"""Characters of a line of a name."""


def new_figure(width: float, height: float) -> Any:  # noqa: ANN401
    """Return an empty figure, without a display and without global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "Plotting") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def draw_moves(
    axes: Any,  # noqa: ANN401
    *,
    names: Sequence[str],
    moves: Sequence[float],
    texts: Sequence[str],
    title: str,
) -> None:
    """Draw one bar per change, in units of the feature's range, with the old and the new value.

    A move without a length (NaN) is a dot.
    """
    for place, (move, text) in enumerate(zip(moves, texts, strict=True)):
        length = 0.0 if move != move else move
        axes.barh(place, length, height=0.6, color=WARM if length < 0 else ACCENT)
        if move != move:
            axes.plot([0.0], [place], "o", color=ACCENT)
        side = -1 if length < 0 else 1
        axes.annotate(
            text.replace("$", r"\$"),
            (length, place),
            (8 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            color=INK,
        )
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.margins(x=0.6)
    axes.set(title=title.replace("$", r"\$"), xlabel="change, in units of each feature's range")
    axes.spines[["top", "right"]].set_visible(False)


def draw_counts(
    axes: Any,  # noqa: ANN401
    *,
    names: Sequence[str],
    counts: Sequence[int],
    title: str,
) -> None:
    """Draw one bar per action, with its number of rows; the last bar is that of rows without one."""
    colours = [*[ACCENT] * (len(counts) - 1), QUIET]
    bars = axes.barh(range(len(counts)), counts, height=0.6, color=colours)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=4, color=INK)
    texts = [textwrap.fill(name.replace("$", r"\$"), NAME_WIDTH) for name in names]
    axes.set_yticks(range(len(names)), texts, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title=title.replace("$", r"\$"), xlabel="rows")
    axes.spines[["top", "right"]].set_visible(False)
