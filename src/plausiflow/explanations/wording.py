"""Changes and verdicts in plain words.

A number has thousands separators and its column's decimals, or, off a grid, about a thousandth of the range;
more where two values would read the same. A boolean is "no" or "yes", a missing value "missing".
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

from plausiflow.explanations.changes import Changes
from plausiflow.tables import MAX_DECIMALS, Feature, plain

ARROW = " → "
_TOO_LONG = 1e15
_YEARS = (1800, 2200)


def is_absent(value: Any) -> bool:  # noqa: ANN401
    """Is a missing value: None, NaN, NaT or NA."""
    return is_scalar(value) and bool(isna(value))


def spaced(name: str) -> str:
    """A feature's name, underscores as spaces."""
    return name.replace("_", " ")


def listed(parts: Sequence[str]) -> str:
    """Joined with commas and "and".

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def value_text(value: Any, *, boolean: bool = False) -> str:  # noqa: ANN401
    """A value that is not a measured number: a level, a class, a truth."""
    value = plain(value)
    if is_absent(value):
        return "missing"
    if isinstance(value, bool) or (boolean and value in (0, 1)):
        return "yes" if value else "no"
    if isinstance(value, str):
        return " ".join(value.split()) or '""'
    if isinstance(value, float) and value.is_integer() and abs(value) < _TOO_LONG:
        return str(int(value))
    return str(value)


@dataclass(frozen=True)
class Wording:
    """How the values of one feature are written.

    Example:
        >>> import numpy as np
        >>> income = Feature(name="net_income", kind="integer", dtype=np.dtype(int), maximum=9e4, step=100.0)
        >>> Wording(income).phrase(31000, 38500)
        'net income 31,000 → 38,500'
    """

    feature: Feature

    def phrase(self, before: object, after: object) -> str:
        """One change, with the feature's name; a colon follows it unless numbers do."""
        name = spaced(self.feature.name)
        return f"{name}{'' if self.is_number else ':'} {self.transition(before, after)}"

    def transition(self, before: object, after: object) -> str:
        """From what to what."""
        if self.is_number:
            return ARROW.join(self._numbers(before, after))
        return ARROW.join(
            value_text(value, boolean=self.feature.kind == "boolean") for value in (before, after)
        )

    def amount(self, value: float) -> str:
        """A number, or a difference of numbers."""
        return self._number(value, 0) if math.isfinite(value) else "–"

    @cached_property
    def is_number(self) -> bool:
        """Is measured or counted: a number, or levels that are numbers with an order."""
        return self.feature.is_number or (
            self.feature.kind == "ordered" and all(_is_real(level) for level in self.feature.levels)
        )

    @cached_property
    def _decimals(self) -> int:
        feature = self.feature
        if feature.has_levels:
            return max((_decimals_needed(float(level), 0, 0.0) for level in feature.levels), default=0)
        span = feature.maximum - feature.minimum
        if feature.step or not 0 < span < math.inf:
            return feature.decimals
        return max(0, 3 - math.floor(math.log10(span)))

    @cached_property
    def _separator(self) -> str:
        """None in years."""
        values = [float(level) for level in self.feature.levels] or [
            self.feature.minimum,
            self.feature.maximum,
        ]
        is_year = not self._decimals and _YEARS[0] <= min(values) and max(values) <= _YEARS[1]
        return "" if is_year else ","

    def _numbers(self, before: object, after: object) -> list[str]:
        values = [_as_number(value) for value in (before, after)]
        texts: list[str] = []
        for more in range(17):
            texts = [
                value_text(given) if value is None else self._number(value, more)
                for given, value in zip((before, after), values, strict=True)
            ]
            if texts[0] != texts[1]:
                break
        return texts

    def _number(self, value: float, more: int) -> str:
        """Written with so many more decimals than usual."""
        decimals = self._decimals
        if self.feature.step:
            decimals = _decimals_needed(value, decimals, 1e-3 * self.feature.step)
        if abs(value) >= _TOO_LONG or decimals > 8:
            return f"{value:.{4 + more}g}"
        return f"{value:z{self._separator}.{decimals + more}f}"


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _as_number(value: object) -> float | None:
    """As a float, from text too; nothing where it is missing or no number."""
    if not isinstance(value, float | int | str | Real | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _decimals_needed(value: float, least: int, slack: float) -> int:
    """Enough to show a value that may lie off the grid, but for single precision's rounding errors."""
    slack += 2e-7 * abs(value)
    for decimals in range(least, MAX_DECIMALS):
        if abs(round(value, decimals) - value) <= slack:
            return decimals
    return MAX_DECIMALS


def phrases(changes: Changes, features: Sequence[Feature]) -> list[str]:
    """One phrase for each changed cell; ``features`` are those of the columns, in their order."""
    wordings = [Wording(feature) for feature in features]
    cells = zip(changes.column.tolist(), changes.before, changes.after, strict=True)
    return [wordings[column].phrase(before, after) for column, before, after in cells]


def verdict_sentence(status: str, reason: str, changes: str, wanted: str) -> str:
    """What is said of one row.

    Args:
        status: Its verdict.
        reason: Why, where that is known.
        changes: Those of its best answer.
        wanted: What is asked for, such as "loan is granted"; empty where unknown.
    """
    because = f": {reason}" if reason else ""
    match status:
        case "found":
            return changes
        case "relaxed":
            return f"{changes} (relaxed{because})"
        case "already":
            return _closed(f"Already as wanted{': ' if wanted else ''}{wanted}")
        case "not_reached":
            return _closed(f"Not reached within the time limit{because}")
        case "invalid_input":
            return _closed(f"Cannot be explained{because}")
    return _closed(f"No answer{because or ': nothing allowed is both decided as wanted and plausible'}")


def _closed(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
