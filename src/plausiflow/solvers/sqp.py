r"""A batched sequential quadratic program: the default solver.

The paper's problem is, for each row, a quadratic cost and two smooth inequality constraints (validity and
plausibility, Eq. 3) in a few dozen variables. Each iteration spends one value-and-gradient evaluation of
classifier and density on every active row:

1. a quadratic model of the Lagrangian
   :math:`\tfrac12 (x'-x)^\top \mathrm{diag}(w) (x'-x) - \sum_i \lambda_i g_i(x')`, with an inverse curvature
   per row, updated by damped BFGS, also from rejected trials;
2. the quadratic program of that model and the linearised constraints (:mod:`plausiflow.solvers.qp`);
3. a trust region per row, judged by the :math:`\ell_1` merit
   :math:`\text{cost} + \sum_i \nu_i \max(-g_i, 0)`;
4. the closest feasible iterate of each search is kept. A search ends when its merit stalls, and then leaves
   the batch.

Rows are independent, everything runs in double precision, and iterates are rounded to a fine grid, so a row
gets the same answer alone and in any batch.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from plausiflow.core import DEADLINE, Evaluation, LocalModel, Problem, Race, Solution, Starts, check_deadline
from plausiflow.errors import InvalidInputError
from plausiflow.progress import progress_bar
from plausiflow.solvers.cuda_graphs import SearchBatch
from plausiflow.solvers.dual import ACTIVE, multipliers
from plausiflow.solvers.iteration import SQPState, StoppingCriteria
from plausiflow.solvers.race import end_losers
from plausiflow.solvers.starts import bisect

FROM_FACTUAL, FROM_NEIGHBOUR = 4.0, 20.0
"""First curvature, in units of the cost's own: searches from a feasible neighbour begin more carefully."""
CLOSEST = 2
"""Feasible neighbours that a row starts from in mode ``fast``."""


@dataclass(frozen=True, kw_only=True)
class SQP:
    """Sequential quadratic programming, every row on its own, all rows at once.

    Attributes:
        mode: ``fast`` starts at the factual, and only rows without an answer start again from feasible
            neighbours; ``quality`` gives every row all starts and keeps the best.
        iterations: Maximum number of iterations of one search.
        patience: Iterations without progress before a search ends; three tenths once it has an answer.
        max_without_answer: Maximum number of iterations without an answer if the row has other starts.
        tolerance: Relative progress below which an iteration counts as none.
        radius: First trust radius.
        trace: Whether to keep every iterate, for figures.
    """

    mode: Literal["fast", "quality"] = "fast"
    iterations: int = 80
    patience: int = 10
    max_without_answer: int = 30
    tolerance: float = 1e-4
    radius: float = 0.3
    trace: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("fast", "quality"):
            raise InvalidInputError(f"`mode` must be 'fast' or 'quality'; got {self.mode!r}.")

    @torch.no_grad()
    def solve(self, problem: Problem, starts: Starts | None = None) -> Solution:
        """Search from the factuals, then from ``starts`` for the rows that need it."""
        exact = _in_double(problem)
        evaluation = Evaluation(exact)
        rows = torch.arange(len(exact.x), device=exact.x.device)
        best = BestPoints(exact.x)
        path: list[Tensor] | None = [] if self.trace else None
        limit = None if starts is None else self.max_without_answer
        self._search(evaluation, rows, exact.x, best, FROM_FACTUAL, max_without_answer=limit, path=path)
        if starts is not None:
            again = rows if self.mode == "quality" else rows[~torch.isfinite(best.cost)]
            if len(again):
                self._search_from(evaluation, again, starts(again).double(), best)
        answer = self._checked(problem, exact, best.x, starts)
        return Solution(x=answer, gradients=best.gradients, path=torch.stack(path) if path else None)

    @torch.no_grad()
    def improve(
        self,
        problem: Problem,
        start: Tensor,
        *,
        curvature: float = FROM_FACTUAL,
        iterations: int | None = None,
        tolerance: float | None = None,
        max_without_answer: int | None = None,
        patience: int | None = None,
        cost_limit: Tensor | None = None,
        race: Race | None = None,
        paced: bool = False,
        inverse: Tensor | None = None,
    ) -> Solution:
        """Search from one given point for each row ``(n, d)`` only; in double precision.

        Args:
            problem: The problem.
            start: Starting points.
            curvature: First curvature, in units of the cost's own.
            iterations: Instead of the solver's own setting.
            tolerance: Instead of the solver's own setting.
            max_without_answer: Iterations after which a search without an answer ends; None for all.
            patience: Instead of the solver's own setting.
            cost_limit: The highest squared distance of interest, shape ``(n,)``; a search that has to go
                beyond it ends.
            race: Which searches compete; None if none do.
            paced: Whether a search ends early that is too slow to have an answer by
                ``max_without_answer``.
            inverse: A known inverse curvature of each program's Lagrangian, shape ``(n, d, d)``. The solution
                then has a model of each program with it.
        """
        solver = replace(
            self,
            iterations=iterations or self.iterations,
            patience=patience or self.patience,
            tolerance=self.tolerance if tolerance is None else tolerance,
        )
        exact = _in_double(problem)
        evaluation = Evaluation(exact)
        best = BestPoints(exact.x, keep_ended=inverse is not None)
        rows = torch.arange(len(exact.x), device=exact.x.device)
        solver._search(
            evaluation,
            rows,
            start.double(),
            best,
            curvature,
            max_without_answer=max_without_answer,
            progress=False,
            limit=cost_limit,
            race=race,
            paced=paced,
        )
        model = None if best.ended is None or inverse is None else _model(best.ended, inverse)
        return Solution(x=best.x, gradients=best.gradients, model=model)

    def _checked(self, problem: Problem, exact: Problem, x: Tensor, starts: Starts | None) -> Tensor:
        """Round to the requested precision, and check the very numbers that are returned.

        A row without an answer that passes gets its closest start that does.
        """
        rows = torch.arange(len(x), device=x.device)
        answer = x.to(problem.x.dtype)
        answer[~exact.satisfied(torch.nan_to_num(answer).double(), rows)] = float("nan")
        failed = torch.isnan(answer).any(dim=1).nonzero()[:, 0]
        if starts is None or len(failed) == 0:
            return answer
        for candidate in starts(failed).to(answer).unbind(dim=1):
            passed = exact.satisfied(torch.nan_to_num(candidate).double(), failed)
            passed &= torch.isfinite(candidate).all(dim=1)
            use = passed & torch.isnan(answer[failed]).any(dim=1)
            answer[failed[use]] = candidate[use]
        return answer

    def _search_from(self, evaluation: Evaluation, rows: Tensor, starts: Tensor, best: BestPoints) -> None:
        """Search from up to k points per row ``(m, k, d)``, each first moved towards the factual.

        In mode ``fast`` only the closest two are searched. A row that has no start and no answer is searched
        once more from the factual, with all iterations.
        """
        problem, usable = evaluation.problem, torch.isfinite(starts).all(dim=2)
        owners = rows[:, None].expand_as(usable)
        if usable.any():
            starts[usable] = bisect(problem, problem.x[owners[usable]], starts[usable], owners[usable])
            distance = torch.linalg.vector_norm(starts - problem.x[rows][:, None], dim=2).nan_to_num(math.inf)
            count = min(CLOSEST if self.mode == "fast" else len(starts[0]), len(starts[0]))
            near = distance.topk(count, dim=1, largest=False)
            chosen = torch.zeros_like(usable).scatter_(1, near.indices, True) & usable
            self._search(evaluation, owners[chosen], starts[chosen], best, FROM_NEIGHBOUR)
        alone = rows[~usable.any(dim=1) & ~torch.isfinite(best.cost[rows])]
        if len(alone) and self.max_without_answer < self.iterations:
            self._search(evaluation, alone, problem.x[alone], best, FROM_FACTUAL)

    def _search(
        self,
        evaluation: Evaluation,
        rows: Tensor,
        start: Tensor,
        best: BestPoints,
        curvature: float,
        *,
        max_without_answer: int | None = None,
        path: list[Tensor] | None = None,
        progress: bool = True,
        limit: Tensor | None = None,
        race: Race | None = None,
        paced: bool = False,
    ) -> None:
        state = SQPState.begin(evaluation, rows, start, curvature=curvature, radius=self.radius, limit=limit)
        stopping = StoppingCriteria(
            self.tolerance,
            self.patience,
            max_without_answer=max_without_answer or self.iterations,
            paced=paced,
        )
        batch = SearchBatch(state, evaluation, stopping, record=path is None)
        bar = progress_bar("Searching rows", len(rows)) if progress else nullcontext(lambda n, text: None)
        if (over := batch.remove_ended()) is not None:  # searches without a free feature
            best.take(over)
        with bar as advance:
            for iteration in range(self.iterations):
                if path is not None:
                    path.append((path[-1] if path else start).index_copy(0, batch.state.rows, batch.state.x))
                if len(batch.state.rows) == 0:
                    break
                if DEADLINE.get() is not None:
                    check_deadline()
                if race is not None:
                    end_losers(race, batch.state, iteration)
                if (over := batch.iterate()) is not None:
                    best.take(over)
                    advance(len(over.rows), "")
        best.take(batch.state)


class BestPoints:
    """The closest feasible point of each row over all its searches.

    ``ended`` are these searches as they ended, if they are kept.
    """

    def __init__(self, x: Tensor, *, keep_ended: bool = False) -> None:
        self.ended: list[SQPState] | None = [] if keep_ended else None
        self.x = torch.full_like(x, float("nan"))
        self.cost = x.new_full((len(x),), math.inf)
        self.gradients = torch.zeros(len(x), dtype=torch.long, device=x.device)

    def take(self, ended: SQPState) -> None:
        """Take the results of searches that are closer."""
        if self.ended is not None:
            self.ended.append(ended)
        rows = ended.rows
        self.gradients.index_add_(0, rows, ended.evaluations)
        # Several searches of one row may end at once: the closest of them counts.
        lowest = self.cost.scatter_reduce(0, rows, ended.best_cost, "amin")
        better = (ended.best_cost < self.cost[rows]) & (ended.best_cost == lowest[rows])
        self.x[rows[better]], self.cost[rows[better]] = ended.best[better], ended.best_cost[better]


def _model(ended: list[SQPState], inverse: Tensor) -> LocalModel:
    """Return what searches, one for each row, knew when they ended, with a known inverse curvature."""
    names = ("rows", "x", "best", "factual", "weights", "values", "jacobian")
    parts = {name: torch.cat([getattr(state, name) for state in ended]) for name in names}
    order = torch.argsort(parts.pop("rows"))
    parts = {name: part[order] for name, part in parts.items()}
    best = parts.pop("best")
    pull = (parts["x"] - parts["factual"]) * parts["weights"]
    active = multipliers(parts["values"], parts["jacobian"], pull, inverse) > ACTIVE
    parts["x"] = torch.where(torch.isfinite(best), best, parts["x"])
    return LocalModel(**parts, inverse=inverse, active=active)


def _in_double(problem: Problem) -> Problem:
    if problem.x.dtype == torch.float64:
        return problem
    optional = {name: getattr(problem, name) for name in ("lower", "upper", "weights")}
    exact: dict[str, Any] = {k: None if value is None else value.double() for k, value in optional.items()}
    return replace(problem, x=problem.x.double(), **exact)
