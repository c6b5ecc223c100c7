"""Values as people write them.

A number has thousands separators and the decimals of its column. A column without a grid gets about a
thousandth of its range, and more decimals where two values would look the same. A boolean is "no" or "yes", a
missing value is "missing".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

from pandas import isna
from pandas.api.types import is_scalar

from plausiflow.tables import MAX_DECIMALS, Feature, to_python

ARROW = " → "
_MAX_PLAIN_NUMBER = 1e15
_YEARS = (1800, 2200)


def is_missing_value(value: Any) -> bool:  # noqa: ANN401
    """Return whether a single value is missing: None, NaN, NaT or NA."""
    return is_scalar(value) and bool(isna(value))


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    Example:
        >>> join_words(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def format_value(value: Any, *, boolean: bool = False) -> str:  # noqa: ANN401
    """Format a level, a class or a boolean; :class:`FeatureFormatter` formats measured numbers."""
    value = to_python(value)
    if is_missing_value(value):
        return "missing"
    if isinstance(value, bool) or (boolean and value in (0, 1)):
        return "yes" if value else "no"
    if isinstance(value, str):
        return " ".join(value.split()) or '""'
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN_NUMBER:
        return str(int(value))
    return str(value)


@dataclass(frozen=True)
class FeatureFormatter:
    """Formats the values and changes of one feature.

    Example:
        >>> import numpy as np
        >>> income = Feature(name="net_income", kind="integer", dtype=np.dtype(int), maximum=9e4, step=100.0)
        >>> FeatureFormatter(income).format_change(31000, 38500)
        'net_income: 31,000 → 38,500'
    """

    feature: Feature

    @property
    def name(self) -> str:
        """The feature's name, as the table has it."""
        return self.feature.name

    def format_change(self, before: object, after: object) -> str:
        """Return the feature's name and its change, such as "job: clerk → nurse"."""
        return f"{self.name}: {self.format_transition(before, after)}"

    def format_transition(self, before: object, after: object) -> str:
        """Return both values with an arrow between them."""
        return ARROW.join(self.format_pair(before, after))

    def format_pair(self, before: object, after: object) -> tuple[str, str]:
        """Return both values; numbers that differ get enough decimals to look different."""
        if not self.is_number:
            return self.format_level(before), self.format_level(after)
        old, new = _to_number(before), _to_number(after)
        for extra in range(17):
            first = format_value(before) if old is None else self._format(old, extra)
            second = format_value(after) if new is None else self._format(new, extra)
            if first != second:
                break
        return first, second

    def format_level(self, value: object) -> str:
        """Return a value that is not a number."""
        return format_value(value, boolean=self.feature.kind == "boolean")

    def format_number(self, value: float) -> str:
        """Return a number or a difference of numbers; a dash if it is not finite."""
        return self._format(value, 0) if math.isfinite(value) else "–"

    @cached_property
    def is_number(self) -> bool:
        """Whether the feature is a number, or has ordered levels that are numbers."""
        return self.feature.is_number or (
            self.feature.kind == "ordered"
            and all(isinstance(level, Real) and not isinstance(level, bool) for level in self.feature.levels)
        )

    @cached_property
    def _decimals(self) -> int:
        feature = self.feature
        if feature.has_levels:
            # One odd level, such as a mean that was filled in, does not give all others its decimals.
            needed = sorted(_required_decimals(float(level), 0, 0.0) for level in feature.levels)
            return needed[len(needed) // 2] if needed else 0
        span = feature.maximum - feature.minimum
        if feature.step or not 0 < span < math.inf:
            return feature.decimals
        return max(0, 3 - math.floor(math.log10(span)))

    @cached_property
    def _separator(self) -> str:
        """The thousands separator; years have none."""
        feature = self.feature
        values = [float(level) for level in feature.levels] or [feature.minimum, feature.maximum]
        is_year = not self._decimals and _YEARS[0] <= min(values) and max(values) <= _YEARS[1]
        return "" if is_year else ","

    def _format(self, value: float, extra_decimals: int) -> str:
        decimals = self._decimals
        if value in self.feature.special:
            decimals = _required_decimals(value, 0, 0.0)
        elif self.feature.has_levels:
            decimals = _required_decimals(value, decimals, 0.0)
        elif self.feature.step:
            decimals = _required_decimals(value, decimals, 1e-3 * self.feature.step)
        if abs(value) >= _MAX_PLAIN_NUMBER or decimals > 8:
            return f"{value:.{4 + extra_decimals}g}"
        return f"{value:z{self._separator}.{decimals + extra_decimals}f}"


def _to_number(value: object) -> float | None:
    """Convert a value or its text to a float; None if it is missing or not a number."""
    if not isinstance(value, float | int | str | Real | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _required_decimals(value: float, least: int, tolerance: float) -> int:
    """Return the decimals that show a value, which may be off the grid, up to single precision."""
    tolerance += 2e-7 * abs(value)
    for decimals in range(least, MAX_DECIMALS):
        if abs(round(value, decimals) - value) <= tolerance:
            return decimals
    return MAX_DECIMALS
