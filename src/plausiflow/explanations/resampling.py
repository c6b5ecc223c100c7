"""Differences of means by resampling: permutation tests, bootstrap intervals, and many tests at once."""

from __future__ import annotations

import numpy as np
from scipy.stats import false_discovery_control

from plausiflow.tables import FloatArray, Mask

ROUNDING = 1e-12
"""Differences that are this close, relative to the values, count as equal."""
MOST_RESAMPLED = 5_000
"""Values whose means are resampled; the mean of more values is close to normal."""


def permutation_p_values(
    values: FloatArray, groups: list[Mask], permutations: int, rng: np.random.Generator
) -> FloatArray:
    r"""Test for each group whether its mean differs from that of the others.

    Group membership is permuted. With :math:`b` of :math:`m` permuted differences at least as large as the
    observed one, :math:`p = (b + 1) / (m + 1)`, which is a valid p-value for any number of permutations.

    Args:
        values: One value per row, shape ``(n,)``.
        groups: Members of each group, shape ``(n,)`` bool each; neither none nor all of the rows.
        permutations: Number of permutations.
        rng: Source of random numbers.

    Returns:
        A p-value of each group.
    """
    n, total = len(values), values.sum()
    sizes = np.array([int(group.sum()) for group in groups])
    observed = np.abs([values[group].mean() - values[~group].mean() for group in groups])
    tolerance = ROUNDING * max(1.0, float(np.abs(values).max(initial=0.0)))
    count = np.zeros(len(groups))
    for _ in range(permutations):
        sums = np.cumsum(rng.permutation(values))[sizes - 1]
        difference = np.abs(sums / sizes - (total - sums) / (n - sizes))
        count += difference >= observed - tolerance
    return (count + 1) / (permutations + 1)


def bootstrap_interval(
    values: FloatArray, others: FloatArray, samples: int, confidence: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a percentile interval of the difference of two means, each resampled with replacement."""
    first, second = (_resampled_means(part, samples, rng) for part in (values, others))
    tail = (1 - confidence) / 2
    low, high = np.quantile(first - second, [tail, 1 - tail]).tolist()
    return low, high


def _resampled_means(values: FloatArray, samples: int, rng: np.random.Generator) -> FloatArray:
    if len(values) > MOST_RESAMPLED:
        return rng.normal(values.mean(), values.std() / np.sqrt(len(values)), samples)
    means = np.empty(samples)
    for start in range(0, samples, 100):
        places = rng.integers(len(values), size=(min(100, samples - start), len(values)))
        means[start : start + len(places)] = values[places].mean(axis=1)
    return means


def sign_flip_p_value(differences: FloatArray, permutations: int, rng: np.random.Generator) -> float:
    """Test whether paired differences have the mean zero: under the null, their signs are exchangeable."""
    observed = abs(differences.mean())
    tolerance = ROUNDING * max(1.0, float(np.abs(differences).max(initial=0.0)))
    count = 0
    for _ in range(permutations):
        signs = rng.integers(0, 2, size=len(differences)) * 2 - 1
        count += abs((signs * differences).mean()) >= observed - tolerance
    return (count + 1) / (permutations + 1)


def adjust_p_values(p_values: FloatArray) -> FloatArray:
    """Return p-values adjusted by Benjamini and Hochberg; NaN stays NaN and does not count as a test."""
    adjusted = np.full(len(p_values), np.nan)
    known = ~np.isnan(p_values)
    if known.any():
        adjusted[known] = false_discovery_control(p_values[known])
    return adjusted
