"""Adam with decoupled weight decay, and the learning rates of one cycle.

It computes what ``torch.optim.AdamW`` and ``OneCycleLR`` do. The first use of ``torch.optim`` in a process
imports a compiler, which takes longer than a quick training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

WARM_UP, FIRST, LAST = 0.15, 0.1, 0.001
"""Share of the steps in which the learning rate rises; its first and its last value, relative to the peak."""
SMALL = 1e-8
"""What is added to the root of the mean squared gradient."""


class Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    Args:
        parameters: The parameters, which are changed in place.
        betas: How slowly the means of the gradients and of their squares change.
        weight_decay: The decay, relative to the learning rate.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ) -> None:
        self.parameters, self.betas, self.weight_decay, self.steps = parameters, betas, weight_decay, 0
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None], learning_rate: float) -> None:
        """Make one step; a parameter without a gradient stays as it is."""
        self.steps += 1
        slow, slower = self.betas
        size = learning_rate / (1 - slow**self.steps)
        root = math.sqrt(1 - slower**self.steps)
        for parameter, gradient, mean, square in zip(
            self.parameters, gradients, self.means, self.squares, strict=True
        ):
            if gradient is None:
                continue
            mean.lerp_(gradient, 1 - slow)
            square.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
            if self.weight_decay:
                parameter.mul_(1 - learning_rate * self.weight_decay)
            parameter.addcdiv_(mean, square.sqrt().div_(root).add_(SMALL), value=-size)


def learning_rates(peak: float, steps: int) -> list[float]:
    """Return the learning rate of each step: it rises to the peak and falls again, along cosines."""
    turn = WARM_UP * (steps + 1) - 1

    def rate(step: int) -> float:
        if step <= turn:
            start, end, done = FIRST, 1.0, step / turn
        else:
            start, end, done = 1.0, LAST, (step - turn) / (steps - turn)
        return peak * (end + (start - end) / 2 * (1 + math.cos(math.pi * done)))

    return [rate(step) for step in range(steps)]
