"""Parse the cells of a CSV file, which are text, into columns with dtypes.

An empty cell is missing. ``NA``, ``NaN``, ``null`` and similar marks are missing if all other cells of the
column are numbers or booleans; in a column of text they are text. Numbers are texts that would be written the
same way again: ``007``, ``+49`` and integers of twenty digits stay text.
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
"""Marks of a missing number or boolean."""
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|-?inf")
_COMMA = re.compile(r"-?\d+,\d+")
_BOOLEANS = {"true": True, "false": False}
_EXACT = 2**53
"""Floats represent all whole numbers below it."""
_DIGITS = 18
"""Digits of a whole number that 64 bits can hold, including its sign."""


def parse_column(name: str, texts: Sequence[str]) -> pd.Series:
    """Return a column whose dtype is inferred from its cells.

    If cells are missing, whole numbers become floats and booleans become objects, as in pandas.

    Raises:
        InvalidInputError: The column has numbers with a decimal comma.

    Example:
        >>> parse_column("cars", ["2", "", "3"]).tolist(), parse_column("zip", ["01067", "80331"]).tolist()
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
            f"`{name}` must have numbers with a decimal point; got {commas[0]!r} with a decimal comma. Write "
            f"{commas[0].replace(',', '.')!r}."
        )
    return text_column(name, texts)


def text_column(name: str, texts: Sequence[str]) -> pd.Series:
    """Return a column of text; blank cells are missing."""
    return pd.Series([text if text.strip() else None for text in texts], name=name, dtype="str")


def _integers(name: str, cells: ObjectArray, missing: Mask) -> pd.Series:
    """Return whole numbers, or text if 64 bits cannot hold them."""
    if max(map(len, cells)) > _DIGITS:
        return text_column(name, cells.tolist())
    values = [None if gone else int(cell) for cell, gone in zip(cells, missing, strict=True)]
    largest = max(abs(value) for value in values if value is not None)
    if not missing.any():
        return pd.Series(values, name=name, dtype="int64")
    return pd.Series(values, name=name, dtype="float64" if largest < _EXACT else "Int64")


def parse_column_as(feature: Feature, texts: Sequence[str]) -> pd.Series:
    """Return a column in the dtype of the training table, or in a wider one if a cell does not fit.

    A cell that is not a number, or not a known level, stays text: the encoder reports it.
    """
    if feature.kind in ("identifier", "constant") and not feature.levels:
        return _identifiers(feature, texts)
    known = _levels_by_cell(feature)
    found = {text: _parse_cell(text, feature, known) for text in dict.fromkeys(texts)}
    cells: ObjectArray = np.array([found[text] for text in texts], dtype=object)
    return column_from_values(cells, feature.dtype).rename(feature.name)


def _identifiers(feature: Feature, texts: Sequence[str]) -> pd.Series:
    """Return a column that never changes: text or dates as in training, otherwise with an inferred dtype."""
    if is_datetime64_any_dtype(feature.dtype):
        dates = pd.to_datetime(pd.Series([text or None for text in texts]), errors="coerce", format="ISO8601")
        if (dates.isna() == [not text for text in texts]).all():
            return dates.astype(feature.dtype).rename(feature.name)
    dtype = feature.dtype
    textual = isinstance(dtype, pd.CategoricalDtype) or is_string_dtype(dtype) or is_object_dtype(dtype)
    if textual or is_datetime64_any_dtype(dtype):
        return text_column(feature.name, texts)
    column = parse_column(feature.name, texts)
    if column.isna().any():
        return column
    return column_from_values(column.to_numpy(object), dtype).rename(feature.name)


def _levels_by_cell(feature: Feature) -> dict[Any, CellValue]:
    """Return the levels by the cells that may stand for them: their text, and numbers by value."""
    known: dict[Any, CellValue] = {}
    for level in feature.levels:
        known[str(level).strip()] = level
        if isinstance(level, bool):
            known[str(level).lower()] = level
        elif isinstance(level, int | float):
            known[float(level)] = level
    return known


def _parse_cell(text: str, feature: Feature, known: dict[Any, CellValue]) -> Any:  # noqa: ANN401
    """Return the value of a cell: a number, a level, NaN if missing, or its text."""
    cell = text.strip()
    if not cell:
        return np.nan
    if cell in known:
        return known[cell]
    if cell.lower() in _BOOLEANS and cell.lower() in known:
        return known[cell.lower()]
    has_text_levels = any(isinstance(level, str) for level in feature.levels)
    if cell in MARKS and not has_text_levels:
        return np.nan
    if _INTEGER.fullmatch(cell) and len(cell) <= _DIGITS:
        number: float | int = int(cell)
    elif _NUMBER.fullmatch(cell):
        number = float(cell)
    else:
        return text
    if feature.is_number:
        return number
    return known.get(number, text if has_text_levels else number)
