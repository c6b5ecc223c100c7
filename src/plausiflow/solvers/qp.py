r"""The quadratic program inside each SQP step, batched over rows and solved through its dual.

For one row, with B the curvature of the Lagrangian and W its inverse,

.. math::
    \min_s \; c^\top s + \tfrac12 s^\top B s \quad\text{s.t.}\quad g + A s \ge 0, \quad l \le x + s \le u

Without bounds the minimiser is :math:`s = W (A^\top \lambda - c)`, where the multipliers of the m constraints
solve the small dual
:math:`\min_{\lambda \ge 0} \tfrac12 \lambda^\top (A W A^\top) \lambda + (g - A W c)^\top \lambda`. Features
that leave their interval are fixed on the bound, the others are solved again with the Schur complement of W,
and features whose reaction force points inwards are released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.solvers.dual import nonnegative_dual

PASSES = 4
MAX_FIXED = 32
"""Maximum number of features of a row that are fixed at once if every row runs the same operations."""
AT_BOUND = 1e-9


@dataclass
class Step:
    r"""The solution of the program for n rows.

    ``force`` is the gradient of the quadratic model at s, :math:`B s = A^T \lambda - c + \mu`;
    ``reaction``, its part :math:`\mu`, keeps fixed features in place.
    """

    step: Tensor  # (n, d)
    multipliers: Tensor  # one per constraint, (n, m)
    force: Tensor  # (n, d)
    reaction: Tensor | None  # (n, d); None if no feature is fixed
    fixed: Tensor  # features that ended on a bound, (n, d)

    def overwrite(self, rows: Tensor, part: Step) -> None:
        """Overwrite some rows."""
        self.step[rows], self.multipliers[rows] = part.step, part.multipliers
        self.force[rows], self.fixed[rows] = part.force, part.fixed


@dataclass
class Quadratic:
    """The program of n rows, with the symbols of the module's docstring."""

    x: Tensor
    values: Tensor  # g
    jacobian: Tensor  # A
    cost_gradient: Tensor  # c
    inverse: Tensor  # W
    radius: Tensor
    lower: Tensor | None
    upper: Tensor | None

    def __getitem__(self, rows: Tensor) -> Quadratic:
        parts: Iterable[Tensor | None] = vars(self).values()  # in the order of the fields
        return Quadratic(*(None if part is None else part[rows] for part in parts))  # type: ignore[arg-type]

    def solve(self, fixed: Tensor, *, uniform: bool = False) -> Step:
        """Minimise, starting with some features ``(n, d)`` fixed on their bound.

        With ``uniform``, every row runs the same operations.
        """
        directions = torch.cat([self.jacobian, -self.cost_gradient[:, None]], dim=1)
        moved = torch.bmm(directions, self.inverse).mT  # W is symmetric, and this order is faster
        if self.lower is None or self.upper is None:
            return _solve_reduced(self, moved, fixed)
        size = min(MAX_FIXED, self.x.shape[1]) if uniform else _max_fixed(fixed)
        answer = _solve_reduced(self, moved, fixed.clone(), size=size)
        displacement = torch.zeros_like(self.x)
        if uniform:  # A feature that still leaves its interval is clamped, and fixed in the next iteration.
            fixed, displacement, _ = _update_fixed(self, answer, displacement)
            return _solve_reduced(self, moved, fixed, displacement, size=size)
        part, rows, latest = self, None, answer
        for _ in range(PASSES - 1):
            fixed, displacement, changed = _update_fixed(part, latest, displacement)
            which = changed.nonzero()[:, 0]
            if len(which) == 0:
                break
            if len(which) < len(fixed):
                part, moved, rows = part[which], moved[which], which if rows is None else rows[which]
                fixed, displacement = fixed[which], displacement[which]
            latest = _solve_reduced(part, moved, fixed, displacement, size=_max_fixed(fixed))
            if rows is None:
                answer = latest
            else:
                answer.overwrite(rows, latest)
        return answer


def _max_fixed(fixed: Tensor) -> int:
    """Return the largest number of fixed features of a row."""
    return int(fixed.sum(dim=1).max()) if len(fixed) else 0


def _update_fixed(program: Quadratic, answer: Step, displacement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fix features that leave their interval, release features that are pushed inwards.

    Returns the fixed features, their displacements to the bounds, and the rows that changed.
    """
    assert program.lower is not None
    assert program.upper is not None
    x, lower, upper, held = program.x, program.lower, program.upper, answer.fixed
    length = torch.linalg.vector_norm(answer.step, dim=1).clamp_min(1e-30)
    goal = x + answer.step * torch.clamp_max(program.radius / length, 1.0)[:, None]
    inside = torch.clamp(goal, lower, upper)
    leaves = goal.sub_(inside).abs_() > AT_BOUND
    if answer.reaction is None:
        return leaves, inside.sub_(x).mul_(leaves), leaves.any(dim=1)
    leaves &= ~held
    at = x + displacement
    on_lower, on_upper = at <= lower + AT_BOUND, at >= upper - AT_BOUND
    inwards = torch.where(on_lower, -answer.reaction, answer.reaction) > 0
    released = held & inwards & ~(on_lower & on_upper)
    displacement = torch.where(leaves, inside - x, displacement.masked_fill(released, 0.0))
    return (held | leaves) & ~released, displacement, (leaves | released).any(dim=1)


def _solve_reduced(
    program: Quadratic, moved: Tensor, fixed: Tensor, displacement: Tensor | None = None, *, size: int = 0
) -> Step:
    """Solve with the fixed features, at most ``size``, at their displacements; ``moved`` is W [A^T, -c]."""
    m = program.jacobian.shape[1]
    forces = None
    if size:
        moved, forces = _schur(program.inverse, moved, fixed, displacement, size)
    reached = product(program.jacobian, moved)
    multipliers = nonnegative_dual(reached[..., :m], program.values + reached[..., m])
    shares = F.pad(multipliers, (0, 1), value=1.0)[..., None]
    step = product(moved, shares)[..., 0]
    force = product(multipliers[:, None], program.jacobian)[:, 0] - program.cost_gradient
    reaction = None
    if forces is not None:
        reaction = -product(forces[..., : m + 1], shares)[..., 0]
        if displacement is not None:
            reaction = reaction + forces[..., m + 1]
        force = force + reaction
    return Step(step, multipliers, force, reaction, fixed)


def _schur(
    inverse: Tensor, moved: Tensor, fixed: Tensor, displacement: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    """Reduce W to the free features, given the fixed set S.

    Returns the reduced directions, the last of which moves S to its displacement, and the forces
    W_SS^-1 [directions, displacement].
    """
    sides = moved if displacement is None else torch.cat([moved, displacement[..., None]], dim=2)
    d, places = inverse.shape[1], None
    if size >= d:  # Every feature may be fixed: there is nothing to gather.
        held, block, own = fixed.to(inverse), inverse, sides
    else:
        order = fixed.to(torch.uint8).sort(dim=1, descending=True, stable=True)
        held, members = order.values[:, :size].to(inverse), order.indices[:, :size]
        pairs = torch.add(members[:, None], members[..., None], alpha=d)
        block = inverse.flatten(1).gather(1, pairs.flatten(1)).view(-1, size, size)
        places = members[..., None].expand(-1, -1, sides.shape[2])
        own = sides.gather(1, places)
    block = block * (held[:, :, None] * held[:, None, :])
    # Unused places, and frozen features, whose rows in W are zero, get a one on the diagonal.
    diagonal = block.diagonal(dim1=1, dim2=2)
    diagonal.add_(diagonal <= 0)
    solved = _solve_positive(block, own * held[..., None]).mul_(held[..., None])
    forces = solved if places is None else torch.zeros_like(sides).scatter_(1, places, solved)
    pulled = torch.bmm(forces.mT, inverse).mT
    reduced = moved - pulled[..., : moved.shape[2]]
    if displacement is not None:
        reduced[..., -1] += pulled[..., -1]
    return reduced, forces


def _solve_positive(matrices: Tensor, sides: Tensor) -> Tensor:
    """Solve with positive definite matrices ``(n, k, k)``; one that is not counts as the unit matrix."""
    factor, failed = torch.linalg.cholesky_ex(matrices)
    if matrices.is_cuda or bool(failed.any()):
        unit = torch.eye(len(matrices[0]), dtype=matrices.dtype, device=matrices.device)
        factor = torch.where((failed > 0)[:, None, None], unit, factor)
    if not matrices.is_cuda:
        return torch.cholesky_solve(sides, factor)
    solved = torch.linalg.solve_triangular(factor, sides, upper=False)
    result: Tensor = torch.linalg.solve_triangular(factor.mT, solved, upper=True)
    return result


def product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices, ``(n, a, k), (n, k, b) -> (n, a, b)``, where two of a, b and k are small.

    On CUDA element by element: its matrix products pad to tiles, at several times the cost.
    """
    if not left.is_cuda:
        return torch.bmm(left, right)
    if right.shape[2] == 1:
        return (left * right.mT).sum(dim=2, keepdim=True)
    if left.shape[1] == 1:
        return (left.mT * right).sum(dim=1, keepdim=True)
    return (left[..., None] * right[:, None]).sum(dim=2)
