"""Quantities that several methods share: medians, spreads and distances of rows, and log-odds of classes."""

from __future__ import annotations

import torch
from torch import Tensor


def column_medians(x: Tensor) -> Tensor:
    """Return the median of each column, shape ``(d,)``; of an even number, the mean of the middle two."""
    ordered = x.sort(dim=0).values
    return (ordered[(len(x) - 1) // 2] + ordered[len(x) // 2]) / 2


def median_absolute_deviations(x: Tensor) -> Tensor:
    """Return the median absolute deviation of each column, shape ``(d,)``."""
    return column_medians((x - column_medians(x)).abs())


def feature_spreads(x: Tensor) -> Tensor:
    """Return the positive unit in which changes of each feature are measured, shape ``(d,)``.

    It is the median absolute deviation. If that is zero, because more than half of the rows share a value, it
    is the mean absolute deviation around the median, and one for a constant column.
    """
    middle, mean = median_absolute_deviations(x), (x - column_medians(x)).abs().mean(dim=0)
    return torch.where(middle > 0, middle, torch.where(mean > 0, mean, 1.0))


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return Euclidean distances ``(rows of a, rows of b)``, not by a matrix product that rounds by batch."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def log_odds(logits: Tensor, y: Tensor) -> Tensor:
    """Return the log-odds of classes ``(n,)`` against their strongest rivals, from logits ``(n, k)``."""
    rivals = logits.scatter(1, y[:, None], -torch.inf)
    return logits.gather(1, y[:, None])[:, 0] - rivals.amax(dim=1)
