"""A search task: rows of a table, their targets, and what makes a candidate feasible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plausiflow.constraints import Allowance
from plausiflow.core import (
    DEADLINE,
    Race,
    RowScores,
    ScreensCandidates,
    Solver,
    Targets,
    ValidityConstraint,
    candidates_at_once,
    check_deadline,
    checked_at_once,
)
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.costs import CostModel, state_changes
from plausiflow.search.numbers import solve_numbers
from plausiflow.search.repair import follow_rules
from plausiflow.search.reweighted import SolveSettings
from plausiflow.search.true_model import Oracle
from plausiflow.tables import Block, Layout

if TYPE_CHECKING:
    from plausiflow.search.bank import Bank


def _in_blocks(check: Callable[[Tensor, Tensor], Tensor], x: Tensor, rows: Tensor, size: int) -> Tensor:
    parts = [torch.zeros(0, dtype=torch.bool, device=x.device)]
    for some, chosen in zip(x.split(size), rows.split(size), strict=True):
        if DEADLINE.get() is not None:
            check_deadline()
        if len(some):
            parts.append(check(some, chosen))
    return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class Fallback:
    """What a row without an answer inside the margin is searched with.

    Attributes:
        scores: How plausible a candidate is, without the margin.
        bank: Training rows that are feasible without the margin.
    """

    scores: RowScores
    bank: Bank


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchTask:
    """Rows, their targets, and what makes a candidate feasible.

    Attributes:
        layout: Layout of encoded rows.
        x: The factual rows, double, shape ``(n, width)``.
        targets: Their targets.
        validity: Whether a differentiable model meets a target.
        scores: How plausible a candidate is.
        allowance: What the rules allow.
        cost_model: What changes cost.
        immutable: Features that no row may change: context of the density, and not searched.
        solver: Solver for the numbers.
        typical: A typical value of a number with special states, by column.
        partners: The most common levels of rows at each level; see :func:`~plausiflow.constraints.repair`.
        oracle: The user's own model, if ``validity`` is that of a surrogate.
        any_outcome: Whether every candidate counts as valid; for checks before the oracle is asked.
        fallback: How rows are searched that have no answer inside the margin; None if they are not.
    """

    layout: Layout
    x: Tensor
    targets: Targets
    validity: ValidityConstraint
    scores: RowScores
    allowance: Allowance
    cost_model: CostModel
    immutable: frozenset[str]
    solver: Solver
    typical: dict[int, float] = field(default_factory=dict)
    partners: Tensor | None = None
    oracle: Oracle | None = None
    any_outcome: bool = False
    fallback: Fallback | None = None

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device) -> SearchTask:
        """Move to a device; the oracle is not asked there."""
        if device == self.x.device:
            return self
        return replace(
            self,
            x=self.x.to(device),
            targets=self.targets.to(device),
            scores=self.scores.to(device),
            allowance=self.allowance.to(device),
            cost_model=self.cost_model.to(device),
            partners=None if self.partners is None else self.partners.to(device),
            fallback=self.fallback and replace(self.fallback, scores=self.fallback.scores.to(device)),
        )

    def at(self, rows: Tensor, targets: Targets | None = None) -> SearchTask:
        """Select rows, shape ``(k,)``, perhaps with other targets; a row may occur more than once.

        The surrogate takes the place of the oracle.
        """
        return replace(
            self,
            x=self.x[rows],
            targets=self.targets[rows] if targets is None else targets,
            scores=self.scores.at(rows),
            allowance=self.allowance.at(rows),
            oracle=None,
            fallback=None,
        )

    def repeated(self, rows: Tensor) -> SearchTask:
        """Select rows, in order, which may repeat; those of a row share what is left of its budget."""
        return replace(
            self.at(rows),
            oracle=None if self.oracle is None else self.oracle.repeated(rows),
            fallback=self.fallback and replace(self.fallback, scores=self.fallback.scores.at(rows)),
        )

    def without_margin(self, fallback: Fallback) -> SearchTask:
        """Return the task of rows that have no answer inside the margin."""
        return replace(self, scores=fallback.scores, fallback=None)

    @property
    def without_oracle(self) -> SearchTask:
        """The same task; if it has an oracle, every candidate counts as valid."""
        return self if self.oracle is None else replace(self, oracle=None, any_outcome=True)

    @property
    def y_target(self) -> Tensor:
        """Target classes, shape ``(n,)``."""
        return self.targets.y

    @cached_property
    def at_once(self) -> int:
        """How many candidates are solved at once."""
        return candidates_at_once(self.x)

    @cached_property
    def checked(self) -> int:
        """How many candidates are checked at once."""
        return checked_at_once(self.x)

    @cached_property
    def block_columns(self) -> Tensor:
        """Which columns belong to each feature, shape ``(blocks, width)`` bool."""
        columns = torch.zeros(len(self.layout.blocks), self.layout.width, dtype=torch.bool)
        for j, block in enumerate(self.layout.blocks):
            columns[j, block.columns] = True
        return columns.to(self.x.device)

    @cached_property
    def codes(self) -> Tensor:
        """Levels of the factual rows, shape ``(n, features with levels)``."""
        return self.codes_of(self.x)

    def codes_of(self, x: Tensor) -> Tensor:
        """Return the levels of encoded rows, shape ``(p, features with levels)``."""
        if not self.layout.with_levels:
            return torch.zeros(len(x), 0, dtype=torch.long, device=x.device)
        return self.layout.codes(x)

    def with_codes(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return a copy of encoded rows at these levels, with the numbers that they pin."""
        return self.layout.with_codes(x, codes) if self.layout.with_levels else x.clone()

    @cached_property
    def free(self) -> Tensor:
        """Numbers of the factual rows that their levels leave free, shape ``(n, width)``."""
        return self.free_numbers(self.codes)

    def free_numbers(self, codes: Tensor) -> Tensor:
        """Return which numbers are free at these levels, shape ``(n, width)``."""
        free = self.layout.always_free
        return self.layout.free(codes) if free is None else free.to(codes.device).expand(len(codes), -1)

    @cached_property
    def mutable(self) -> tuple[Block, ...]:
        """Blocks of the features that may change."""
        return tuple(block for block in self.layout.blocks if block.name not in self.immutable)

    @cached_property
    def numbers(self) -> list[int]:
        """Columns of the numbers that may change."""
        return [block.number for block in self.mutable if block.number is not None]

    @cached_property
    def number_blocks(self) -> list[int]:
        """Places of the features of ``numbers`` among the blocks, in order."""
        return [j for j, block in enumerate(self.layout.blocks) if block.number in self.movable]

    @cached_property
    def movable(self) -> frozenset[int]:
        """The columns of ``numbers`` as a set."""
        return frozenset(self.numbers)

    @property
    def weight_of(self) -> dict[str, float]:
        """The weight of each feature by name."""
        return self.cost_model.weight_of

    def with_levels_of(self, real: Candidates) -> Tensor:
        """Return the factual rows at the levels of candidates, whose numbers replace pinned ones."""
        codes, x = self.codes_of(real.x), self.x[real.rows]
        kept = self.free[real.rows] | ~self.free_numbers(codes)
        return self.with_codes(torch.where(kept, x, real.x), codes)

    def repair(self, candidates: Candidates, keep: Tensor | None = None) -> Candidates:
        """Return candidates in which features follow the ones that rules tie them to.

        ``keep`` are features that stay as they are, shape ``(p, blocks)``; by default those that differ from
        the factual row.
        """
        return replace(candidates, x=self.repaired(candidates.x, candidates.rows, keep))

    def repaired(self, x: Tensor, rows: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return encoded candidates as :meth:`repair` does."""
        return follow_rules(self, x, rows, keep)

    def candidates(self, rows: Tensor, x: Tensor) -> Candidates:
        """Return candidates that are not checked yet."""
        return Candidates(rows=rows, x=x, cost=x.new_full((len(x),), torch.inf))

    def costs(self, x_cf: Tensor, rows: Tensor, codes: Tensor | None = None) -> Tensor:
        """Return the cost of candidates ``(p, width)`` with levels ``codes``, shape ``(p,)``."""
        codes = self.codes_of(x_cf) if codes is None else codes
        return self.cost_model((self.x[rows], self.codes[rows]), (x_cf, codes))

    def cost_sums(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the sums that the cost of candidates is made of, ``(p, 2)``; see :class:`CostModel`."""
        return self.cost_model.sums((self.x[rows], self.codes[rows]), (x_cf, self.codes_of(x_cf)))

    @torch.no_grad()
    def constraint_values(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return validity, plausibility and linear rules, ``(p, 2 + m)``; at least zero if satisfied."""
        parts, size = [], self.checked
        for own, chosen in zip(x_cf.split(size), rows.split(size), strict=True):
            if DEADLINE.get() is not None:
                check_deadline()
            values = [self.validity(own, self.targets, chosen), self.scores.score(own, chosen)]
            rules = self.allowance.clause_values(own, chosen) if self.allowance.clauses else own[:, :0]
            parts.append(torch.cat([torch.stack(values, 1), rules], 1))
        return torch.cat(parts) if parts else x_cf.new_zeros(0, 2 + len(self.allowance.clauses))

    @torch.no_grad()
    def model_value(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return how far inside the target the model puts points, shape ``(p,)``; its own trees if known."""
        trees = None if self.oracle is None else self.oracle.true_model.tree_outputs
        if trees is None:
            return self.validity(x_cf, self.targets, rows)
        return self.validity.criterion.value(trees(x_cf), self.targets[rows])

    @cached_property
    def own_value(self) -> Tensor:
        """How far inside its target the model puts each factual row, shape ``(n,)``; negative outside."""
        return self.model_value(self.x, torch.arange(len(self), device=self.x.device))

    def check(self, candidates: Candidates, *, max_changes: bool = True) -> Candidates:
        """Return the candidates with their cost, infinite where one is not feasible.

        ``max_changes=False`` ignores the limit on the number of changed features.
        """
        x, rows = candidates.x, candidates.rows
        codes = self.codes_of(x)
        feasible = self.allowance.contains(x, rows, max_changes=max_changes, codes=codes)
        # The oracle is asked last, and only about what is left.
        checks: list[Callable[[Tensor, Tensor], Tensor]] = [self._plausible]
        if self.oracle is not None:
            checks.append(self.oracle.valid)
        elif not self.any_outcome:
            checks.insert(0, self._valid)
        for check in checks:
            left = feasible.nonzero()[:, 0]
            feasible[left] = check(x[left], rows[left])
        return replace(candidates, cost=torch.where(feasible, self.costs(x, rows, codes), torch.inf))

    def cheapest_feasible(
        self, candidates: Candidates, count: int, *, max_changes: bool = True
    ) -> Candidates:
        """Return the cheapest ``count`` feasible candidates of each row, of many that are not checked yet.

        Most of many candidates are clearly implausible, which costs less to find out than a check.
        """
        if self.oracle is not None or not isinstance(self.scores, ScreensCandidates):
            return self.check(candidates, max_changes=max_changes).feasible.unique().cheapest(count)
        left = self._screened(candidates, max_changes).unique()
        found, checked = self.candidates(left.rows[:0], left.x[:0]), count
        while len(left):
            chosen, checked = cheapest(left.rows, left.cost, checked), 2 * checked
            own = left[chosen]
            found = Candidates.concat(found, own[self._plausible(own.x, own.rows)]).cheapest(count)
            enough = torch.bincount(found.rows, minlength=len(self)) >= count
            others = ~enough[left.rows]
            others[chosen] = False
            left = left[others.nonzero()[:, 0]]
        return found

    @torch.no_grad()
    def _screened(self, candidates: Candidates, max_changes: bool) -> Candidates:
        """Return the allowed and valid candidates that are not clearly implausible, with their cost."""
        codes = self.codes_of(candidates.x)
        may = self.allowance.contains(candidates.x, candidates.rows, max_changes=max_changes, codes=codes)
        checks = [] if self.any_outcome else [self._valid]
        for check in (*checks, self._may_be_plausible):
            left = may.nonzero()[:, 0]
            may[left] = check(candidates.x[left], candidates.rows[left])
        left = may.nonzero()[:, 0]
        own = candidates[left]
        return replace(own, cost=self.costs(own.x, own.rows, codes[left]))

    @torch.no_grad()
    def _valid(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        def valid(own: Tensor, of: Tensor) -> Tensor:
            return self.validity(own, self.targets, of) >= 0

        return _in_blocks(valid, x_cf, rows, self.checked)

    def _may_be_plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        assert isinstance(self.scores, ScreensCandidates)
        return _in_blocks(self.scores.may_be_plausible, x_cf, rows, self.checked)

    @torch.no_grad()
    def _plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        return _in_blocks(lambda own, of: self.scores.score(own, of) >= 0, x_cf, rows, self.checked)

    def room_for_numbers(self, own: Candidates, limits: Tensor) -> Tensor:
        """Return the squared distance of numbers at which a candidate costs its limit; for ``l2``."""
        before, after = (self.x[own.rows], self.codes[own.rows]), (own.x, self.codes_of(own.x))
        return self.cost_model.room_for_numbers(before, after, limits)

    def race(self, own: Candidates, answers: int) -> Race | None:
        """Return how the candidates of a row compete; None for distances that are not ``l2``."""
        if self.cost_model.distance != "l2":
            return None
        before, after = (self.x[own.rows], self.codes[own.rows]), (own.x, self.codes_of(own.x))
        return Race(own.rows, self.cost_model.with_numbers(before, after), answers)

    def solve(
        self,
        candidates: Candidates,
        *,
        frozen: Tensor | None = None,
        extra_plausibility: float | Tensor = 0.0,
        weights: Tensor | None = None,
        iterations: int = 40,
        curvature: float = 4.0,
        tolerance: float = 1e-3,
        max_without_answer: int | None = None,
        limits: Tensor | None = None,
        answers: int | None = None,
        paced: bool = False,
    ) -> Candidates:
        """Move the numbers of each candidate to the cheapest feasible point near by; its categories stay.

        ``frozen`` are features that keep the factual's value, shape ``(p, blocks)``; ``weights`` are those of
        the squares of the numbers' changes, instead of the task's cost, shape ``(p, numbers)``; ``limits``
        are the highest costs of interest, shape ``(p,)``. For the others see :class:`SolveSettings`.
        """
        settings = SolveSettings(
            extra_plausibility=extra_plausibility,
            iterations=iterations,
            curvature=curvature,
            tolerance=tolerance,
            max_without_answer=max_without_answer,
            answers=answers,
            paced=paced,
        )
        return solve_numbers(self, candidates, frozen, weights, limits, settings)

    def entered(self, rows: Tensor, codes: Tensor) -> Tensor | None:
        """Return which numbers of candidates enter or leave a special value outside their range.

        Shape ``(p, numbers)``; None if no number has such a value.
        """
        if not any(any(block.apart) for block in self.mutable):
            return None
        places = [self.layout.numbers.index(column) for column in self.numbers]
        return state_changes(self.layout, self.codes[rows], codes)[:, places]
