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
import torch.nn.functional as F
from torch import Tensor

from plausiflow.solvers.dual import nonnegative_dual

PASSES = 4
MOST_HELD = 32
"""Most features of a row that are held at once where the number of them may not matter."""
AT_BOUND = 1e-9


@dataclass
class Step:
    r"""What the program answers, per row.

    Attributes:
        step: The step s, shape ``(n, d)``.
        multipliers: One per constraint, shape ``(n, m)``.
        force: The gradient of the quadratic model at s, :math:`B s = A^T \lambda - c + \mu`, shape
            ``(n, d)``.
        reaction: Its part :math:`\mu` that holds features where they are, shape ``(n, d)``; none where no
            feature is held.
        fixed: Which features ended on a bound, shape ``(n, d)``.
    """

    step: Tensor
    multipliers: Tensor
    force: Tensor
    reaction: Tensor | None
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

    def solve(self, fixed: Tensor, *, whole: bool = False) -> Step:
        """Minimise.

        Args:
            fixed: Features that start on their bound and are held there while the force says so, ``(n, d)``.
            whole: Take every row through the same operations, whatever it needs.
        """
        directions = torch.cat([self.jacobian, -self.cost_gradient[:, None]], dim=1).mT
        moved = torch.bmm(self.inverse, directions)
        if self.lower is None or self.upper is None:
            return _reduced(self, moved, fixed)
        size = min(MOST_HELD, self.x.shape[1]) if whole else _most(fixed)
        answer = _reduced(self, moved, fixed.clone(), size=size)
        displacement = torch.zeros_like(self.x)
        if (
            whole
        ):  # What still leaves after a second time is cut off, and held from the start in the next step.
            fixed, displacement, _ = _updated(self, answer, displacement)
            return _reduced(self, moved, fixed, displacement, size=size)
        part, rows = self, torch.arange(len(self.x), device=self.x.device)
        own, of = answer, moved
        for _ in range(PASSES - 1):
            fixed, displacement, changed = _updated(part, own, displacement)
            which = changed.nonzero()[:, 0]
            if len(which) == 0:
                break
            if len(which) < len(rows):
                part, of, rows = part[which], of[which], rows[which]
                fixed, displacement = fixed[which], displacement[which]
            own = _reduced(part, of, fixed, displacement, size=_most(fixed))
            answer.put(rows, own)
        return answer


def _most(fixed: Tensor) -> int:
    """The largest number of features that a row holds."""
    return int(fixed.sum(dim=1).max()) if len(fixed) else 0


def _updated(program: Quadratic, answer: Step, displacement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fix what leaves its interval, let go what is pushed inwards.

    Returns which features are held, how far each is from where it is put, and which rows have changed.
    """
    assert program.lower is not None
    assert program.upper is not None
    x, lower, upper, held = program.x, program.lower, program.upper, answer.fixed
    goal = x + shortened(answer.step, program.radius)
    inside = torch.clamp(goal, lower, upper)
    leaves = ((goal - inside).abs() > AT_BOUND) & ~held
    if answer.reaction is None:
        return leaves, torch.where(leaves, inside - x, 0.0), leaves.any(dim=1)
    at = x + displacement
    on_lower, on_upper = at <= lower + AT_BOUND, at >= upper - AT_BOUND
    inwards = torch.where(on_lower, -answer.reaction, answer.reaction) > 0
    released = held & inwards & ~(on_lower & on_upper)
    displacement = torch.where(leaves, inside - x, displacement.masked_fill(released, 0.0))
    return (held | leaves) & ~released, displacement, (leaves | released).any(dim=1)


def _reduced(
    program: Quadratic, moved: Tensor, fixed: Tensor, displacement: Tensor | None = None, *, size: int = 0
) -> Step:
    """Solve with the fixed features, at most ``size``, at their displacement; ``moved`` is W [A^T, -c]."""
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
    """W on the free features given the fixed set S.

    The reduced directions, the last of which takes S to its displacement, and the forces W_SS^-1 [directions,
    displacement].
    """
    sides = moved if displacement is None else torch.cat([moved, displacement[..., None]], dim=2)
    everywhere = size >= inverse.shape[1]
    if everywhere:  # Every feature has a place of its own.
        held, rows, block, own = fixed.to(inverse), inverse, inverse, sides
    else:
        order = fixed.to(torch.uint8).sort(dim=1, descending=True, stable=True)
        held, members = order.values[:, :size].to(inverse), order.indices[:, :size]
        rows = inverse.gather(1, members[..., None].expand(-1, -1, inverse.shape[2]))
        block = rows.gather(2, members[:, None].expand(-1, size, -1))
        places = members[..., None].expand(-1, -1, sides.shape[2])
        own = sides.gather(1, places)
    block = block * (held[:, :, None] * held[:, None, :])
    # Ones fill the places beyond a row's own set, and those of frozen features, whose rows in W are zero.
    diagonal = block.diagonal(dim1=1, dim2=2)
    diagonal.add_(diagonal <= 0)
    factor, failed = torch.linalg.cholesky_ex(block)
    unit = torch.eye(len(block[0]), dtype=block.dtype, device=block.device)
    factor = torch.where((failed > 0)[:, None, None], unit, factor)
    solved = torch.linalg.solve_triangular(factor, own * held[..., None], upper=False)
    solved = torch.linalg.solve_triangular(factor.mT, solved, upper=True) * held[..., None]
    pulled = torch.bmm(rows.mT, solved)
    reduced = moved - pulled[..., : moved.shape[2]]
    if displacement is not None:
        reduced[..., -1] += pulled[..., -1]
    return reduced, solved if everywhere else torch.zeros_like(sides).scatter_(1, places, solved)


def product(left: Tensor, right: Tensor) -> Tensor:
    """``(n, a, k), (n, k, b) -> (n, a, b)`` for a, b and k of which two are a handful.

    On CUDA number by number: its matrix products would fill them up to tiles, at several times the cost.
    """
    if not left.is_cuda:
        return torch.bmm(left, right)
    if right.shape[2] == 1:
        return (left * right.mT).sum(dim=2, keepdim=True)
    if left.shape[1] == 1:
        return (left.mT * right).sum(dim=1, keepdim=True)
    return (left[..., None] * right[:, None]).sum(dim=2)


def shortened(step: Tensor, radius: Tensor) -> Tensor:
    """The step, no longer than the radius."""
    length = torch.linalg.vector_norm(step, dim=1).clamp_min(1e-30)
    return step * torch.clamp_max(radius / length, 1.0)[:, None]
