"""Rows as JSON objects, and as the table that the library is asked about.

A row of JSON becomes a row of a table with the dtypes of the training table, so that it gets the answer that
the library gives for the same table. A cell that such a column cannot hold, text among numbers or null among
integers, widens the column, as it does in pandas. What rows of other clients stand in the same table must not
matter, so rows go together only where the same columns are widened by the same type of cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_integer_dtype, is_object_dtype, is_string_dtype

from plausiflow.service.refusals import like, shown, unusable
from plausiflow.tables import Dtype, Feature, Schema, build

Cell: TypeAlias = str | bool | int | float | None
Sort: TypeAlias = Literal["null", "text", "boolean", "number", "huge"]
MOST_PROBLEMS = 5


@dataclass(frozen=True)
class Instance:
    """One row that a client sent.

    Attributes:
        cells: In the order of the schema.
        wider: Names of the columns that must be widened for it, and what it holds there.
    """

    cells: tuple[Cell, ...]
    wider: tuple[tuple[str, Sort], ...] = ()


@dataclass(frozen=True)
class Reader:
    """Reads the rows of clients.

    Attributes:
        schema: Of the training table.

    Example:
        >>> table = pd.DataFrame({"age": [31, 54, 47], "job": ["nurse", "cook", "cook"]})
        >>> reader = Reader(Schema.infer(table))
        >>> rows = reader.read([{"job": "cook", "age": 40}, {"age": None, "job": "cook"}])
        >>> [row.wider for row in rows]
        [(), (('age', 'null'),)]
        >>> reader.frame(rows[:1])
           age   job
        0   40  cook
    """

    schema: Schema

    def read(self, instances: Sequence[object], what: str = "instances") -> list[Instance]:
        """Every row, or a refusal that names what is wrong with them.

        Args:
            instances: Objects with a value for every feature.
            what: They are called in the refusal.
        """
        wrong = [number for number, row in enumerate(instances) if not self._is_row(row)]
        if not wrong:
            return [self._instance(row) for row in instances]
        told = [f"{what}[{number}] {self._problem(instances[number])}" for number in wrong[:MOST_PROBLEMS]]
        more = len(wrong) - len(told)
        raise unusable(
            "A row must be an object with one value for each feature of the model: "
            f"{'; '.join(told)}{f'; and {more} more' if more else ''}."
        )

    def frame(self, instances: Sequence[Instance], index: Sequence[int] | None = None) -> pd.DataFrame:
        """The table of some rows that widen the same columns; its index counts unless it is given."""
        columns = zip(*(instance.cells for instance in instances), strict=True)
        wider = dict(instances[0].wider)
        made = {
            feature.name: _column(cells, feature.dtype, wider.get(feature.name))
            for feature, cells in zip(self.schema.features, columns, strict=True)
        }
        return pd.DataFrame(made).set_axis(list(range(len(instances)) if index is None else index), axis=0)

    def _is_row(self, row: object) -> bool:
        """Whether an object has one value for each feature, and nothing else."""
        return (
            isinstance(row, dict)
            and row.keys() == self._checks.keys()
            and not any(isinstance(cell, list | dict) for cell in row.values())
        )

    def _problem(self, row: object) -> str:
        """What keeps an object from being a row."""
        if not isinstance(row, dict):
            return f"is {shown(row)}"
        names = self.schema.names
        absent = [name for name in names if name not in row]
        extra = [name for name in row if name not in self._checks]
        nested = [name for name in names if isinstance(row.get(name), list | dict)]
        problems = [
            *([f"lacks {_listed(absent)}"] if absent else []),
            *(f"has {shown(name)}, which is no feature{like(name, absent or names)}" for name in extra[:3]),
            *(f"has {shown(row[name])} as {shown(name)}" for name in nested[:3]),
        ]
        return ", ".join(problems)

    def _instance(self, row: Any) -> Instance:  # noqa: ANN401
        cells = tuple(row[name] for name in self.schema.names)
        wider = tuple(
            (name, _sort(cell))
            for (name, holds), cell in zip(self._checks.items(), cells, strict=True)
            if not holds(cell)
        )
        return Instance(cells, wider)

    @cached_property
    def _checks(self) -> dict[str, Callable[[Cell], bool]]:
        """Whether a cell can stand in a column of its training dtype, by name."""
        return {feature.name: _check(feature) for feature in self.schema.features}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:MOST_PROBLEMS])) + (" and more" if len(names) > MOST_PROBLEMS else "")


def _check(feature: Feature) -> Callable[[Cell], bool]:
    dtype = feature.dtype
    may_miss = not isinstance(dtype, np.dtype) or dtype.kind in "fOMm"
    if isinstance(dtype, pd.CategoricalDtype):
        categories = {(isinstance(value, bool), value) for value in dtype.categories.tolist()}
        return lambda cell: cell is None or (isinstance(cell, bool), cell) in categories
    if is_object_dtype(dtype):
        return lambda cell: True
    if is_bool_dtype(dtype):
        return lambda cell: isinstance(cell, bool) or (cell is None and may_miss)
    if is_integer_dtype(dtype):
        return lambda cell: _is_whole(cell, dtype) or (cell is None and may_miss)
    if is_float_dtype(dtype):
        return lambda cell: cell is None or _is_float(cell, dtype)
    if is_string_dtype(dtype):
        return lambda cell: cell is None or isinstance(cell, str)
    return lambda cell: cell is None or (isinstance(cell, str) and _spelt([cell], dtype) is not None)


def _is_whole(cell: Cell, dtype: Dtype) -> bool:
    """A whole number, also one that is written as 3.0, within the range of the dtype."""
    if _sort(cell) != "number":
        return False
    limits = np.iinfo(_numpy(dtype))
    return cell == int(cell) and limits.min <= cell <= limits.max  # type: ignore[arg-type]


def _is_float(cell: Cell, dtype: Dtype) -> bool:
    """A number that the dtype can hold."""
    return _sort(cell) == "number" and abs(cell) <= float(np.finfo(_numpy(dtype)).max)  # type: ignore[arg-type]


def _numpy(dtype: Dtype) -> Any:  # noqa: ANN401
    """The dtype of NumPy behind one that can miss values."""
    return dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", np.dtype(np.float64))


def _sort(cell: Cell) -> Sort:
    """What sort of value a cell holds; a number that no float can hold is huge."""
    if cell is None:
        return "null"
    if isinstance(cell, str | bool):
        return "text" if isinstance(cell, str) else "boolean"
    return "number" if abs(cell) <= sys.float_info.max else "huge"


def _column(cells: Iterable[Cell], dtype: Dtype, wider: Sort | None) -> pd.Series:
    """A column that holds the cells: in the training dtype, or in one that depends only on ``wider``."""
    values = np.fromiter((np.nan if cell is None else cell for cell in cells), dtype=object)
    more_levels = isinstance(dtype, pd.CategoricalDtype) and wider in (None, "text")
    if more_levels or (wider is None and _is_plain(dtype)):
        return build(values, dtype)
    if wider is None:
        spelt = _spelt(values.tolist(), dtype)
        assert spelt is not None
        return spelt
    if wider in ("number", "null") and (is_integer_dtype(dtype) or is_float_dtype(dtype)):
        return pd.Series(values).astype("float64" if isinstance(dtype, np.dtype) else "Float64")
    return pd.Series(values, dtype=object)


def _is_plain(dtype: Dtype) -> bool:
    """Holds what JSON has; others, such as dates, are spelt as text."""
    return (
        is_bool_dtype(dtype)
        or is_integer_dtype(dtype)
        or is_float_dtype(dtype)
        or is_string_dtype(dtype)
        or is_object_dtype(dtype)
    )


def _spelt(values: Sequence[Any], dtype: Dtype) -> pd.Series | None:
    """The cells in a dtype that text can spell, such as dates; nothing where they are no such text."""
    try:
        return pd.Series(values, dtype=object).astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
