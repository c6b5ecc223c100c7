r"""The small dual of each SQP step: multipliers of a few constraints, batched over rows.

:math:`\min_{\lambda \ge 0} \tfrac12 \lambda^\top M \lambda + r^\top \lambda`, where M is the Gram matrix
of the constraints' gradients in the inverse curvature, and r their linearised values without multipliers.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_MULTIPLIER = 1e4
MAX_BY_SETS = 6
PARALLEL = 1e-9
"""The smallest share of a constraint's gradient that another one leaves."""
ACTIVE = 1e-9
"""A constraint with a larger multiplier holds the point where it is."""


def multipliers(values: Tensor, jacobian: Tensor, pull: Tensor, inverse: Tensor) -> Tensor:
    """Return the multipliers of the quadratic program at a point, shape ``(n, m)``.

    ``values`` ``(n, m)`` and ``jacobian`` ``(n, m, d)`` are those of the constraints, ``pull`` ``(n, d)`` is
    the gradient of the cost, and ``inverse`` ``(n, d, d)`` the inverse curvature.
    """
    moved = jacobian @ inverse
    return nonnegative_dual(moved @ jacobian.mT, values - (moved @ pull[..., None])[..., 0])


def nonnegative_dual(gram: Tensor, slack: Tensor) -> Tensor:
    r"""Minimise :math:`\tfrac12 \lambda^T M \lambda + r^T \lambda` over :math:`\lambda \ge 0`, batched.

    ``gram`` is M, positive semi-definite, shape ``(n, m, m)``; ``slack`` is r, shape ``(n, m)``. Two
    constraints have a closed form over their four active sets. With more, that solution is tried first. If it
    breaks a third and last constraint, that one is active and is eliminated. A few more try all active sets,
    many use cyclic coordinate descent.
    """
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-12)
    m = slack.shape[1]
    if m < 2:
        return (-slack / diagonal).clamp(0, MAX_MULTIPLIER)
    of_two = _dual_of_two(diagonal[:, :2], gram[:, 0, 1], slack[:, :2]).clamp(0, MAX_MULTIPLIER)
    if m == 2:
        return of_two
    residual = torch.baddbmm(slack[:, 2:, None], gram[:, 2:, :2], of_two[..., None])
    broken = (residual < -1e-12).any(dim=1).nonzero()[:, 0]
    few = _dual_with_third if m == 3 else _dual_by_sets
    solve = few if m <= MAX_BY_SETS else _dual_by_descent
    if len(broken) == len(slack) > 0:
        return solve(gram, slack).clamp_(0, MAX_MULTIPLIER)
    multipliers = F.pad(of_two, (0, m - 2))
    if len(broken):
        multipliers[broken] = solve(gram[broken], slack[broken]).clamp_(0, MAX_MULTIPLIER)
    return multipliers


def _dual_with_third(gram: Tensor, slack: Tensor) -> Tensor:
    """Return the solution of three constraints, the last of which is active.

    Without it, the other two have the Schur complement of its diagonal in M.
    """
    own, cross = gram[:, 2, 2:].clamp_min(1e-12), gram[:, 2, :2]
    share = cross / own
    diagonal = gram.diagonal(dim1=1, dim2=2)[:, :2].clamp_min(1e-12)
    reduced = torch.maximum(torch.addcmul(diagonal, share, cross, value=-1), PARALLEL * diagonal)
    between = torch.addcmul(gram[:, 0, 1], share[:, 0], cross[:, 1], value=-1)
    others = _dual_of_two(reduced, between, torch.addcmul(slack[:, :2], share, slack[:, 2:], value=-1))
    others = others.clamp_min_(0)
    third = (others * share).sum(dim=1, keepdim=True).add_(slack[:, 2:] / own).neg_()
    return torch.cat([others, third], dim=1)


def _dual_by_sets(gram: Tensor, slack: Tensor) -> Tensor:
    """Return the best of the exact solutions of all sets of active constraints."""
    sets, both, ridge = _active_sets(slack.shape[1], slack.dtype, slack.device)
    scale = gram.diagonal(dim1=1, dim2=2).amax(dim=1).clamp_min_(1e-12)[:, None, None, None]
    system = (gram[:, None] / scale).mul(both).add_(ridge)
    right = (-slack[:, None] / scale[..., 0] * sets)[..., None]
    found: Tensor = torch.linalg.solve_ex(system, right)[0][..., 0]
    value = (found * (found @ gram)).sum(dim=2).mul_(0.5).add_((found * slack[:, None]).sum(dim=2))
    fits = (found >= 0) & (found < torch.inf)
    best = value.masked_fill_(~fits.all(dim=2), torch.inf).argmin(dim=1)
    return found.gather(1, best[:, None, None].expand(-1, 1, found.shape[2]))[:, 0]


@lru_cache(maxsize=16)
def _active_sets(m: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return all sets of m constraints ``(2^m, m)``, their pairs, and a diagonal for the others."""
    numbers = torch.arange(2**m, device=device)
    sets = ((numbers[:, None] >> torch.arange(m, device=device)) & 1).to(dtype)
    return sets, sets[:, :, None] * sets[:, None, :], torch.diag_embed((1 - sets) + 1e-9 * sets)


def _dual_by_descent(gram: Tensor, slack: Tensor) -> Tensor:
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-12)
    multipliers = torch.zeros_like(slack)
    for _ in range(50 * slack.shape[1]):
        for i in range(slack.shape[1]):
            residual = slack[:, i] + (gram[:, i] * multipliers).sum(dim=1)
            multipliers[:, i] = (multipliers[:, i] - residual / diagonal[:, i]).clamp(0, MAX_MULTIPLIER)
    return multipliers


def _dual_of_two(diagonal: Tensor, cross: Tensor, slack: Tensor) -> Tensor:
    """Return the multipliers with one active constraint, or none, if that satisfies both; else with both."""
    alone = (slack / diagonal).neg_().clamp_min_(0)
    other, cross = slack.flip(1), cross[:, None]
    enough = torch.addcmul(other, cross, alone) >= -1e-12
    product = diagonal.prod(dim=1, keepdim=True)
    determinant = torch.addcmul(product, cross, cross, value=-1)
    both = torch.addcmul(other * cross, slack, diagonal.flip(1), value=-1) / determinant
    both = torch.where(determinant > 1e-6 * product, both, alone)
    first, second = enough[:, :1], enough[:, 1:]
    only = alone * torch.cat([first, second & ~first], dim=1)
    return torch.where(first | second, only, both)
