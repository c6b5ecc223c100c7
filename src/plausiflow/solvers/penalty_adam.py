"""The paper's solver: Adam on distance plus weighted penalties, all rows in one batch. [PPCEF Eq. 6]

The published runs differ from the text in three ways: the batch stops as one, on its mean loss; the *last*
iterate is returned, not the best; the constraints are not checked at the end. ``PenaltyAdam.paper()`` does
the same. By default, each row stops on its own loss and returns its closest feasible iterate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from plausiflow.core import DEADLINE, Problem, Solution, Starts, check_deadline, l2_distance, penalised
from plausiflow.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class PenaltyAdam:
    r"""Minimise :math:`d(x_0, x') + \lambda (\ell_v + \ell_p)` with Adam, starting at the factual.

    Attributes:
        weight: :math:`\lambda`.
        learning_rate: Learning rate of Adam.
        steps: Maximum number of steps.
        patience: Stop if the loss has no new minimum for more than this number of steps.
        keep: ``last`` iterate, as published, or the ``best`` feasible one of each row (the last if none is).
        together: Stop all rows at once, on their mean loss, as published; else each row on its own loss.
        trace: Keep every ``trace``-th iterate for figures; 0 keeps none.
    """

    weight: float = 100.0
    learning_rate: float = 5e-3
    steps: int = 2000
    patience: int = 500
    keep: Literal["last", "best"] = "best"
    together: bool = False
    trace: int = 0

    @classmethod
    def paper(cls, *, binary_linear: bool) -> Self:
        """Return the published settings: other steps and patience for binary logistic regression."""
        steps, patience = (1000, 100) if binary_linear else (2000, 500)
        return cls(steps=steps, patience=patience, keep="last", together=True)

    @torch.enable_grad()
    def solve(self, problem: Problem, starts: Starts | None = None) -> Solution:
        """Descend from the factuals; ``starts`` is not used."""
        x = problem.x.detach()
        x_cf = x.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([x_cf], lr=self.learning_rate)
        tracker = _Tracker(x, self)
        path = []
        with progress_bar("Adam", self.steps) as advance:
            for step in range(self.steps if len(x) else 0):
                if DEADLINE.get() is not None:
                    check_deadline()
                if self.trace and step % self.trace == 0:
                    path.append(x_cf.detach().clone())
                loss, cost, satisfied = self._loss(problem, x, x_cf)
                optimizer.zero_grad(set_to_none=True)
                # The published loss is the mean of the batch; with the sum, no row depends on the others.
                (loss.mean() if self.together else loss.sum()).backward()
                tracker.update(x_cf.detach(), loss.detach(), cost.detach(), satisfied)
                optimizer.step()
                _project(x_cf, problem)
                if tracker.stop(x_cf):
                    break
                advance(1, "")
        last = x_cf.detach()
        if self.trace:
            path.append(last.clone())
        # Without `keep="best"` every cost stays infinite.
        answer = torch.where(torch.isfinite(tracker.best_cost)[:, None], tracker.best, last)
        return Solution(x=answer, gradients=tracker.steps, path=torch.stack(path) if path else None)

    def _loss(self, problem: Problem, x: Tensor, x_cf: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss and the cost of each row, and whether every penalty is zero."""
        rows = torch.arange(len(x), device=x.device)
        penalties = torch.stack([penalty(x_cf, rows) for penalty in problem.penalties.values()], dim=1)
        cost = l2_distance(x_cf, x, problem.weights)
        return penalised(cost, penalties, self.weight), cost, (penalties.detach() <= 0).all(dim=1)


class _Tracker:
    """The best iterate and the lowest loss of each row, and whether it still moves."""

    def __init__(self, x: Tensor, settings: PenaltyAdam) -> None:
        self.settings = settings
        self.best, self.best_cost = x.clone(), x.new_full((len(x),), math.inf)
        self.lowest = self.best_cost.clone()
        self.idle = torch.zeros(len(x), dtype=torch.long, device=x.device)
        self.steps = torch.zeros_like(self.idle)
        self.moving = torch.ones_like(self.idle, dtype=torch.bool)
        self.before = x

    def update(self, x_cf: Tensor, loss: Tensor, cost: Tensor, satisfied: Tensor) -> None:
        """Record an iterate, before the step from it."""
        loss = loss.mean().expand_as(loss) if self.settings.together else loss
        if self.settings.keep == "best":
            better = self.moving & satisfied & (cost < self.best_cost)
            self.best[better], self.best_cost[better] = x_cf[better], cost[better]
        self.steps += self.moving
        lower = loss < self.lowest
        self.lowest = torch.where(lower, loss, self.lowest)
        self.idle = torch.where(lower, 0, self.idle + 1)
        self.before = x_cf.clone()

    @torch.no_grad()
    def stop(self, x_cf: Tensor) -> bool:
        """Undo the step of rows that had stopped before it; return whether all rows have stopped."""
        if not bool(self.moving.all()):
            x_cf[~self.moving] = self.before[~self.moving]
        self.moving = self.moving & (self.idle <= self.settings.patience)
        return not bool(self.moving.any())


@torch.no_grad()
def _project(x_cf: Tensor, problem: Problem) -> None:
    if problem.lower is not None and problem.upper is not None:
        x_cf.copy_(torch.minimum(torch.maximum(x_cf, problem.lower), problem.upper))
