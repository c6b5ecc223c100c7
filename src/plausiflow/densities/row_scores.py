"""The plausibility of candidates for given rows: each factual row has its own threshold.

A search compares a candidate with the threshold of its factual row, which depends on what the row cannot
change (:mod:`plausiflow.densities.context`). Densities that can prepare themselves for given rows return
faster scores; any other plausibility is called as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Self, TypeVar

import torch
from torch import Tensor

from plausiflow.core import MovingColumns, Plausibility, PreparesRows, RowFunction, RowScores, RowValueAndGrad

T = TypeVar("T")


def once_for_the_same_rows(function: Callable[[Tensor], T]) -> Callable[[Tensor], T]:
    """Keep what a function returned for the last rows; the iterations of a search ask for the same ones.

    On a GPU nothing is kept, because a recorded graph must own its tensors.
    """
    last: tuple[Tensor, T] | None = None

    def call(rows: Tensor) -> T:
        nonlocal last
        if last is not None and last[0] is rows:
            return last[1]
        result = function(rows)
        last = None if rows.is_cuda else (rows, result)
        return result

    return call


class PlainRowScores:
    """Scores of candidates for factual rows ``(n, d)`` and target classes ``(n,)``, from any plausibility."""

    def __init__(self, plausibility: Plausibility, x: Tensor, y_target: Tensor) -> None:
        self.plausibility, self.y_target = plausibility, y_target
        self.threshold = self.margin = x.new_zeros(len(x))

    def at(self, rows: Tensor) -> Self:
        """Select rows, shape ``(k,)``; a row may occur more than once."""
        other = copy.copy(self)
        other.y_target, other.threshold = self.y_target[rows], self.threshold[rows]
        other.margin = self.margin[rows]
        return other

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        other = copy.copy(self)
        other.y_target, other.threshold = self.y_target.to(device), self.threshold.to(device)
        other.margin = self.margin.to(device)
        return other

    def score(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the scores ``(m,)`` of candidates ``(m, d)`` for the rows ``(m,)``; keeps the graph."""
        return self.plausibility.score(x_cf, self.y_target[rows])

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return the score as a function of the moving columns; autograd computes the gradient."""
        y, score = self.y_target[rows], self.plausibility.score
        return lambda z, which: score(moving.encoded(z, which), y[which]), None


def row_scores(
    plausibility: Plausibility, x: Tensor, y_target: Tensor, *, with_margin: bool = True
) -> RowScores:
    """Prepare a plausibility for factual rows ``(n, d)`` and their target classes ``(n,)``."""
    if isinstance(plausibility, PreparesRows):
        return plausibility.for_rows(x, y_target, with_margin=with_margin)
    return PlainRowScores(plausibility, x, y_target)
