"""The description of one column of a table: its kind, its values, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from pandas.api.types import pandas_dtype

from plausiflow.tables.layout import Scale

Kind = Literal["continuous", "integer", "boolean", "category", "ordered", "constant", "identifier"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CellValue: TypeAlias = str | bool | int | float
LEVELS_SHOWN = 8
_LISTS = ("levels", "special", "known")
Dtype: TypeAlias = np.dtype[Any] | ExtensionDtype


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One column of a table.

    Attributes:
        name: Name of the column.
        kind: ``integer`` is any number on a grid: whole numbers, or multiples of a step such as 0.5 or 100. A
            ``constant`` or an ``identifier`` never changes and is not encoded.
        dtype: The dtype in the training table.
        levels: The values of a boolean, a category or an ordered category, in order, each in its most common
            spelling; the single value of a constant.
        minimum: Smallest training value of a number that is not special, or the special value that continues
            the others, such as 0 in a column of counts.
        maximum: Largest such training value.
        step: The largest number that (nearly) all values that are not special are multiples of; zero without
            a grid.
        spacing: The larger step that (nearly) all values keep apart from an offset, such as 10 for 5, 15, 25;
            zero if there is none.
        offset: That offset, such as 5; smaller than the spacing.
        decimals: Number of decimals of a number on the grid.
        log: Whether the number has a heavy tail and is scaled by ``log1p``.
        known: The values of a number, ascending, if at least 99 % of further rows would have one of them, and
            others would be on the grid: an answer that changes the number has one of these. Empty otherwise.
        special: Special values of a number, ascending: each is a state of its own, such as -1 for "never" or
            0 in a column of amounts.
        can_miss: Whether some training row has a missing value.
        filling: The value that replaces a missing one: the (lower) median of the values that are not special,
            the most common special value if more than half of the values are special, or the most common
            level.
    """

    name: str
    kind: Kind
    dtype: Dtype
    levels: tuple[CellValue, ...] = ()
    minimum: float = 0.0
    maximum: float = 0.0
    step: float = 0.0
    spacing: float = 0.0
    offset: float = 0.0
    decimals: int = 0
    log: bool = False
    known: tuple[float, ...] = ()
    special: tuple[float, ...] = ()
    can_miss: bool = False
    filling: CellValue | None = None

    @cached_property
    def is_number(self) -> bool:
        """Whether an encoded row has a column for its number."""
        return self.kind in ("continuous", "integer")

    @cached_property
    def has_levels(self) -> bool:
        """Whether its value is one of its levels."""
        return self.kind in ("boolean", "category", "ordered")

    @cached_property
    def is_numeric(self) -> bool:
        """Whether its values are numbers: its own, its levels or its constant. Booleans count as 0 and 1."""
        numbers = all(isinstance(level, bool | int | float) for level in self.levels)
        return self.is_number or (self.kind in ("ordered", "boolean", "constant") and numbers)

    @property
    def level_numbers(self) -> list[float]:
        """The levels of a numeric feature as floats."""
        return [float(level) for level in self.levels]

    @cached_property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest training value of a numeric feature, apart from special values."""
        if self.is_number:
            return self.minimum, self.maximum
        return min(self.level_numbers), max(self.level_numbers)

    @cached_property
    def scale(self) -> Scale:
        """The scale of its number; on a grid, the ends are multiples of the step."""
        low, high = self.minimum, self.maximum
        if self.step:
            low, high = round(low / self.step) * self.step, round(high / self.step) * self.step
        return Scale(minimum=low, maximum=high, step=self.step, log=self.log, known=self._known_multiples)

    @property
    def _known_multiples(self) -> tuple[float, ...]:
        """The known values, those on the grid as exact multiples of the step."""
        known = np.array(self.known, dtype=np.float64)
        if self.step:
            places = np.rint(known / self.step)
            known = np.where(np.round(places * self.step, self.decimals) == known, places * self.step, known)
        return tuple((known + 0.0).tolist())

    @cached_property
    def grid(self) -> tuple[float, float]:
        """Step and offset of changed numbers: those of the spacing, if there is one; zeros without a grid."""
        return self.spacing or self.step, self.offset

    @property
    def description(self) -> str:
        """The kind and the values of the column, in words.

        Example:
            >>> Feature(name="age", kind="integer", dtype=np.dtype(int), maximum=99, step=1).description
            'integer, 0 to 99 in steps of 1'
        """
        text: str = self.kind
        if self.is_number:
            text += f", {self.minimum:,.10g} to {self.maximum:,.10g}"
            text += f" in steps of {self.grid[0]:g}" if self.step else ""
            text += f" from {self.offset:g}" if self.offset else ""
            text += f", {len(self.known)} known values" if self.known else ""
            special = ", ".join(f"{value:g}" for value in self.special)
            text += f"; special values: {special}" if special else ""
        elif self.levels:
            shown = ", ".join(map(repr, self.levels[:LEVELS_SHOWN]))
            more = len(self.levels) - LEVELS_SHOWN
            text += f", {len(self.levels)} levels: " if self.has_levels else ": "
            text += shown + (f" and {more} more" if more > 0 else "")
        return text + ("; may be missing" if self.can_miss else "")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object that keeps the types of levels and the dtype.

        One dtype is not kept: an identifier with categories such as intervals becomes a column of objects.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return values | {"dtype": dtype_to_json(self.dtype)} | lists

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """Return the feature that ``to_dict`` wrote."""
        lists = {name: tuple(values.get(name, ())) for name in _LISTS}
        return cls(**{**values, **lists, "dtype": dtype_from_json(values["dtype"])})


def to_python(value: Any) -> Any:  # noqa: ANN401
    """Return a NumPy scalar as a Python value; other values unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def dtype_to_json(dtype: Dtype) -> str | dict[str, Any]:
    """Return a dtype as a JSON value; categories that are no cells of a table become objects."""
    if isinstance(dtype, pd.CategoricalDtype):
        categories = list(map(to_python, dtype.categories))
        if not all(isinstance(value, CellValue) for value in categories):
            return "object"
        return {
            "categories": categories,
            "of": dtype_to_json(dtype.categories.dtype),
            "ordered": bool(dtype.ordered),
        }
    if isinstance(dtype, pd.StringDtype):
        return {"storage": dtype.storage, "missing": "NA" if dtype.na_value is pd.NA else "nan"}
    return str(dtype)


def dtype_from_json(entry: str | Mapping[str, Any]) -> Dtype:
    """Return the dtype that :func:`dtype_to_json` wrote."""
    if isinstance(entry, str):
        return pandas_dtype(entry)
    if "categories" in entry:
        categories = pd.Index(entry["categories"], dtype=dtype_from_json(entry["of"]))
        return pd.CategoricalDtype(categories, ordered=entry["ordered"])
    missing = pd.NA if entry["missing"] == "NA" else np.nan
    try:
        return pd.StringDtype(entry["storage"], na_value=missing)
    except ImportError:  # saved where pyarrow is installed
        return pd.StringDtype("python", na_value=missing)
