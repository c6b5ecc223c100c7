"""Find columns that are weighted sums of others, such as a score of three parts, for a test of equalities.

A column is regressed on all others over a few rows. If that leaves no more than rounding, columns that are
not needed are dropped, and the weights are rounded to the fewest digits with which all rows keep the sum. The
column whose rounding is the finest comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plausiflow.tables import EXCEPTIONS, FloatArray

MOST_COLUMNS, MOST_PARTS = 100, 6
ROWS_PER_COLUMN, FEWEST = 8, 40
MISFIT = 1.5
"""By how many roundings a regression over few rows may miss a sum."""
DIGITS = 6
COARSE = 1 / 20
"""A column of fewer steps is no weighted sum: some weights fit a few of its values always."""


@dataclass(frozen=True)
class WeightedSum:
    """A column that may be a weighted sum.

    Attributes:
        target: The column.
        weights: Weights of the others, by column.
        constant: What is added.
        tolerance: By how much the two sides may differ.
    """

    target: int
    weights: dict[int, float]
    constant: float
    tolerance: float

    @property
    def coefficients(self) -> dict[int, float]:
        """Coefficients of the relation whose sum and constant is zero."""
        return {self.target: -1.0, **self.weights}


def weighted_sums(
    table: FloatArray, tolerances: Sequence[float], related: Collection[frozenset[int]], random_state: int = 0
) -> Iterator[WeightedSum]:
    """Yield the weighted sums of two to six columns that the rows show.

    Args:
        table: Values, NaN if missing, shape ``(n, columns)``.
        tolerances: By how much each column may be rounded.
        related: Columns that are related already; a sum that contains all of these follows from them.
        random_state: Seed of the sample of rows.
    """
    columns = [j for j in range(table.shape[1]) if np.isfinite(table[:, j]).mean() > 0.5]
    complete = table[np.isfinite(table[:, columns]).all(axis=1)]
    generator = np.random.default_rng(random_state)
    some = complete[generator.permutation(len(complete))[: max(FEWEST, ROWS_PER_COLUMN * len(columns))]]
    if not 3 <= len(columns) <= MOST_COLUMNS or len(some) < max(FEWEST, 4 * len(columns)):
        return
    shares = {
        k: tolerances[k] / span for k in columns if tolerances[k] and (span := float(np.ptp(some[:, k])))
    }
    for k in sorted((k for k, share in shares.items() if share <= COARSE), key=shares.__getitem__):
        parts = _needed(some, k, [j for j in columns if j != k], tolerances[k])
        if parts is None or any(own <= {k, *parts} for own in related):
            continue
        known = table[np.isfinite(table[:, [k, *parts]]).all(axis=1)]
        found = _rounded(known[:, k], known[:, parts], tolerances[k])
        # Plain sums have a test of their own, up to the finest step of all columns.
        if found is not None and any(abs(weight) != 1 for weight in found[0]):
            yield WeightedSum(k, dict(zip(parts, found[0], strict=True)), found[1], tolerances[k])


def _needed(some: FloatArray, k: int, columns: list[int], tolerance: float) -> list[int] | None:
    """Return the fewest columns that column k is a sum of; None if there are none, or too many."""
    columns = [j for j in columns if np.ptp(some[:, j]) > 0]
    while len(columns) > 1:
        weights, misfit = _fit(some[:, k], some[:, columns])
        if misfit > MISFIT * tolerance:
            return None
        shares = np.abs(weights[:-1]) * np.ptp(some[:, columns], axis=0)
        for place in np.argsort(shares).tolist():
            rest = columns[:place] + columns[place + 1 :]
            if _fit(some[:, k], some[:, rest])[1] <= MISFIT * tolerance:
                columns = rest
                break
        else:
            return columns if len(columns) <= MOST_PARTS else None
    return None


def _fit(target: FloatArray, parts: FloatArray) -> tuple[FloatArray, float]:
    """Return the weights, the constant last, and the second largest miss."""
    scale = np.append(np.abs(parts).max(axis=0).clip(1e-300), 1.0)
    design = np.concatenate([parts, np.ones((len(parts), 1))], axis=1) / scale
    weights = np.linalg.lstsq(design, target, rcond=None)[0]
    misses = np.sort(np.abs(target - design @ weights))
    return weights / scale, float(misses[-2])


def _rounded(target: FloatArray, parts: FloatArray, tolerance: float) -> tuple[list[float], float] | None:
    """Return the weights and the constant of the fewest digits with which all rows keep the sum."""
    raw = _fit(target, parts)[0][:-1]
    largest = int(np.floor(np.log10(np.abs(raw).max()))) if np.abs(raw).any() else 0
    for digits in range(DIGITS):
        weights = np.round(raw, digits - largest)
        left = target - parts @ weights
        middle = float(np.median(left))
        constants = (0.0, *(round(middle, places) for places in range(-largest, DIGITS)))
        constant = next((c for c in constants if _fits(left - c, tolerance)), None)
        if constant is not None and weights.all():
            return [float(f"{weight:.12g}") for weight in weights], constant
    return None


def _fits(misses: FloatArray, tolerance: float) -> bool:
    return bool((np.abs(misses) > tolerance + 1e-12 * np.abs(misses)).sum() <= EXCEPTIONS * len(misses))
