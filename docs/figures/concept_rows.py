"""Shared by the figures of the concepts: rows with two features, a grid of points, and the style."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import plausiflow as pf
from plausiflow.plots import QUIET

WANTED = 1
NAMES, AXES = ["income", "loan_amount"], ("income", "loan amount")
ROWS, OTHERS = "#b45309", "#475569"
DENSE = "#fed7aa"


def applications() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return income and amount of loan applications and whether they were granted; features are in [0, 1]."""
    train, test = pf.load_table("loans").split(1500, 400)
    low, high = (train.x[NAMES].quantile(q) for q in (0.002, 0.998))
    parts = []
    for part in (train, test):
        parts.append(torch.tensor(((part.x[NAMES] - low) / (high - low)).to_numpy(), dtype=torch.float32))
        parts.append(torch.tensor((part.y == "granted").to_numpy()).long())
    return parts[0], parts[1], parts[2], parts[3]


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


def bare(axes: Any, title: str, names: tuple[str, str] = ("", "")) -> None:  # noqa: ANN401
    """Remove ticks: both features have the same scale and no unit."""
    axes.set(
        title=title,
        xlabel=names[0],
        ylabel=names[1],
        xlim=(-0.15, 1.15),
        ylim=(-0.15, 1.15),
        xticks=[],
        yticks=[],
        aspect="equal",
    )
    axes.title.set_size(10)
    axes.spines[:].set_color(QUIET)
