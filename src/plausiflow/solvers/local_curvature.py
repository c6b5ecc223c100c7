r"""The curvature of a program at given points, from differences of gradients.

The Lagrangian is :math:`\tfrac12 (x'-x)^\top \mathrm{diag}(w) (x'-x) - \sum_i \lambda_i g_i(x')`. Its
multipliers are those of the quadratic program at the point; the second derivatives of the constraints come
from one further gradient per feature, all in one batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.core import Evaluation, LocalModel, Problem
from plausiflow.solvers.dual import ACTIVE, multipliers
from plausiflow.solvers.iteration import expanded_weights, orthogonal

DIFFERENCE = 1e-4
LEAST_CURVATURE = 0.05
"""Minimum curvature, as a share of the smallest one of the cost."""


@torch.no_grad()
def local_model(problem: Problem, x: Tensor) -> LocalModel:
    """Return a quadratic model of each row's program at a point ``(n, d)``."""
    evaluation = Evaluation(problem)
    rows = torch.arange(len(x), device=x.device)
    at, weights = evaluation(x, rows), expanded_weights(problem, rows, x)
    lower, upper = problem.lower, problem.upper
    free = torch.ones_like(x) if lower is None or upper is None else (upper > lower).to(x)
    values = at.values.nan_to_num(neginf=-1.0)
    pull = (x - problem.x) * weights
    held_by = multipliers(values, at.jacobian, pull, torch.diag_embed(free / weights))
    curvature = torch.diag_embed(weights)
    which, feature = free.nonzero(as_tuple=True)
    moved = x[which]
    moved[torch.arange(len(which), device=x.device), feature] += DIFFERENCE
    change = (evaluation(moved, which).jacobian - at.jacobian[which]) * held_by[which][..., None]
    curvature[which, feature] -= change.sum(dim=1) / DIFFERENCE
    inverse = _inverse((curvature + curvature.mT) / 2, free, weights)
    return LocalModel(
        x=x,
        factual=problem.x,
        weights=weights,
        values=values,
        jacobian=at.jacobian,
        inverse=orthogonal(inverse, problem.normals, rows),
        active=held_by > ACTIVE,
    )


def _inverse(curvature: Tensor, free: Tensor, weights: Tensor) -> Tensor:
    """Return the inverse over the free features, zero elsewhere; directions of no curvature get a little."""
    both = free[:, :, None] * free[:, None]
    values, vectors = torch.linalg.eigh(curvature * both + torch.diag_embed(1 - free))
    least = LEAST_CURVATURE * weights.amin(dim=1, keepdim=True)
    inverse: Tensor = (vectors / values.clamp_min(least)[:, None]) @ vectors.mT
    return inverse * both
