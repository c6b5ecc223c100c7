"""The paper's solver: Adam on distance plus weighted penalties, all rows in one batch. [PPCEF Eq. 6]

The published runs differ from the text in three ways that matter: the whole batch stops together, on its mean
loss; the *last* iterate is returned, not the best; nothing checks the constraints at the end.
``PenaltyAdam.paper()`` repeats that; ``keep="best"`` returns each row's closest feasible iterate instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from plausiflow.losses import l2_distance, penalised
from plausiflow.protocols import Problem, Solution, Starts


@dataclass(frozen=True, kw_only=True)
class PenaltyAdam:
    r"""Minimise :math:`d(x_0, x') + \lambda (\ell_v + \ell_p)` with Adam, starting at the factual.

    Attributes:
        weight: :math:`\lambda`.
        learning_rate: Adam's.
        steps: Most steps.
        patience: Stop when the batch's mean loss has had no new minimum for more than this many steps.
        keep: ``last`` iterate, as published, or each row's ``best`` feasible one (its last where none is).
        trace: Keep every ``trace``-th iterate for pictures; 0 keeps none.
    """

    weight: float = 100.0
    learning_rate: float = 5e-3
    steps: int = 2000
    patience: int = 500
    keep: Literal["last", "best"] = "best"
    trace: int = 0

    @classmethod
    def paper(cls, *, binary_linear: bool) -> Self:
        """As published.

        1,000 steps and patience 100 for binary logistic regression, 2,000 and 500 for every other model.
        """
        steps, patience = (1000, 100) if binary_linear else (2000, 500)
        return cls(steps=steps, patience=patience, keep="last")

    def solve(self, problem: Problem, starts: Starts | None = None) -> Solution:
        """Descend from the factuals; ``starts`` is not used."""
        x, rows = problem.x, torch.arange(len(problem.x), device=problem.x.device)
        x_cf = x.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([x_cf], lr=self.learning_rate)
        best, best_cost = x.clone(), x.new_full((len(x),), math.inf)
        lowest, without_progress, steps_taken, path = math.inf, 0, 0, []
        for step in range(self.steps if len(x) else 0):
            if self.trace and step % self.trace == 0:
                path.append(x_cf.detach().clone())
            steps_taken = step + 1
            optimizer.zero_grad(set_to_none=True)
            penalties = torch.stack([penalty(x_cf, rows) for penalty in problem.penalties.values()], dim=1)
            cost = l2_distance(x_cf, x, problem.weights)
            # The published loss is the batch's mean. Adam does not mind the scale, but its epsilon does, so
            # we keep it.
            loss = penalised(cost, penalties, self.weight).mean()
            loss.backward()
            if self.keep == "best":
                better = (penalties.detach() <= 0).all(dim=1) & (cost.detach() < best_cost)
                best[better], best_cost[better] = x_cf.detach()[better], cost.detach()[better]
            optimizer.step()
            _project(x_cf, problem)
            value = float(loss.detach())
            lowest, without_progress = (value, 0) if value < lowest else (lowest, without_progress + 1)
            if without_progress > self.patience:
                break
        last = x_cf.detach()
        if self.trace:
            path.append(last.clone())
        answer = last if self.keep == "last" else torch.where(torch.isfinite(best_cost)[:, None], best, last)
        gradients = torch.full((len(x),), steps_taken, device=x.device)
        return Solution(x=answer, gradients=gradients, path=torch.stack(path) if path else None)


@torch.no_grad()
def _project(x_cf: Tensor, problem: Problem) -> None:
    if problem.lower is not None and problem.upper is not None:
        x_cf.copy_(torch.minimum(torch.maximum(x_cf, problem.lower), problem.upper))
