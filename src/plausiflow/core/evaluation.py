"""Values and gradients of a problem's constraints at a batch of points, in one pass."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from plausiflow.core.problem import Problem


class Evaluated(NamedTuple):
    """Constraint values and gradients at a batch of points.

    Attributes:
        values: Constraint values minus their buffers, shape ``(n, m)``.
        jacobian: Their gradients, shape ``(n, m, d)``.
        accepted: Points that are feasible answers, shape ``(n,)``.
    """

    values: Tensor
    jacobian: Tensor
    accepted: Tensor


class Evaluation:
    """Evaluates the constraints of a problem.

    Attributes:
        problem: The problem.
        recordable: Whether an evaluation can be recorded as a CUDA graph; None before it was tried.

    A tenth of the buffer is accepted. Where a constraint is flat there is no direction to follow, so its
    buffer is zero there. A value or gradient that is not finite counts as minus infinity.
    """

    def __init__(self, problem: Problem) -> None:
        self.constraints = list(problem.constraints.values())
        self.problem = problem
        self.recordable: bool | None = None
        self.buffers = problem.x.new_tensor(
            [constraint.buffer for constraint in problem.constraints.values()]
        )

    def __call__(self, x: Tensor, rows: Tensor) -> Evaluated:
        """Evaluate at points ``(n, d)`` for the problem's ``rows``."""
        values, jacobian = self._differentiated(x, rows)
        steepness = jacobian.abs().sum(dim=2)
        bad = ~(values.abs() + steepness < math.inf)
        values.masked_fill_(bad, -math.inf)
        jacobian.masked_fill_(bad[..., None], 0.0)
        buffers = (steepness != 0) * self.buffers
        return Evaluated(values - buffers, jacobian, (values >= 0.1 * buffers).all(dim=1))

    def _differentiated(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return values ``(n, m)`` and gradients ``(n, m, d)``; each constraint has its own leaf."""
        if not self.constraints:
            return x.new_zeros(len(x), 0), x.new_zeros(len(x), 0, x.shape[1])
        values, gradients, points = [x[:, 0]] * len(self.constraints), [x] * len(self.constraints), {}
        for i, constraint in enumerate(self.constraints):
            if constraint.value_and_grad is not None:
                values[i], gradients[i] = constraint.value_and_grad(x, rows)
                continue
            with torch.enable_grad():
                point = x.detach().requires_grad_(True)
                values[i] = constraint.value(point, rows)
            if values[i].requires_grad:
                points[i] = point
            else:
                gradients[i] = torch.zeros_like(x)
        if points:
            with torch.enable_grad():  # Sums: given outer gradients would make torch import SymPy.
                steep = [values[i].sum() for i in points]
            found = torch.autograd.grad(steep, list(points.values()))
            for i, gradient in zip(points, found, strict=True):
                gradients[i] = gradient
        return torch.stack(values, dim=1).detach(), torch.stack(gradients, dim=1)
