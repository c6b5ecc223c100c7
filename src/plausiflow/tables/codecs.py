"""Codecs of one feature: a number with its states, or a category.

A codec reads a whole column at once; :mod:`plausiflow.tables.number_codecs` encodes all numbers. A cell that
cannot be read is encoded as the feature's filling and reported as a fault: which cells, and why.
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
)
from plausiflow.tables.features import CellValue, Feature
from plausiflow.tables.grids import FloatArray, round_to_grid
from plausiflow.tables.layout import Block

Fault: TypeAlias = tuple[Mask, str]


@dataclass(frozen=True)
class NumberCodec:
    """A continuous or integer feature in one column, followed by one column for each of its states.

    The states are "number", then the special values, then "missing".
    """

    feature: Feature
    start: int  # first column in an encoded row
    keep_missing: bool  # whether "missing" is a state if training rows have missing values; else it is filled

    @cached_property
    def level_names(self) -> tuple[CellValue, ...]:
        """The states: a number, its special values, "missing"; empty if there is only one."""
        missing = ("missing",) if self.keep_missing and self.feature.can_miss else ()
        special = tuple(int(value) if value.is_integer() else value for value in self.feature.special)
        return ("number", *special, *missing) if special or missing else ()

    @cached_property
    def block(self) -> Block:
        """The block of the feature."""
        first, special = self.start + 1, self.feature.special
        missing = self.level_names[-1:] == ("missing",)
        values = np.array([*special, self.filling] if missing else special, dtype=np.float64)
        pins = self._scale(self._multiples(values)).clamp(0.0, 1.0).tolist()
        return Block(
            name=self.feature.name,
            number=self.start,
            scale=self.feature.scale,
            levels=range(first, first + len(self.level_names)) if self.level_names else range(0),
            pinned=(None, *pins) if self.level_names else (),
            special=(None, *special, *([None] if missing else [])) if self.level_names else (),
            closed=tuple(name == "missing" for name in self.level_names),
        )

    def decode(self, x: Tensor) -> FloatArray:
        """Return the numbers, shape ``(n,)``; NaN if missing.

        A number with a step is rounded to its grid. Without one, it is rounded to 12 digits of the range,
        which restores bounds such as 0.3, unless its scale is logarithmic. A number inside the training range
        stays inside.
        """
        feature, number = self.feature, x[:, 0].double()
        values = feature.scale.decode(number).numpy()
        if feature.step:
            values = round_to_grid(values, feature.step, feature.decimals)
        else:
            encoded = number.numpy()
            clipped = np.clip(self._round(values), feature.minimum, feature.maximum)
            values = np.where((encoded > 0) & (encoded < 1), clipped, values)
            values = np.select([encoded == 0, encoded == 1], [feature.minimum, feature.maximum], values)
        values = self._restored(values, number)
        if self.level_names:
            codes = x[:, 1:].argmax(dim=1).numpy()
            for code, value in list(enumerate(self.block.special))[1:]:
                values[codes == code] = np.nan if value is None else value
        return values

    def _restored(self, values: FloatArray, number: Tensor) -> FloatArray:
        """Return numbers in which each that is encoded like a known value is that value, to the last bit."""
        known = self.feature.scale.known
        if not known:
            return values
        encoded = self._scale(np.array(known)).numpy()
        place = np.searchsorted(encoded, number.numpy() - 1e-12).clip(max=len(known) - 1)
        there = np.abs(encoded[place] - number.numpy()) <= 1e-12
        return np.where(there, np.array(self.feature.known)[place], values)

    @property
    def filling(self) -> float:
        """What an unreadable cell is encoded as."""
        return float(cast(float, self.feature.filling))

    @cached_property
    def filled(self) -> tuple[float, int]:
        """The encoded filling and its state."""
        filling, special = self.filling, self.feature.special
        code = 1 + special.index(filling) if filling in special else 0
        pin = self.block.pinned[code] if code else None
        return float(self._scale(self._multiples(np.array([filling])))) if pin is None else pin, code

    def _multiples(self, values: FloatArray) -> FloatArray:
        """Return numbers on the grid as exact multiples of the step, other numbers unchanged."""
        step = self.feature.step
        if not step:
            return values
        on_grid = round_to_grid(values, step, self.feature.decimals) == values
        return np.where(on_grid, np.rint(values / step) * step, values)

    def _scale(self, values: FloatArray) -> Tensor:
        return self.feature.scale.encode(torch.from_numpy(values))

    def _round(self, values: FloatArray) -> FloatArray:
        span = self.feature.maximum - self.feature.minimum
        if self.feature.log or not 1e-9 < span < 1e15:
            return values
        digits = 12 - int(np.floor(np.log10(span)))
        largest = max(abs(self.feature.minimum), abs(self.feature.maximum))
        return np.round(values, digits) if largest * 10.0**digits < 2**52 else values


@dataclass(frozen=True)
class LevelCodec:
    """A boolean, category or ordered feature, one column for each level."""

    feature: Feature
    start: int  # first column in an encoded row
    keep_missing: bool  # whether "missing" is a level if training rows have missing values; else it is filled

    @cached_property
    def level_names(self) -> tuple[CellValue, ...]:
        """The levels, followed by "missing" if rows may be missing."""
        return (*self.feature.levels, *(("missing",) if self._has_missing else ()))

    @property
    def _has_missing(self) -> bool:
        return self.keep_missing and self.feature.can_miss

    @cached_property
    def block(self) -> Block:
        """The block of the feature."""
        n = len(self.feature.levels)
        return Block(
            name=self.feature.name,
            levels=range(self.start, self.start + len(self.level_names)),
            ordered=self.feature.kind == "ordered",
            closed=tuple(code >= n for code in range(len(self.level_names))),
        )

    def encode(self, column: pd.Series) -> tuple[IntArray, list[Fault]]:
        """Return the column of an encoded row that is one, shape ``(n,)``, and the faults."""
        levels = self.feature.levels
        codes = read_level_codes(column, levels)
        missing, unknown = codes == MISSING, codes == UNKNOWN
        filling = levels.index(self.feature.filling)
        codes[missing] = len(levels) if self._has_missing else filling
        codes[unknown] = filling
        return self.start + codes, self._faults(unknown, missing)

    def _faults(self, unknown: Mask, missing: Mask) -> list[Fault]:
        faults: list[Fault] = []
        if unknown.any():
            faults.append((unknown, f"a level that no training row has ({self._known_levels()})"))
        if self.keep_missing and not self.feature.can_miss and missing.any():
            faults.append((missing, missing_text(self.feature)))
        return faults

    def _known_levels(self) -> str:
        """Return the levels as people write them, a few of many; an ordered feature has a nearest one."""
        names = [repr(level) for level in self.feature.levels]
        if self.feature.kind == "ordered":
            shown = names if len(names) <= 5 else [*names[:3], "...", names[-1]]
            return f"known: {', '.join(shown)}; to get an answer, give the nearest of them"
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"known: {', '.join(names[:5])}{more}"

    def decode(self, x: Tensor) -> ObjectArray:
        """Return the levels in their most common spelling, shape ``(n,)``; NaN if missing."""
        values = np.array([*self.feature.levels, np.nan], dtype=object)
        return cast(ObjectArray, values[x.argmax(dim=1).numpy()])


def missing_text(feature: Feature) -> str:
    """Return the fault of a missing value if no training row has one."""
    filling = feature.filling
    if isinstance(filling, float) and filling.is_integer():
        filling = int(filling)
    return f'but no training row has a missing value; missing="impute" fills it with {filling!r}'
