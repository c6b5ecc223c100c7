"""One iteration of the SQP: the state of each search, its update, and the closest feasible point so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.core import Evaluated, Evaluation, Problem
from plausiflow.solvers.qp import Quadratic, Step, product

GRID = 2.0**-20
"""Iterates are multiples of this number (features have a scale of about one). A matrix product rounds
differently in another batch; the grid removes the difference at every step. Single precision holds it."""
CLEARLY = 1e-3
"""By how much a constraint is clearly broken."""
EXPECTED_AFTER, SURPLUS = 3, 1.0
"""Evaluations after which what a quadratic program expects of an answer counts, and by how much more than its
limit it may cost."""
PACED_FROM = 1 / 3
"""The share of its iterations after which the pace of a search counts."""
MIN_CURVATURE = 0.05
"""Minimum curvature along a step, as a share of the cost's own; keeps the inverse well conditioned."""


@dataclass(frozen=True)
class StoppingCriteria:
    """When a search ends, and whether all searches run the same operations; see :class:`SQP`."""

    tolerance: float
    patience: int
    max_without_answer: int
    paced: bool = False  # whether a search also ends that is too slow to have an answer by then
    uniform: bool = False  # the same operations for every search, so that a CUDA graph can record them


@dataclass
class SQPState:
    """The state of n independent searches of points with d features under m constraints."""

    rows: Tensor  # row of the problem that a search belongs to, (n,)
    factual: Tensor  # (n, d)
    weights: Tensor  # cost per feature, (n, d)
    lower: Tensor | None  # bounds, (n, d); None if nothing is bounded
    upper: Tensor | None
    x: Tensor  # current point, (n, d)
    cost: Tensor  # its cost, (n,)
    values: Tensor  # its constraint values minus their buffers, (n, m)
    jacobian: Tensor  # their gradients, (n, m, d)
    accepted: Tensor  # whether it is feasible, (n,)
    inverse: Tensor  # inverse curvature of the Lagrangian, (n, d, d); zero for frozen features
    penalty: Tensor  # weights of the constraints in the merit, (n, m)
    radius: Tensor  # trust radius, (n,)
    fixed: Tensor  # features fixed on a bound, (n, d)
    stalled: Tensor  # iterations without progress, (n,)
    active: Tensor  # whether the search goes on, (n,)
    best: Tensor  # closest feasible point so far, (n, d); NaN before there is one
    best_cost: Tensor  # its cost, (n,); infinite before there is one
    evaluations: Tensor  # number of evaluations, (n,)
    limit: Tensor | None  # the highest cost of interest, (n,); None if any cost is
    expected: Tensor  # the cost that the last quadratic program expects of an answer, (n,)
    farthest: Tensor  # the largest violation so far, (n,); only of paced searches

    @classmethod
    def begin(
        cls,
        evaluation: Evaluation,
        rows: Tensor,
        start: Tensor,
        *,
        curvature: float,
        radius: float,
        limit: Tensor | None = None,
    ) -> SQPState:
        """Evaluate the starting points; ``curvature`` is a multiple of that of the cost."""
        problem = evaluation.problem
        lower, upper = (None if b is None else b[rows] for b in (problem.lower, problem.upper))
        factual, weights = problem.x[rows], expanded_weights(problem, rows, start)
        free = torch.ones_like(start) if lower is None or upper is None else (upper > lower).to(start)
        cost = _cost(start - factual, weights)
        at = evaluation(start, rows)
        inverse = torch.diag_embed(free / (curvature * weights))
        return cls(
            rows=rows,
            factual=factual,
            weights=weights,
            lower=lower,
            upper=upper,
            x=start.clone(),
            cost=cost,
            values=at.values,
            jacobian=at.jacobian,
            accepted=at.accepted,
            inverse=orthogonal(inverse, problem.normals, rows),
            penalty=torch.full_like(at.values, 1e-3),
            radius=torch.full_like(cost, radius),
            fixed=torch.zeros_like(start, dtype=torch.bool),
            stalled=torch.zeros_like(rows),
            active=free.any(dim=1),  # without a free feature the start is all there is
            best=torch.where(at.accepted[:, None], start, math.nan),
            best_cost=torch.where(at.accepted, cost, math.inf),
            evaluations=torch.ones_like(rows),
            limit=limit,
            expected=cost.clone(),
            farthest=torch.zeros_like(cost),
        )

    def select(self, which: Tensor) -> SQPState:
        """Return some of the searches, by number."""
        parts: Iterable[Tensor | None] = vars(self).values()  # in the order of the fields
        return SQPState(*(None if part is None else part[which] for part in parts))  # type: ignore[arg-type]

    def iterate(self, evaluation: Evaluation, stopping: StoppingCriteria) -> None:
        """Compute and judge one trial point of every search.

        A search that has ended stays as it is: how long it stays in the batch depends on other searches.
        """
        gap = self.x - self.factual
        program = Quadratic(
            self.x,
            self.values,
            self.jacobian,
            gap * self.weights,
            self.inverse,
            self.radius,
            self.lower,
            self.upper,
        )
        answer = program.solve(self.fixed, uniform=stopping.uniform)
        self.expected = _cost(gap.add_(answer.step), self.weights)
        full_length = torch.linalg.vector_norm(answer.step, dim=1)
        share = (self.radius / full_length.clamp_min(1e-30)).clamp_max(1.0)
        trial = _on_grid(self.x, answer.step * share[:, None])
        if self.lower is not None and self.upper is not None:
            trial = torch.clamp(trial, self.lower, self.upper)
        at, cost = evaluation(trial, self.rows), _cost(trial - self.factual, self.weights)
        closer = self._update_best(trial, cost, at.accepted, stopping.tolerance)
        step, radius, fixed = trial - self.x, self.radius, self.fixed
        taken, progress = self._judge(step, cost, at, answer, full_length, stopping.tolerance)
        self._move(taken, trial, cost, at, answer, uniform=stopping.uniform)
        # Without a step, and with the same radius and fixed features, the next iteration is this one again.
        repeats = (step == 0).all(dim=1) & (self.radius == radius) & (self.fixed == fixed).all(dim=1)
        self.active = self.active & ~repeats
        self._end(closer | progress, full_length, stopping)

    def _update_best(self, trial: Tensor, cost: Tensor, accepted: Tensor, tolerance: float) -> Tensor:
        """Keep feasible trials that are closer; return which are closer by more than the tolerance."""
        cost = torch.where(accepted & self.active, cost, math.inf)
        closer = cost < self.best_cost * (1 - 2 * tolerance)
        self.best = torch.where((cost < self.best_cost)[:, None], trial, self.best)
        self.best_cost = torch.minimum(cost, self.best_cost)
        self.evaluations = self.evaluations + self.active
        return closer

    def _judge(
        self, step: Tensor, cost: Tensor, at: Evaluated, answer: Step, full_length: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        """Accept trials whose merit falls as predicted; update the penalty, the radius and the curvature.

        Returns which trials are accepted, and which of them are progress.
        """
        self.penalty = torch.maximum(0.97 * self.penalty, 1.5 * answer.multipliers + 1e-4)
        predicted = self.values + product(self.jacobian, step[..., None])[..., 0]
        broken = torch.stack([self.values, at.values, predicted]).neg_().clamp_min_(0)
        here, there, model = broken.mul_(self.penalty).sum(dim=2).unbind()
        here = torch.add(here, self.cost, alpha=0.5)
        left = torch.sub(here, cost, alpha=0.5)
        fall = left - there
        ratio = fall / (left - model).clamp_min(1e-12)
        # A fall of the size of a rounding error does not count: its sign would depend on the batch.
        accepted = (fall > 1e-10 * here) & (ratio > 1e-4) & self.active
        length = torch.linalg.vector_norm(step, dim=1)
        grown = torch.where(ratio > 0.6, torch.maximum(self.radius, 2 * length), self.radius)
        kept = torch.where(ratio > 0.2, grown, 0.6 * torch.minimum(self.radius, length))
        self.radius = torch.where(accepted, kept, 0.35 * length).clamp(1e-6, math.sqrt(step.shape[1]))
        bent = product(answer.multipliers[:, None], at.jacobian - self.jacobian)[:, 0]
        weighed = step * self.weights
        force = answer.force * (length / full_length.clamp_min(1e-30))[:, None]
        self._update_inverse(step, weighed, weighed - bent, force)
        return accepted, accepted & (fall > tolerance * here.clamp_min(1e-8))

    def _update_inverse(self, step: Tensor, weighed: Tensor, change: Tensor, force: Tensor) -> None:
        """Update the inverse curvature by damped BFGS, from the change of the Lagrangian's gradient.

        Frozen features stay at zero: their step is zero, and so are their rows and columns of the inverse.
        """
        products = product(torch.stack([force, change, weighed], dim=1), step[..., None])
        bent, along, squared = products.unbind(dim=1)
        damping = (0.8 * bent / (bent - along).clamp_min(1e-30)).clamp(0, 1)
        damping = torch.where(along < 0.2 * bent, damping, 1.0)
        along = torch.lerp(bent, along, damping)
        lack = (MIN_CURVATURE * squared - along).clamp_min(0)
        change = torch.lerp(force, change, damping)
        change = torch.addcmul(change, lack / squared.clamp_min(1e-30), weighed)
        along = along + lack
        usable = (squared > 1e-16) & (along > 1e-18) & (bent > 1e-18) & self.active[:, None]
        scale = torch.where(usable, 1 / along.clamp_min(1e-30), 0.0)
        pulled = torch.bmm(change[:, None], self.inverse)[:, 0]
        stretch = 1 + scale * product(change[:, None], pulled[..., None])[..., 0]
        own = scale * (stretch * step - pulled)
        left = torch.stack([own, -scale * step], dim=2)
        self.inverse.baddbmm_(left, torch.stack([step, pulled], dim=1))

    def _move(
        self, taken: Tensor, trial: Tensor, cost: Tensor, at: Evaluated, answer: Step, *, uniform: bool
    ) -> None:
        """Move to the accepted trials."""
        if not uniform and bool(taken.all()):
            self.x, self.cost = trial, cost
            self.values, self.jacobian, self.accepted = at
        else:
            self.x = torch.where(taken[:, None], trial, self.x)
            self.cost = torch.where(taken, cost, self.cost)
            self.values = torch.where(taken[:, None], at.values, self.values)
            self.jacobian = torch.where(taken[:, None, None], at.jacobian, self.jacobian)
            self.accepted = torch.where(taken, at.accepted, self.accepted)
        if self.lower is not None and self.upper is not None:
            self.fixed = answer.fixed & ((self.x <= self.lower) | (self.x >= self.upper))

    def _end(self, progress: Tensor, full_length: Tensor, stopping: StoppingCriteria) -> None:
        """End searches that stall, that converged, or that spent their budget without an answer."""
        self.stalled = (self.stalled + 1).masked_fill_(progress, 0)
        answered = self.best_cost < math.inf
        shorter = stopping.patience - stopping.patience * 3 // 10
        goes_on = torch.add(self.stalled, answered, alpha=shorter) < stopping.patience
        hopeless = self.evaluations > stopping.max_without_answer
        if stopping.paced:
            hopeless |= self._is_too_slow(stopping.max_without_answer)
        if self.limit is not None:
            # A point that costs too much and still breaks a constraint: an answer costs even more.
            broken = (self.values < -CLEARLY).any(dim=1)
            expensive = (self.cost > self.limit) | (
                (self.expected > SURPLUS * self.limit) & (self.evaluations > EXPECTED_AFTER)
            )
            hopeless |= expensive & broken
        settled = (full_length < 0.3 * stopping.tolerance) & self.accepted
        self.active = self.active & goes_on & (answered | ~hopeless) & ~settled

    def _is_too_slow(self, most: int) -> Tensor:
        """Return which searches need more than ``most`` iterations at their mean pace, after a third of them.

        The pace is that from the largest violation so far, because a first step may go too far.
        """
        done = (self.evaluations - 1) / most
        violation = (-self.values).clamp_min(0).sum(dim=1)
        self.farthest = torch.maximum(self.farthest, violation)
        early = self.evaluations - 1 < PACED_FROM * most
        return ~early & (violation > (1 - done) * self.farthest)


def _on_grid(x: Tensor, step: Tensor) -> Tensor:
    """Return ``x + step`` on the grid; a feature that moves less than half a grid step stays as it is."""
    moved = (x + step).div_(GRID).round_().mul_(GRID)
    return torch.where(step.abs() < GRID / 2, x, moved)


def _cost(gap: Tensor, weights: Tensor) -> Tensor:
    return (gap * gap).mul_(weights).sum(dim=1)


def orthogonal(inverse: Tensor, normals: Tensor | None, rows: Tensor) -> Tensor:
    """Return an inverse curvature whose steps are orthogonal to some directions, one after another.

    Updates of the curvature keep this: they only add multiples of steps.
    """
    if normals is None:
        return inverse
    for k in range(normals.shape[1]):
        direction = normals[rows, k].to(inverse)[..., None]
        moved = (inverse * direction.mT).sum(dim=2, keepdim=True)
        length = (direction * moved).sum(dim=1, keepdim=True)
        share = torch.where(length > 1e-9, 1 / length.clamp_min(1e-9), 0.0)
        inverse = inverse - share * moved * moved.mT
    return inverse


def expanded_weights(problem: Problem, rows: Tensor, start: Tensor) -> Tensor:
    """Return the cost per feature of some rows, shaped like their starts."""
    if problem.weights is None:
        return torch.ones_like(start)
    return (problem.weights if problem.weights.ndim == 1 else problem.weights[rows]).expand(start.shape)
