"""Cells in which counterfactuals differ from the rows they belong to.

Cells are compared exactly, whatever the two dtypes are: there is no tolerance, and a missing value equals a
missing value. Columns are compared as a whole; only columns of objects are compared cell by cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from plausiflow.tables import (
    Feature,
    FloatArray,
    IntArray,
    Mask,
    ObjectArray,
    float_dtype,
    is_missing,
    read_level_codes,
    read_numbers,
    special_codes,
)


@dataclass(frozen=True, eq=False)
class Changes:
    """Changed cells, ordered by answer, then by column; each array has the shape ``(c,)``."""

    answer: IntArray  # position of the counterfactual
    column: IntArray  # position of the column
    before: ObjectArray  # values of the row, as Python objects
    after: ObjectArray  # values of the counterfactual, as Python objects

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, which: Mask | slice) -> Changes:
        return Changes(self.answer[which], self.column[which], self.before[which], self.after[which])

    def select(self, answers: range) -> Changes:
        """Return the changed cells of consecutive answers."""
        first, last = np.searchsorted(self.answer, [answers.start, answers.stop])
        return self[first:last]


def find_changes(rows: pd.DataFrame, answers: pd.DataFrame, of: IntArray) -> Changes:
    """Find the cells in which ``answers`` differ from the rows at the positions ``of``.

    Example:
        >>> rows = pd.DataFrame({"age": [31, 54], "job": ["clerk", None]})
        >>> answers = pd.DataFrame({"age": [40, 54], "job": ["clerk", None]})
        >>> changes = find_changes(rows, answers, np.array([0, 1]))
        >>> changes.answer, changes.before, changes.after
        (array([0]), array([31], dtype=object), array([40], dtype=object))
    """
    parts = []
    for j, name in enumerate(rows.columns):
        old, new = rows[name].take(of), answers[name]
        where = np.flatnonzero(_differs(old, new))
        before, after = old.iloc[where].to_numpy(object), new.iloc[where].to_numpy(object)
        parts.append((where, np.full(len(where), j), before, after))
    if not parts:
        return Changes(*np.empty((2, 0), np.int64), *np.empty((2, 0), object))
    answer, column, *values = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((column, answer))
    return Changes(*(part[order] for part in (answer, column, *values)))


def relative_moves(changes: Changes, features: Sequence[Feature]) -> FloatArray:
    """Return how far each cell moves, in units of its feature's range, shape ``(c,)``.

    The steps of ordered levels are equally long. A move without a distance is NaN: unordered levels, values
    that are missing or unknown, and special values outside the range.
    """
    moves = np.full(len(changes), np.nan)
    for j in np.unique(changes.column).tolist():
        feature, of_column = features[j], changes.column == j
        before = pd.Series(changes.before[of_column], dtype=object)
        after = pd.Series(changes.after[of_column], dtype=object)
        if feature.is_number:
            span = (feature.maximum - feature.minimum) or 1.0
            ends = [_on_scale(feature, column) for column in (before, after)]
            moves[of_column] = (ends[1] - ends[0]) / span
        elif feature.kind == "ordered":
            codes = np.stack([read_level_codes(column, feature.levels) for column in (before, after)])
            steps = (codes[1] - codes[0]) / max(1, len(feature.levels) - 1)
            moves[of_column] = np.where(codes.min(axis=0) < 0, np.nan, steps)
    return moves


def _on_scale(feature: Feature, column: pd.Series) -> FloatArray:
    """Return numbers, NaN for special values outside the range."""
    values = read_numbers(column)[0]
    apart = [value for value in feature.special if not feature.minimum <= value <= feature.maximum]
    return np.where(special_codes(values, apart, float_dtype(feature.dtype)) > 0, np.nan, values)


def _differs(before: pd.Series, after: pd.Series) -> Mask:
    """Return which cells differ, by position."""
    missing_before, missing_after = is_missing(before), is_missing(after)
    present, different = ~(missing_before | missing_after), missing_before ^ missing_after
    plain = isinstance(before.dtype, np.dtype) and before.dtype != object
    if plain and before.dtype == after.dtype:
        different |= present & (before.to_numpy() != after.to_numpy())
        return different
    different[present] = _unequal(before.to_numpy(object)[present], after.to_numpy(object)[present])
    return different


def _unequal(before: ObjectArray, after: ObjectArray) -> Mask:
    try:
        return cast(Mask, np.not_equal(before, after).astype(bool))
    except (TypeError, ValueError):  # such as arrays in cells, whose comparison is an array
        pairs = zip(before, after, strict=True)
        return np.array([a is not b and repr(a) != repr(b) for a, b in pairs], dtype=bool)
