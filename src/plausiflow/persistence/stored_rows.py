"""Rows of a table as JSON values, and back: the same cells, dtypes and index, bit for bit.

Numbers and booleans are lists, dates whole numbers of their unit. Columns of any other dtype are lists of
cells; a missing cell is an object that names which of None, NaN, NA or NaT it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.tables import dtype_from_json, dtype_to_json, to_python

MISSING: dict[str, Any] = {"None": None, "NaN": math.nan, "NA": pd.NA, "NaT": pd.NaT}


def store_rows(frame: pd.DataFrame) -> dict[str, Any]:
    """Return rows as JSON values.

    Raises:
        InvalidInputError: A cell is neither text, a number, a boolean, a date nor missing.
    """
    columns = [_store(frame.iloc[:, i], f"column {name!r}") for i, name in enumerate(frame.columns)]
    index = frame.index
    if isinstance(index, pd.RangeIndex):
        stored: dict[str, Any] = {"range": [index.start, index.stop, index.step]}
    else:
        levels = [pd.Series(index.get_level_values(i)) for i in range(index.nlevels)]
        stored = {"levels": [_store(level, "the index") for level in levels]}
    names = [_cell(name, "the name of the index") for name in index.names]
    return {
        "count": len(frame),
        "names": [_cell(name, "the name of a column") for name in frame.columns],
        "columns": columns,
        "index": stored | {"names": names},
    }


def restore_rows(stored: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows that :func:`store_rows` wrote."""
    index = _restore_index(stored["index"])
    parts = [_restore(column).set_axis(index) for column in stored["columns"]]
    if len(index) != stored["count"] or len(parts) != len(stored["names"]):
        raise ValueError("the rows must have as many cells as they say")
    if not parts:
        return pd.DataFrame(index=index)
    frame = pd.concat(parts, axis=1)
    return frame.set_axis([_read_cell(name) for name in stored["names"]], axis=1)


def _restore_index(stored: Mapping[str, Any]) -> pd.Index:
    names = [_read_cell(name) for name in stored["names"]]
    if "range" in stored:
        start, stop, step = stored["range"]
        return pd.RangeIndex(start, stop, step, name=names[0])
    levels = [_restore(level) for level in stored["levels"]]
    index: pd.Index = pd.MultiIndex.from_arrays(levels, names=names)
    return pd.Index(levels[0], name=names[0]) if len(levels) == 1 else index


def _store(column: pd.Series, what: str) -> dict[str, Any]:
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biu":
        cells = column.tolist()
    elif isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize <= 8:
        cells = [_number(value) for value in column.tolist()]
    elif isinstance(dtype, pd.DatetimeTZDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "mM"):
        cells = column.astype("int64").tolist()
    else:
        cells = [_cell(value, what) for value in column.astype(object)]
    return {"dtype": dtype_to_json(dtype), "cells": cells}


def _restore(stored: Mapping[str, Any]) -> pd.Series:
    dtype, cells = dtype_from_json(stored["dtype"]), stored["cells"]
    if isinstance(dtype, pd.DatetimeTZDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "mM"):
        return pd.Series(np.array(cells, dtype=np.int64)).astype(dtype)
    values = np.empty(len(cells), dtype=object)
    values[:] = [_read_cell(cell) for cell in cells]
    return pd.Series(values, dtype=object).astype(dtype)


def _cell(value: Any, what: str) -> Any:  # noqa: ANN401
    value = to_python(value)
    for name, missing in MISSING.items():
        if value is missing:
            return {"missing": name}
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _number(value)
    raise InvalidInputError(
        f"Rows to be saved must have text, numbers, booleans and dates; {what} has a {type(value).__name__}: "
        f"{value!r}. Convert it, or save without the rows: `groups.save(path, rows=False)`."
    )


def _number(value: float) -> Any:  # noqa: ANN401
    """Return a float as a JSON value: a number, if it is finite."""
    if math.isnan(value):
        return {"missing": "NaN"}
    return value if math.isfinite(value) else {"infinite": value > 0}


def _read_cell(cell: Any) -> Any:  # noqa: ANN401
    if not isinstance(cell, dict):
        return cell
    if "infinite" in cell:
        return math.inf if cell["infinite"] else -math.inf
    return MISSING[cell["missing"]]
