"""Figures of a search in two dimensions and of the changes of one row, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plausiflow.core import Classifier, Counterfactuals, Plausibility
from plausiflow.errors import MissingExtraError

INK, ACCENT, WARM, QUIET = "#1f2933", "#2563eb", "#ea580c", "#9aa5b1"


def new_figure(width: float, height: float) -> Any:  # noqa: ANN401
    """Return an empty figure, without a display and without global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "Plotting") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def draw_search(
    axes: Any,  # noqa: ANN401
    found: Counterfactuals,
    *,
    classifier: Classifier,
    plausibility: Plausibility,
    x_train: Tensor,
    y_train: Tensor,
    title: str,
) -> None:
    """Draw figure 1 of the paper for the first row.

    It shows density contours of the target class, the decision boundary, the path of the search and the
    counterfactual.
    """
    y_target = int(found.y_target[0])
    grid = torch.linspace(-0.25, 1.25, 240, dtype=torch.float64)
    first, second = torch.meshgrid(grid, grid, indexing="xy")
    points = torch.stack([first.flatten(), second.flatten()], dim=1)
    with torch.no_grad():
        score = plausibility.score(points, torch.full((len(points),), y_target)).view(first.shape)
        logits = classifier.logits(points)
    rival = logits.scatter(1, torch.full((len(points), 1), y_target), float("-inf")).amax(dim=1)
    gap = (logits[:, y_target] - rival).view(first.shape)
    axes.contourf(first, second, score, levels=[0, 1e9], colors=["#fca5a5"], alpha=0.75)
    axes.contour(
        first, second, score.clamp_min(-12), levels=12, colors=QUIET, linewidths=0.5, linestyles="solid"
    )
    axes.contour(first, second, gap, levels=[0], colors=ACCENT, linewidths=1.8)
    for k, colour in ((y_target, "#b45309"), (int(found.y[0]), "#475569")):
        rows = x_train[y_train == k]
        axes.scatter(rows[:, 0], rows[:, 1], s=2, color=colour, alpha=0.35, linewidths=0)
    if found.path is not None:
        path = found.path[:, 0]
        axes.plot(path[:, 0], path[:, 1], color=WARM, linewidth=1)
        axes.scatter(path[1:-1, 0], path[1:-1, 1], s=16, color=WARM, zorder=3)
    axes.scatter(*found.x[0].tolist(), s=36, color="black", zorder=4, label="row")
    axes.scatter(*found.x_cf[0].tolist(), s=36, color="#dc2626", zorder=4, label="counterfactual")
    axes.set(title=title, xlim=(-0.25, 1.25), ylim=(-0.25, 1.25), xticks=[], yticks=[], aspect="equal")


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
