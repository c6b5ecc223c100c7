"""What is known of one column of a table: its kind, its values, and how to write it to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from pandas.api.types import pandas_dtype

from plausiflow.tables.layout import Scale

Kind = Literal["continuous", "integer", "boolean", "category", "ordered", "constant", "identifier"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CellValue: TypeAlias = str | bool | int | float
Dtype: TypeAlias = np.dtype[Any] | ExtensionDtype


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One column.

    Attributes:
        name: Of the column.
        kind: ``integer`` is any number on a grid: whole numbers, or whole multiples of a step such as 0.5 or
            100. A ``constant`` or an ``identifier`` is kept as it is and never encoded.
        dtype: As it came.
        levels: The values of a boolean, a category or an ordered category, in order, each in its most common
            spelling; the one value of a constant.
        minimum: Smallest training value of a number.
        maximum: Largest training value of a number.
        step: The largest number that all values are whole multiples of; zero where there is no grid.
        decimals: With how many decimals a number on the grid is written.
        log: Has a heavy tail, so it is scaled by ``log1p``.
        zero_state: So often zero that "is zero" is a state of its own.
        can_miss: Some training row misses it.
        filling: Stands in where a value is missing: the (lower) median of a number, the most common level.
    """

    name: str
    kind: Kind
    dtype: Dtype
    levels: tuple[CellValue, ...] = ()
    minimum: float = 0.0
    maximum: float = 0.0
    step: float = 0.0
    decimals: int = 0
    log: bool = False
    zero_state: bool = False
    can_miss: bool = False
    filling: CellValue | None = None

    @property
    def is_number(self) -> bool:
        """Has a column for its number in an encoded row."""
        return self.kind in ("continuous", "integer")

    @property
    def has_levels(self) -> bool:
        """Is one of its levels."""
        return self.kind in ("boolean", "category", "ordered")

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers: its own, its levels or its constant. Booleans count as 0 and 1."""
        numbers = all(isinstance(level, bool | int | float) for level in self.levels)
        return self.is_number or (self.kind in ("ordered", "boolean", "constant") and numbers)

    @property
    def level_numbers(self) -> list[float]:
        """The levels of a numeric feature as floats."""
        return [float(level) for level in self.levels]

    @property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest training value of a numeric feature."""
        if self.is_number:
            return self.minimum, self.maximum
        return min(self.level_numbers), max(self.level_numbers)

    @property
    def scale(self) -> Scale:
        """How its number is scaled; its ends are multiples of the step, as all numbers on a grid."""
        low, high = self.minimum, self.maximum
        if self.step:
            low, high = round(low / self.step) * self.step, round(high / self.step) * self.step
        return Scale(minimum=low, maximum=high, step=self.step, log=self.log)

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON can hold; levels keep their types, and dtypes are restored exactly.

        But for one: an identifier with categories such as intervals becomes one of objects.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"dtype": _dtype_to_json(self.dtype), "levels": list(self.levels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The feature that ``to_dict`` wrote."""
        restored = {"dtype": _dtype_from_json(values["dtype"]), "levels": tuple(values["levels"])}
        return cls(**{**values, **restored})


def to_python(value: Any) -> Any:  # noqa: ANN401
    """A value as Python's own type, where NumPy wraps it."""
    return value.item() if isinstance(value, np.generic) else value


def _dtype_to_json(dtype: Dtype) -> str | dict[str, Any]:
    if isinstance(dtype, pd.CategoricalDtype):
        categories = list(map(to_python, dtype.categories))
        if not all(isinstance(value, CellValue) for value in categories):
            return "object"
        return {
            "categories": categories,
            "of": _dtype_to_json(dtype.categories.dtype),
            "ordered": bool(dtype.ordered),
        }
    if isinstance(dtype, pd.StringDtype):
        return {"storage": dtype.storage, "missing": "NA" if dtype.na_value is pd.NA else "nan"}
    return str(dtype)


def _dtype_from_json(written: str | Mapping[str, Any]) -> Dtype:
    if isinstance(written, str):
        return pandas_dtype(written)
    if "categories" in written:
        categories = pd.Index(written["categories"], dtype=_dtype_from_json(written["of"]))
        return pd.CategoricalDtype(categories, ordered=written["ordered"])
    missing = pd.NA if written["missing"] == "NA" else np.nan
    try:
        return pd.StringDtype(written["storage"], na_value=missing)
    except ImportError:  # written where pyarrow is installed
        return pd.StringDtype("python", na_value=missing)
