"""Conversion of JSON rows to a data frame.

A JSON row becomes a row of a data frame with the dtypes of the training table, so that it gets the same
answer as in the library. A cell that its column cannot hold, such as text among numbers or null among
integers, widens the column, as in pandas. The answer must not depend on rows of other clients, so rows share
a data frame only if they widen the same columns with cells of the same type.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_integer_dtype, is_object_dtype, is_string_dtype

from plausiflow.tables import Dtype, Feature, Schema, column_from_values

JsonCell: TypeAlias = str | bool | int | float | None
CellType: TypeAlias = Literal["null", "text", "boolean", "number", "huge"]


@dataclass(frozen=True)
class JsonRow:
    """One row of a request."""

    cells: tuple[JsonCell, ...]  # values in the order of the schema
    widened: tuple[tuple[str, CellType], ...] = ()  # columns that the row widens, with the cell's type


@dataclass(frozen=True)
class RowReader:
    """Reader of JSON rows.

    Example:
        >>> table = pd.DataFrame({"age": [31, 54, 47], "job": ["nurse", "cook", "cook"]})
        >>> reader = RowReader(Schema.infer(table))
        >>> rows = reader.read([{"job": "cook", "age": 40}, {"age": None, "job": "cook"}])
        >>> [row.widened for row in rows]
        [(), (('age', 'null'),)]
        >>> reader.frame(rows[:1])
           age   job
        0   40  cook
    """

    schema: Schema

    def read(self, instances: Sequence[Mapping[str, JsonCell]]) -> list[JsonRow]:
        """Return the rows of objects that have one value for each feature."""
        read = []
        for row in instances:
            cells = {name: row[name] for name in self.schema.names}
            widened = ((name, _cell_type(cell)) for name, cell in cells.items() if not self._fits[name](cell))
            read.append(JsonRow(tuple(cells.values()), tuple(widened)))
        return read

    def frame(self, rows: Sequence[JsonRow], index: Sequence[int] | None = None) -> pd.DataFrame:
        """Return the data frame of rows that widen the same columns; by default they are numbered from 0."""
        columns = zip(*(row.cells for row in rows), strict=True)
        widened = dict(rows[0].widened)
        made = {
            feature.name: _column(cells, feature.dtype, widened.get(feature.name))
            for feature, cells in zip(self.schema.features, columns, strict=True)
        }
        return pd.DataFrame(made).set_axis(list(range(len(rows)) if index is None else index), axis=0)

    @cached_property
    def _fits(self) -> dict[str, Callable[[JsonCell], bool]]:
        """For each feature, whether a column of its training dtype can hold a cell."""
        return {feature.name: _make_check(feature) for feature in self.schema.features}


def _make_check(feature: Feature) -> Callable[[JsonCell], bool]:
    dtype = feature.dtype
    nullable = not isinstance(dtype, np.dtype) or dtype.kind in "fOMm"
    if isinstance(dtype, pd.CategoricalDtype):
        categories = {(isinstance(value, bool), value) for value in dtype.categories.tolist()}
        return lambda cell: cell is None or (isinstance(cell, bool), cell) in categories
    if is_object_dtype(dtype):
        return lambda cell: True
    if is_bool_dtype(dtype):
        return lambda cell: isinstance(cell, bool) or (cell is None and nullable)
    if is_integer_dtype(dtype):
        return lambda cell: _is_integer(cell, dtype) or (cell is None and nullable)
    if is_float_dtype(dtype):
        return lambda cell: cell is None or _is_float(cell, dtype)
    if is_string_dtype(dtype):
        return lambda cell: cell is None or isinstance(cell, str)
    return lambda cell: cell is None or (isinstance(cell, str) and _parse_text([cell], dtype) is not None)


def _is_integer(cell: JsonCell, dtype: Dtype) -> bool:
    """Return whether a cell is a whole number, also one such as 3.0, in the range of the dtype."""
    if _cell_type(cell) != "number":
        return False
    limits = np.iinfo(_numpy_dtype(dtype))
    return cell == int(cell) and limits.min <= cell <= limits.max  # type: ignore[arg-type]


def _is_float(cell: JsonCell, dtype: Dtype) -> bool:
    largest = float(np.finfo(_numpy_dtype(dtype)).max)
    return _cell_type(cell) == "number" and abs(cell) <= largest  # type: ignore[arg-type]


def _numpy_dtype(dtype: Dtype) -> Any:  # noqa: ANN401
    """Return the NumPy dtype behind a nullable dtype of pandas."""
    return dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", np.dtype(np.float64))


def _cell_type(cell: JsonCell) -> CellType:
    """Return the type of a cell; a number outside the range of a float is "huge"."""
    if cell is None:
        return "null"
    if isinstance(cell, str | bool):
        return "text" if isinstance(cell, str) else "boolean"
    return "number" if abs(cell) <= sys.float_info.max else "huge"


def _column(cells: Iterable[JsonCell], dtype: Dtype, widened: CellType | None) -> pd.Series:
    """Return a column in the training dtype, or in a wider dtype that depends only on ``widened``."""
    values = np.fromiter((np.nan if cell is None else cell for cell in cells), dtype=object)
    if isinstance(dtype, pd.CategoricalDtype) and widened in (None, "text"):
        return column_from_values(values, dtype)
    if widened is None:
        # JSON has values of these dtypes; values of others, such as dates, are sent as text.
        checks = (is_bool_dtype, is_integer_dtype, is_float_dtype, is_string_dtype, is_object_dtype)
        if any(check(dtype) for check in checks):
            return column_from_values(values, dtype)
        parsed = _parse_text(values.tolist(), dtype)
        assert parsed is not None
        return parsed
    if widened in ("number", "null") and (is_integer_dtype(dtype) or is_float_dtype(dtype)):
        return pd.Series(values).astype("float64" if isinstance(dtype, np.dtype) else "Float64")
    return pd.Series(values, dtype=object)


def _parse_text(values: Sequence[Any], dtype: Dtype) -> pd.Series | None:
    """Return values such as dates, parsed from text, or None if the text does not have the right form."""
    try:
        return pd.Series(values, dtype=object).astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
