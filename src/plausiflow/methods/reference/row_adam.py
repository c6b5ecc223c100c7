"""Adam for batches of independent rows, as Wachter's method and DiCE use it."""

from __future__ import annotations

import torch
from torch import Tensor


class RowAdam:
    """Adam with one step counter per row, its epsilon outside the bias correction: shape ``(n, ...)``."""

    def __init__(self, x: Tensor) -> None:
        self.mean, self.square, self.clock = torch.zeros_like(x), torch.zeros_like(x), x.new_zeros(len(x))

    def step(self, derivative: Tensor, rate: Tensor) -> Tensor:
        """Return what to subtract from every row, at its learning rate ``(n,)``."""
        self.clock += 1
        self.mean.mul_(0.9).add_(derivative, alpha=0.1)
        self.square.mul_(0.999).addcmul_(derivative, derivative, value=0.001)
        size = rate * (1 - 0.999**self.clock).sqrt() / (1 - 0.9**self.clock)
        return size.view(-1, *[1] * (derivative.ndim - 1)) * self.mean / (self.square.sqrt() + 1e-8)

    def restart(self, rows: Tensor) -> None:
        """Reset the rows where the mask is true."""
        for memory in (self.mean, self.square, self.clock):
            memory[rows] = 0

    def __getitem__(self, rows: Tensor) -> RowAdam:
        """Return the memory of the rows where the mask is true."""
        kept = RowAdam(self.mean[:0])
        kept.mean, kept.square, kept.clock = self.mean[rows], self.square[rows], self.clock[rows]
        return kept


def settle(change: Tensor, moved: Tensor, derivative: Tensor) -> Tensor:
    """Return the next change of each feature, without moves that only momentum causes.

    A feature at its factual's value without a derivative stays there, and no feature crosses that value.
    """
    return moved.masked_fill(((change == 0) & (derivative == 0)) | (moved * change < 0), 0.0)
