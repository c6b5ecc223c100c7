"""Rules about pairs of states: pairs that no row has, and features that determine others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from plausiflow.constraints.clauses import Clause, InStates, State, feature_states, state_codes
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask

Pair: TypeAlias = tuple[str, State, str, State]
"""A feature and its state, and another feature and its state."""

PAIRS_NAMED = 2
"""A rule with at most so many pairs names them: several learned rules have one or two."""


@dataclass(frozen=True, repr=False)
class NeverTogether(Rule):
    """Pairs of states that no counterfactual has.

    Attributes:
        pairs: Each pair as a feature, its state, another feature and its state. A state is a level, a special
            value of a number, ``"any other number"``, or None for a missing value.

    Example:
        >>> NeverTogether((("job", "none", "sector", "public"),))
        NeverTogether("job" 'none' with "sector" 'public')
    """

    pairs: tuple[Pair, ...]

    def __repr__(self) -> str:
        if len(self.pairs) > PAIRS_NAMED:
            return f"NeverTogether({len(self.pairs)} pairs)"
        named = [f"{literal(a)} {s!r} with {literal(b)} {t!r}" for a, s, b, t in self.pairs]
        return f"NeverTogether({', '.join(named)})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features."""
        return tuple(dict.fromkeys(name for a, _, b, _ in self.pairs for name in (a, b)))

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return the states that features lack."""
        cells = [cell for a, s, b, t in self.pairs for cell in ((a, s), (b, t))]
        return _unknown_states(cells, features)

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return for each pair that one of its states is left."""
        return tuple((InStates(a, (s,), True), InStates(b, (t,), True)) for a, s, b, t in self.pairs)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows have one of the pairs."""
        return _has_pair(self.pair_tables(changes.features), changes, lenient=False)

    def newly_broken(self, changes: RowChanges) -> Mask:
        """Return which rows have one of the pairs but did not have it before."""
        return _has_pair(self.pair_tables(changes.features), changes, lenient=True)

    def pair_tables(self, features: Mapping[str, Feature]) -> dict[tuple[str, str], Mask]:
        """Return the forbidden pairs of states, by both features; the last state is an unknown one."""
        tables: dict[tuple[str, str], Mask] = {}
        for a, s, b, t in self.pairs:
            first, second = feature_states(features[a]), feature_states(features[b])
            table = tables.setdefault((a, b), np.zeros((len(first) + 1, len(second) + 1), dtype=bool))
            table[first.index(s), second.index(t)] = True
        return tables

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {"rule": "NeverTogether", "pairs": [list(pair) for pair in self.pairs]}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        pairs = entry["pairs"]
        if not isinstance(pairs, list | tuple) or not all(_is_row(pair, 4, (0, 2)) for pair in pairs):
            raise InvalidInputError(
                "`pairs` of NeverTogether must be lists of a feature, its state, another feature and its "
                "state."
            )
        return cls(tuple((p[0], p[1], p[2], p[3]) for p in pairs))


@dataclass(frozen=True, repr=False)
class Determines(Rule):
    """A feature whose level fixes that of another one, as a city fixes the country.

    Attributes:
        feature: Name of the feature.
        other: Name of the feature that it determines.
        levels: Each level of the feature with the level of the other one.

    Example:
        >>> Determines("city", "country", (("Lyon", "FR"), ("York", "UK")))
        Determines("city", "country")
    """

    feature: str
    other: str
    levels: tuple[tuple[State, State], ...]

    def __repr__(self) -> str:
        return f"Determines({literal(self.feature)}, {literal(self.other)})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Both names."""
        return (self.feature, self.other)

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return the levels that the features lack."""
        cells = [cell for s, t in self.levels for cell in ((self.feature, s), (self.other, t))]
        return _unknown_states(cells, features)

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return for each level that it is left, or the other feature has the level that belongs to it."""
        return tuple((InStates(self.feature, (s,), True), InStates(self.other, (t,))) for s, t in self.levels)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows have a level that does not belong to the other one."""
        return _has_pair(self.pair_tables(changes.features), changes, lenient=False)

    def newly_broken(self, changes: RowChanges) -> Mask:
        """Return which rows have such a pair of levels but did not have it before."""
        return _has_pair(self.pair_tables(changes.features), changes, lenient=True)

    def pair_tables(self, features: Mapping[str, Feature]) -> dict[tuple[str, str], Mask]:
        """Return the forbidden pairs of states, by both features; the last state is an unknown one."""
        first, second = feature_states(features[self.feature]), feature_states(features[self.other])
        table = np.zeros((len(first) + 1, len(second) + 1), dtype=bool)
        for s, t in self.levels:
            table[first.index(s), : len(second) - 1] = True
            table[first.index(s), second.index(t)] = False
        return {(self.feature, self.other): table}

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return super().to_dict() | {"levels": [list(pair) for pair in self.levels]}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        levels = entry["levels"]
        if not isinstance(levels, list | tuple) or not all(_is_row(pair, 2, ()) for pair in levels):
            raise InvalidInputError("`levels` of Determines must be pairs of a level and the other's level.")
        return cls(entry["feature"], entry["other"], tuple((p[0], p[1]) for p in levels))


def _has_pair(tables: Mapping[tuple[str, str], Mask], changes: RowChanges, *, lenient: bool) -> Mask:
    broken = np.zeros(len(changes.after), dtype=bool)
    for (a, b), table in tables.items():
        codes = [state_codes(changes, name) for name in (a, b)]
        bad = table[codes[0], codes[1]]  # an unknown state is -1: the last row and column, which are empty
        if lenient:
            before = [state_codes(changes, name, before=True) for name in (a, b)]
            bad = bad & ((before[0] != codes[0]) | (before[1] != codes[1]))
        broken |= bad
    return broken


def _unknown_states(cells: list[tuple[str, State]], features: Mapping[str, Feature]) -> list[str]:
    def absent() -> Iterator[str]:
        for name, state in dict.fromkeys(cells):
            if name in features and state not in feature_states(features[name]):
                yield f"`{name}` has no state {state!r}"

    return list(absent())


def _is_row(entry: object, length: int, names: tuple[int, ...]) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != length:
        return False
    fine = all(value is None or isinstance(value, str | bool | int | float) for value in entry)
    return fine and all(isinstance(entry[i], str) for i in names)
