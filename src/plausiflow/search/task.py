"""A search task: rows of a table, their targets, and what makes a candidate feasible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from plausiflow.constraints import Allowance, repair_numbers
from plausiflow.core import (
    CANDIDATES,
    DEADLINE,
    ImprovingSolver,
    MovingColumns,
    Problem,
    RowFunction,
    RowScores,
    Solver,
    Targets,
    ValidityConstraint,
    check_deadline,
)
from plausiflow.search.candidates import Candidates
from plausiflow.search.costs import CostModel, state_changes
from plausiflow.search.problem import build_problem
from plausiflow.search.repair import follow_rules
from plausiflow.search.reweighted import SolveSettings, solve_reweighted
from plausiflow.search.true_model import Oracle
from plausiflow.tables import Block, Layout

ANY_NUMBER = 1e-4
"""Weight of a number that has left a special value, relative to its own: it only makes the answer unique."""


MOST_CLAUSES = 4
"""Rules that a solver gets as constraints of their own; more are one constraint, the least satisfied rule."""


def _in_blocks(check: Callable[[Tensor, Tensor], Tensor], x: Tensor, rows: Tensor) -> Tensor:
    parts = [torch.zeros(0, dtype=torch.bool, device=x.device)]
    for some, chosen in zip(x.split(CANDIDATES), rows.split(CANDIDATES), strict=True):
        if DEADLINE.get() is not None:
            check_deadline()
        if len(some):
            parts.append(check(some, chosen))
    return torch.cat(parts)


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
        )

    @property
    def without_oracle(self) -> SearchTask:
        """The same task; if it has an oracle, every candidate counts as valid."""
        return self if self.oracle is None else replace(self, oracle=None, any_outcome=True)

    @property
    def y_target(self) -> Tensor:
        """Target classes, shape ``(n,)``."""
        return self.targets.y

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

    @torch.no_grad()
    def constraint_values(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return validity, plausibility and linear rules, ``(p, 2 + m)``; at least zero if satisfied."""
        parts = []
        for own, chosen in zip(x_cf.split(CANDIDATES), rows.split(CANDIDATES), strict=True):
            if DEADLINE.get() is not None:
                check_deadline()
            values = [self.validity(own, self.targets, chosen), self.scores.score(own, chosen)]
            rules = self.allowance.clause_values(own, chosen) if self.allowance.clauses else own[:, :0]
            parts.append(torch.cat([torch.stack(values, 1), rules], 1))
        return torch.cat(parts) if parts else x_cf.new_zeros(0, 2 + len(self.allowance.clauses))

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

    @torch.no_grad()
    def _valid(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        return _in_blocks(lambda own, of: self.validity(own, self.targets, of) >= 0, x_cf, rows)

    @torch.no_grad()
    def _plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        return _in_blocks(lambda own, of: self.scores.score(own, of) >= 0, x_cf, rows)

    def solve(
        self,
        candidates: Candidates,
        *,
        frozen: Tensor | None = None,
        extra_plausibility: float = 0.0,
        weights: Tensor | None = None,
        iterations: int = 40,
        curvature: float = 4.0,
        tolerance: float = 1e-3,
        max_without_answer: int | None = None,
    ) -> Candidates:
        """Move the numbers of each candidate to the cheapest feasible point near by; its categories stay.

        Args:
            candidates: Starting points.
            frozen: Features that keep the factual's value, shape ``(p, blocks)`` bool.
            extra_plausibility: How much more plausible than needed an answer must be, in nats.
            weights: Weight of the square of each number's change, instead of the task's cost, shape
                ``(p, numbers)``.
            iterations: Maximum number of iterations.
            curvature: First curvature of the solver's model, in units of the cost's own.
            tolerance: Relative progress below which an iteration counts as none.
            max_without_answer: Iterations after which a search without an answer ends; None for all.
        """
        if not self.numbers:
            return self.check(candidates, max_changes=False)
        if weights is None and self.cost_model.distance != "l2":
            settings = SolveSettings(
                extra_plausibility=extra_plausibility,
                iterations=iterations,
                curvature=curvature,
                tolerance=tolerance,
            )
            return solve_reweighted(self, candidates, frozen, settings)
        parts = []
        for start in range(0, len(candidates), CANDIDATES):
            which = torch.arange(start, min(start + CANDIDATES, len(candidates)), device=self.x.device)
            own = candidates[which]
            moving, codes = MovingColumns.of(own.x, self.numbers), self.codes_of(own.x)
            problem, begin = self._problem(
                own, moving, codes, None if frozen is None else frozen[which], extra_plausibility
            )
            if weights is not None:
                problem = replace(problem, weights=weights[which])
            if isinstance(self.solver, ImprovingSolver):
                solution = self.solver.improve(
                    problem,
                    begin,
                    curvature=curvature,
                    iterations=iterations,
                    tolerance=tolerance,
                    max_without_answer=max_without_answer,
                ).x
            else:
                solution = _solve_from(self.solver, problem, begin)
            found = torch.isfinite(solution).all(dim=1)
            assert moving.columns is not None
            x = own.x.index_copy(1, moving.columns, torch.where(found[:, None], solution, begin))
            if self.allowance.clauses:
                x = repair_numbers(self.allowance, x, own.rows)
            # If a rule forces a feature to move, a frozen value may not be allowed.
            found &= self.allowance.contains(x, own.rows, max_changes=False, codes=codes)
            cost = torch.where(found, self.costs(x, own.rows, codes), torch.inf)
            parts.append(Candidates(rows=own.rows, x=x, cost=cost))
        return Candidates.concat(*parts) if parts else candidates

    def _bounds(self, own: Candidates, codes: Tensor, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest allowed numbers of each candidate, shape ``(p, numbers)`` each."""
        rows, numbers = own.rows, self.numbers
        lower, upper = self.allowance.lower[rows][:, numbers], self.allowance.upper[rows][:, numbers]
        factual, begin = self.x[rows][:, numbers], own.x[:, numbers]
        if frozen is not None:
            places = [j for j, b in enumerate(self.layout.blocks) if b.number in self.movable]
            kept = frozen[:, places]
            lower, upper = torch.where(kept, factual, lower), torch.where(kept, factual, upper)
        # A special or missing value pins its number.
        pinned = ~self.free_numbers(codes)[:, numbers]
        return torch.where(pinned, begin, lower), torch.where(pinned, begin, upper)

    def entered(self, rows: Tensor, codes: Tensor) -> Tensor | None:
        """Return which numbers of candidates enter or leave a special value outside their range.

        Shape ``(p, numbers)``; None if no number has such a value.
        """
        if not any(any(block.apart) for block in self.mutable):
            return None
        places = [self.layout.numbers.index(column) for column in self.numbers]
        return state_changes(self.layout, self.codes[rows], codes)[:, places]

    def _problem(
        self,
        own: Candidates,
        moving: MovingColumns,
        codes: Tensor,
        frozen: Tensor | None,
        extra_plausibility: float,
    ) -> tuple[Problem, Tensor]:
        """Return the problem over the numbers of the candidates, and its starting points."""
        lower, upper = self._bounds(own, codes, frozen)
        begin = torch.minimum(torch.maximum(own.x[:, self.numbers], lower), upper)
        factual = self.x[own.rows][:, self.numbers]
        entered, weights = self.entered(own.rows, codes), self.cost_model.number_units(self.numbers) ** 2
        if entered is not None:
            # Its state has its price, so any number costs the same: the nearest feasible one to the start.
            factual = torch.where(entered, begin, factual)
            weights = torch.where(entered, ANY_NUMBER * weights, weights)

        def clause(j: int, x_cf: Tensor, which: Tensor) -> Tensor:
            return self.allowance.clause_value(j, x_cf, own.rows[which])

        equalities = self.allowance.equalities if isinstance(self.solver, ImprovingSolver) else []
        sides = {side for j in equalities for side in (j, j + 1)}
        clauses = [j for j, c in enumerate(self.allowance.clauses) if c.numeric and j not in sides]
        rules: dict[str, RowFunction] = {f"rule {j}": partial(clause, j) for j in clauses}
        if len(clauses) > MOST_CLAUSES:
            rules = {"rules": lambda x_cf, which: self._least_clause(clauses, x_cf, own.rows[which])}
        problem = build_problem(
            x=factual,
            targets=self.targets,
            validity=self.validity,
            scores=self.scores,
            moving=moving,
            rows=own.rows,
            lower=lower,
            upper=upper,
            weights=weights,
            normals=self._normals(own, equalities),
            rules=rules,
            extra_plausibility=extra_plausibility,
        )
        return problem, begin

    def _least_clause(self, clauses: list[int], x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the smallest value of some clauses, shape ``(p,)``; keeps the graph."""
        return self.allowance.clause_values(x_cf, rows)[:, clauses].amin(dim=1)

    def _normals(self, own: Candidates, equalities: list[int]) -> Tensor | None:
        """Return the gradients of equalities at the candidates, shape ``(p, equalities, numbers)``."""
        if not equalities:
            return None
        normals = []
        with torch.enable_grad():
            for j in equalities:
                x = own.x.detach().requires_grad_()
                value = self.allowance.clause_value(j, x, own.rows)
                gradient = (
                    torch.autograd.grad(value.sum(), x)[0] if value.requires_grad else torch.zeros_like(x)
                )
                normals.append(gradient[:, self.numbers])
        return torch.stack(normals, dim=1)


def _solve_from(solver: Solver, problem: Problem, begin: Tensor) -> Tensor:
    """Solve with a solver that only knows ``solve``; NaN where its answer breaks a constraint."""
    solution = solver.solve(problem, lambda rows: begin[rows][:, None]).x.to(begin)
    rows = torch.arange(len(begin), device=begin.device)
    satisfied = problem.satisfied(torch.nan_to_num(solution), rows)
    return torch.where(satisfied[:, None], solution, torch.nan)
