r"""The cheapest numbers in an L1 distance, by solvers that minimise a weighted sum of squares.

:math:`u |\delta| \le \tfrac12 u (\delta^2 / c + c)`, with equality at :math:`c = |\delta|`. So each round
solves with the weights :math:`u_j / |\delta_j|` of the answer so far, and its cost falls (iteratively
reweighted least squares): small changes become expensive, and the answer moves to few features, as the L1
optimum does. Later rounds use a higher power, which ends a slow race between features that are almost equally
cheap; what counts is the true cost, and an answer is replaced only by a cheaper one. At the end small changes
are reset, and the others are solved once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates

if TYPE_CHECKING:
    from plausiflow.search.task import SearchTask

RESTORING = 300.0
"""A first curvature at which the first steps are the shortest ones back to what is feasible."""
ROUNDS = ((0.1, 1.0), (0.03, 1.0), (0.01, 1.5), (0.003, 2.0), (0.001, 2.0))
"""What counts as a small change, as a share of the largest, and the power of the weights."""
ITERATIONS, CURVATURE = 12, 8.0
SMALL, RESETS = 0.02, 2
"""Changes that cost less than this share of all changes are reset at the end."""
LEAST_GAIN, SAME_COST = 1e-4, 1e-3
LARGEST_WEIGHT = 1e5
ENTERED = 0.01
"""Slope of a number that has left a special value, as a share: its value is free, but a solver needs one."""


@dataclass(frozen=True, kw_only=True)
class SolveSettings:
    """Settings of one call of :meth:`SearchTask.solve`.

    Attributes:
        extra_plausibility: How much more plausible than needed answers must be, in nats; may be ``(p,)``.
        iterations: Maximum number of iterations.
        curvature: First curvature of the solver's model, in units of the cost's own.
        tolerance: Relative progress below which an iteration counts as none.
        max_without_answer: Iterations after which a search without an answer ends; None for all.
        patience: Iterations without progress before a search ends; None for the solver's own.
        answers: How many answers of each row are wanted, if its candidates compete; None if they do not.
        paced: Whether a search ends early that is too slow to have an answer by ``max_without_answer``.
    """

    extra_plausibility: float | Tensor = 0.0
    iterations: int = 40
    curvature: float = 4.0
    tolerance: float = 1e-3
    max_without_answer: int | None = None
    patience: int | None = None
    answers: int | None = None
    paced: bool = False

    def at(self, which: Tensor) -> SolveSettings:
        """Return the settings of some of the candidates."""
        extra = self.extra_plausibility
        return replace(self, extra_plausibility=extra[which]) if isinstance(extra, Tensor) else self


def solve_reweighted(
    task: SearchTask, candidates: Candidates, frozen: Tensor | None, settings: SolveSettings
) -> Candidates:
    """Return what :meth:`SearchTask.solve` returns, with numbers that are cheap in an L1 distance."""
    best = _solve(task, candidates, frozen, _first_weights(task, candidates), settings)
    left = torch.isfinite(best.cost).nonzero()[:, 0]
    again = replace(settings, iterations=min(ITERATIONS, settings.iterations), curvature=CURVATURE)
    for small, power in ROUNDS:
        if len(left) == 0:
            break
        own = best[left]
        weights = _weights(task, own, small, power)
        solved = _solve(task, own, None if frozen is None else frozen[left], weights, again.at(left))
        best, better = _take(best, left, solved)
        # A race that stands still at a low power may go on at a higher one.
        left = left[better] if power > 1 else left
    for _ in range(RESETS):
        best = _reset_small(task, best, frozen, again)
    return best


def _solve(
    task: SearchTask, candidates: Candidates, frozen: Tensor | None, weights: Tensor, settings: SolveSettings
) -> Candidates:
    return task.solve(
        candidates,
        frozen=frozen,
        weights=weights,
        extra_plausibility=settings.extra_plausibility,
        iterations=settings.iterations,
        curvature=settings.curvature,
        tolerance=settings.tolerance,
    )


def _take(
    best: Candidates, where: Tensor, solved: Candidates, gain: float = LEAST_GAIN
) -> tuple[Candidates, Tensor]:
    """Replace candidates by cheaper ones; return them, and which were replaced."""
    better = solved.cost < best.cost[where] * (1 - gain)
    x, cost = best.x.clone(), best.cost.clone()
    x[where[better]], cost[where[better]] = solved.x[better], solved.cost[better]
    return replace(best, x=x, cost=cost), better


def _spent(task: SearchTask, own: Candidates) -> tuple[Tensor, Tensor]:
    """Return what a unit of each number costs, and about what its change costs, ``(p, numbers)`` each."""
    z = own.x[:, task.numbers]
    slopes = task.cost_model.number_slopes(task.numbers, z)
    entered = task.entered(own.rows, task.codes_of(own.x))
    if entered is not None:
        slopes = torch.where(entered, ENTERED * slopes, slopes)
    return slopes, slopes * (z - task.x[own.rows][:, task.numbers]).abs()


def _first_weights(task: SearchTask, own: Candidates) -> Tensor:
    slopes, _ = _spent(task, own)
    return _normalised(slopes * slopes)


def _weights(task: SearchTask, own: Candidates, small: float, power: float) -> Tensor:
    slopes, spent = _spent(task, own)
    largest = spent.amax(dim=1, keepdim=True).clamp_min(1e-12)
    return _normalised(slopes * slopes * (largest / (spent + small * largest)) ** power)


def _normalised(weights: Tensor) -> Tensor:
    """Return weights of at least one: solvers expect costs of about that size."""
    return (weights / weights.amin(dim=1, keepdim=True)).clamp_max(LARGEST_WEIGHT)


def _reset_small(
    task: SearchTask, best: Candidates, frozen: Tensor | None, settings: SolveSettings
) -> Candidates:
    """Reset small changes of numbers where the rest can make up for them at a lower cost."""
    _, spent = _spent(task, best)
    small = (spent > 0) & (spent < SMALL * spent.sum(dim=1, keepdim=True))
    where = (small.any(dim=1) & torch.isfinite(best.cost)).nonzero()[:, 0]
    if len(where) == 0:
        return best
    own, held = best[where], small[where]
    places = [j for j, block in enumerate(task.layout.blocks) if block.number in task.movable]
    kept = torch.zeros(len(where), len(task.layout.blocks), dtype=torch.bool, device=held.device)
    kept[:, places] = held
    kept = kept if frozen is None else kept | frozen[where]
    z = torch.where(held, task.x[own.rows][:, task.numbers], own.x[:, task.numbers])
    x = own.x.index_copy(1, torch.tensor(task.numbers, device=z.device), z)
    weights = _weights(task, own, *ROUNDS[-1])
    # Fewer changes at the same cost, up to the precision of a solver, are better.
    return _take(best, where, _solve(task, replace(own, x=x), kept, weights, settings.at(where)), -SAME_COST)[
        0
    ]
