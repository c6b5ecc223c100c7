"""Protocols: what a user may bring, and what packages hand to each other.

A ``Classifier``, ``Regressor``, ``Density`` or ``Plausibility`` is any object with the methods below; nothing
has to be subclassed. All of them take encoded float tensors of shape ``(n, d)``, treat every row
independently, and follow the dtype and the device of their input. A search runs in double precision, so
``logits(x.double())`` must return double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from plausiflow.core.problem import MovingColumns, RowFunction, RowValueAndGrad


@runtime_checkable
class Classifier(Protocol):
    """A model that decides between classes, in evaluation mode and with frozen weights."""

    n_classes: int
    differentiable: bool

    def logits(self, x: Tensor) -> Tensor:
        """Return unnormalised log-probabilities, ``(n, d) -> (n, k)``; a binary model has two columns."""
        ...


Pullback = Callable[[Tensor], Tensor]
"""``(n, k) -> (n, d)``: maps a gradient in the outputs to a gradient in the rows."""


@runtime_checkable
class HasValueAndGrad(Protocol):
    """A model that computes its gradient without an autograd graph, which is faster for few rows."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the outputs of rows ``(n, d)``, shape ``(n, k)``, and their pullback."""
        ...


@runtime_checkable
class Regressor(Protocol):
    """A model that predicts a number."""

    def values(self, x: Tensor) -> Tensor:
        """Return predictions, ``(n, d) -> (n,)``."""
        ...


@runtime_checkable
class Density(Protocol):
    """A normalised conditional density :math:`p(x | y)`."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn from rows ``(n, d)`` and their classes ``(n,)``."""
        ...

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return :math:`log p(x | y)`, ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...


@runtime_checkable
class Plausibility(Protocol):
    """A score that is at least zero where a row is plausible."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log-density minus threshold (minus margin), ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...


@runtime_checkable
class RowScores(Protocol):
    """The plausibility of candidates for given factual rows, each with its own threshold.

    Attributes:
        threshold: What the candidates of each factual row are compared with, beyond the thresholds of the
            classes, shape ``(n,)``: margin and context threshold.
        margin: The part of the threshold that is the margin, shape ``(n,)``.
    """

    threshold: Tensor
    margin: Tensor

    def at(self, rows: Tensor) -> RowScores:
        """Select rows, shape ``(k,)``; a row may occur more than once."""
        ...

    def to(self, device: torch.device) -> RowScores:
        """Move to a device."""
        ...

    def score(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the scores ``(m,)`` of candidates ``(m, d)`` for the rows ``(m,)``; keeps the graph."""
        ...

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return the score before its threshold as a function of the moving columns.

        The second function also returns the gradient; None leaves that to autograd.

        Args:
            moving: The columns that move, of one encoded candidate for each of the problem's rows.
            rows: The factual row of each candidate, shape ``(p,)``.
        """
        ...


@runtime_checkable
class ScreensCandidates(Protocol):
    """Row scores that tell cheaply which candidates cannot be plausible."""

    def may_be_plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return a mask ``(m,)``, false only for candidates ``(m, d)`` whose score is negative."""
        ...


@runtime_checkable
class PreparesRows(Protocol):
    """A plausibility that prepares itself for given rows, so that searches are faster."""

    def for_rows(self, x: Tensor, y_target: Tensor, *, with_margin: bool = True) -> RowScores:
        """Prepare for factual rows ``(n, d)`` and their target classes ``(n,)``.

        ``with_margin=False`` compares with the thresholds alone, without a calibrated margin.
        """
        ...


@runtime_checkable
class Panel(Protocol):
    """Judges: densities that do not guide a search and say which rows they find plausible."""

    def passes(self, x: Tensor, y: Tensor) -> Tensor:
        """Return one verdict for each row and judge, ``(n, d), (n,) -> (n, judges)`` bool."""
        ...
