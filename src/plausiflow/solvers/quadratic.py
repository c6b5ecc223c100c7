r"""The quadratic program inside each SQP step, batched over rows and solved through its dual.

For one row, with B the curvature of the Lagrangian and W its inverse,

.. math::
    \min_s \; c^\top s + \tfrac12 s^\top B s \quad\text{s.t.}\quad g + A s \ge 0, \quad l \le x + s \le u

Without bounds the minimiser is :math:`s = W (A^\top \lambda - c)`, where the multipliers of the m constraints
solve the small dual
:math:`\min_{\lambda \ge 0} \tfrac12 \lambda^\top (A W A^\top) \lambda + (g - A W c)^\top \lambda`. Bounds are
met by fixing: features that leave their interval are put on it, the others are solved again with W replaced
by its Schur complement, and features whose reaction force points inwards are let go.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

MAX_MULTIPLIER = 1e4
MOST_BY_SETS = 6
PASSES = 4
AT_BOUND = 1e-9


@dataclass
class Step:
    r"""What the program answers, per row.

    Attributes:
        step: The step s, shape ``(n, d)``.
        multipliers: One per constraint, shape ``(n, m)``.
        force: The gradient of the quadratic model at s, :math:`B s = A^T \lambda - c + \mu`, shape
            ``(n, d)``.
        fixed: Which features ended on a bound, shape ``(n, d)``.
    """

    step: Tensor
    multipliers: Tensor
    force: Tensor
    fixed: Tensor

    def put(self, rows: Tensor, part: Step) -> None:
        """Overwrite some rows."""
        self.step[rows], self.multipliers[rows] = part.step, part.multipliers
        self.force[rows], self.fixed[rows] = part.force, part.fixed


@dataclass
class Quadratic:
    """The program's data, one row each.

    Constraints ``g + A s >= 0``, cost gradient ``c``, inverse curvature ``W``, bounds.
    """

    x: Tensor
    values: Tensor
    jacobian: Tensor
    cost_gradient: Tensor
    inverse: Tensor
    radius: Tensor
    lower: Tensor | None
    upper: Tensor | None

    def __getitem__(self, rows: Tensor) -> Quadratic:
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        taken: dict[str, Any] = {name: None if part is None else part[rows] for name, part in parts.items()}
        return Quadratic(**taken)

    def solve(self, fixed: Tensor) -> Step:
        """Minimise.

        ``fixed`` (n, d) names features that start on their bound and are held there while the force says so.
        """
        directions = torch.cat([self.jacobian, -self.cost_gradient[:, None]], dim=1).mT
        moved = self.inverse @ directions
        answer = _reduced(self, moved, None, None)
        if self.lower is None or self.upper is None:
            return answer
        displacement = torch.zeros_like(self.x)
        rows = fixed.any(dim=1).nonzero()[:, 0]
        for number in range(PASSES):
            if len(rows):
                answer.put(rows, _reduced(self[rows], moved[rows], fixed[rows], displacement[rows]))
            if number == 0:
                rows = torch.arange(len(self.x), device=self.x.device)
            if number < PASSES - 1:
                rows = rows[_update_fixed(self, answer, rows, fixed, displacement)]
            if not len(rows):
                break
        return answer


def _update_fixed(
    program: Quadratic, answer: Step, rows: Tensor, fixed: Tensor, displacement: Tensor
) -> Tensor:
    """Fix what leaves its interval, let go what is pushed inwards; returns which of ``rows`` changed."""
    assert program.lower is not None
    assert program.upper is not None
    x, lower, upper = program.x[rows], program.lower[rows], program.upper[rows]
    step, held = answer.step[rows], fixed[rows]
    aim = x + shortened(step, program.radius[rows])
    leaves = ~held & ((aim < lower - AT_BOUND) | (aim > upper + AT_BOUND))
    reaction = answer.force[rows] - _model_force(program, answer, rows)
    on_lower, on_upper = x + step <= lower + AT_BOUND, x + step >= upper - AT_BOUND
    released = held & ((on_lower & ~on_upper & (reaction < 0)) | (on_upper & ~on_lower & (reaction > 0)))
    target = torch.minimum(torch.maximum(aim, lower), upper) - x
    displacement[rows] = torch.where(
        leaves, target, torch.where(released, torch.zeros_like(step), displacement[rows])
    )
    fixed[rows] = (held | leaves) & ~released
    return (leaves | released).any(dim=1)


def _model_force(program: Quadratic, answer: Step, rows: Tensor) -> Tensor:
    jacobian, multipliers = program.jacobian[rows], answer.multipliers[rows]
    return (multipliers[:, None] @ jacobian)[:, 0] - program.cost_gradient[rows]


def _reduced(program: Quadratic, moved: Tensor, fixed: Tensor | None, displacement: Tensor | None) -> Step:
    """Solve with the fixed features at their displacement; ``moved`` is W times [A^T, -c]."""
    m = program.jacobian.shape[1]
    offset = correction = None
    if fixed is not None and displacement is not None:
        moved, offset, correction = _schur(program.inverse, moved, fixed, displacement)
    unforced = moved[..., m] if offset is None else moved[..., m] + offset
    gram = program.jacobian @ moved[..., :m]
    slack = program.values + (program.jacobian @ unforced[..., None])[..., 0]
    multipliers = nonnegative_dual(gram, slack)
    step = unforced + (moved[..., :m] @ multipliers[..., None])[..., 0]
    force = (multipliers[:, None] @ program.jacobian)[:, 0] - program.cost_gradient
    if correction is not None:
        ones = torch.ones_like(multipliers[:, :1])
        force = force + (correction @ torch.cat([-multipliers, -ones, ones], dim=1)[..., None])[..., 0]
    return Step(
        step,
        multipliers,
        force,
        fixed.clone() if fixed is not None else torch.zeros_like(step, dtype=torch.bool),
    )


def _schur(
    inverse: Tensor, moved: Tensor, fixed: Tensor, displacement: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """W on the free features given the fixed set S.

    Reduced directions, offset, and the forces W_SS^-1 [directions, displacement].
    """
    size = int(fixed.sum(dim=1).max())
    held, members = fixed.to(inverse).topk(size, dim=1)
    rows = inverse.gather(1, members[..., None].expand(-1, -1, inverse.shape[2]))
    block = rows.gather(2, members[:, None].expand(-1, size, -1)) * held[:, :, None] * held[:, None, :]
    # Ones fill the places beyond a row's own set, and those of frozen features, whose rows in W are zero.
    block.diagonal(dim1=1, dim2=2).add_((block.diagonal(dim1=1, dim2=2) <= 0).to(block))
    factor, failed = torch.linalg.cholesky_ex(block)
    if failed.any():
        factor[failed > 0] = torch.eye(size, dtype=block.dtype, device=block.device)
    sides = torch.cat([moved, displacement[..., None]], dim=2)
    places = members[..., None].expand(-1, -1, sides.shape[2])
    solved = torch.cholesky_solve(sides.gather(1, places) * held[..., None], factor) * held[..., None]
    pulled = rows.mT @ solved
    forces = torch.zeros_like(sides).scatter_(1, places, solved)
    return moved - pulled[..., :-1], pulled[..., -1], forces


def nonnegative_dual(gram: Tensor, slack: Tensor) -> Tensor:
    r"""Minimise :math:`\tfrac12 \lambda^T M \lambda + r^T \lambda` over :math:`\lambda \ge 0`, batched.

    Two constraints have a closed form over their four active sets. With a few more, that solution is tried
    first, and where another constraint is broken by it all active sets are; many take cyclic coordinate
    descent.

    Args:
        gram: M, positive semi-definite, shape ``(n, m, m)``.
        slack: r, shape ``(n, m)``.
    """
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-12)
    m = slack.shape[1]
    if m < 2:
        return (-slack / diagonal).clamp(0, MAX_MULTIPLIER)
    of_two = _dual_of_two(diagonal[:, :2], gram[:, 0, 1], slack[:, :2]).clamp(0, MAX_MULTIPLIER)
    if m == 2:
        return of_two
    multipliers = torch.cat([of_two, torch.zeros_like(slack[:, 2:])], dim=1)
    residual = slack + (gram @ multipliers[..., None])[..., 0]
    broken = (residual[:, 2:] < -1e-12).any(dim=1).nonzero()[:, 0]
    if len(broken):
        solve = _dual_by_sets if m <= MOST_BY_SETS else _dual_by_descent
        multipliers[broken] = solve(gram[broken], slack[broken]).clamp(0, MAX_MULTIPLIER)
    return multipliers


def _dual_by_sets(gram: Tensor, slack: Tensor) -> Tensor:
    """The best of the solutions with each set of active constraints and no others, exactly."""
    m = slack.shape[1]
    numbers = torch.arange(2**m, device=slack.device)
    sets = ((numbers[:, None] >> torch.arange(m, device=slack.device)) & 1).to(slack)
    scale = gram.diagonal(dim1=1, dim2=2).amax(dim=1).clamp_min(1e-12)[:, None, None, None]
    both = sets[:, :, None] * sets[:, None, :]
    ridge = torch.diag_embed((1 - sets) + 1e-9 * sets)
    system = gram[:, None] / scale * both + ridge
    found: Tensor = torch.linalg.solve_ex(system, (-slack[:, None] / scale[..., 0] * sets)[..., None])[0][
        ..., 0
    ]
    value = 0.5 * (found * (found @ gram)).sum(dim=2) + (found * slack[:, None]).sum(dim=2)
    wrong = ~torch.isfinite(found).all(dim=2) | (found < 0).any(dim=2)
    best = value.masked_fill(wrong, torch.inf).argmin(dim=1)
    return found[torch.arange(len(found), device=found.device), best]


def _dual_by_descent(gram: Tensor, slack: Tensor) -> Tensor:
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp_min(1e-12)
    multipliers = torch.zeros_like(slack)
    for _ in range(50 * slack.shape[1]):
        for i in range(slack.shape[1]):
            residual = slack[:, i] + (gram[:, i] * multipliers).sum(dim=1)
            multipliers[:, i] = (multipliers[:, i] - residual / diagonal[:, i]).clamp(0, MAX_MULTIPLIER)
    return multipliers


def _dual_of_two(diagonal: Tensor, cross: Tensor, slack: Tensor) -> Tensor:
    alone = (-slack / diagonal).clamp_min(0)
    determinant = diagonal[:, 0] * diagonal[:, 1] - cross * cross
    regular = determinant > 1e-6 * diagonal[:, 0] * diagonal[:, 1]
    both = (slack.flip(1) * cross[:, None] - slack * diagonal.flip(1)) / torch.where(
        regular, determinant, 1.0
    )[:, None]
    both = torch.where(regular[:, None], both, alone)
    # Constraint i alone is active if it is violated without forces and its multiplier also satisfies the
    # other one.
    enough = (slack < 0) & (slack.flip(1) + cross[:, None] * alone >= -1e-12)
    none = (slack >= 0).all(dim=1)
    first = torch.stack([alone[:, 0], torch.zeros_like(cross)], dim=1)
    second = torch.stack([torch.zeros_like(cross), alone[:, 1]], dim=1)
    chosen = torch.where(enough[:, :1], first, torch.where(enough[:, 1:], second, both))
    return torch.where(none[:, None], torch.zeros_like(chosen), chosen)


def shortened(step: Tensor, radius: Tensor) -> Tensor:
    """The step, no longer than the radius."""
    length = torch.linalg.vector_norm(step, dim=1).clamp_min(1e-30)
    return step * torch.clamp_max(radius / length, 1.0)[:, None]
