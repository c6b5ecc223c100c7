"""Figures: figure 1 of the paper, and distance against judged plausibility."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plausiflow.core import Classifier, Counterfactuals, Plausibility
from plausiflow.methods import PPCEF
from plausiflow.plots import ACCENT, QUIET, WARM, new_figure
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow_bench.harness.selection import Selection, fit_classifier, fit_thresholded_flow, load_fold
from plausiflow_bench.numeric import judged


def figure_1(path: Path, *, seed: int = 0, row: int | None = None) -> None:
    """Draw the search of both solvers for one row of moons, with logistic regression.

    The path of the paper's Adam has a dot every 150 steps.

    Args:
        path: The file of the picture.
        seed: Seed of flow and classifier.
        row: Index of the test row. None means one on the far side of the upper moon, as in the paper.
    """
    data = load_fold("moons", 0)
    classifier, plausibility = (
        fit_classifier("moons", "lr", 0, seed),
        fit_thresholded_flow("moons", 0, seed),
    )
    if row is None:
        row = int((data.x_test[:, 1] - data.x_test[:, 0]).argmax())
    x = data.x_test[row : row + 1]
    paper = PenaltyAdam.paper(binary_linear=True)
    adam = PPCEF(classifier=classifier, plausibility=plausibility, solver=replace(paper, trace=150))
    sqp = PPCEF(
        classifier=classifier, plausibility=plausibility, solver=SQP(trace=True), lower=0.0, upper=1.0
    )
    sqp.fit(data.x_train, data.y_train)
    figure = new_figure(9.5, 4.9)
    names = ("The paper's Adam, a dot every 150 steps", "SQP, a dot for every iteration")
    for axes, method, name in zip(figure.subplots(1, 2), (adam, sqp), names, strict=True):
        found = method.explain(x)
        distance = float(torch.linalg.vector_norm(found.x_cf - found.x))
        draw_search(
            axes,
            found,
            classifier=classifier,
            plausibility=plausibility,
            x_train=data.x_train,
            y_train=data.y_train,
            title=f"{name}\n{int(found.gradients[0])} gradients, distance {distance:.3f}",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


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


def frontier(path: Path, selection: Selection) -> None:
    """Draw distance against judged plausibility as the margin grows, beside the other methods."""
    columns = min(3, len(selection.datasets))
    lines = math.ceil(len(selection.datasets) / columns)
    figure = new_figure(5.2 * columns, 4.2 * lines)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels[len(selection.datasets) :]:
        axes.set_axis_off()
    for axes, dataset in zip(panels, selection.datasets, strict=False):
        points = list(judged.frontier(dataset, selection))
        curve = [(row["judged"], row["l2"]) for row in points if "share_of_cap" in row]
        axes.plot(*zip(*curve, strict=True), marker="o", color=ACCENT, label="ensemble, margin 0 to its cap")
        for row, colour in zip(
            [r for r in points if "share_of_cap" not in r], (WARM, "#16a34a", QUIET), strict=False
        ):
            axes.scatter(
                row["judged"], row["l2"], s=50, color=colour, label=str(row["method"]).replace("_", " ")
            )
        axes.axvline(0.95, color=QUIET, linewidth=0.8, linestyle="dotted")
        axes.set(title=dataset, xlabel="judged plausibility", ylabel="mean L2", xlim=(0, 1.02))
        axes.legend(frameon=False, loc="upper left")
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
