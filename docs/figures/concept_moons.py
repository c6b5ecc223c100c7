"""Shared by the figures of the concepts: the moons, a grid of points, and the style."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import plausiflow as pf
from plausiflow.plots import QUIET

WANTED = 1
ROWS, OTHERS = "#b45309", "#475569"
DENSE = "#fed7aa"


def moons() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training rows, their classes, test rows, their classes; features are in [0, 1]."""
    fold = pf.load_dataset("moons").fold(0)
    return fold.x_train, fold.y_train, fold.x_test, fold.y_test


def plane(count: int = 160) -> tuple[Tensor, Tensor, Tensor]:
    """Return two coordinates ``(count, count)``, and all points ``(count * count, 2)``."""
    line = torch.linspace(-0.15, 1.15, count, dtype=torch.float64)
    first, second = torch.meshgrid(line, line, indexing="xy")
    return first, second, torch.stack([first.flatten(), second.flatten()], dim=1)


def of_class(points: Tensor, k: int = WANTED) -> Tensor:
    """Return the same class for every point, shape ``(n,)``."""
    return torch.full((len(points),), k)


def draw_rows(axes: Any, x: Tensor, y: Tensor) -> None:  # noqa: ANN401
    """Draw rows of the target class in orange, others in grey."""
    for own, colour in ((y != WANTED, OTHERS), (y == WANTED, ROWS)):
        axes.scatter(*x[own].T, s=6, color=colour, alpha=0.45, linewidths=0)


def bare(axes: Any, title: str) -> None:  # noqa: ANN401
    """Remove ticks: both features have the same scale and no unit."""
    axes.set(title=title, xlim=(-0.15, 1.15), ylim=(-0.15, 1.15), xticks=[], yticks=[], aspect="equal")
    axes.title.set_size(10)
    axes.spines[:].set_color(QUIET)
