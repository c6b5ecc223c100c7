"""Move feasible starting points towards their factuals."""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.core import Problem

POINTS = 131_072
"""Points that are checked at once: all at once would need more memory than the search itself."""


def bisect(problem: Problem, x: Tensor, feasible: Tensor, rows: Tensor, *, rounds: int = 4) -> Tensor:
    """Move each feasible point towards its factual as far as it stays feasible on the way.

    Each round checks seven points of the remaining way at once, which is worth three halvings.

    Args:
        problem: The problem whose constraints count.
        x: Factuals, shape ``(n, d)``.
        feasible: Feasible points, shape ``(n, d)``; infeasible points are returned unchanged.
        rows: The problem's row numbers, shape ``(n,)``.
        rounds: Number of rounds.
    """
    low, high = x.new_zeros(len(x), 1), x.new_ones(len(x), 1)
    eighths = torch.arange(1, 8, dtype=x.dtype, device=x.device) / 8
    for _ in range(rounds):
        shares = low + (high - low) * eighths
        points = (x[:, None] + shares[..., None] * (feasible - x)[:, None]).flatten(0, 1).split(POINTS)
        owners = rows.repeat_interleave(7).split(POINTS)
        parts = [problem.satisfied(*some) for some in zip(points, owners, strict=True)]
        ok = torch.cat(parts).view(-1, 7)
        # How many of them are feasible without a gap, seen from the feasible end.
        steps = ok.flip(1).long().cumprod(dim=1).sum(dim=1, keepdim=True)
        high, low = high - (high - low) * steps / 8, high - (high - low) * (steps + 1) / 8
    return torch.where(high == 1, feasible, x + high * (feasible - x))
