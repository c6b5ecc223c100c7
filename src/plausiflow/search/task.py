r"""What is asked of a search over the rows of a table, and the candidates it works on.

A candidate is a whole encoded row for one of the task's rows. Its cost is

.. math:: \sqrt{\textstyle\sum_j w_j \Delta_j^2} + \sum_c w_c [\text{category } c \text{ changes}],

with numbers in units of their training range and ordered categories in steps from end to end; a category
without an order costs its weight whenever it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from plausiflow.constraints import Allowance
from plausiflow.core import Constraint, Problem
from plausiflow.densities import RowScores, assembled, columns_index
from plausiflow.search.criterion import Targets, ValidityConstraint
from plausiflow.search.true_model import Oracle
from plausiflow.solvers import SQP
from plausiflow.tables import Block, Layout

VALIDITY_AIM, PLAUSIBILITY_AIM, RULE_AIM = 1e-3, 5e-3, 1e-6
CHUNK = 6000

Validity = Callable[[Tensor, Targets | Tensor], Tensor]
"""``(x_cf, wanted) -> (m,)``: not negative where the model answers as wanted, or for the classes alone; keeps
the graph."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Rows that might be answers.

    Attributes:
        rows: Which row of the task each is for, shape ``(p,)``.
        x: Encoded candidates, shape ``(p, width)``.
        cost: What each costs, infinite where it is no answer, shape ``(p,)``.
    """

    rows: Tensor
    x: Tensor
    cost: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Tensor) -> Candidates:
        return Candidates(rows=self.rows[which], x=self.x[which], cost=self.cost[which])

    def to(self, device: torch.device) -> Candidates:
        """The same on a device."""
        return Candidates(rows=self.rows.to(device), x=self.x.to(device), cost=self.cost.to(device))

    @property
    def answers(self) -> Candidates:
        """Those that are."""
        return self[torch.isfinite(self.cost)]

    @classmethod
    def joined(cls, *parts: Candidates) -> Candidates:
        """All of them, one after the other."""
        return cls(
            rows=torch.cat([part.rows for part in parts]),
            x=torch.cat([part.x for part in parts]),
            cost=torch.cat([part.cost for part in parts]),
        )

    def best(self, count: int) -> Candidates:
        """The cheapest ``count`` of every row, cheapest first; the earlier of two that cost the same."""
        return self[cheapest(self.rows, self.cost, count)]

    def distinct(self) -> Candidates:
        """Each only once, where it first stands."""
        return self[self.first_places()]

    def first_places(self) -> Tensor:
        """Where each that is not like an earlier one stands, in order."""
        keyed = torch.cat([self.rows[:, None].to(self.x), self.x], dim=1)
        _, inverse = torch.unique(keyed, dim=0, return_inverse=True)
        first = torch.full((int(inverse.max()) + 1 if len(inverse) else 0,), len(self), device=self.x.device)
        first.scatter_reduce_(0, inverse, torch.arange(len(self), device=self.x.device), "amin")
        return first.sort().values


def change_costs(layout: Layout, weights: Tensor, x: Tensor, x_cf: Tensor) -> Tensor:
    """What it costs to change rows ``(p, width)`` into others, with a weight for each feature, ``(p,)``."""
    weight_of = {block.name: weight for block, weight in zip(layout.blocks, weights.tolist(), strict=True)}
    numbers = {b.number: weight_of[b.name] for b in layout.blocks if b.number is not None}
    gap = x_cf[:, list(numbers)] - x[:, list(numbers)]
    steps = (layout.codes(x_cf) - layout.codes(x)).to(x)
    flat, graded = torch.zeros_like(steps[:1]), torch.zeros_like(steps[:1])
    for j, block in enumerate(layout.with_levels):
        if block.nominal:
            flat[:, j] = weight_of[block.name]
        elif block.number is None:
            graded[:, j] = weight_of[block.name] / max(1, len(block.levels) - 1) ** 2
    squared = (gap * gap * x.new_tensor(list(numbers.values()))).sum(dim=1)
    squared = squared + (steps * steps * graded).sum(dim=1)
    return squared.sqrt() + ((steps != 0) * flat).sum(dim=1)


def _in_chunks(check: Callable[[Tensor, Tensor], Tensor], x: Tensor, rows: Tensor) -> Tensor:
    parts = [check(*some) for some in zip(x.split(CHUNK), rows.split(CHUNK), strict=True)]
    return torch.cat(parts) if len(x) else torch.zeros(0, dtype=torch.bool, device=x.device)


def cheapest(rows: Tensor, cost: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` lowest costs of each row, ordered by row, then by cost."""
    order = torch.argsort(cost, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    sorted_rows = rows[order]
    begins = torch.searchsorted(sorted_rows, sorted_rows)
    place = torch.arange(len(order), device=order.device) - begins
    return order[place < count]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Rows, what is wanted of them, and what counts as an answer.

    Attributes:
        layout: Of encoded rows.
        x: The rows, double, shape ``(n, width)``.
        wanted: What is wanted of them.
        validity: Whether the model answers as wanted.
        guide: How plausible a candidate is.
        allowance: What rules leave.
        weights: Cost of each feature, in the order of the layout's blocks, shape ``(blocks,)``.
        immutable: Features that no row may change: given to the density, and part of no search.
        least: Smallest value of numbers at levels that leave them free, by column: the smallest positive one.
        solver: For the numbers.
        oracle: The model itself, where ``validity`` is that of a likeness with gradients.
    """

    layout: Layout
    x: Tensor
    wanted: Targets
    validity: Validity
    guide: RowScores
    allowance: Allowance
    weights: Tensor
    immutable: frozenset[str]
    least: dict[int, float]
    solver: SQP
    oracle: Oracle | None = None

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device) -> Task:
        """The same on a device; the model itself is not asked there."""
        return replace(
            self,
            x=self.x.to(device),
            wanted=self.wanted.to(device),
            guide=self.guide.to(device),
            allowance=self.allowance.to(device),
            weights=self.weights.to(device),
        )

    @property
    def y_target(self) -> Tensor:
        """Targets classes, shape ``(n,)``."""
        return self.wanted.y

    @cached_property
    def mutable(self) -> tuple[Block, ...]:
        """Blocks of the features that may change."""
        return tuple(block for block in self.layout.blocks if block.name not in self.immutable)

    @cached_property
    def numbers(self) -> list[int]:
        """Columns of the numbers that may change, those that the density models."""
        return [block.number for block in self.mutable if block.number is not None]

    @cached_property
    def movable(self) -> frozenset[int]:
        """The same, to look up."""
        return frozenset(self.numbers)

    @cached_property
    def weight_of(self) -> dict[str, float]:
        """What each feature costs, by name."""
        names = [block.name for block in self.layout.blocks]
        return dict(zip(names, self.weights.tolist(), strict=True))

    def candidates(self, rows: Tensor, x: Tensor) -> Candidates:
        """Candidates that nothing is known of yet."""
        return Candidates(rows=rows, x=x, cost=x.new_full((len(x),), torch.inf))

    def costs(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """What candidates ``(p, width)`` for some rows cost, shape ``(p,)``."""
        return change_costs(self.layout, self.weights, self.x[rows], x_cf)

    @torch.no_grad()
    def constraint_values(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Validity, plausibility and linear relations, shape ``(p, 2 + m)``: not negative where they hold."""
        parts = []
        for own, chosen in zip(x_cf.split(CHUNK), rows.split(CHUNK), strict=True):
            values = [self.validity(own, self.wanted[chosen]), self.guide.score(own, chosen)]
            parts.append(torch.cat([torch.stack(values, 1), self.allowance.linear_values(own, chosen)], 1))
        return torch.cat(parts) if parts else x_cf.new_zeros(0, 2 + len(self.allowance.inequalities))

    def checked(self, candidates: Candidates, *, changes: bool = True) -> Candidates:
        """Every candidate with its cost, infinite where it is no answer; by default also for its changes."""
        x, rows = candidates.x, candidates.rows
        allowance = self.allowance if changes else replace(self.allowance, max_changes=None)
        fine = allowance.contains(x, rows)
        # What is cheap first; the rest only where it matters.
        checks = (
            (self._valid, self._plausible) if self.oracle is None else (self._plausible, self.oracle.valid)
        )
        for check in checks:
            left = fine.nonzero()[:, 0]
            fine[left] = check(x[left], rows[left])
        return replace(candidates, cost=torch.where(fine, self.costs(x, rows), torch.inf))

    @property
    def unasked(self) -> Task:
        """The same, but where the model itself would be asked anything will do."""
        if self.oracle is None:
            return self
        return replace(self, oracle=None, validity=lambda x, _: torch.ones_like(x[:, 0]))

    def at(self, rows: Tensor, wanted: Targets | None = None) -> Task:
        """For some of the rows, each as often as it is named, ``(k,)``; perhaps with other wishes.

        The likeness of a model takes its place: nothing is asked of the model itself.
        """
        return replace(
            self,
            x=self.x[rows],
            wanted=self.wanted[rows] if wanted is None else wanted,
            guide=self.guide.at(rows),
            allowance=self.allowance.at(rows),
            oracle=None,
        )

    @torch.no_grad()
    def _valid(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        return _in_chunks(lambda own, of: self.validity(own, self.wanted[of]) >= 0, x_cf, rows)

    @torch.no_grad()
    def _plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        return _in_chunks(lambda own, of: self.guide.score(own, of) >= 0, x_cf, rows)

    def solved(
        self,
        candidates: Candidates,
        *,
        keep: Tensor | None = None,
        deeper: float = 0.0,
        weights: Tensor | None = None,
        iterations: int = 40,
        curvature: float = 4.0,
        tolerance: float = 1e-3,
    ) -> Candidates:
        """Move the numbers of each candidate, its levels kept, to the cheapest answer near by.

        Args:
            candidates: Where to start.
            keep: Features that must be as in the row, shape ``(p, blocks)`` bool.
            deeper: How much more plausible than needed the answer should be, in nats.
            weights: What changes of the ``numbers`` count here, instead of their costs, ``(p, numbers)``.
            iterations: Most iterations of a search.
            curvature: First curvature of a search, in units of the cost's own.
            tolerance: Relative progress of a search below which an iteration counts as none.
        """
        if not self.numbers:
            return self.checked(candidates, changes=False)
        solver = replace(self.solver, iterations=iterations, tolerance=tolerance)
        parts = []
        for start in range(0, len(candidates), CHUNK):
            which = torch.arange(start, min(start + CHUNK, len(candidates)), device=self.x.device)
            own = candidates[which]
            fixed = None if keep is None else keep[which]
            problem, begin = self._problem(own, fixed, deeper)
            if weights is not None:
                problem = replace(problem, weights=weights[which])
            numbers = solver.improve(problem, begin, curvature=curvature).x
            found = torch.isfinite(numbers).all(dim=1)
            index = columns_index(self.numbers, own.x)
            x = assembled(own.x, index, torch.where(found[:, None], numbers, begin))
            # Where a rule forces a feature to move, what is kept as in the row may not be allowed.
            found &= replace(self.allowance, max_changes=None).contains(x, own.rows)
            cost = torch.where(found, self.costs(x, own.rows), torch.inf)
            parts.append(Candidates(rows=own.rows, x=x, cost=cost))
        return Candidates.joined(*parts) if parts else candidates

    def _bounds(self, own: Candidates, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Smallest and largest numbers that each candidate may have, both of shape ``(p, numbers)``."""
        rows, numbers = own.rows, self.numbers
        lower, upper = self.allowance.lower[rows][:, numbers], self.allowance.upper[rows][:, numbers]
        factual, begin = self.x[rows][:, numbers], own.x[:, numbers]
        free = self.layout.free(self.layout.codes(self.x[rows]))
        for column, least in self.least.items():
            if column in numbers:
                j = numbers.index(column)
                # A row's own number may be smaller than any that was seen.
                floor = torch.where(free[:, column], factual[:, j].clamp_max(least), least)
                lower[:, j] = torch.minimum(torch.maximum(lower[:, j], floor), upper[:, j])
        if keep is not None:
            places = [j for j, b in enumerate(self.layout.blocks) if b.number in set(numbers)]
            kept = keep[:, places]
            lower, upper = torch.where(kept, factual, lower), torch.where(kept, factual, upper)
        # Where the level says so, a number is pinned: at zero, or at the filling of a missing one.
        pinned = ~self.layout.free(self.layout.codes(own.x))[:, numbers]
        return torch.where(pinned, begin, lower), torch.where(pinned, begin, upper)

    def _problem(self, own: Candidates, keep: Tensor | None, deeper: float) -> tuple[Problem, Tensor]:
        """The program over numbers, one for each candidate, and where it starts."""
        rows, numbers = own.rows, self.numbers
        lower, upper = self._bounds(own, keep)
        begin = torch.minimum(torch.maximum(own.x[:, numbers], lower), upper)
        score, slope = self.guide.of_numbers(own.x, rows, numbers)

        def deeper_slope(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            assert slope is not None
            value, gradient = slope(z, which)
            return value - deeper, gradient

        validity, wanted, index = self.validity, self.wanted[rows], columns_index(numbers, own.x)

        def validity_value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            assert isinstance(validity, ValidityConstraint)
            value, gradient = validity.slope(assembled(own.x[which], index, z), wanted[which])
            return value, gradient.index_select(1, index)

        known = isinstance(validity, ValidityConstraint) and validity.value_and_grad is not None
        constraints = {
            "validity": Constraint(
                lambda z, which: validity(assembled(own.x[which], index, z), wanted[which]),
                VALIDITY_AIM,
                validity_value_and_grad if known else None,
            ),
            "plausibility": Constraint(
                lambda z, which: score(z, which) - deeper,
                PLAUSIBILITY_AIM,
                None if slope is None else deeper_slope,
            ),
        }
        for j in range(len(self.allowance.inequalities)):
            constraints[f"rule {j}"] = Constraint(
                lambda z, which, j=j: self.allowance.linear_values(  # type: ignore[misc]
                    assembled(own.x[which], index, z), rows[which]
                )[:, j],
                RULE_AIM,
            )
        factual = self.x[rows][:, numbers]
        weights = factual.new_tensor([self.weight_of[b.name] for b in self.mutable if b.number is not None])
        return (
            Problem(x=factual, constraints=constraints, lower=lower, upper=upper, weights=weights),
            begin,
        )
