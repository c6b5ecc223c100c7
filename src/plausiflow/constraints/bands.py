"""The rule that a category tells the range of a number, as an age group tells that of the age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self, TypeAlias

from plausiflow.constraints.clauses import (
    Clause,
    Holds,
    InStates,
    State,
    clauses_broken,
    feature_states,
    special_values,
)
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask

Band: TypeAlias = tuple[State, float | None, float | None]
"""A level with the smallest and the largest number that belong to it; None for no bound."""


@dataclass(frozen=True, repr=False)
class Bands(Rule):
    """A category whose level goes with a range of a number.

    Special values of the number and missing values are in no range.

    Attributes:
        feature: Name of the category.
        number: Name of the number.
        bands: Each level with its smallest and its largest number, None for no bound.

    Example:
        >>> Bands("group", "age", (("young", None, 29), ("old", 30, None)))
        Bands("group", "age")
    """

    feature: str
    number: str
    bands: tuple[Band, ...]

    def __repr__(self) -> str:
        return f"Bands({literal(self.feature)}, {literal(self.number)})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Both names."""
        return (self.feature, self.number)

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return the levels that the category lacks, and whether the other feature is not a number."""
        found = []
        if self.feature in features:
            known = feature_states(features[self.feature])
            unknown = [level for level, _, _ in self.bands if level not in known]
            found += [f"`{self.feature}` has no level {level!r}" for level in unknown]
        if self.number in features and not features[self.number].is_number:
            found.append(f"`{self.number}` is of kind {features[self.number].kind}, not a number")
        return found

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return for each level that it is left, or the number is special or within the range."""
        special = special_values(features[self.number])
        apart = (InStates(self.number, special),) if special else ()
        clauses: list[Clause] = []
        for level, low, high in self.bands:
            left = InStates(self.feature, (level,), True)
            if low is not None:
                clauses.append((left, *apart, Holds({self.number: 1.0}, -low)))
            if high is not None:
                clauses.append((left, *apart, Holds({self.number: -1.0}, high)))
        return tuple(clauses)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows have a level to which their number does not belong."""
        return clauses_broken(self.clauses(changes.features), changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return super().to_dict() | {"bands": [list(band) for band in self.bands]}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        bands = entry["bands"]
        if not isinstance(bands, list | tuple) or not all(map(_is_band, bands)):
            raise InvalidInputError(
                "`bands` of Bands must be lists of a level, a smallest and a largest number."
            )
        return cls(entry["feature"], entry["number"], tuple((b[0], b[1], b[2]) for b in bands))


def _is_band(entry: object) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    level, *ends = entry
    numbers = all(
        end is None or (isinstance(end, int | float) and not isinstance(end, bool) and isfinite(end))
        for end in ends
    )
    return numbers and (level is None or isinstance(level, str | bool | int | float))
