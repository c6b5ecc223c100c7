"""The last word on a row: whether it breaks a rule, judged on the tables in original units alone.

Nothing here knows how rows are encoded. Besides the rules that people wrote, some hold for every row: numbers
stay within the training range (widened by the row's own), levels are those of the training rows, what is
missing stays missing, and constants and identifiers are kept. Comparisons are exact but for linear relations,
which may be missed by the rounding of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from plausiflow.constraints.extents import ROUNDING, extent, slack
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.rules import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    Rule,
)
from plausiflow.tables import (
    UNKNOWN,
    Codes,
    Feature,
    Mask,
    Numbers,
    is_missing,
    key,
    precision,
    read_codes,
    read_numbers,
)

LOCKED = "locked"
TRAINING_RANGE = "training range"
KNOWN_LEVELS = "known levels"
MISSING_VALUES = "missing values"
KEPT_COLUMNS = "constants and identifiers"


def find_violations(
    rules: Sequence[Rule],
    features: Mapping[str, Feature],
    before: pd.DataFrame,
    after: pd.DataFrame,
    locked: Mask,
) -> pd.DataFrame:
    """Which rules each row breaks: booleans, a column for each rule, then one for each implicit rule."""
    pair = _Pair(features, before, after)
    broken = {str(rule): pair.breaks(rule) for rule in rules}
    broken[LOCKED] = np.asarray((pair.changed & locked).any(axis=1))
    return pd.DataFrame(broken | pair.implicit(), index=after.index)


class _Pair:
    """A table before and after, column by column."""

    def __init__(self, features: Mapping[str, Feature], before: pd.DataFrame, after: pd.DataFrame) -> None:
        self._features, self._before, self._after = features, before, after
        self.changed: Mask = np.zeros((len(after), len(features)), dtype=bool)
        for j, name in enumerate(features):
            self.changed[:, j] = _differ(before[name], after[name])

    def breaks(self, rule: Rule) -> Mask:
        """Which rows break a rule, shape ``(n,)``."""
        match rule:
            case Immutable(features=names):
                return self._any_changed(names)
            case Increasing(feature=name):
                return self._moved(name, -1)
            case Decreasing(feature=name):
                return self._moved(name, 1)
            case Range():
                return self._outside(rule)
            case Allowed():
                return self._disallowed(rule)
            case Linear(relation=relation):
                return self._unmet(relation)
            case MaxChanges(limit=limit):
                return np.asarray(self.changed.sum(axis=1) > limit)

    def implicit(self) -> dict[str, Mask]:
        """Which rows break the rules that hold for every table, by name."""
        kept = [name for name, f in self._features.items() if not (f.is_number or f.has_levels)]
        others = [name for name in self._features if name not in kept]
        nobody = np.zeros(len(self._after), dtype=bool)
        beyond, unknown, missing = nobody.copy(), nobody.copy(), nobody.copy()
        for name in others:
            missing |= is_missing(self._before[name]) != is_missing(self._after[name])
            if self._features[name].is_number:
                beyond |= self._beyond(self._features[name])
            else:
                unknown |= self._any_changed([name]) & (self._codes(self._after[name]) == UNKNOWN)
        return {
            TRAINING_RANGE: beyond,
            KNOWN_LEVELS: unknown,
            MISSING_VALUES: missing,
            KEPT_COLUMNS: self._any_changed(kept),
        }

    def _any_changed(self, names: Sequence[str]) -> Mask:
        order = list(self._features)
        return np.asarray(self.changed[:, [order.index(name) for name in names]].any(axis=1))

    def _numbers(self, name: str) -> Numbers:
        return read_numbers(self._after[name])[0]

    def _codes(self, column: pd.Series) -> Codes:
        return read_codes(column, self._features[str(column.name)].levels)

    def _moved(self, name: str, direction: int) -> Mask:
        """Which rows went up (1) or down (-1), or from a level whose place in the order is not known."""
        if self._features[name].is_number:
            before, after = read_numbers(self._before[name])[0], self._numbers(name)
            return np.asarray(direction * after > direction * before)
        old, new = self._codes(self._before[name]), self._codes(self._after[name])
        known = (old >= 0) & (new >= 0)
        lost = self._any_changed([name]) & (old == UNKNOWN)
        return np.where(known, direction * new > direction * old, lost)

    def _outside(self, rule: Range) -> Mask:
        values = self._numbers(rule.feature)
        bounds = [-np.inf if rule.lo is None else rule.lo, np.inf if rule.hi is None else rule.hi]
        lo, hi = np.array(bounds).astype(precision(self._after[rule.feature].dtype))
        return np.asarray((values < lo) | (values > hi))

    def _disallowed(self, rule: Allowed) -> Mask:
        old, new = self._codes(self._before[rule.feature]), self._codes(self._after[rule.feature])
        codes = {key(level): code for code, level in enumerate(self._features[rule.feature].levels)}
        if rule.values is not None:
            allowed = np.isin(new, [codes[key(level)] for level in rule.values])
        else:
            allowed = np.zeros(len(new), dtype=bool)
            for own, to in rule.transitions or ():
                allowed |= (old == codes[key(own)]) & np.isin(new, [codes[key(level)] for level in to])
        return np.asarray((new != old) & ~allowed)

    def _unmet(self, relation: Relation) -> Mask:
        total = np.full(len(self._after), relation.constant)
        tolerance = np.full(len(total), slack(relation, self._features) + ROUNDING * abs(relation.constant))
        for name, a in relation.coefficients.items():
            feature, values = self._features[name], self._numbers(name)
            total += a * values
            held = np.finfo(precision(self._after[name].dtype)).eps
            tolerance += abs(a) * np.abs(values) * (ROUNDING + float(held))
            if feature.is_number and not feature.step:
                tolerance += abs(a) * ROUNDING * (feature.maximum - feature.minimum)
        # Comparisons with NaN are false: a relation does not bind where a value is missing.
        unmet = total < -tolerance
        return np.asarray(unmet | (total > tolerance) if relation.equal else unmet)

    def _beyond(self, feature: Feature) -> Mask:
        before = read_numbers(self._before[feature.name])[0]
        after, unreadable = read_numbers(self._after[feature.name])
        low, high = extent(feature)
        rounding = 1e-9 * (high - low)
        outside = (after < np.fmin(before, low) - rounding) | (after > np.fmax(before, high) + rounding)
        return self._any_changed([feature.name]) & (outside | unreadable)


def _differ(before: pd.Series, after: pd.Series) -> Mask:
    """Which cells differ; two missing ones do not."""
    gone, now_gone = is_missing(before), is_missing(after)
    differ, both = np.asarray(gone != now_gone), ~gone & ~now_gone
    plain = before.dtype == after.dtype and isinstance(before.dtype, np.dtype)
    left, right = (column.to_numpy(dtype=None if plain else object)[both] for column in (before, after))
    differ[both] = left != right
    return differ
