"""How one feature is encoded and decoded: numbers, with their states, and levels.

A codec reads a whole column at once. What it cannot read gets a stand-in and is reported as a fault: which
cells, and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.tables.cells import (
    MISSING,
    UNKNOWN,
    IntArray,
    Mask,
    ObjectArray,
    read_level_codes,
    read_numbers,
)
from plausiflow.tables.features import CellValue, Feature
from plausiflow.tables.grids import FloatArray, float_dtype, round_to_grid
from plausiflow.tables.layout import Block

Fault: TypeAlias = tuple[Mask, str]


@dataclass(frozen=True)
class NumberCodec:
    """A number in one column, and its states, if it has any, in more.

    Attributes:
        feature: Of kind continuous or integer.
        start: Its first column in an encoded row.
        keep_missing: "Is missing" is a state, where training rows miss it; else missing numbers are filled.
    """

    feature: Feature
    start: int
    keep_missing: bool

    @cached_property
    def level_names(self) -> tuple[CellValue, ...]:
        """The states; none where there would be only one."""
        missing = ("missing",) if self.keep_missing and self.feature.can_miss else ()
        states = (("positive", "zero") if self.feature.zero_state else ("present",)) + missing
        return states if len(states) > 1 else ()

    @cached_property
    def block(self) -> Block:
        """Its columns."""
        first = self.start + 1
        zero, filling = self._scale(np.array([0.0, self._filling])).tolist()
        pins = {"zero": zero, "missing": filling}
        return Block(
            name=self.feature.name,
            number=self.start,
            scale=self.feature.scale,
            levels=range(first, first + len(self.level_names)) if self.level_names else range(0),
            pinned=tuple(pins.get(str(name)) for name in self.level_names),
            closed=tuple(name == "missing" for name in self.level_names),
        )

    def encode(self, column: pd.Series) -> tuple[Tensor, list[Fault]]:
        """Its columns of every row, and what could not be read."""
        feature = self.feature
        values, unreadable = read_numbers(column)
        missing, infinite = np.isnan(values) & ~unreadable, np.isinf(values)
        values = self._on_grid(values, column)
        values[unreadable | missing | infinite] = self._filling
        number = self._scale(values)
        far = ~torch.isfinite(number).numpy()
        values[far] = self._filling
        number[far] = self._scale(values[far])
        faults = [
            (unreadable, "which is not a number"),
            (infinite, "which is infinite"),
            (far, f"too far from the training range, {feature.minimum:g} to {feature.maximum:g}"),
        ]
        if self.keep_missing and not feature.can_miss:
            faults.append((missing, missing_text(feature)))
        codes = np.zeros(len(values), dtype=np.int64)
        if feature.zero_state:
            codes[values == 0] = 1
        if "missing" in self.level_names:
            codes[missing] = len(self.level_names) - 1
        return torch.cat([number[:, None], one_hot(codes, len(self.level_names))], dim=1), faults

    def decode(self, x: Tensor) -> FloatArray:
        """The numbers that its columns hold, on their grid, NaN where missing.

        Off a grid a number is rounded to 12 digits of the range, which brings back bounds such as 0.3, unless
        its scale is logarithmic; one that is inside the training range stays inside.
        """
        feature, number = self.feature, x[:, 0].double()
        values = feature.scale.decode(number).numpy()
        if feature.step:
            values = round_to_grid(values, feature.step, feature.decimals)
        else:
            encoded = number.numpy()
            clipped = np.clip(self._rounded(values), feature.minimum, feature.maximum)
            values = np.where((encoded > 0) & (encoded < 1), clipped, values)
            values = np.select([encoded == 0, encoded == 1], [feature.minimum, feature.maximum], values)
        if self.level_names:
            codes = x[:, 1:].argmax(dim=1).numpy()
            for code, name in list(enumerate(self.level_names))[1:]:
                values[codes == code] = 0.0 if name == "zero" else np.nan
        return values

    @cached_property
    def _filling(self) -> float:
        """What stands in for a number, as a multiple of the step."""
        filling, step = float(cast(float, self.feature.filling)), self.feature.step
        return round(filling / step) * step if step else filling

    def _scale(self, values: FloatArray) -> Tensor:
        return self.feature.scale.encode(torch.from_numpy(values))

    def _on_grid(self, values: FloatArray, column: pd.Series) -> FloatArray:
        """Numbers written as multiples of the step as these multiples, others as they are; never -0.

        So a number on the grid is encoded to the very bits that snapping gives, in single precision too.
        """
        step = self.feature.step
        if not step:
            return values + 0.0
        with np.errstate(all="ignore"):
            written = round_to_grid(values, step, self.feature.decimals).astype(float_dtype(column.dtype))
            return np.where(written == values, np.rint(values / step) * step, values) + 0.0

    def _rounded(self, values: FloatArray) -> FloatArray:
        span = self.feature.maximum - self.feature.minimum
        if self.feature.log or not 1e-9 < span < 1e15:
            return values
        digits = 12 - int(np.floor(np.log10(span)))
        largest = max(abs(self.feature.minimum), abs(self.feature.maximum))
        return np.round(values, digits) if largest * 10.0**digits < 2**52 else values


@dataclass(frozen=True)
class LevelCodec:
    """Levels, one column each.

    Attributes:
        feature: Of kind boolean, category or ordered.
        start: Its first column in an encoded row.
        keep_missing: "Is missing" is a level, where training rows miss it; else missing levels are filled.
    """

    feature: Feature
    start: int
    keep_missing: bool

    @cached_property
    def level_names(self) -> tuple[CellValue, ...]:
        """The levels, and perhaps "missing"."""
        return (*self.feature.levels, *(("missing",) if self._has_missing else ()))

    @property
    def _has_missing(self) -> bool:
        return self.keep_missing and self.feature.can_miss

    @cached_property
    def block(self) -> Block:
        """Its columns."""
        n = len(self.feature.levels)
        return Block(
            name=self.feature.name,
            levels=range(self.start, self.start + len(self.level_names)),
            ordered=self.feature.kind == "ordered",
            closed=tuple(code >= n for code in range(len(self.level_names))),
        )

    def encode(self, column: pd.Series) -> tuple[Tensor, list[Fault]]:
        """Its columns of every row, and what could not be read."""
        levels = self.feature.levels
        codes = read_level_codes(column, levels)
        missing, unknown = codes == MISSING, codes == UNKNOWN
        filling = levels.index(self.feature.filling)
        codes[missing] = len(levels) if self._has_missing else filling
        codes[unknown] = filling
        known = ", ".join(map(repr, levels[:5])) + (f" and {len(levels) - 5} more" if len(levels) > 5 else "")
        faults = [(unknown, f"a level that no training row has (known: {known})")]
        if self.keep_missing and not self.feature.can_miss:
            faults.append((missing, missing_text(self.feature)))
        return one_hot(codes, len(self.level_names)), faults

    def decode(self, x: Tensor) -> ObjectArray:
        """The levels that its columns hold, in their most common spelling; NaN where missing."""
        values = np.array([*self.feature.levels, np.nan], dtype=object)
        return cast(ObjectArray, values[x.argmax(dim=1).numpy()])


def missing_text(feature: Feature) -> str:
    """The fault of a missing value that no training row misses."""
    filling = feature.filling
    if isinstance(filling, float) and filling.is_integer():
        filling = int(filling)
    return f'which no training row misses; missing="impute" fills it with {filling!r}'


def one_hot(codes: IntArray, n: int) -> Tensor:
    """A column for each of ``n`` levels, one at the row's level."""
    x = torch.zeros(len(codes), n, dtype=torch.float64)
    if n:
        x[torch.arange(len(codes)), torch.from_numpy(codes)] = 1.0
    return x
