"""One iteration of the SQP: what each search knows, how it moves, and the closest answer it has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from plausiflow.core import Evaluated, Evaluation, Problem
from plausiflow.solvers.qp import Quadratic, Step, product

GRID = 2.0**-20
"""Iterates lie on multiples of this (features are on a scale of about one). What a matrix product rounds
differently in another batch is erased at every step instead of growing; single precision holds the answer."""
LEAST_CURVATURE = 0.05
"""Learned curvature along a step is at least this share of the cost's own: the inverse may not degenerate."""


@dataclass(frozen=True)
class StoppingCriteria:
    """When a search ends.

    Attributes:
        tolerance: Relative progress below which an iteration counts as none.
        patience: Iterations without progress before a search ends; three tenths once it has an answer.
        vain: Iterations without any answer before a search ends.
        whole: Let every search take the same operations, whatever it needs, so that a graph can hold them.
    """

    tolerance: float
    patience: int
    vain: int
    whole: bool = False


@dataclass
class SQPState:
    """One search each: where it is, what it knows, how far it trusts it. Searches never see each other.

    Attributes:
        rows: Which row of the problem each search belongs to, shape ``(n,)``.
        factual: That row, shape ``(n, d)``.
        weights: What its changes cost, shape ``(n, d)``.
        lower: Its smallest allowed values, shape ``(n, d)``; none where nothing is bounded.
        upper: Its largest allowed values, likewise.
        x: Where it is, shape ``(n, d)``.
        cost: What that costs, shape ``(n,)``.
        values: Constraint values there, minus their buffers, shape ``(n, m)``.
        jacobian: Their gradients, shape ``(n, m, d)``.
        accepted: Whether the point would do as an answer, shape ``(n,)``.
        inverse: Inverse curvature of the Lagrangian, shape ``(n, d, d)``; zero for frozen features.
        penalty: Weights of the constraints in the merit, shape ``(n, m)``.
        radius: Trust radius, shape ``(n,)``.
        fixed: Features held on a bound, shape ``(n, d)``.
        stalled: Iterations without progress, shape ``(n,)``.
        active: Whether it still searches, shape ``(n,)``.
        best: The closest feasible point that it has seen, NaN before there is one, shape ``(n, d)``.
        best_cost: What that costs, infinite before there is one, shape ``(n,)``.
        evaluations: Values and gradients spent, shape ``(n,)``.
    """

    rows: Tensor
    factual: Tensor
    weights: Tensor
    lower: Tensor | None
    upper: Tensor | None
    x: Tensor
    cost: Tensor
    values: Tensor
    jacobian: Tensor
    accepted: Tensor
    inverse: Tensor
    penalty: Tensor
    radius: Tensor
    fixed: Tensor
    stalled: Tensor
    active: Tensor
    best: Tensor
    best_cost: Tensor
    evaluations: Tensor

    @classmethod
    def begin(
        cls, evaluation: Evaluation, rows: Tensor, start: Tensor, curvature: float, radius: float
    ) -> SQPState:
        """Evaluate the starting points; the curvature is the cost's own times a factor."""
        problem = evaluation.problem
        lower, upper = (None if b is None else b[rows] for b in (problem.lower, problem.upper))
        factual, weights = problem.x[rows], _weights(problem, rows, start)
        free = torch.ones_like(start) if lower is None or upper is None else (upper > lower).to(start)
        cost = _cost(start - factual, weights)
        at = evaluation(start, rows)
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
            inverse=torch.diag_embed(free / (curvature * weights)),
            penalty=torch.full_like(at.values, 1e-3),
            radius=torch.full_like(cost, radius),
            fixed=torch.zeros_like(start, dtype=torch.bool),
            stalled=torch.zeros_like(rows),
            active=torch.ones_like(at.accepted),
            best=torch.where(at.accepted[:, None], start, math.nan),
            best_cost=torch.where(at.accepted, cost, math.inf),
            evaluations=torch.ones_like(rows),
        )

    def only(self, which: Tensor) -> SQPState:
        """Some of the searches, by number."""
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen: dict[str, Any] = {name: None if part is None else part[which] for name, part in parts.items()}
        return SQPState(**chosen)

    def iterate(self, evaluation: Evaluation, stopping: StoppingCriteria) -> None:
        """One trial of every search."""
        gap = (self.x - self.factual) * self.weights
        program = Quadratic(
            self.x, self.values, self.jacobian, gap, self.inverse, self.radius, self.lower, self.upper
        )
        answer = program.solve(self.fixed, whole=stopping.whole)
        full_length = torch.linalg.vector_norm(answer.step, dim=1)
        share = (self.radius / full_length.clamp_min(1e-30)).clamp_max(1.0)
        trial = _on_grid(self.x, answer.step * share[:, None])
        if self.lower is not None and self.upper is not None:
            trial = torch.clamp(trial, self.lower, self.upper)
        at, cost = evaluation(trial, self.rows), _cost(trial - self.factual, self.weights)
        closer = self._keep(trial, cost, at.accepted, stopping.tolerance)
        taken, progress = self._judge(trial - self.x, cost, at, answer, full_length, stopping.tolerance)
        self._move(taken, trial, cost, at, answer)
        self._retire(closer | progress, full_length, stopping)

    def _keep(self, trial: Tensor, cost: Tensor, accepted: Tensor, tolerance: float) -> Tensor:
        """Keep trials that are answers and closer; returns where they are so by more than the tolerance.

        A search that has ended keeps nothing while it waits for the others: the batch may not matter.
        """
        cost = torch.where(accepted & self.active, cost, math.inf)
        closer = cost < self.best_cost * (1 - 2 * tolerance)
        self.best = torch.where((cost < self.best_cost)[:, None], trial, self.best)
        self.best_cost = torch.minimum(cost, self.best_cost)
        self.evaluations = self.evaluations + self.active
        return closer

    def _judge(
        self, step: Tensor, cost: Tensor, at: Evaluated, answer: Step, full_length: Tensor, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        """Accept the trial if the merit falls as the model promised; adapt radius and curvature.

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
        # A fall within rounding of nothing is none: its sign would depend on the batch.
        accepted = (fall > 1e-10 * here) & (ratio > 1e-4)
        length = torch.linalg.vector_norm(step, dim=1)
        grown = torch.where(ratio > 0.6, torch.maximum(self.radius, 2 * length), self.radius)
        kept = torch.where(ratio > 0.2, grown, 0.6 * torch.minimum(self.radius, length))
        self.radius = torch.where(accepted, kept, 0.35 * length).clamp(1e-6, math.sqrt(step.shape[1]))
        bent = product(answer.multipliers[:, None], at.jacobian - self.jacobian)[:, 0]
        weighed = step * self.weights
        force = answer.force * (length / full_length.clamp_min(1e-30))[:, None]
        self._learn(step, weighed, weighed - bent, force)
        return accepted, accepted & (fall > tolerance * here.clamp_min(1e-8))

    def _learn(self, step: Tensor, weighed: Tensor, change: Tensor, force: Tensor) -> None:
        """Damped BFGS update of the inverse curvature, from how the Lagrangian's gradient changes.

        A frozen feature has no part in it: its step is zero, and so are its row and column of the inverse.
        """
        products = product(torch.stack([force, change, weighed], dim=1), step[..., None])
        bent, along, squared = products.unbind(dim=1)
        damping = (0.8 * bent / (bent - along).clamp_min(1e-30)).clamp(0, 1)
        damping = torch.where(along < 0.2 * bent, damping, 1.0)
        along = torch.lerp(bent, along, damping)
        lack = (LEAST_CURVATURE * squared - along).clamp_min(0)
        change = torch.lerp(force, change, damping)
        change = torch.addcmul(change, lack / squared.clamp_min(1e-30), weighed)
        along = along + lack
        usable = (squared > 1e-16) & (along > 1e-18) & (bent > 1e-18)
        scale = torch.where(usable, 1 / along.clamp_min(1e-30), 0.0)
        pulled = torch.bmm(self.inverse, change[..., None])
        stretch = 1 + scale * product(change[:, None], pulled)[..., 0]
        pulled = pulled[..., 0]
        own = scale * (stretch * step - pulled)
        left = torch.stack([own, -scale * step], dim=2)
        self.inverse.baddbmm_(left, torch.stack([step, pulled], dim=1))

    def _move(self, taken: Tensor, trial: Tensor, cost: Tensor, at: Evaluated, answer: Step) -> None:
        """Go where the accepted trials are."""
        self.x = torch.where(taken[:, None], trial, self.x)
        self.cost = torch.where(taken, cost, self.cost)
        self.values = torch.where(taken[:, None], at.values, self.values)
        self.jacobian = torch.where(taken[:, None, None], at.jacobian, self.jacobian)
        self.accepted = torch.where(taken, at.accepted, self.accepted)
        if self.lower is not None and self.upper is not None:
            self.fixed = answer.fixed & ((self.x <= self.lower) | (self.x >= self.upper))

    def _retire(self, progress: Tensor, full_length: Tensor, stopping: StoppingCriteria) -> None:
        """End searches that stall or that stand still on an answer."""
        self.stalled = torch.where(progress, 0, self.stalled + 1)
        answered = torch.isfinite(self.best_cost)
        patience = torch.where(answered, stopping.patience * 3 // 10, stopping.patience)
        settled = (full_length < 0.3 * stopping.tolerance) & self.accepted
        hopeful = answered | (self.evaluations <= stopping.vain)
        self.active = self.active & (self.stalled < patience) & hopeful & ~settled


def _on_grid(x: Tensor, step: Tensor) -> Tensor:
    """``x + step`` on the grid; a feature that hardly moves stays exactly where it is."""
    moved = torch.round((x + step) / GRID) * GRID
    return torch.where(step.abs() < GRID / 2, x, moved)


def _cost(gap: Tensor, weights: Tensor) -> Tensor:
    return (gap * gap * weights).sum(dim=1)


def _weights(problem: Problem, rows: Tensor, start: Tensor) -> Tensor:
    """Return the cost per feature of some rows, shaped like their starts."""
    if problem.weights is None:
        return torch.ones_like(start)
    return (problem.weights if problem.weights.ndim == 1 else problem.weights[rows]).expand(start.shape)
