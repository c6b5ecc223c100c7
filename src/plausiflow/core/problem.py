"""The optimisation problem that search and solvers share, and its solution.

One problem holds one small program per row, solved independently: minimise the weighted squared distance to
the factual under constraints ``g(x') >= 0`` and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from plausiflow.core.local_model import LocalModel

RowFunction = Callable[[Tensor, Tensor], Tensor]
"""``(x_cf, rows) -> (m,)``: one value for each point ``x_cf`` ``(m, d)`` of the problem's ``rows`` (long,
``(m,)``); keeps the graph."""

RowValueAndGrad = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``(x_cf, rows) -> (m,), (m, d)``: such values and their gradients."""

T = TypeVar("T")

Starts = Callable[[Tensor], Tensor]
"""``rows -> (m, k, d)``: up to k starting points for each of the problem's ``rows``, padded with NaN."""


@dataclass(frozen=True)
class Constraint:
    """A constraint ``value(x_cf, rows) >= 0``.

    Attributes:
        value: The constraint value of each row.
        buffer: A solver aims for ``value >= buffer``, so that rounding its answer does not break the
            constraint.
        value_and_grad: Value and gradient without an autograd graph; None leaves the gradient to autograd.
    """

    value: RowFunction
    buffer: float = 0.0
    value_and_grad: RowValueAndGrad | None = None


class LastRows(Generic[T]):
    """What a function returned for the last rows: an iteration asks for the rows of the one before.

    On a GPU nothing is kept, because a recorded graph must own its tensors.
    """

    def __init__(self, function: Callable[[Tensor], T]) -> None:
        self._function = function
        self._last: tuple[Tensor, T] | None = None

    def __call__(self, rows: Tensor) -> T:
        """Return the function's result for rows ``(m,)``."""
        last = self._last
        if last is not None and last[0] is rows:
            return last[1]
        result = self._function(rows)
        if not rows.is_cuda:
            self._last = rows, result
        return result


@dataclass(frozen=True, eq=False)
class MovingColumns:
    """Which columns of encoded rows a solver moves; the others keep their value.

    Attributes:
        template: Encoded rows that the moving columns are put into, shape ``(p, width)``.
        columns: The moving columns, shape ``(d,)``; None if all of them move.
    """

    template: Tensor
    columns: Tensor | None = None

    @classmethod
    def of(cls, template: Tensor, columns: list[int]) -> MovingColumns:
        """Move some columns of encoded rows."""
        return cls(template, torch.tensor(columns, dtype=torch.long, device=template.device))

    def encoded(self, z: Tensor, which: Tensor) -> Tensor:
        """Return whole encoded rows for values ``z`` ``(m, d)`` of the problem's rows; keeps the graph."""
        return z if self.columns is None else self._rows(which).index_copy(1, self.columns, z)

    @cached_property
    def _rows(self) -> LastRows[Tensor]:
        return LastRows(self.template.__getitem__)

    def gradient(self, gradient: Tensor) -> Tensor:
        """Return the part of a gradient in encoded rows ``(m, width)`` that belongs to the columns."""
        return gradient if self.columns is None else gradient.index_select(1, self.columns)


@dataclass(frozen=True, kw_only=True)
class Problem:
    r"""One program per row: minimise :math:`\sum_j w_j (x'_j - x_j)^2` under constraints and bounds.

    Attributes:
        x: Factuals, shape ``(n, d)``.
        constraints: Constraints by name.
        penalties: The same requirements as the paper's losses (Eqs. 7 to 9), for solvers that minimise a
            weighted sum.
        lower: Smallest allowed values, shape ``(n, d)``; a feature with ``lower == upper`` is frozen.
        upper: Largest allowed values, shape ``(n, d)``.
        weights: Cost per feature, shape ``(d,)``, or per row and feature ``(n, d)``; all positive.
        normals: Directions that a step must be orthogonal to, shape ``(n, k, d)``: equalities that the start
            satisfies. A solver that does not know them may leave them; the search repairs its answer.
    """

    x: Tensor
    constraints: Mapping[str, Constraint]
    penalties: Mapping[str, RowFunction] = field(default_factory=dict)
    lower: Tensor | None = None
    upper: Tensor | None = None
    weights: Tensor | None = None
    normals: Tensor | None = None

    def values(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the value of every constraint, shape ``(m, number of constraints)``."""
        columns = [c.value(x_cf, rows) for c in self.constraints.values()]
        return torch.stack(columns, dim=1) if columns else x_cf.new_zeros(len(x_cf), 0)

    def satisfied(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return whether every constraint holds, shape ``(m,)``; False where a value is NaN."""
        with torch.no_grad():
            return (self.values(x_cf, rows) >= 0).all(dim=1)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The result of a solver.

    Attributes:
        x: Counterfactuals, shape ``(n, d)``; NaN where the solver found none.
        gradients: Evaluations of value and gradient spent on each row, shape ``(n,)``.
        path: Iterates ``(steps, n, d)``, if the solver keeps them.
        model: What the solver knows about the program near each counterfactual, if it keeps that.
    """

    x: Tensor
    gradients: Tensor
    path: Tensor | None = None
    model: LocalModel | None = None

    @classmethod
    def empty(cls, x: Tensor) -> Solution:
        """Return a solution without a counterfactual for any row."""
        return cls(
            x=torch.full_like(x, torch.nan), gradients=torch.zeros(len(x), dtype=torch.long).to(x.device)
        )


@runtime_checkable
class Solver(Protocol):
    """Minimises the cost of a :class:`Problem`, every row independently."""

    def solve(self, problem: Problem, starts: Starts | None = None) -> Solution:
        """Search from the factuals, and from ``starts`` for the rows that need it."""
        ...


@dataclass(frozen=True)
class Race:
    """Programs that compete, because only the cheapest answers of an owner are of interest.

    Attributes:
        owners: The owner of each program, shape ``(n,)``.
        total: ``(squared distances, programs) -> costs``, comparable between programs.
        answers: How many answers of each owner are wanted.
    """

    owners: Tensor
    total: Callable[[Tensor, Tensor], Tensor]
    answers: int


@runtime_checkable
class ImprovingSolver(Solver, Protocol):
    """A solver that can also start from given points, with settings for one search."""

    def improve(
        self,
        problem: Problem,
        start: Tensor,
        *,
        curvature: float = 4.0,
        iterations: int | None = None,
        tolerance: float | None = None,
        max_without_answer: int | None = None,
        patience: int | None = None,
        cost_limit: Tensor | None = None,
        race: Race | None = None,
        paced: bool = False,
        inverse: Tensor | None = None,
    ) -> Solution:
        """Search from one given point for each row ``(n, d)`` only."""
        ...
