"""Cells of a CSV file, all of them text, as columns with the dtypes that people mean.

An empty cell is missing. Where every other cell of a column is a number or a boolean, ``NA``, ``NaN``,
``null`` and the like are missing, too; in a column of text they are text, for somebody may be called so.
Numbers are those that would be written so again: ``007``, ``+49`` and integers of twenty digits stay text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_object_dtype, is_string_dtype

from plausiflow.errors import InvalidInputError
from plausiflow.tables.cells import Mask, ObjectArray, column_from_values
from plausiflow.tables.features import CellValue, Feature

MARKS = frozenset({"NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None"})
"""Stand for a missing number or boolean."""
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|-?inf")
_COMMA = re.compile(r"-?\d+,\d+")
_BOOLEANS = {"true": True, "false": False}
_EXACT = 2**53
"""Floats hold all whole numbers below it."""
_DIGITS = 18
"""Of a whole number that 64 bits hold, its sign among them."""


def parse_column(name: str, texts: Sequence[str]) -> pd.Series:
    """A column whose dtype is read off its cells.

    Where some are missing, whole numbers are floats and booleans objects, as pandas reads them and models
    expect them.

    Raises:
        InvalidInputError: It holds numbers with a decimal comma.

    Example:
        >>> parse_column("rooms", ["2", "", "3"]).tolist(), parse_column("zip", ["01067", "80331"]).tolist()
        ([2.0, nan, 3.0], ['01067', '80331'])
    """
    present = {text.strip() for text in texts if text.strip()} - MARKS
    if not present:
        return text_column(name, texts)
    cells: ObjectArray = np.array([text.strip() for text in texts], dtype=object)
    missing = np.array([cell not in present for cell in cells], dtype=bool)
    if all(map(_INTEGER.fullmatch, present)):
        return _integers(name, cells, missing)
    if all(map(_NUMBER.fullmatch, present)):
        values = np.full(len(cells), np.nan)
        values[~missing] = cells[~missing].astype(np.float64)
        return pd.Series(values, name=name)
    if {text.lower() for text in present} <= set(_BOOLEANS):
        flags = [_BOOLEANS.get(cell.lower(), np.nan) for cell in cells]
        return pd.Series(flags, name=name, dtype="object" if missing.any() else "bool")
    commas = sorted(filter(_COMMA.fullmatch, present))
    if commas and all(_COMMA.fullmatch(text) or _NUMBER.fullmatch(text) for text in present):
        raise InvalidInputError(
            f"`{name}` holds numbers with a decimal comma, such as {commas[0]!r}; a point is expected. Write "
            f"{commas[0].replace(',', '.')!r}."
        )
    return text_column(name, texts)


def text_column(name: str, texts: Sequence[str]) -> pd.Series:
    """A column of text, as it is written; blank cells are missing."""
    return pd.Series([text if text.strip() else None for text in texts], name=name, dtype="str")


def _integers(name: str, cells: ObjectArray, missing: Mask) -> pd.Series:
    """Whole numbers; text where 64 bits do not hold them."""
    if max(map(len, cells)) > _DIGITS:
        return text_column(name, cells.tolist())
    values = [None if gone else int(cell) for cell, gone in zip(cells, missing, strict=True)]
    largest = max(abs(value) for value in values if value is not None)
    if not missing.any():
        return pd.Series(values, name=name, dtype="int64")
    return pd.Series(values, name=name, dtype="float64" if largest < _EXACT else "Int64")


def parse_column_as(feature: Feature, texts: Sequence[str]) -> pd.Series:
    """A column in the dtype of the training table; a wider one where a cell does not fit.

    A cell that is no number, or no known level, stays as it is: its row is told so.
    """
    if feature.kind in ("identifier", "constant") and not feature.levels:
        return _identifiers(feature, texts)
    known = _known(feature)
    found = {text: _value(text, feature, known) for text in dict.fromkeys(texts)}
    cells: ObjectArray = np.array([found[text] for text in texts], dtype=object)
    return column_from_values(cells, feature.dtype).rename(feature.name)


def _identifiers(feature: Feature, texts: Sequence[str]) -> pd.Series:
    """What is never changed: text where it was text, dates where they were dates, else what it looks like."""
    if is_datetime64_any_dtype(feature.dtype):
        dates = pd.to_datetime(pd.Series([text or None for text in texts]), errors="coerce", format="ISO8601")
        if (dates.isna() == [not text for text in texts]).all():
            return dates.astype(feature.dtype).rename(feature.name)
    if isinstance(feature.dtype, pd.CategoricalDtype) or is_datetime64_any_dtype(feature.dtype):
        return text_column(feature.name, texts)
    if is_string_dtype(feature.dtype) or is_object_dtype(feature.dtype):
        return text_column(feature.name, texts)
    column = parse_column(feature.name, texts)
    return (
        column if column.isna().any() else column_from_values(column.to_numpy(object), feature.dtype).rename(feature.name)
    )


def _known(feature: Feature) -> dict[Any, CellValue]:
    """The levels by what a cell may hold for them: their text, and numbers and booleans by value."""
    known: dict[Any, CellValue] = {}
    for level in feature.levels:
        known[str(level).strip()] = level
        if isinstance(level, bool):
            known[str(level).lower()] = level
        elif isinstance(level, int | float):
            known[float(level)] = level
    return known


def _value(text: str, feature: Feature, known: dict[Any, CellValue]) -> Any:  # noqa: ANN401
    """What a cell means in a column: a number, a level, nothing, or what it says."""
    cell = text.strip()
    if not cell:
        return np.nan
    if cell in known:
        return known[cell]
    if cell.lower() in _BOOLEANS and cell.lower() in known:
        return known[cell.lower()]
    of_text = any(isinstance(level, str) for level in feature.levels)
    if cell in MARKS and not of_text:
        return np.nan
    if _INTEGER.fullmatch(cell) and len(cell) <= _DIGITS:
        number: float | int = int(cell)
    elif _NUMBER.fullmatch(cell):
        number = float(cell)
    else:
        return text
    if feature.is_number:
        return number
    return known.get(number, text if of_text else number)
