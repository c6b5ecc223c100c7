"""Features as numbers: which of them rules can reckon with, how far they reach, and on what grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from plausiflow.constraints.linear import Relation
from plausiflow.constraints.rules import Range, Rule
from plausiflow.tables import Feature

ROUNDING = 1e-12
"""Relative difference up to which two results of floating-point arithmetic count as equal."""

EQUALITY = 1e-9
"""How closely an equality without a grid must be met, as a share of what the two sides can differ by."""


def is_numeric(feature: Feature) -> bool:
    """Whether its values are numbers, be they levels or the one of a constant; booleans are 0 and 1."""
    numbers = all(isinstance(level, bool | int | float) for level in feature.levels)
    return feature.is_number or (feature.kind in ("ordered", "boolean", "constant") and numbers)


def level_numbers(feature: Feature) -> list[float]:
    """Its levels as numbers."""
    return [float(level) for level in feature.levels]


def extent(feature: Feature) -> tuple[float, float]:
    """Its smallest and its largest training value."""
    if feature.is_number:
        return feature.minimum, feature.maximum
    return min(level_numbers(feature)), max(level_numbers(feature))


def interval(name: str, rules: Iterable[Rule]) -> tuple[float, float]:
    """What the ranges of a feature leave of the real line."""
    ranges = [rule for rule in rules if isinstance(rule, Range) and rule.feature == name]
    return (
        max((rule.lo for rule in ranges if rule.lo is not None), default=-math.inf),
        min((rule.hi for rule in ranges if rule.hi is not None), default=math.inf),
    )


def writable(feature: Feature, bound: float, side: int) -> float:
    """The first value from a bound on, upwards (``side`` 1) or downwards (-1), that is written as it is.

    That is a multiple of the step. Without a grid, decoding rounds to 12 digits of the range at most, and 10
    are safe; on a logarithmic scale, or where doubles have no more digits than that, nothing is rounded.
    """
    if math.isinf(bound) or (feature.log and not feature.step):
        return bound
    step, decimals = feature.step, feature.decimals
    if not step:
        decimals = 10 - math.floor(math.log10(feature.maximum - feature.minimum or 1.0))
        step = 10.0**-decimals
    multiple = np.rint(bound / step)
    if abs(multiple) >= 2**52:
        return bound
    if side * np.round(multiple * step, decimals) < side * bound:
        multiple += side
    return float(np.round(multiple * step, decimals))


def size(relation: Relation, features: Mapping[str, Feature]) -> float:
    """How far the difference of the two sides reaches over the training ranges; one where it is constant."""
    ends = {name: extent(features[name]) for name in relation.coefficients}
    return sum(abs(a) * (ends[name][1] - ends[name][0]) for name, a in relation.coefficients.items()) or 1.0


def slack(relation: Relation, features: Mapping[str, Feature]) -> float:
    """By how much an equality may be missed: half of the finest step, as near as rounded numbers can come.

    For numbers without a grid, a billionth of what the two sides can differ by. Zero for an inequality.
    """
    if not relation.equal:
        return 0.0
    movable = {n: a for n, a in relation.coefficients.items() if features[n].kind != "constant"}
    finest = min((abs(a) * _step(features[name]) for name, a in movable.items()), default=0.0)
    return max(finest / 2, EQUALITY * size(relation, features))


def _step(feature: Feature) -> float:
    """The smallest difference of two values."""
    if feature.is_number:
        return feature.step
    return float(np.diff(sorted(level_numbers(feature))).min())
