"""Learn numbers that are a product of powers of one to three others: totals, ratios, indices, areas.

Examples are ``total = price * quantity``, ``dti = 12 * debt / income`` and ``bmi = 10000 * weight / height
** 2``. The factor may be any number, and for one or two columns a number may be added, as in ``change = 100
* b / a - 100``. The result may be rounded to its grid. A few rows rule most combinations of columns out.
The test of the rest is that of an equality: every column must matter, so shuffling any one of them must
break the rule in the way that a wrong rule would. Of several forms of one rule, such as ``a = b * c`` and
``b = a / c``, the one that leaves less room is learned, and of several rules about the same columns the one
with the fewest columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from plausiflow.constraints.computed import ROOM, Computed
from plausiflow.constraints.formulas import Formula
from plausiflow.constraints.learned import LearnedRule
from plausiflow.tables import EXCEPTIONS, Evidence, Feature, FloatArray, IntArray, Mask

MOST_COLUMNS = {1: 300, 2: 100, 3: 24}
"""Numbers that products of so many columns are tried for, so that the work is bounded."""
POWERS: dict[int, tuple[tuple[float, ...], ...]] = {
    1: ((2.0,), (0.5,), (-1.0,), (3.0,)),
    2: ((1.0, 1.0), (1.0, -1.0), (1.0, 2.0), (1.0, -2.0), (2.0, -1.0)),
    3: ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, -1.0, -1.0)),
}
FEW, LEAST, FEWEST, SHUFFLES = 24, 12, 30, 5
COARSE = 1 / 20
"""A column of fewer steps is not computed from others: some factor fits a few of its values always."""
TESTED = 40
"""Combinations for each column that are tested on all rows, those that fit best first."""
DIGITS = 9
SINGLE = 2e-7
"""Rounding of numbers without a grid, as a share of the largest: they may have been in single precision."""


@dataclass(frozen=True)
class _Candidate:
    """A column, what it may be computed from, and how well that fits a few rows."""

    target: int
    columns: tuple[int, ...]
    powers: tuple[float, ...]
    added: bool
    misfit: float

    @property
    def all_columns(self) -> frozenset[int]:
        return frozenset((self.target, *self.columns))


def products_tried(columns: int) -> int:
    """Return how many products are tried for a table with so many columns of numbers.

    Example:
        >>> products_tried(3)
        102
    """
    choices = {
        count: sum(math.perm(columns - 1, count) // math.factorial(_most_equal(own)) for own in powers)
        for count, powers in POWERS.items()
        if count < columns <= MOST_COLUMNS[count]
    }
    return columns * sum(choices[count] * (1 + (count < 3)) for count in choices)


def _most_equal(powers: tuple[float, ...]) -> int:
    return max(powers.count(power) for power in powers)


def learn_products(
    features: Mapping[str, Feature],
    values: FloatArray,
    names: Sequence[str],
    evidence: Evidence,
    random_state: int = 0,
    known: Sequence[frozenset[str]] = (),
) -> list[LearnedRule]:
    """Return the rules about products of powers.

    Args:
        features: Features of the table, by name.
        values: Their values, NaN if missing, shape ``(n, columns)``.
        names: Names of the columns.
        evidence: The test of a rule.
        random_state: Seed of samples of rows.
        known: Names of columns that an equality relates; what contains all of them would follow from it.
    """
    if len(names) < 2 or len(values) < FEWEST:
        return []
    generator = np.random.default_rng(random_state)
    few = values[generator.permutation(len(values))[:FEW]]
    tolerances = np.array([_tolerance(features[name], values[:, k]) for k, name in enumerate(names)])
    spans = np.array([_span(values[:, k]) for k in range(len(names))])
    targets = [
        k
        for k, name in enumerate(names)
        if features[name].is_number and spans[k] > 0 and tolerances[k] / spans[k] <= COARSE
    ]
    targets.sort(key=lambda k: float(tolerances[k] / spans[k]))
    rules: list[LearnedRule] = []
    done = [frozenset(names.index(name) for name in own) for own in known if own <= set(names)]
    for count in POWERS:
        if len(names) > MOST_COLUMNS[count]:
            break
        for k in targets:
            found = sorted(_likely(few, k, tolerances[k], count), key=lambda c: (c.added, c.misfit))
            for candidate in found[:TESTED]:
                # What a number is computed from with a constant often follows from how it is without one.
                again = candidate.added and any(rule.rule.feature_names[0] == names[k] for rule in rules)
                if again or any(columns <= candidate.all_columns for columns in done):
                    continue
                rule = _tested(candidate, values, names, tolerances[k], evidence, generator)
                if rule is not None:
                    rules.append(rule)
                    done.append(candidate.all_columns)
    return rules


def _tolerance(feature: Feature, values: FloatArray) -> float:
    """Return by how much a number with these values may differ from what it is computed from."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    return ROOM * feature.step / 2 if feature.step else SINGLE * largest


def _span(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if len(finite) else 0.0


def _likely(few: FloatArray, k: int, tolerance: float, count: int) -> Iterator[_Candidate]:
    """Yield the products of ``count`` columns that a few rows do not refute for column k."""
    others = np.array([j for j in range(few.shape[1]) if j != k])
    for powers in POWERS[count]:
        columns = others[_arrangements(len(others), powers)]
        if len(columns) == 0:
            continue
        with np.errstate(all="ignore"):
            product = np.ones((len(few), len(columns)))
            for place, power in enumerate(powers):
                product *= (few**power)[:, columns[:, place]]
        target = few[:, [k]]
        # Where the product is zero, or not there, it tells nothing about the factor.
        known = np.isfinite(product) & np.isfinite(target) & (product != 0)
        enough = known.sum(axis=0) >= LEAST
        for added in (False, True) if count < 3 else (False,):
            misfit = _misfit(
                np.where(known, product, 0.0), np.where(known, target, 0.0), known, tolerance, added
            )
            for p in np.flatnonzero(enough & (misfit <= 1.5)).tolist():
                own = tuple(int(j) for j in columns[p])
                yield _Candidate(k, own, powers, added, float(misfit[p]))


@lru_cache(maxsize=16)
def _arrangements(n: int, powers: tuple[float, ...]) -> IntArray:
    """Return all choices of n columns for the powers, each once, shape ``(choices, columns)``."""
    chosen = np.array(list(permutations(range(n), len(powers))), dtype=np.int64).reshape(-1, len(powers))
    # Columns with equal powers are in order.
    for i, power in enumerate(powers):
        for j in (j for j in range(i) if powers[j] == power):
            chosen = chosen[chosen[:, j] < chosen[:, i]]
    return chosen


def _misfit(
    product: FloatArray, target: FloatArray, known: Mask, tolerance: float, added: bool
) -> FloatArray:
    """Return the second largest miss of the least-squares fit of each product, in tolerances."""
    count = known.sum(axis=0).clip(1)
    with np.errstate(all="ignore"):
        if added:
            mean_p, mean_t = product.sum(axis=0) / count, target.sum(axis=0) / count
            apart_p, apart_t = np.where(known, product - mean_p, 0.0), np.where(known, target - mean_t, 0.0)
        else:
            apart_p, apart_t = product, target
        factor = (apart_p * apart_t).sum(axis=0) / (apart_p**2).sum(axis=0)
        misses = np.where(known, np.abs(apart_t - factor * apart_p), 0.0)
    second = np.sort(misses, axis=0)[-2]
    return np.where(np.isfinite(factor) & (factor != 0), second / tolerance, np.inf)


def _tested(
    candidate: _Candidate,
    values: FloatArray,
    names: Sequence[str],
    tolerance: float,
    evidence: Evidence,
    generator: np.random.Generator,
) -> LearnedRule | None:
    """Return the rule of a candidate, if all rows show it and every column matters."""
    target, parts = values[:, candidate.target], values[:, list(candidate.columns)]
    own = [names[j] for j in candidate.columns]
    plain = Formula(tuple(zip(own, candidate.powers, strict=True)))
    product = plain.of_arrays(list(parts.T))
    known = np.isfinite(product) & np.isfinite(target)
    target, parts, product = target[known], parts[known], product[known]
    if len(target) < FEWEST:
        return None
    fitted = _fitted(product, target, tolerance, candidate.added)
    if fitted is None:
        return None
    factor, constant, broken = fitted
    formula = Formula(plain.powers, factor, constant)

    def share_broken(total: FloatArray, columns: FloatArray) -> float:
        result = formula.of_arrays(list(columns.T))
        return float((np.abs(total - result) > tolerance + 1e-12 * np.abs(result)).mean())

    for place in range(-1, parts.shape[1]):
        shares = []
        for _ in range(SHUFFLES):
            total, columns = target, parts.copy()
            if place < 0:
                total = generator.permutation(total)
            else:
                columns[:, place] = generator.permutation(columns[:, place])
            shares.append(share_broken(total, columns))
        if not evidence.accepts(broken, len(target), float(np.mean(shares))).all():
            return None
    rule = Computed(names[candidate.target], formula.text, tolerance=tolerance)
    return LearnedRule(rule, len(values), len(target), broken)


def _fitted(
    product: FloatArray, target: FloatArray, tolerance: float, added: bool
) -> tuple[float, float, int] | None:
    """Return the factor and the constant with the fewest digits, and how many rows break them."""
    used = product != 0
    if used.sum() < FEWEST:
        return None
    for constant in _constants(product[used], target[used], tolerance) if added else (0.0,):
        factor = _factor(product[used], target[used] - constant, tolerance)
        if factor is None:
            continue
        result = factor * product + constant
        broken = int((np.abs(target - result) > tolerance + 1e-12 * np.abs(result)).sum())
        if broken <= EXCEPTIONS * len(target):
            return factor, constant, broken
    return None


def _constants(product: FloatArray, target: FloatArray, tolerance: float) -> Iterator[float]:
    """Yield the constant of the least-squares fit with more and more digits, none of zero."""
    design = np.stack([product / np.abs(product).max(), np.ones(len(product))], axis=1)
    raw = float(np.linalg.lstsq(design, target, rcond=None)[0][1])
    finest = int(np.ceil(-np.log10(tolerance))) if tolerance > 0 else DIGITS
    largest = int(np.floor(np.log10(abs(raw)))) if raw else 0
    rounded = (round(raw, digits) for digits in range(-largest, finest + 1))
    yield from (constant for constant in dict.fromkeys(rounded) if constant)


def _factor(product: FloatArray, target: FloatArray, tolerance: float) -> float | None:
    """Return the number with the fewest digits that keeps (practically) all rows within their tolerance."""
    ends = np.sort(np.stack([target - tolerance, target + tolerance]) / product, axis=0)
    spare = int(EXCEPTIONS * len(target))
    low, high = float(np.sort(ends[0])[-1 - spare]), float(np.sort(ends[1])[spare])
    if low > high:
        return None
    for digits in range(1, DIGITS + 1):
        factor = float(f"{(low + high) / 2:.{digits}g}")
        if low <= factor <= high and factor:
            return factor
    return None
