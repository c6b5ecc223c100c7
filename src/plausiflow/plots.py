"""Figures of the changes of one row and of all rows, of actions and groups, with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from plausiflow.errors import MissingExtraError
from plausiflow.progress import in_notebook
from plausiflow.tables import FloatArray

INK, ACCENT, WARM, QUIET = "#1f2933", "#2563eb", "#ea580c", "#9aa5b1"

NAME_WIDTH = 60
"""Characters of a line of a name."""


def new_figure(width: float, height: float) -> Any:  # noqa: ANN401
    """Return an empty figure: without a display and without global state, except in a notebook.

    A notebook shows the figures that pyplot knows at the end of a cell.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "Plotting") from error
    if in_notebook():
        from matplotlib import pyplot

        return pyplot.figure(figsize=(width, height), dpi=150, layout="constrained")
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def new_axes(width: float, height: float) -> Any:  # noqa: ANN401
    """Return the axes of a new figure."""
    return new_figure(width, height).subplots()


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


def draw_steps(
    axes: Any,  # noqa: ANN401
    *,
    names: Sequence[str],
    levels: Sequence[float],
    title: str,
    label: str,
    as_share: bool,
) -> None:
    """Draw one bar per change, from the level before it to the level after it; levels are one more."""
    show = _format_percent if as_share else "{:,.4g}".format
    for place, (before, after) in enumerate(pairwise(levels)):
        axes.barh(place, after - before, left=before, height=0.6, color=ACCENT if after >= before else WARM)
        axes.annotate(
            show(after),
            (max(before, after), place),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
        if place:
            axes.plot([before, before], [place - 0.7, place + 0.3], color=QUIET, linewidth=0.8)
    axes.axvline(levels[0], color=QUIET, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.invert_yaxis()
    if as_share:
        axes.set_xlim(0, 1.12)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    else:
        axes.margins(x=0.15)
    axes.set(title=title.replace("$", r"\$"), xlabel=f"{label}, now {show(levels[0])}".replace("$", r"\$"))
    axes.spines[["top", "right"]].set_visible(False)


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def draw_swarm(
    axes: Any,  # noqa: ANN401
    *,
    names: Sequence[str],
    moves: Sequence[Sequence[float]],
    title: str,
) -> None:
    """Draw one dot per move, one line per name; dots that would cover each other are spread."""
    for place, own in enumerate(moves):
        lengths = sorted(0.0 if move != move else move for move in own)
        bins = [round(length * 50) for length in lengths]
        most = max(bins.count(one) for one in set(bins))
        seen: dict[int, int] = {}
        for length, one in zip(lengths, bins, strict=True):
            nth = seen[one] = seen.get(one, 0) + 1
            offset = (nth // 2) * (1 if nth % 2 else -1) * min(0.08, 0.7 / most)
            colour = QUIET if length == 0 else ACCENT if length > 0 else WARM
            axes.plot([length], [place + offset], "o", markersize=3.5, color=colour, alpha=0.8)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in names])
    axes.invert_yaxis()
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


def draw_tradeoff(
    axes: Any,  # noqa: ANN401
    *,
    costs: Sequence[float],
    scores: Sequence[float],
    sure: Sequence[bool],
    names: Sequence[str],
    title: str,
) -> None:
    """Draw one dot per answer: its cost and its plausibility score, hollow if not all checks accept it.

    ``names`` are written next to the dots; empty for none.
    """
    for cost, score, known, name in zip(costs, scores, sure, names, strict=True):
        filling = ACCENT if known else "none"
        axes.plot([cost], [score], "o", markersize=6, markeredgecolor=ACCENT, markerfacecolor=filling)
        if name:
            axes.annotate(name, (cost, score), (7, 0), textcoords="offset points", va="center", color=INK)
    axes.axhline(0, color=QUIET, linewidth=0.8, linestyle="--")
    axes.annotate(
        "plausible from here up", (1, 0), (-4, 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", color=INK, fontsize=8,
    )  # fmt: skip
    axes.margins(0.12)
    note = "" if all(sure) else " (hollow: not all independent checks agree)"
    axes.set(
        title=title.replace("$", r"\$"), xlabel=f"cost of the changes{note}", ylabel="plausibility score"
    )
    axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class PlaneGrid:
    """A plane of two features: what the model and the density say about each point, shape ``(y, x)``.

    Attributes:
        x: Values along the horizontal axis.
        y: Values along the vertical axis.
        shade: Probability of the target, or the prediction.
        lead: At least zero where the target is met.
        score: At least zero where a row is plausible; None without a density.
    """

    x: FloatArray
    y: FloatArray
    shade: FloatArray
    lead: FloatArray
    score: FloatArray | None


def draw_plane(
    axes: Any,  # noqa: ANN401
    *,
    plane: PlaneGrid,
    names: tuple[str, str],
    points: Sequence[tuple[float, float]],
    title: str,
    label: str,
    as_share: bool,
) -> None:
    """Draw the model's output as shades, the decision as a line, and where rows are plausible as dashes.

    ``points`` are the row and, if there is one, its answer.
    """
    ends = {"vmin": 0.0, "vmax": 1.0} if as_share else {}
    mesh = axes.pcolormesh(
        plane.x, plane.y, plane.shade, cmap="Blues", shading="nearest", rasterized=True, **ends
    )
    axes.figure.colorbar(mesh, ax=axes, label=label.replace("$", r"\$"))
    for values, style, colour in ((plane.lead, "-", INK), (plane.score, "--", WARM)):
        if values is not None and np.nanmin(values) < 0 < np.nanmax(values):
            axes.contour(
                plane.x, plane.y, values, levels=[0.0], colors=[colour], linestyles=[style], linewidths=1.4
            )
    axes.plot(*points[0], "o", markersize=8, markeredgecolor=INK, markerfacecolor="white", label="now")
    if len(points) > 1:
        axes.annotate(
            "",
            points[1],
            points[0],
            arrowprops={"arrowstyle": "->", "color": INK, "shrinkA": 6, "shrinkB": 6},
        )
        axes.plot(
            *points[1], "o", markersize=8, markeredgecolor="white", markerfacecolor=INK, label="would be"
        )
    axes.plot([], [], "-", color=INK, label="decision")
    if plane.score is not None:
        axes.plot([], [], "--", color=WARM, label="edge of plausible rows")
    axes.legend(fontsize=8, loc="best")
    x_name, y_name = (name.replace("$", r"\$") for name in names)
    axes.set(title=title.replace("$", r"\$"), xlabel=x_name, ylabel=y_name)


def draw_means(
    axes: Any,  # noqa: ANN401
    *,
    names: Sequence[str],
    means: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    title: str,
    label: str,
    as_share: bool,
) -> None:
    """Draw one dot per group, its mean, with an interval."""
    for place, (mean, (low, high)) in enumerate(zip(means, intervals, strict=True)):
        axes.plot([low, high], [place, place], color=QUIET, linewidth=2.5, solid_capstyle="butt")
        axes.plot([mean], [place], "o", markersize=6, color=ACCENT)
    axes.set_yticks(
        range(len(names)), [textwrap.fill(name.replace("$", r"\$"), NAME_WIDTH) for name in names]
    )
    axes.set_ylim(len(names) - 0.5, -0.5)
    if as_share:
        ends = [0, 0.25, 0.5, 0.75, 1]
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks(ends, [_format_percent(end) for end in ends])
    axes.set(title=title.replace("$", r"\$"), xlabel=label)
    axes.spines[["top", "right"]].set_visible(False)
