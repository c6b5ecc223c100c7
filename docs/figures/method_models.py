"""Shared by the figures of the methods: moons, a logistic model and a flow, trained once per build."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

import plausiflow as pf
from plausiflow.datasets.folds import Fold
from plausiflow.densities import ConditionalFlow, Thresholded
from plausiflow.models import LinearClassifier
from plausiflow.plots import INK, WARM
from plausiflow_bench.numeric.figures import draw_search

M = TypeVar("M", bound=pf.Method)


@dataclass(frozen=True)
class Moons:
    """Rows, models, and the row that every figure explains."""

    fold: Fold
    classifier: LinearClassifier
    plausibility: Thresholded
    x: Tensor


@cache
def moons() -> Moons:
    """Return fold 0, a logistic model, a masked autoregressive flow, and the leftmost test row."""
    fold = pf.load_dataset("moons").fold(0)
    classifier = pf.LinearClassifier().fit(fold.x_train, fold.y_train)
    density = pf.ConditionalFlow().fit(fold.x_train, fold.y_train)
    plausibility = pf.Thresholded(density=density).fit(fold.x_train, fold.y_train)
    row = int(fold.x_test[:, 0].argmin())
    return Moons(fold, classifier, plausibility, fold.x_test[row : row + 1])


@cache
def latent_flow() -> ConditionalFlow:
    """Return a flow of all rows, without classes, for the two methods that use its latent space."""
    x = moons().fold.x_train
    flow = ConditionalFlow(architecture="realnvp")
    return flow.fit(x, torch.zeros(len(x), dtype=torch.long), n_classes=1)


def fitted(method: M) -> M:
    """Fit a method to the training rows."""
    return method.fit(moons().fold.x_train, moons().fold.y_train)


def draw(method: pf.Method) -> Axes:
    """Draw the row, its answer, the density of the target class and the decision boundary."""
    setting = moons()
    found = method.explain(setting.x)
    title = "no answer\n"
    if bool(found.found[0]):
        distance = float(torch.linalg.vector_norm(found.x_cf - found.x))
        score = float(setting.plausibility.score(found.x_cf.double(), found.y_target))
        place = "above" if score >= 0 else "below"
        title = f"distance {distance:.2f}\n{abs(score):.1f} nats {place} the threshold"
    _, axes = plt.subplots(figsize=(4.4, 4.7), layout="constrained")
    draw_search(
        axes,
        found,
        classifier=setting.classifier,
        plausibility=setting.plausibility,
        x_train=setting.fold.x_train,
        y_train=setting.fold.y_train,
        title=f"{method.label}: {title}",
    )
    axes.plot(*torch.cat([found.x, found.x_cf]).T, color=INK, linewidth=0.8, linestyle="dotted", zorder=2)
    return axes


def draw_path(axes: Axes, points: Tensor) -> None:
    """Draw a path through points ``(m, 2)``."""
    axes.plot(points[:, 0], points[:, 1], color=WARM, linewidth=1, marker="o", markersize=3, zorder=3)
