"""Read a column as numbers or as level codes, and replace some of its cells.

A column may have any dtype that holds the same values: whole numbers as floats, booleans or numbers as
objects, numbers as text, text as categories. New values keep the column's dtype if it can hold them, and
widen it if not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray
from pandas.api.types import (
    is_bool_dtype,
    is_complex_dtype,
    is_extension_array_dtype,
    is_float_dtype,
    is_integer_dtype,
    is_numeric_dtype,
    is_object_dtype,
    is_string_dtype,
)

from plausiflow.tables.features import CellValue, Dtype, to_python
from plausiflow.tables.grids import FloatArray, float_dtype

MISSING = -1
UNKNOWN = -2
INCOMPARABLE = object()
_FEW_CELLS = 32

IntArray: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
ObjectArray: TypeAlias = npt.NDArray[np.object_]


def level_key(value: Any) -> Any:  # noqa: ANN401
    """Return the form in which levels are compared: text without outer spaces, other values as Python's."""
    return value.strip() if isinstance(value, str) else to_python(value)


def is_missing(column: pd.Series) -> Mask:
    """Return which cells are missing: None, NaN, NaT or NA."""
    missing = np.asarray(pd.isna(column.array), dtype=bool)
    if not isinstance(column.dtype, np.dtype) and is_float_dtype(column.dtype):
        missing = missing | np.isnan(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return missing


def read_numbers(column: pd.Series) -> tuple[FloatArray, Mask]:
    """Return the cells as numbers, NaN if missing or unreadable, and which cells are not numbers."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        values = column.to_numpy(dtype=np.float64)
        return values, np.zeros(len(values), dtype=bool)
    if is_numeric_dtype(dtype) and not is_complex_dtype(dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.zeros(len(values), dtype=bool)
    cells = column.astype(object)
    readable = cells.map(_is_readable).to_numpy(dtype=bool)
    numbers = pd.to_numeric(cells.where(readable, np.nan), errors="coerce")
    values = numbers.to_numpy(dtype=np.float64)
    return values, np.isnan(values) & ~is_missing(column)


def special_codes(values: FloatArray, special: Sequence[float], dtype: np.dtype[Any]) -> IntArray:
    """Return 1, 2, … where a number is the first, second, … special value in this dtype, else 0."""
    codes = np.zeros(len(values), dtype=np.int64)
    for code, value in enumerate(special, start=1):
        codes[values == float(dtype.type(value))] = code
    return codes


def _is_readable(cell: object) -> bool:
    if not isinstance(cell, str | Real | Decimal | np.bool_):
        return False
    return not isinstance(cell, int) or abs(cell) < 2**1023


def read_level_codes(column: pd.Series, levels: Sequence[CellValue]) -> IntArray:
    """Return the level code of each cell, or ``MISSING``, or ``UNKNOWN``."""
    types = tuple(map(type, levels))
    known = _codes_by_key(tuple(levels), types, float_dtype(column.dtype))
    as_numbers = all(each in (int, float) for each in types)
    if len(column) <= _FEW_CELLS:
        with suppress(TypeError):  # a cell that is not hashable
            return _codes_of_few(column.tolist(), known, as_numbers)
    codes, uniques = factorize(column)
    found = [_look_up(value, known, as_numbers) for value in uniques]
    return np.array([*found, MISSING], dtype=np.int64)[codes]


def _codes_of_few(cells: list[Any], known: Mapping[Any, int], as_numbers: bool) -> IntArray:
    """Return the codes of cells, each looked up by itself: for a few cells faster than to factorize them."""
    codes = np.array([_look_up(cell, known, as_numbers) for cell in cells], dtype=np.int64)
    for j in np.flatnonzero(codes == UNKNOWN):
        if pd.isna(cells[j]):
            codes[j] = MISSING
    return codes


@lru_cache(maxsize=1024)
def _codes_by_key(
    levels: tuple[CellValue, ...], types: tuple[type, ...], dtype: np.dtype[Any]
) -> Mapping[Any, int]:
    """Return level codes by key; ``types`` keeps cache entries of equal levels apart, such as 1 and True."""
    return {
        level_key(dtype.type(level)) if isinstance(level, float) else level_key(level): code
        for code, level in enumerate(levels)
    }


def factorize(column: pd.Series) -> tuple[IntArray, list[Any]]:
    """Return the index of each cell's value, -1 if missing, and the distinct values.

    Values that are not hashable, such as lists, count as one value, ``INCOMPARABLE``.
    """
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        comparable = [cell if _is_hashable(cell) else INCOMPARABLE for cell in column]
        codes, uniques = pd.factorize(pd.Series(comparable, dtype=object))
    values = uniques.tolist()
    return codes.astype(np.int64), list(map(to_python, values)) if is_object_dtype(uniques.dtype) else values


def _is_hashable(cell: object) -> bool:
    try:
        hash(cell)
    except TypeError:
        return False
    return True


def _look_up(value: object, known: Mapping[Any, int], as_numbers: bool) -> int:
    """Return the code of a value; if the levels are numbers, text is parsed as a number."""
    if as_numbers and isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return UNKNOWN
    return known.get(level_key(value), UNKNOWN)


def replace_cells(
    column: pd.Series, where: Mask, values: FloatArray | ObjectArray, levels: Sequence[CellValue] = ()
) -> pd.Series:
    """Return a copy with some cells replaced; the other cells keep their bits.

    ``values`` has one new value for each cell in ``where``: floats, NaN if missing, or objects. In a column
    of objects, a number replaces text as text. Categories that the dtype lacks are added in the order of
    ``levels``.
    """
    for dtype in _wider_dtypes(column.dtype, values, levels):
        new = _cast(values, dtype)
        fits = dtype == column.dtype or _cast(column[~where].to_numpy(object), dtype, exact=True) is not None
        if new is not None and fits:
            same = dtype == column.dtype
            cells = column.array.copy() if same else column.astype(dtype).array.copy()
            cells[where] = new
            break
    else:
        cells = column.to_numpy(object, copy=True)
        has_text_levels = any(isinstance(level, str) for level in levels)
        cells[where] = _as_objects(values, None if has_text_levels else cells[where])
    result: pd.Series = pd.Series(cells, column.index, cells.dtype, column.name, copy=False)
    return result


def column_from_values(values: FloatArray | ObjectArray, dtype: Dtype) -> pd.Series:
    """Return a column of ``values`` in this dtype, or in a wider one if it cannot hold them."""
    for candidate in _wider_dtypes(dtype, values, ()):
        cells = _cast(values, candidate)
        if cells is not None:
            return pd.Series(cells, copy=False)
    return pd.Series(_as_objects(values), dtype=object, copy=False)


def _wider_dtypes(
    dtype: Dtype, values: FloatArray | ObjectArray, levels: Sequence[CellValue]
) -> Iterator[Dtype]:
    """Yield dtypes that may hold the values, narrowest first; if none does, the column becomes objects."""
    if isinstance(dtype, pd.CategoricalDtype):
        yield _with_categories(dtype, values, levels)
    elif isinstance(dtype, pd.SparseDtype):
        yield from _wider_dtypes(dtype.subtype, values, levels)
    elif not is_object_dtype(dtype):
        yield dtype
        nullable = is_extension_array_dtype(dtype)
        if is_integer_dtype(dtype):
            yield pd.Int64Dtype() if nullable else np.dtype(np.int64)
        if is_numeric_dtype(dtype) and not is_bool_dtype(dtype):
            yield pd.Float64Dtype() if nullable else np.dtype(np.float64)


def _with_categories(
    dtype: pd.CategoricalDtype, values: FloatArray | ObjectArray, levels: Sequence[CellValue]
) -> pd.CategoricalDtype:
    """Return the dtype with the categories of the values, in the order of the levels if these cover them."""
    old = list(dtype.categories)
    new = [value for value in pd.unique(_as_objects(values)) if not pd.isna(value) and value not in old]
    if not new:
        return dtype
    wider = [*old, *new]
    if set(wider) <= set(levels):
        wider = [level for level in levels if level in wider]
    return pd.CategoricalDtype(wider, ordered=dtype.ordered)


def _cast(
    values: FloatArray | ObjectArray, dtype: Dtype, *, exact: bool = False
) -> ExtensionArray | npt.NDArray[Any] | None:
    """Return the values in a dtype, or None if they do not fit; floats may be rounded unless ``exact``."""
    into: Any = dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf" and values.dtype.kind == "f":
        return _cast_floats(values, dtype, exact=exact)
    if is_string_dtype(dtype):
        text: Any = _as_objects(values, np.full(len(values), "", dtype=object))
        return cast(ExtensionArray, pd.array(text, dtype=into))
    missing = pd.isna(values)
    try:
        with np.errstate(all="ignore"):
            new: Any = pd.array(cast(Any, values), dtype=into)
    except (TypeError, ValueError, OverflowError):
        return None
    if not np.array_equal(new.isna(), missing):
        return None
    stored = new[~missing].to_numpy(object if values.dtype == object else None)
    if is_float_dtype(dtype) and not exact:
        return new if np.isfinite(stored.astype(np.float64)).all() else None
    return new if (stored == values[~missing]).all() else None


def _cast_floats(
    values: FloatArray | ObjectArray, dtype: np.dtype[Any], *, exact: bool
) -> npt.NDArray[Any] | None:
    """Return floats in a dtype of numbers of NumPy; see :func:`_cast`."""
    missing = np.isnan(values)
    if dtype.kind != "f" and missing.any():
        return None
    with np.errstate(all="ignore"):
        new = values.astype(dtype)
    rounded = dtype.kind == "f" and not exact
    fits = np.isfinite(new[~missing]) if rounded else new[~missing] == values[~missing]
    return new if fits.all() else None


def _as_objects(values: FloatArray | ObjectArray, old: ObjectArray | None = None) -> ObjectArray:
    """Return Python values, whole numbers as ``int``; as text if the old value was text."""
    objects = values.astype(object)
    if values.dtype != object:
        whole = np.isfinite(values) & (values == np.rint(values))
        objects[whole] = [int(value) for value in values[whole]]
    if old is not None:
        text = np.array([isinstance(cell, str) for cell in old], dtype=bool) & ~pd.isna(objects)
        objects[text] = [str(value) for value in objects[text]]
    return objects
