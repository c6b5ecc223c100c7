"""Tables of other libraries: read them as pandas, and return results in the library that they came from.

Everything inside works with pandas. Polars, PyArrow and others are read and written through narwhals, which
imports none of them. Whole numbers with missing values become floats, as in pandas, and are whole numbers
again in results. A result keeps the dtypes of its table; a dtype that cannot hold a value is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import nan
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.tables.cells import Mask, is_missing
from plausiflow.tables.features import to_python

_EXACT = 2**53
"""The largest whole number below which doubles hold every whole number."""
_SIMPLE = (
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("Float32", "Float64", "Boolean", "String", "Categorical"),
)
"""Dtypes that columns of a table with numbers, booleans and text have."""
_WAYS = (
    "Pass a DataFrame of pandas or Polars, a PyArrow table, or a NumPy array with `feature_names` set in the "
    "constructor"
)


@dataclass(frozen=True)
class TableFormat:
    """The library of a table, and the dtypes of its columns.

    Attributes:
        library: ``"pandas"``, ``"numpy"``, or a name of narwhals, such as ``"polars"`` or ``"pyarrow"``.
        dtypes: Dtypes of the columns by name, as narwhals writes them; those of an Enum are its levels.
        nan: Columns of floats with NaN where others have null.
        native: Dtypes as PyArrow has them, which narwhals does not tell apart.
    """

    library: str = "pandas"
    dtypes: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    nan: frozenset[str] = frozenset()
    native: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_pandas(self) -> bool:
        """Whether nothing has to be converted."""
        return self.library == "pandas"

    def write(self, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        """Return a table of pandas in this format; its index is left out. An array has only its cells."""
        if self.is_pandas:
            return frame
        if self.library == "numpy":
            return frame.to_numpy()
        empty = frame.isna().all(axis=1).to_numpy(bool)  # rows without an answer
        columns = [self._column(str(name), column, empty) for name, column in frame.items()]
        if columns:
            return nw.to_native(columns[0].to_frame().with_columns(*columns[1:]))
        return nw.to_native(nw.from_dict({}, {}, backend=self.library))  # type: ignore[arg-type]

    def write_values(self, values: pd.Series) -> Any:  # noqa: ANN401
        """Return one column in this format."""
        if self.is_pandas:
            return values
        if self.library == "numpy":
            return values.to_numpy()
        return nw.to_native(self._column(str(values.name), values, np.ones(len(values), dtype=bool)))

    def _column(self, name: str, column: pd.Series, empty: Mask) -> nw.Series[Any]:
        """Return a column in the dtype that it has in this format if that holds it, else in its own."""
        dtype, cells = _dtype(self.dtypes.get(name)), _cells(column)
        missing = np.array([cell is None for cell in cells], dtype=bool)
        if name in self.nan:
            cells = [nan if none else cell for cell, none in zip(cells, missing & ~empty, strict=True)]
        if not _holds(dtype, cells):
            types = {type(cell) for cell in cells if cell is not None}
            dtype = None if len(types) == 1 or types <= {int, float} else nw.String()
            cells = cells if dtype is None else [None if cell is None else str(cell) for cell in cells]
        elif dtype is not None and dtype.is_integer():
            cells = [None if cell is None else int(cell) for cell in cells]
        made = nw.new_series(name, cells, dtype, backend=self.library)  # type: ignore[arg-type]
        native = made.to_native()
        if name in self.native and native.type != self.native[name]:
            with suppress(TypeError, ValueError, NotImplementedError):
                made = nw.from_native(native.cast(self.native[name]), series_only=True).alias(name)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        dtypes = {name: d if isinstance(d, str) else list(d) for name, d in self.dtypes.items()}
        return {"library": self.library, "dtypes": dtypes}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> TableFormat:
        """Return the format that ``to_dict`` wrote; it raises ValueError if that is not one."""
        known = ("pandas", "numpy", *(each.value for each in nw.Implementation))
        dtypes = entry["dtypes"]
        if entry["library"] not in known or not isinstance(dtypes, Mapping):
            raise ValueError("the format of the table is not known")
        return cls(str(entry["library"]), {str(name): dtype for name, dtype in dtypes.items()})


PANDAS = TableFormat()


def read_table(
    table: object, names: Sequence[str] | None = None, *, what: str = "the table", one_row: bool = True
) -> tuple[pd.DataFrame, TableFormat]:
    """Return a table as a DataFrame of pandas, and the format that results should have.

    A DataFrame of pandas is returned as it is, a Series of it as one row.

    Args:
        table: A table of any library.
        names: Names of the columns of an array.
        what: What the table is, for errors.
        one_row: Whether a Series is one row; otherwise it is an error.

    Raises:
        InvalidInputError: It is not a table, or the names do not fit.

    Example:
        >>> frame, table_format = read_table(np.array([[31, 1200], [54, 800]]), ["age", "income"])
        >>> frame
           age  income
        0   31    1200
        1   54     800
        >>> table_format.write(frame * 2).tolist()
        [[62, 2400], [108, 1600]]
    """
    if isinstance(table, pd.DataFrame):
        return table, PANDAS
    if isinstance(table, np.ndarray):
        return _from_array(table, names, what), TableFormat("numpy")
    if isinstance(table, pd.Series):
        return _from_row(table, what, one_row), PANDAS
    frame: Any = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise _not_a_table(
            table, what, "It has not been computed: call `.collect()`, `.compute()` or `.df()` first"
        )
    if not isinstance(frame, nw.DataFrame) and hasattr(table, "__arrow_c_stream__"):
        with suppress(ModuleNotFoundError, TypeError, ValueError):
            frame = nw.from_arrow(table, backend="pyarrow")
    if not isinstance(frame, nw.DataFrame):
        way = "Select the row as a table, as in `table[[0]]`" if hasattr(table, "to_frame") else _WAYS
        raise _not_a_table(table, what, way)
    return _from_narwhals(frame)


def read_values(values: object) -> Any:  # noqa: ANN401
    """Return a column of another library as a Series of pandas, and anything else as it is."""
    if isinstance(values, pd.Series | np.ndarray | list | tuple | str) or values is None:
        return values
    column: Any = nw.from_native(values, pass_through=True, allow_series=True)
    return _pandas_column(column) if isinstance(column, nw.Series) else values


def read_any_table(table: object) -> Any:  # noqa: ANN401
    """Return a table of another library as a DataFrame of pandas, and anything else as it is."""
    if isinstance(table, pd.DataFrame | np.ndarray | list | tuple | str) or table is None:
        return table
    frame = nw.from_native(table, pass_through=True, eager_only=True)
    return _from_narwhals(frame)[0] if isinstance(frame, nw.DataFrame) else table


def _from_array(array: np.ndarray, names: Sequence[str] | None, what: str) -> pd.DataFrame:
    """Return an array with two axes as a table."""
    if array.ndim != 2:
        way = "For one row, pass `row[None, :]`" if array.ndim == 1 else _WAYS
        raise InvalidInputError(
            f"{what} must have two axes, rows and columns; got shape {array.shape}. {way}."
        )
    if names is None:
        raise InvalidInputError(
            f"{what} is an array, whose {array.shape[1]} columns need names. Set them: `Explainer(model, "
            "feature_names=[...])`, or pass a DataFrame."
        )
    if len(names) != array.shape[1]:
        raise InvalidInputError(
            f"{what} must have {len(names)} columns, one for each of the feature names; got "
            f"{array.shape[1]}. Pass the same columns in the same order."
        )
    frame = pd.DataFrame(array, columns=list(names))
    return frame.infer_objects() if array.dtype == object else frame


def _from_row(row: pd.Series, what: str, one_row: bool) -> pd.DataFrame:
    """Return a Series as a table with one row; its index has the names of the columns."""
    if not one_row:
        raise _not_a_table(row, what, f"A Series is one row. {_WAYS}")
    frame: pd.DataFrame = pd.DataFrame(
        {name: pd.Series([cell], dtype=object) for name, cell in row.items()}
    ).infer_objects()
    return frame.set_axis(pd.Index([row.name if row.name is not None else 0]), axis=0)


def _from_narwhals(frame: nw.DataFrame[Any]) -> tuple[pd.DataFrame, TableFormat]:
    """Return a table of narwhals as pandas, and its format."""
    library = frame.implementation.value
    columns = {name: _pandas_column(frame[name]) for name in frame.columns}
    dtypes = {name: _name(dtype) for name, dtype in frame.schema.items()}
    floats = [column for column in frame.iter_columns() if column.dtype.is_float()]
    with_nan = frozenset(each.name for each in floats if each.is_nan().any() and not each.is_null().any())
    native = {}
    if library == "pyarrow":
        native = {each.name: each.type for each in nw.to_native(frame).schema}
    index = pd.RangeIndex(len(frame))
    return pd.DataFrame(columns, index=index), TableFormat(library, dtypes, with_nan, native)


def _pandas_column(column: nw.Series[Any]) -> pd.Series:
    """Return a column as pandas."""
    dtype, missing = column.dtype, column.is_null().to_numpy().astype(bool)
    if dtype.is_integer() and missing.any():
        present = column.drop_nulls()
        if max(abs(int(present.min() or 0)), abs(int(present.max() or 0))) > _EXACT:
            return pd.Series(column.to_list(), dtype="Int64", name=column.name)
        return pd.Series(column.cast(nw.Float64()).to_numpy(), name=column.name)
    if dtype.is_numeric() and not isinstance(dtype, nw.Decimal):
        return pd.Series(column.to_numpy(), name=column.name)
    cells = column.to_list()
    if isinstance(dtype, nw.Boolean):
        return pd.Series(cells, dtype="boolean" if missing.any() else bool, name=column.name)
    if isinstance(dtype, nw.Enum):
        return pd.Series(pd.Categorical(cells, categories=list(dtype.categories)), name=column.name)
    if isinstance(dtype, nw.Categorical):
        return pd.Series(pd.Categorical(cells), name=column.name)
    if isinstance(dtype, nw.String):
        return pd.Series(cells, name=column.name)
    return pd.Series(cells, name=column.name, dtype=object)


def _cells(column: pd.Series) -> list[Any]:
    """Return the cells as values of Python, None for missing ones."""
    cells = column.astype(object).tolist()
    return [
        None if none else to_python(cell)
        for cell, none in zip(cells, is_missing(column).tolist(), strict=True)
    ]


def _holds(dtype: Any, cells: Sequence[Any]) -> bool:  # noqa: ANN401
    """Return whether a dtype of narwhals holds all cells."""
    present = [cell for cell in cells if cell is not None]
    types = set(map(type, present))
    if dtype is None:
        return len(types) <= 1
    if isinstance(dtype, nw.Enum):
        return set(present) <= set(dtype.categories)
    if isinstance(dtype, nw.String | nw.Categorical):
        return types <= {str}
    if isinstance(dtype, nw.Boolean):
        return types <= {bool}
    if dtype.is_integer():
        bits, unsigned = int(str(dtype).lstrip("UInt")), str(dtype).startswith("U")
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return types <= {int, float} and all(cell == int(cell) and low <= cell <= high for cell in present)
    return types <= {int, float}


def _name(dtype: nw.dtypes.DType) -> str | Sequence[str]:
    """Return a dtype as text; an Enum as its levels."""
    return list(dtype.categories) if isinstance(dtype, nw.Enum) else str(dtype)


def _dtype(name: str | Sequence[str] | None) -> Any:  # noqa: ANN401
    """Return the dtype of numbers, booleans, text or levels that has a name; None for others."""
    if isinstance(name, str) or name is None:
        return getattr(nw, name)() if name in _SIMPLE else None
    return nw.Enum(list(name))


def _not_a_table(table: object, what: str, way: str) -> InvalidInputError:
    return InvalidInputError(f"{what} must be a table; got {type(table).__name__}. {way}.")
