"""Rules about single features: which may change, and to what; and how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from plausiflow.constraints.arguments import check_name, check_number, not_a_number
from plausiflow.constraints.clauses import Clause, Holds, InStates, Kept
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.rule import Rule, literal, unknown
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import CellValue, Feature, Mask, float_dtype, level_key, to_python


@dataclass(frozen=True, init=False, repr=False)
class Immutable(Rule):
    """These features keep their values, bit for bit.

    Attributes:
        features: Names of the features.
    """

    features: tuple[str, ...]

    def __init__(self, *features: str) -> None:
        if not features:
            raise InvalidInputError('Immutable needs the name of a feature, as in Immutable("age").')
        object.__setattr__(self, "features", tuple(check_name("Immutable", name) for name in features))

    def __repr__(self) -> str:
        return f"Immutable({', '.join(map(literal, self.features))})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.features

    def narrow(self, limits: Limits) -> Limits:
        """Fix the feature."""
        return replace(limits, fixed=True)

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged."""
        return tuple((Kept((name,)),) for name in self.features)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows change one of the features."""
        return changes.changed(*self.features)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        names = entry["features"]
        if not isinstance(names, list | tuple):
            raise InvalidInputError(f"`features` of Immutable must be a list of names; got {names!r}.")
        return cls(*names)


@dataclass(frozen=True, repr=False)
class Range(Rule):
    """The counterfactual's number is between two values, both included.

    A row that starts outside must move inside. A missing number stays missing.

    Attributes:
        feature: Name of the feature.
        lo: Smallest allowed value, or None.
        hi: Largest allowed value, or None.
    """

    feature: str
    lo: float | None = None
    hi: float | None = None

    def __post_init__(self) -> None:
        check_name("Range", self.feature)
        for side in ("lo", "hi"):
            bound = getattr(self, side)
            if bound is not None:
                name = f"`{side}` of Range({literal(self.feature)})"
                object.__setattr__(self, side, check_number(name, bound))
        if self.lo is None and self.hi is None:
            raise InvalidInputError(f"{self} has no bound; give one: Range({literal(self.feature)}, 0).")

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds, infinite instead of None."""
        return -np.inf if self.lo is None else self.lo, np.inf if self.hi is None else self.hi

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the feature has no numbers, or whether the bounds are reversed."""
        found = [
            f"{not_a_number(feature)}; list its levels with Allowed"
            for feature in features.values()
            if not feature.is_numeric
        ]
        if features and not found and self.bounds[0] > self.bounds[1]:
            found.append(f"the lower bound {self.lo!r} is above the upper bound {self.hi!r}")
        return found

    def narrow(self, limits: Limits) -> Limits:
        """Cut off both ends."""
        return limits.clip(*self.bounds)

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged."""
        low = [(Holds({self.feature: 1.0}, -self.lo),)] if self.lo is not None else []
        return (*low, *([(Holds({self.feature: -1.0}, self.hi),)] if self.hi is not None else []))

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows end outside."""
        values = changes.numbers_after(self.feature)
        lo, hi = np.array(self.bounds).astype(float_dtype(changes.after[self.feature].dtype))
        return np.asarray((values < lo) | (values > hi))


@dataclass(frozen=True, init=False, repr=False)
class Allowed(Rule):
    """The levels that a row may move to. A row may always keep its own level.

    Attributes:
        feature: Name of the feature.
        values: The levels, the same for every row; None if they depend on the row's own level.
        transitions: Pairs of a level and the levels that rows at it may move to; rows at other levels stay.

    Example:
        >>> Allowed("job", ["clerk", "nurse"])
        Allowed("job", ["clerk", "nurse"])
        >>> Allowed("education", {"HS": ["Bachelors"]})
        Allowed("education", {"HS": ["Bachelors"]})
    """

    feature: str
    values: tuple[CellValue, ...] | None
    transitions: tuple[tuple[CellValue, tuple[CellValue, ...]], ...] | None

    def __init__(self, feature: str, values: Iterable[CellValue] | Mapping[Any, Iterable[CellValue]]) -> None:
        check_name("Allowed", feature)
        moves, listed = None, None
        if isinstance(values, Mapping):
            moves = tuple(
                (_check_level(feature, own), _check_levels(feature, to)) for own, to in values.items()
            )
        else:
            listed = _check_levels(feature, values)
        object.__setattr__(self, "feature", feature)
        object.__setattr__(self, "values", listed)
        object.__setattr__(self, "transitions", moves)

    def __repr__(self) -> str:
        if self.transitions is None:
            return f"Allowed({literal(self.feature)}, {_literals(self.values or ())})"
        moves = ", ".join(f"{literal(own)}: {_literals(to)}" for own, to in self.transitions)
        return f"Allowed({literal(self.feature)}, {{{moves}}})"

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the feature has no levels, or which levels it lacks."""
        found = []
        for feature in features.values():
            if feature.is_number:
                found.append(f"`{feature.name}` is a number without levels; use Range")
            elif feature.kind == "identifier":
                found.append(f"`{feature.name}` is an identifier and never changes")
            else:
                moves = self.transitions or ()
                named = [*(self.values or ()), *(own for own, _ in moves)]
                named += [level for _, to in moves for level in to]
                known = {level_key(level): level for level in feature.levels}
                absent = [level for level in dict.fromkeys(named) if level_key(level) not in known]
                found += [unknown("level", level, known) for level in absent]
        return found

    def narrow(self, limits: Limits) -> Limits:
        """Forbid all other moves."""
        return limits.restrict_moves(torch.from_numpy(self._moves(limits.feature)[:-2, :-2]))

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged; none if it depends on the row's own level."""
        if self.values is None:
            return ()
        levels = {level_key(level): level for level in features[self.feature].levels}
        states = tuple(levels[level_key(value)] for value in self.values)
        return ((InStates(self.feature, states), Kept((self.feature,))),)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows make another move."""
        moves = self._moves(changes.features[self.feature])
        return np.asarray(~moves[changes.codes_before(self.feature), changes.codes_after(self.feature)])

    def _moves(self, feature: Feature) -> Mask:
        """Return ``[i, j]``: may a row move from level i to level j? The last two are UNKNOWN and MISSING."""
        codes = {level_key(level): code for code, level in enumerate(feature.levels)}
        moves = np.eye(len(codes) + 2, dtype=bool)
        if self.values is not None:
            moves[:, [codes[level_key(level)] for level in self.values]] = True
        for own, to in self.transitions or ():
            moves[codes[level_key(own)], [codes[level_key(level)] for level in to]] = True
        return moves

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object, with transitions as pairs: JSON keys are always text."""
        if self.transitions is None:
            return {"rule": "Allowed", "feature": self.feature, "values": list(self.values or ())}
        moves = [[own, list(to)] for own, to in self.transitions]
        return {"rule": "Allowed", "feature": self.feature, "transitions": moves}

    @classmethod
    def keys(cls) -> tuple[set[str], set[str]]:
        """Return the required and the optional keys of a JSON object."""
        return {"feature"}, {"values", "transitions"}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        if ("values" in entry) == ("transitions" in entry):
            raise InvalidInputError("Allowed takes either `values` or `transitions`.")
        if "values" in entry:
            if isinstance(entry["values"], Mapping):
                raise InvalidInputError(
                    "`values` of Allowed must be a list. Use `transitions` for lists by level."
                )
            return cls(entry["feature"], entry["values"])
        moves = entry["transitions"]
        if isinstance(moves, Mapping):
            return cls(entry["feature"], moves)
        if not isinstance(moves, list | tuple) or not all(map(_is_transition, moves)):
            raise InvalidInputError("`transitions` of Allowed must be pairs of a level and a list of levels.")
        return cls(entry["feature"], dict(moves))


@dataclass(frozen=True, repr=False)
class MaxChanges(Rule):
    """At most ``limit`` features differ from the row that is explained.

    Attributes:
        limit: Largest number of changed features.
    """

    limit: int

    def __post_init__(self) -> None:
        limit = check_number("`limit` of MaxChanges", self.limit)
        if limit != int(limit):
            raise InvalidInputError(f"`limit` of MaxChanges must be a whole number; got {self.limit!r}.")
        object.__setattr__(self, "limit", int(limit))

    @property
    def max_changes(self) -> int:
        """The limit."""
        return self.limit

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return whether the limit is too small."""
        return ["a counterfactual changes something; expected at least 1"] if self.limit < 1 else []

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows change more features."""
        return np.asarray(changes.mask.sum(axis=1) > self.limit)


def _check_level(feature: str, value: object) -> CellValue:
    level = to_python(value)
    if not isinstance(level, str | bool | int | float) or level != level:
        raise InvalidInputError(
            f"Allowed({literal(feature)}) takes texts, numbers and booleans as levels; got {value!r}."
        )
    return level


def _check_levels(feature: str, values: object) -> tuple[CellValue, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(
            f"Allowed({literal(feature)}) takes a list of levels, or lists by own level; got {values!r}."
        )
    return tuple(_check_level(feature, value) for value in values)


def _is_transition(move: object) -> bool:
    return isinstance(move, list | tuple) and len(move) == 2 and isinstance(move[0], str | bool | int | float)


def _literals(values: Iterable[CellValue]) -> str:
    return f"[{', '.join(map(literal, values))}]"
