"""Which cells of the answers differ from the rows they belong to.

Cells are compared exactly, whatever the two dtypes are: no tolerance, and a missing value equals a missing
value. Columns are compared as a whole; Python looks at single cells only where they are objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from plausiflow.tables import Codes, Mask, Objects, is_missing


@dataclass(frozen=True, eq=False)
class Changes:
    """Changed cells, ordered by answer, then by column.

    Attributes:
        answer: Position of the answer each is in, shape ``(c,)``.
        column: Position of its column, shape ``(c,)``.
        before: What the row holds, as Python's own values, shape ``(c,)``.
        after: What the answer holds, likewise.
    """

    answer: Codes
    column: Codes
    before: Objects
    after: Objects

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, which: Mask | slice) -> Changes:
        return Changes(self.answer[which], self.column[which], self.before[which], self.after[which])


def find_changes(rows: pd.DataFrame, answers: pd.DataFrame, of: Codes) -> Changes:
    """The cells in which ``answers`` differ from the rows at the positions ``of``.

    Example:
        >>> rows = pd.DataFrame({"age": [31, 54], "job": ["clerk", None]})
        >>> answers = pd.DataFrame({"age": [40, 54], "job": ["clerk", None]})
        >>> changes = find_changes(rows, answers, np.array([0, 1]))
        >>> changes.answer, changes.before, changes.after
        (array([0]), array([31], dtype=object), array([40], dtype=object))
    """
    answer, column, before, after = [], [], [], []
    for j, name in enumerate(rows.columns):
        own, new = rows[name].take(of), answers[name]
        where = np.flatnonzero(_differ(own, new))
        answer.append(where)
        column.append(np.full(len(where), j))
        before.append(own.iloc[where].to_numpy(object))
        after.append(new.iloc[where].to_numpy(object))
    if not answer:
        return Changes(*np.empty((2, 0), np.int64), *np.empty((2, 0), object))
    order = np.lexsort((np.concatenate(column), np.concatenate(answer)))
    parts = (np.concatenate(part)[order] for part in (answer, column, before, after))
    return Changes(*parts)


def _differ(before: pd.Series, after: pd.Series) -> Mask:
    """Which cells differ, by position."""
    one, other = is_missing(before), is_missing(after)
    present = ~(one | other)
    different = one ^ other
    plain = isinstance(before.dtype, np.dtype) and before.dtype != object
    if plain and before.dtype == after.dtype:
        different |= present & (before.to_numpy() != after.to_numpy())
        return different
    different[present] = _unequal(before.to_numpy(object)[present], after.to_numpy(object)[present])
    return different


def _unequal(before: Objects, after: Objects) -> Mask:
    try:
        return cast(Mask, np.not_equal(before, after).astype(bool))
    except (TypeError, ValueError):  # such as arrays in cells, which compare to arrays
        pairs = zip(before, after, strict=True)
        return np.array([a is not b and repr(a) != repr(b) for a, b in pairs], dtype=bool)
