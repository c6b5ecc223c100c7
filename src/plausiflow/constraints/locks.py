"""Features that single rows must keep, in addition to the rules for all rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype

from plausiflow.constraints.rule import unknown
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Mask

LockedFeatures = Sequence[str] | Sequence[Iterable[str]] | pd.DataFrame | None
"""Names for all rows, names for each row, a table of booleans, or None."""


def locked_mask(locked: LockedFeatures, names: Sequence[str], n_rows: int) -> Mask:
    """Return which cells must keep their values, shape ``(n_rows, len(names))``.

    ``locked`` are feature names that every row keeps; or one list of names for each row; or a table of
    booleans with the same number of rows and a column for each feature that some row keeps.

    Example:
        >>> locked_mask([["age"], []], ["age", "income"], 2)
        array([[ True, False],
               [False, False]])
    """
    mask = np.zeros((n_rows, len(names)), dtype=np.bool_)
    if locked is None:
        return mask
    if isinstance(locked, pd.DataFrame):
        return _from_table(locked, list(names), mask)
    if isinstance(locked, str | bytes) or not isinstance(locked, Sequence):
        raise InvalidInputError(
            "`locked` must be a list of feature names, one such list for each row, or a table of booleans; "
            f"got {locked!r}."
        )
    if all(isinstance(name, str) for name in locked):
        _raise(_unknown(locked, names))
        mask[:] = [name in locked for name in names]
        return mask
    return _from_lists(locked, list(names), mask)


def _from_lists(locked: Sequence[object], names: list[str], mask: Mask) -> Mask:
    if len(locked) != len(mask):
        _raise([f"expected one list of names for each of the {len(mask)} rows; got {len(locked)}"])
    problems = []
    for number, row in enumerate(locked):
        if isinstance(row, str) or not isinstance(row, Iterable):
            problems.append(f"row {number}: expected a list of names; got {row!r}")
            continue
        given = list(row)
        problems += [f"row {number}: {problem}" for problem in _unknown(given, names)]
        mask[number] = [name in given for name in names]
    _raise(problems)
    return mask


def _from_table(locked: pd.DataFrame, names: list[str], mask: Mask) -> Mask:
    problems = _unknown(list(locked.columns), names)
    if locked.columns.has_duplicates:
        problems.append("column names must be unique")
    if len(locked) != len(mask):
        problems.append(f"expected one row for each of the {len(mask)} rows; got {len(locked)}")
    wrong = [
        repr(name)
        for name, column in locked.items()
        if not is_bool_dtype(column.dtype) or bool(column.isna().any())
    ]
    if wrong:
        problems.append(f"expected only True and False; other values in {', '.join(wrong)}")
    _raise(problems)
    for name in locked.columns:
        mask[:, names.index(name)] = locked[name].to_numpy(dtype=np.bool_)
    return mask


def _unknown(given: Iterable[object], names: Sequence[str]) -> list[str]:
    return [unknown("feature", str(name), names) for name in given if name not in names]


def _raise(problems: list[str]) -> None:
    if problems:
        shown = problems[:20] + [f"and {len(problems) - 20} more"] * (len(problems) > 20)
        raise InvalidInputError("`locked` does not fit the table:\n- " + "\n- ".join(shown))
