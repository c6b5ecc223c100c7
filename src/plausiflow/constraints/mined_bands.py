"""Learn which categories tell the range of a number: age groups, grades of a score, "65 and older".

The levels must split the numbers of all rows into ranges that do not overlap. The test is that of a hierarchy
(:mod:`plausiflow.tables.evidence`): under independence, a row would have the level of its number with the
probability that two rows have the same level; each range costs two rows. Special and missing values count
for nothing. A bound between two ranges is the number with the fewest digits between their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from plausiflow.constraints.bands import Band, Bands
from plausiflow.constraints.clauses import State, feature_states, special_values
from plausiflow.constraints.learned import LearnedRule
from plausiflow.tables import Evidence, Feature, FloatArray, IntArray, Layout

MOST_BANDS = 30
"""Levels of a category, so that the rule remains short."""


def learn_bands(
    layout: Layout,
    features: Mapping[str, Feature],
    codes: IntArray,
    numbers: Mapping[str, FloatArray],
    evidence: Evidence,
) -> list[LearnedRule]:
    """Return the rules about levels and ranges.

    Args:
        layout: Layout of encoded rows.
        features: Features of the table, by name.
        codes: Levels of the training rows, shape ``(n, blocks with levels)``.
        numbers: Values of the numbers, NaN if missing, each of shape ``(n,)``.
        evidence: The test of a rule.
    """
    names = [name for name in numbers if features[name].is_number]
    if not names:
        return []
    values = np.stack([_ordinary(numbers[name], features[name]) for name in names], axis=1)
    rules = []
    for j, block in enumerate(layout.with_levels):
        if block.number is not None or not 2 <= len(block.levels) <= MOST_BANDS:
            continue
        open_ = np.flatnonzero(~np.array(block.closed)[codes[:, j]])
        order = open_[np.argsort(codes[open_, j], kind="stable")]
        levels, firsts = np.unique(codes[order, j], return_index=True)
        if len(levels) < 2:
            continue
        with np.errstate(invalid="ignore"):
            low, high = (ufunc.reduceat(values[order], firsts, axis=0) for ufunc in (np.fmin, np.fmax))
        states = feature_states(features[block.name])
        for k in np.flatnonzero(_are_apart(low, high)).tolist():
            known = np.isfinite(values[order, k])
            counts = np.add.reduceat(known.astype(np.int64), firsts)
            n = int(counts.sum())
            differ = 1 - ((counts / n) ** 2).sum()
            if evidence.accepts(0, n, differ, n - 2 * len(levels)).all():
                step = features[names[k]].step
                bands = _bands([states[code] for code in levels.tolist()], low[:, k], high[:, k], step)
                rules.append(LearnedRule(Bands(block.name, names[k], bands), len(codes), n, 0))
    return rules


def _ordinary(values: FloatArray, feature: Feature) -> FloatArray:
    return np.where(np.isin(values, special_values(feature)), np.nan, values)


def _are_apart(low: FloatArray, high: FloatArray) -> IntArray:
    """Return for each number whether the ranges of at least two levels are known and none overlap."""
    order = np.argsort(low, axis=0)  # NaN last: levels without a number
    first = np.take_along_axis(low, order, axis=0)[1:]
    last = np.take_along_axis(high, order, axis=0)[:-1]
    return np.asarray(~(first <= last).any(axis=0) & (np.isfinite(low).sum(axis=0) >= 2))


def _bands(levels: list[State], low: FloatArray, high: FloatArray, step: float) -> tuple[Band, ...]:
    """Return the levels in the order of their numbers, with bounds between neighbours."""
    order = [i for i in np.argsort(low).tolist() if np.isfinite(low[i])]
    bounds: list[tuple[float, float]] = []
    for i, j in pairwise(order):
        cut = _shortest(high[i], low[j])
        if step and abs(cut / step - round(cut / step)) > 1e-9:
            cut = float(low[j])
        below = max(float(high[i]), round(cut - step, 9)) if step else cut
        bounds.append((below, cut))
    uppers = [*(below for below, _ in bounds), None]
    lowers = [None, *(cut for _, cut in bounds)]
    return tuple((levels[i], lo, hi) for i, lo, hi in zip(order, lowers, uppers, strict=True))


def _shortest(low: float, high: float) -> float:
    """Return the number above ``low`` and at most ``high`` with the fewest digits.

    Example:
        >>> _shortest(29.3, 31.7), _shortest(0.4987, 0.5012), _shortest(9, 10)
        (30.0, 0.5, 10.0)
    """
    for digits in range(-9, 13):
        candidate = round((np.floor(low * 10.0**digits) + 1) / 10.0**digits, max(0, digits))
        if low < candidate <= high:
            return float(candidate)
    return float(high)
