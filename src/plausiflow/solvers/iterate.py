"""One iteration of the SQP: what each row knows, how it moves, and the closest feasible point it has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from plausiflow.protocols import Problem
from plausiflow.solvers.quadratic import Quadratic, shortened

GRID = 2.0**-20
"""Iterates lie on multiples of this (features are on a scale of about one). What a matrix product rounds
differently in another batch is erased at every step instead of growing; single precision holds the answer."""
LEAST_CURVATURE = 0.05
"""Learned curvature along a step is at least this share of the cost's own: the inverse may not degenerate."""


class Best:
    """The closest feasible point of each row so far."""

    def __init__(self, x: Tensor) -> None:
        self.x = torch.full_like(x, float("nan"))
        self.cost = x.new_full((len(x),), math.inf)
        self.gradients = torch.zeros(len(x), dtype=torch.long, device=x.device)

    def offer(self, problem: Problem, state: State, x: Tensor, accepted: Tensor, tolerance: float) -> Tensor:
        """Take what is accepted, active and closer; returns where it is closer by more than the tolerance."""
        rows = state.rows
        self.gradients.index_add_(0, rows, state.active.long())
        cost = torch.where(accepted & state.active, _cost(problem, rows, x), math.inf)
        # Several starts of one row may be in the batch: the closest of them is the one that counts.
        lowest = self.cost.scatter_reduce(0, rows, cost, "amin")
        better = (cost < self.cost[rows]) & (cost == lowest[rows])
        significant = cost < self.cost[rows] * (1 - 2 * tolerance)
        self.x[rows[better]], self.cost[rows[better]] = x[better], cost[better]
        return significant


@dataclass
class State:
    """One search of each active row: where it is, what it knows, how far it trusts it.

    Attributes:
        rows: Which row of the problem each search belongs to, shape ``(n,)``.
        x: Where it is, shape ``(n, d)``.
        values: Constraint values there, minus their aims, shape ``(n, m)``.
        jacobian: Their gradients, shape ``(n, m, d)``.
        accepted: Whether the point would do as an answer, shape ``(n,)``.
        inverse: Inverse curvature of the Lagrangian, shape ``(n, d, d)``; zero for frozen features.
        penalty: Weights of the constraints in the merit, shape ``(n, m)``.
        radius: Trust radius, shape ``(n,)``.
        stalled: Iterations without progress, shape ``(n,)``.
        active: Whether it still searches, shape ``(n,)``.
        fixed: Features held on a bound, shape ``(n, d)``.
    """

    rows: Tensor
    x: Tensor
    values: Tensor
    jacobian: Tensor
    accepted: Tensor
    inverse: Tensor
    penalty: Tensor
    radius: Tensor
    stalled: Tensor
    active: Tensor
    fixed: Tensor

    @classmethod
    def begin(cls, problem: Problem, rows: Tensor, start: Tensor, curvature: float, radius: float) -> State:
        """Evaluate the starting points; the curvature is the cost's own times a factor."""
        n, d = start.shape
        values, jacobian, accepted = _evaluate(problem, start, rows)
        weights = problem.weights_of(rows)
        diagonal = (1 / (curvature * weights)).expand(n, d)
        if problem.lower is not None and problem.upper is not None:
            diagonal = diagonal * (problem.upper[rows] > problem.lower[rows])
        return cls(
            rows=rows,
            x=start.clone(),
            values=values,
            jacobian=jacobian,
            accepted=accepted,
            inverse=torch.diag_embed(diagonal),
            penalty=torch.full_like(values, 1e-3),
            radius=start.new_full((n,), radius),
            stalled=torch.zeros(n, dtype=torch.long, device=start.device),
            active=torch.ones(n, dtype=torch.bool, device=start.device),
            fixed=torch.zeros_like(start, dtype=torch.bool),
        )

    def only(self, mask: Tensor) -> State:
        """The rows where the mask is true."""
        return State(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    def iterate(self, problem: Problem, best: Best, tolerance: float) -> tuple[Tensor, Tensor]:
        """One trial of every row; returns the length of the full step and where there was progress."""
        lower, upper = (None if b is None else b[self.rows] for b in (problem.lower, problem.upper))
        weights = problem.weights_of(self.rows)
        cost_gradient = (self.x - problem.x[self.rows]) * weights
        program = Quadratic(
            self.x, self.values, self.jacobian, cost_gradient, self.inverse, self.radius, lower, upper
        )
        answer = program.solve(self.fixed)
        trial = _on_grid(self.x, shortened(answer.step, self.radius))
        if lower is not None and upper is not None:
            trial = torch.minimum(torch.maximum(trial, lower), upper)
        values, jacobian, feasible = _evaluate(problem, trial, self.rows)
        closer = best.offer(problem, self, trial, feasible, tolerance)

        step = trial - self.x
        self.penalty = torch.maximum(0.97 * self.penalty, 1.5 * answer.multipliers + 1e-4)
        accepted, fall, merit = self._judge(problem, trial, step, values)
        change = step * weights - ((jacobian - self.jacobian) * answer.multipliers[..., None]).sum(dim=1)
        full_length = torch.linalg.vector_norm(answer.step, dim=1)
        share = torch.linalg.vector_norm(step, dim=1) / full_length.clamp_min(1e-30)
        self._learn(step, change, answer.force * share[:, None], weights)
        self.x = torch.where(accepted[:, None], trial, self.x)
        self.values = torch.where(accepted[:, None], values, self.values)
        self.jacobian = torch.where(accepted[:, None, None], jacobian, self.jacobian)
        self.accepted = torch.where(accepted, feasible, self.accepted)
        self.fixed = answer.fixed & _at_bound(self.x, lower, upper)
        return full_length, closer | (accepted & (fall > tolerance * merit.clamp_min(1e-8)))

    def _judge(
        self, problem: Problem, trial: Tensor, step: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Accept the trial if the merit falls as the model promised, and adapt the trust radius."""
        predicted = self.values + (self.jacobian @ step[..., None])[..., 0]
        here = 0.5 * _cost(problem, self.rows, self.x) + (self.penalty * (-self.values).clamp_min(0)).sum(
            dim=1
        )
        cost = 0.5 * _cost(problem, self.rows, trial)
        promised = here - cost - (self.penalty * (-predicted).clamp_min(0)).sum(dim=1)
        fall = here - cost - (self.penalty * (-values).clamp_min(0)).sum(dim=1)
        ratio = fall / promised.clamp_min(1e-12)
        # A fall within rounding of nothing is none: its sign would depend on the batch.
        accepted = (fall > 1e-10 * here) & (ratio > 1e-4)
        length = torch.linalg.vector_norm(step, dim=1)
        grown = torch.where(ratio > 0.6, torch.maximum(self.radius, 2 * length), self.radius)
        kept = torch.where(ratio > 0.2, grown, 0.6 * torch.minimum(self.radius, length))
        self.radius = torch.where(accepted, kept, 0.35 * length).clamp(1e-6, math.sqrt(step.shape[1]))
        return accepted, fall, here

    def _learn(self, step: Tensor, change: Tensor, force: Tensor, weights: Tensor) -> None:
        """Damped BFGS update of the inverse curvature, from how the Lagrangian's gradient changes."""
        free = (self.inverse.diagonal(dim1=1, dim2=2) > 0).to(step)
        change = torch.nan_to_num(change, posinf=0.0, neginf=0.0) * free
        force = force * free
        bent, along = (step * force).sum(dim=1), (step * change).sum(dim=1)
        damping = torch.where(along < 0.2 * bent, 0.8 * bent / (bent - along).clamp_min(1e-30), 1.0).clamp(
            0, 1
        )
        change = damping[:, None] * change + (1 - damping)[:, None] * force
        along = (step * change).sum(dim=1)
        squared = (step * step * weights).sum(dim=1)
        lack = (LEAST_CURVATURE * squared - along).clamp_min(0)
        change = change + (lack / squared.clamp_min(1e-30))[:, None] * (step * weights)
        along = along + lack
        usable = (squared > 1e-16) & (along > 1e-18) & (bent > 1e-18)
        scale = torch.where(usable, 1 / along.clamp_min(1e-30), 0.0)
        pulled = (self.inverse @ change[..., None])[..., 0]
        own = ((1 + scale * (change * pulled).sum(dim=1)) * scale)[:, None] * step - scale[:, None] * pulled
        left = torch.stack([own, -scale[:, None] * step], dim=2)
        self.inverse = torch.baddbmm(self.inverse, left, torch.stack([step, pulled], dim=1))


def _evaluate(problem: Problem, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Constraint values minus aims ``(n, m)``, gradients ``(n, m, d)``, which points are accepted ``(n,)``.

    A tenth of the aim is accepted. Where a constraint is flat there is nothing to steer by, so that its aim
    is zero there. A value or gradient that is not finite counts as minus infinity.
    """
    n, d = x.shape
    values, gradients, accepted = (
        [x.new_zeros(n, 0)],
        [x.new_zeros(n, 0, d)],
        torch.ones(n, dtype=torch.bool, device=x.device),
    )
    for constraint in problem.constraints.values():
        with torch.enable_grad():
            point = x.detach().requires_grad_(True)
            value = constraint.value(point, rows)
            gradient = (
                torch.autograd.grad(value.sum(), point)[0] if value.requires_grad else torch.zeros_like(x)
            )
        bad = ~(torch.isfinite(value) & torch.isfinite(gradient).all(dim=1))
        value, gradient = (
            torch.where(bad, -math.inf, value.detach()),
            torch.where(bad[:, None], 0.0, gradient),
        )
        aim = constraint.aim * (gradient != 0).any(dim=1)
        accepted = accepted & (value >= 0.1 * aim)
        values.append((value - aim)[:, None])
        gradients.append(gradient[:, None])
    return torch.cat(values, dim=1), torch.cat(gradients, dim=1), accepted


def _on_grid(x: Tensor, step: Tensor) -> Tensor:
    """``x + step`` on the grid; a feature that hardly moves stays exactly where it is."""
    moved = torch.round((x + step) / GRID) * GRID
    return torch.where(step.abs() < GRID / 2, x, moved)


def _cost(problem: Problem, rows: Tensor, x: Tensor) -> Tensor:
    return ((x - problem.x[rows]) ** 2 * problem.weights_of(rows)).sum(dim=1)


def _at_bound(x: Tensor, lower: Tensor | None, upper: Tensor | None) -> Tensor:
    if lower is None or upper is None:
        return torch.zeros_like(x, dtype=torch.bool)
    return (x <= lower) | (x >= upper)
