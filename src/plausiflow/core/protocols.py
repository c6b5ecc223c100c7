"""What a user may bring, and what the rooms hand to each other.

A ``Classifier``, ``Regressor``, ``Density`` or ``Plausibility`` is any object with the methods below; nothing
has to be subclassed. All of them take encoded float tensors of shape ``(n, d)``, treat every row on its own,
and follow the dtype and the device of their input: a search runs in double precision, so
``logits(x.double())`` must answer in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Classifier(Protocol):
    """A model that decides between classes; evaluation mode and frozen weights are the adapter's duty."""

    n_classes: int
    differentiable: bool

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised log-probabilities, ``(n, d) -> (n, k)``; a binary model has two columns."""
        ...


Pullback = Callable[[Tensor], Tensor]
"""``(n, k) -> (n, d)``: the gradient in the rows of outputs that count so much each."""


@runtime_checkable
class HasValueAndGrad(Protocol):
    """A model that knows its gradient without a graph, which is quicker where rows are few."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Outputs of rows ``(n, d)``, shape ``(n, k)``, and what turns shares of them into gradients."""
        ...


@runtime_checkable
class Regressor(Protocol):
    """A model that predicts a number."""

    def values(self, x: Tensor) -> Tensor:
        """Predictions, ``(n, d) -> (n,)``."""
        ...


@runtime_checkable
class Density(Protocol):
    """A conditional density :math:`p(x | y)`, normalised: it integrates to one over x for every y."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn from rows ``(n, d)`` and their classes ``(n,)``."""
        ...

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """:math:`log p(x | y)`, ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...


@runtime_checkable
class Plausibility(Protocol):
    """What solvers and verdicts use: a row is plausible where the score is not negative."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-density minus threshold (minus margin), ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...


@runtime_checkable
class Panel(Protocol):
    """Judges that have no part in a search, and say which rows they find plausible."""

    def passes(self, x: Tensor, y: Tensor) -> Tensor:
        """One verdict per row and judge, ``(n, d), (n,) -> (n, judges)`` bool."""
        ...


RowFunction = Callable[[Tensor, Tensor], Tensor]
"""``(x_cf, rows) -> (m,)``: one value for each of the problem's ``rows`` (long, ``(m,)``) at ``x_cf``
``(m, d)``; keeps the graph."""

RowValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``(x_cf, rows) -> (m,), (m, d)``: such values and their gradients."""

Starts = Callable[[Tensor], Tensor]
"""``rows -> (m, k, d)``: up to k starts for each of the problem's ``rows``, NaN where there are fewer."""


@runtime_checkable
class Prepares(Protocol):
    """A plausibility that can prepare itself for rows of known classes, so that searches wait less for it."""

    def scorer(self, y: Tensor) -> RowFunction:
        """The score of candidates for rows with these classes ``(n,)``."""
        ...

    def slope(self, y: Tensor) -> RowValueAndGrad | None:
        """The same with its gradient, where that is known without a graph."""
        ...


@dataclass(frozen=True)
class Constraint:
    """``value(x_cf, rows) >= 0``.

    A search steers for ``aim``, a little inside, so that rounding its answer does no harm. Where there is a
    ``slope``, searches take value and gradient from it, and torch keeps no graph for them.
    """

    value: RowFunction
    aim: float = 0.0
    slope: RowValueAndGrad | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    r"""One small program per row: minimise :math:`\sum_j w_j (x'_j - x_j)^2` under constraints and bounds.

    Attributes:
        x: Factuals, shape ``(n, d)``.
        constraints: What must not be negative, by name.
        penalties: The same wishes as the paper's losses (Eqs. 7 to 9), for solvers that descend on a weighted
            sum.
        lower: Smallest allowed values, shape ``(n, d)``; a feature with ``lower == upper`` is frozen.
        upper: Largest allowed values, shape ``(n, d)``.
        weights: Cost per feature, shape ``(d,)``, or of each row's own ``(n, d)``; all positive.
    """

    x: Tensor
    constraints: Mapping[str, Constraint]
    penalties: Mapping[str, RowFunction] = field(default_factory=dict)
    lower: Tensor | None = None
    upper: Tensor | None = None
    weights: Tensor | None = None

    def weights_of(self, rows: Tensor) -> Tensor:
        """Cost per feature of some rows, shape ``(d,)`` or ``(m, d)``."""
        if self.weights is None:
            return self.x.new_ones(self.x.shape[1])
        return self.weights if self.weights.ndim == 1 else self.weights[rows]

    def values(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Every constraint's value, shape ``(m, number of constraints)``."""
        columns = [c.value(x_cf, rows) for c in self.constraints.values()]
        return torch.stack(columns, dim=1) if columns else x_cf.new_zeros(len(x_cf), 0)

    def satisfied(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Whether every constraint holds, in ``x_cf``'s precision; false where a value is not a number."""
        with torch.no_grad():
            return (self.values(x_cf, rows) >= 0).all(dim=1)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What a solver found.

    Attributes:
        x: Counterfactuals, shape ``(n, d)``; NaN where the solver has nothing to offer.
        gradients: Value-and-gradient evaluations spent on each row, shape ``(n,)``.
        path: Iterates ``(steps, n, d)``, for pictures, where asked for.
    """

    x: Tensor
    gradients: Tensor
    path: Tensor | None = None


@runtime_checkable
class Solver(Protocol):
    """Minimises the cost of a :class:`Problem`, every row on its own."""

    def solve(self, problem: Problem, starts: Starts | None = None) -> Solution:
        """Search from the factuals, and from ``starts`` where they are needed."""
        ...
