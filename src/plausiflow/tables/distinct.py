"""The distinct values of a column: their counts, their type, the grid and the special values of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.tables.cells import Mask, factorize, level_key
from plausiflow.tables.features import CellValue
from plausiflow.tables.grids import (
    FloatArray,
    decimals_of,
    find_common_grid,
    find_grid,
    find_spacing,
    float_dtype,
    round_to_grid,
    without_single_precision,
)
from plausiflow.tables.special import find_special

ROWS_PER_LEVEL = 5
MOST_CODES = 30

Family: TypeAlias = Literal["boolean", "number", "text"]


class Column:
    """The distinct values of a column, their counts and their type."""

    def __init__(
        self,
        cells: pd.Series,
        special: Sequence[float] | None = None,
        step: float | None = None,
        revealed: Sequence[float] = (),
    ) -> None:
        self.cells, self._declared, self.declared_step, self._revealed = cells, special, step, revealed
        codes, self.values = factorize(cells)
        self.counts = np.bincount(codes[codes >= 0], minlength=len(self.values))
        self.present = int(self.counts.sum())
        if not self.present:
            raise self.problem("has no values. Drop it, or keep it as an 'identifier' with `kinds`")
        self.family = self._family()
        if np.inf in self.values or -np.inf in self.values:
            raise self.problem("has infinite values. Replace or drop them")

    def _family(self) -> Family:
        dtype = self.cells.dtype
        categories = dtype.categories.tolist() if isinstance(dtype, pd.CategoricalDtype) else []
        types = set(map(type, [*self.values, *categories]))
        if not types <= {str, bool, int, float} or isinstance(dtype, pd.SparseDtype):
            names = ", ".join(sorted({type(value).__name__ for value in self.cells.dropna()}))
            raise self.problem(
                f"has dtype {dtype} with values of type {names}; expected numbers, booleans, text or "
                "categories of these. Convert it (dates to days since a date, intervals to text, a sparse "
                "column to a dense one), or keep it unchanged with the kind 'identifier'"
            )
        if types == {bool}:
            return "boolean"
        return "number" if types <= {int, float} and not categories else "text"

    def problem(self, text: str) -> InvalidInputError:
        """Return an error about this column."""
        return InvalidInputError(f"`{self.cells.name}` {text}.")

    @cached_property
    def spellings(self) -> dict[Any, tuple[CellValue, int]]:
        """For each level, by its key: its most common spelling, and its count over all spellings."""
        found: dict[Any, list[tuple[int, Any]]] = {}
        for value, count in zip(self.values, self.counts.tolist(), strict=True):
            found.setdefault(level_key(value), []).append((-count, value))
        common = {k: min(spelt, key=lambda s: (s[0], str(s[1])))[1] for k, spelt in found.items()}
        if self.family == "number" and not self.whole:
            grid = find_grid(self.numbers, float_dtype(self.cells.dtype))
            if grid is not None:
                common = {k: round_to_grid(np.array(k, dtype=np.float64), *grid).item() for k in common}
        return {level_key(common[k]): (common[k], -sum(n for n, _ in spelt)) for k, spelt in found.items()}

    @cached_property
    def distinct(self) -> int:
        """Number of distinct values; spaces around text do not count."""
        return len(set(map(level_key, self.values))) if self.family == "text" else len(self.values)

    @cached_property
    def whole(self) -> bool:
        """Whether all values are of type int."""
        return set(map(type, self.values)) == {int}

    @cached_property
    def numbers(self) -> FloatArray:
        """The distinct values as floats."""
        try:
            return np.array(self.values, dtype=np.float64)
        except OverflowError:
            raise self.problem("has integers too large for a float. Use the kind 'identifier'") from None

    @cached_property
    def written(self) -> FloatArray:
        """The distinct numbers as decimals, if single precision has changed them: 3.1, not 3.0999999."""
        if float_dtype(self.cells.dtype) != np.float64:
            return self.numbers
        return without_single_precision(self.numbers)

    @cached_property
    def special(self) -> tuple[float, ...]:
        """The special values of its numbers: those that the user declared and some row has, else found."""
        if self._declared is None:
            return tuple(sorted({*find_special(self.numbers, self.counts), *self._revealed}))
        dtype = float_dtype(self.cells.dtype)
        declared = {float(dtype.type(value)) for value in self._declared}
        return tuple(sorted(declared & set(self.numbers.tolist())))

    @cached_property
    def ordinary(self) -> Mask:
        """Which of its distinct numbers are not special."""
        ordinary = ~np.isin(self.numbers, self.special)
        if not ordinary.any():
            raise self.problem("has only special values. Name fewer in `special`, or use the kind 'category'")
        return ordinary

    @cached_property
    def grid(self) -> tuple[float, int] | None:
        """The step of its ordinary numbers and their decimals, or None without a grid."""
        if self.declared_step is not None:
            return self.declared_step, decimals_of(self.declared_step) or 0
        dtype, own = float_dtype(self.cells.dtype), self.ordinary
        return find_common_grid(self.written[own], self.counts[own], dtype)

    @cached_property
    def kept(self) -> Mask:
        """Which of its ordinary numbers are on the grid."""
        assert self.grid is not None
        values = self.written[self.ordinary]
        with np.errstate(over="ignore"):
            rounded = round_to_grid(values, *self.grid).astype(float_dtype(self.cells.dtype))
        return np.asarray(rounded == values)

    @cached_property
    def spacing(self) -> tuple[float, float]:
        """Spacing and offset of its ordinary numbers; zeros if there is none, or if the step was declared."""
        if self.grid is None or self.declared_step is not None:
            return 0.0, 0.0
        values, counts = self.written[self.ordinary], self.counts[self.ordinary]
        return find_spacing(values[self.kept], counts[self.kept], *self.grid) or (0.0, 0.0)

    @cached_property
    def is_code(self) -> bool:
        """Whether its numbers are codes: few known values with gaps between them.

        Every value has at least five rows, so that values that were never seen are rare, and less than a
        third of the points of the grid between the smallest and the largest value occur.
        """
        grid = find_grid(self.numbers, float_dtype(self.cells.dtype))
        if grid is None or self.distinct > MOST_CODES or self.counts.min() < ROWS_PER_LEVEL:
            return False
        spaced = find_spacing(self.numbers, self.counts, *grid)
        return bool(3 * self.distinct < np.ptp(self.numbers) / (spaced or grid)[0] + 1)

    def continued(self, minimum: float, maximum: float, step: float) -> tuple[float, float]:
        """Return a range with the special values that continue it, such as 0 in a column of counts.

        They were found and not declared, are one step from the end, and are no negative sentinel of numbers
        that are not negative. The two next points of the grid have at least five rows each.
        """
        common = set(np.rint(self.numbers[self.ordinary & (self.counts >= ROWS_PER_LEVEL)] / step).tolist())
        first, last = round(minimum / step), round(maximum / step)
        for value in self.special if self._declared is None else ():
            place = round(value / step)
            if abs(value - place * step) > 1e-9 * step:
                continue
            if place == first - 1 and {first, first + 1} <= common and (value >= 0 or minimum < 0):
                minimum = value
            elif place == last + 1 and {last, last - 1} <= common:
                maximum = value
        return minimum, maximum

    def median(self, among: Mask) -> float:
        """Return the lower median of some of the distinct values, weighted by their counts."""
        order = np.argsort(self.numbers[among])
        reached = np.cumsum(self.counts[among][order])
        return float(self.numbers[among][order][np.searchsorted(reached, (reached[-1] - 1) // 2, "right")])
