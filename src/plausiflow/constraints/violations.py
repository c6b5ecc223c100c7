"""Whether rows break a rule, decided on the decoded tables in original units.

This module knows nothing about encoded rows. Besides the rules of the user, some rules hold for every row:
numbers stay within the training range (widened by the row's own number) or are special values, levels are
those of the training rows, missing values stay missing, and constants and identifiers do not change.
Comparisons are exact, except for linear relations, which allow for the rounding of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.tables import (
    UNKNOWN,
    Feature,
    FloatArray,
    IntArray,
    Mask,
    float_dtype,
    is_missing,
    read_level_codes,
    read_numbers,
    special_codes,
)

TRAINING_RANGE = "training range"
KNOWN_LEVELS = "known levels"
MISSING_VALUES = "missing values"
KEPT_COLUMNS = "constants and identifiers"


class RowChanges:
    """A table before and after its rows changed, column by column.

    ``mask`` has the cells that differ, ``missing`` those that are missing in one of both tables only, each of
    shape ``(n, features)``. Every column is read once, however many rules ask for it.
    """

    def __init__(self, features: Mapping[str, Feature], before: pd.DataFrame, after: pd.DataFrame) -> None:
        self.features, self.before, self.after = features, before, after
        self._read: dict[tuple[str, str, bool], npt.NDArray[Any]] = {}
        self._place = {name: j for j, name in enumerate(features)}
        self._columns = {True: dict(before.items()), False: dict(after.items())}
        absent = {side: self._absent(columns) for side, columns in self._columns.items()}
        self.missing: Mask = absent[True] != absent[False]
        both = ~absent[True] & ~absent[False]
        self.mask: Mask = self.missing.copy()
        for j, name in enumerate(features):
            own, new = self._columns[True][name], self._columns[False][name]
            self.mask[:, j] |= _differ(own, new, both[:, j])

    def _absent(self, columns: Mapping[Any, pd.Series]) -> Mask:
        """Return which cells are missing, shape ``(n, features)``."""
        missing = np.zeros((len(self.after), len(self.features)), dtype=bool)
        for j, name in enumerate(self.features):
            column = columns[name]
            kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else ""
            if kind == "f":
                missing[:, j] = np.isnan(column.to_numpy())
            elif kind not in ("b", "i", "u"):
                missing[:, j] = is_missing(column)
        return missing

    def changed(self, *names: str) -> Mask:
        """Return which rows change one of these features, shape ``(n,)``."""
        if len(names) == 1:
            return np.asarray(self.mask[:, self._place[names[0]]])
        return np.asarray(self.mask[:, [self._place[name] for name in names]].any(axis=1))

    def precision(self, name: str) -> float:
        """Return the relative rounding error of a column of the changed rows, as its dtype has it."""
        return float(self.once("precision", name, False, _precision)[0])

    def column(self, name: str, *, before: bool) -> pd.Series:
        """Return a column of the factual rows, or of the changed ones."""
        return self._columns[before][name]

    def once(
        self, what: str, name: str, before: bool, read: Callable[[pd.Series], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return what is read from a column; the same array for the same question, so it is read-only."""
        key = (what, name, before)
        if key not in self._read:
            self._read[key] = read(self.column(name, before=before)).view()
            self._read[key].flags.writeable = False
        return self._read[key]

    def numbers_before(self, name: str) -> FloatArray:
        """Return a column of the factual rows as numbers, shape ``(n,)``; NaN if missing."""
        return self.once("numbers", name, True, lambda column: read_numbers(column)[0])

    def numbers_after(self, name: str) -> FloatArray:
        """Return a column of the changed rows as numbers, shape ``(n,)``; NaN if missing."""
        return self.once("numbers", name, False, lambda column: read_numbers(column)[0])

    def codes_before(self, name: str) -> IntArray:
        """Return the level codes of a column of the factual rows, shape ``(n,)``; negative if none."""
        levels = self.features[name].levels
        return self.once("codes", name, True, lambda column: read_level_codes(column, levels))

    def codes_after(self, name: str) -> IntArray:
        """Return the level codes of a column of the changed rows, shape ``(n,)``; negative if none."""
        levels = self.features[name].levels
        return self.once("codes", name, False, lambda column: read_level_codes(column, levels))

    def moved(self, name: str, direction: int) -> Mask:
        """Return which rows go up (1) or down (-1), or leave a level that is not part of the order."""
        if self.features[name].is_number:
            return np.asarray(direction * self.numbers_after(name) > direction * self.numbers_before(name))
        old, new = self.codes_before(name), self.codes_after(name)
        known = (old >= 0) & (new >= 0)
        return np.where(known, direction * new > direction * old, self.changed(name) & (old == UNKNOWN))

    def implicit_violations(self) -> dict[str, Mask]:
        """Return which rows break the rules that hold for every table, by name."""
        kept = [name for name, f in self.features.items() if not (f.is_number or f.has_levels)]
        beyond, unknown, missing = np.zeros((3, len(self.after)), dtype=bool)
        for j, (name, feature) in enumerate(self.features.items()):
            if name in kept:
                continue
            missing |= self.missing[:, j]
            if not self.mask[:, j].any():
                continue
            if feature.is_number:
                beyond |= self._beyond(feature)
            else:
                unknown |= self.changed(name) & (self.codes_after(name) == UNKNOWN)
        return {
            TRAINING_RANGE: beyond,
            KNOWN_LEVELS: unknown,
            MISSING_VALUES: missing,
            KEPT_COLUMNS: self.changed(*kept),
        }

    def _beyond(self, feature: Feature) -> Mask:
        own, column = (self.column(feature.name, before=before) for before in (True, False))
        before, (after, unreadable) = self.numbers_before(feature.name), read_numbers(column)
        special = np.zeros(len(after), dtype=bool)
        if feature.special:
            special = special_codes(after, feature.special, float_dtype(column.dtype)) > 0
            # A special value does not widen the range: 999 days do not allow 500.
            was_special = special_codes(before, feature.special, float_dtype(own.dtype)) > 0
            before = np.where(was_special, np.nan, before)
        low, high = feature.extent
        rounding = 1e-9 * (high - low)
        outside = (after < np.fmin(before, low) - rounding) | (after > np.fmax(before, high) + rounding)
        return self.changed(feature.name) & ((outside & ~special) | unreadable)


def _precision(column: pd.Series) -> FloatArray:
    return np.array([np.finfo(float_dtype(column.dtype)).eps], dtype=np.float64)


def _differ(before: pd.Series, after: pd.Series, present: Mask) -> Mask:
    """Return which of the cells that are present in both columns differ."""
    same_dtype = before.dtype == after.dtype and isinstance(before.dtype, np.dtype)
    dtype = None if same_dtype else object
    old, new = before.to_numpy(dtype=dtype), after.to_numpy(dtype=dtype)
    if present.all():
        return np.asarray(old != new, dtype=bool)
    differ = np.zeros(len(after), dtype=bool)
    differ[present] = old[present] != new[present]
    return differ
