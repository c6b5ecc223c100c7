"""What people write: which features may change, how, and what must hold between them.

A rule says nothing about a table; :class:`~plausiflow.constraints.Rules` reads it against one. ``str(rule)``
is the rule as people write it, and the name under which a row's verdict mentions it. ``rule.to_dict()``
is for JSON; :mod:`plausiflow.constraints.rules_json` reads it back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plausiflow.constraints.linear import Relation, parse
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Value, plain

_LARGEST = sys.float_info.max


@dataclass(frozen=True, init=False, repr=False)
class Immutable:
    """These features keep their values, to the bit.

    Attributes:
        features: Their names.
    """

    features: tuple[str, ...]

    def __init__(self, *features: str) -> None:
        if not features:
            raise InvalidInputError('Immutable needs the name of a feature, as in Immutable("age").')
        object.__setattr__(self, "features", tuple(_name("Immutable", feature) for feature in features))

    def __repr__(self) -> str:
        return f"Immutable({', '.join(map(_written, self.features))})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": "Immutable", "features": list(self.features)}


@dataclass(frozen=True, repr=False)
class _OneWay:
    """A feature that may move in one direction only."""

    feature: str

    def __post_init__(self) -> None:
        _name(type(self).__name__, self.feature)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_written(self.feature)})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": type(self).__name__, "feature": self.feature}


class Increasing(_OneWay):
    """A number, or a category with an order, that may rise but not fall.

    Attributes:
        feature: Its name.
    """


class Decreasing(_OneWay):
    """A number, or a category with an order, that may fall but not rise.

    Attributes:
        feature: Its name.
    """


@dataclass(frozen=True, repr=False)
class Range:
    """A counterfactual's number lies between two values, both included.

    It binds a row that starts outside, too: its number must move inside. A missing number stays missing.

    Attributes:
        feature: Its name.
        lo: Smallest allowed value; nothing where there is none.
        hi: Largest allowed value; nothing where there is none.
    """

    feature: str
    lo: float | None = None
    hi: float | None = None

    def __post_init__(self) -> None:
        _name("Range", self.feature)
        for side in ("lo", "hi"):
            bound = getattr(self, side)
            if bound is not None:
                object.__setattr__(self, side, _number(f"`{side}` of Range({_written(self.feature)})", bound))
        if self.lo is None and self.hi is None:
            raise InvalidInputError(f"{self} has no bound; give one: Range({_written(self.feature)}, 0).")

    def __repr__(self) -> str:
        return f"Range({_written(self.feature)}, {self.lo!r}, {self.hi!r})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": "Range", "feature": self.feature, "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True, init=False, repr=False)
class Allowed:
    """The levels that a row may move to; its own is always among them.

    Attributes:
        feature: Its name.
        values: The levels, the same for every row; nothing where they depend on the row's own level.
        transitions: Pairs of a level and the levels that rows at it may move to; rows at others stay.

    Example:
        >>> Allowed("job", ["clerk", "nurse"])
        Allowed("job", ["clerk", "nurse"])
        >>> Allowed("education", {"HS": ["Bachelors"]})
        Allowed("education", {"HS": ["Bachelors"]})
    """

    feature: str
    values: tuple[Value, ...] | None
    transitions: tuple[tuple[Value, tuple[Value, ...]], ...] | None

    def __init__(self, feature: str, values: Iterable[Value] | Mapping[Any, Iterable[Value]]) -> None:
        _name("Allowed", feature)
        object.__setattr__(self, "feature", feature)
        moves, listed = None, None
        if isinstance(values, Mapping):
            moves = tuple((_value(feature, own), _values(feature, to)) for own, to in values.items())
        else:
            listed = _values(feature, values)
        object.__setattr__(self, "values", listed)
        object.__setattr__(self, "transitions", moves)

    def __repr__(self) -> str:
        if self.transitions is None:
            return f"Allowed({_written(self.feature)}, {_list(self.values or ())})"
        moves = ", ".join(f"{_written(own)}: {_list(to)}" for own, to in self.transitions)
        return f"Allowed({_written(self.feature)}, {{{moves}}})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where only text can be a key: transitions are pairs."""
        if self.transitions is None:
            return {"rule": "Allowed", "feature": self.feature, "values": list(self.values or ())}
        moves = [[own, list(to)] for own, to in self.transitions]
        return {"rule": "Allowed", "feature": self.feature, "transitions": moves}


@dataclass(frozen=True, repr=False)
class Linear:
    """A linear relation between numbers that holds for a counterfactual, in original units.

    ``<`` and ``>`` mean ``<=`` and ``>=``. An equality holds up to half of the finest step among its
    features, as closely as rounded numbers can meet it. Where a number of a row is missing, the relation
    does not bind that row. Booleans count as zero and one. The grammar:
    :mod:`plausiflow.constraints.linear`.

    Attributes:
        text: Such as ``rent <= 0.4 * income``; names with spaces or dashes stand between backticks.
        relation: What the text says.
    """

    text: str
    relation: Relation = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidInputError(f'Linear takes a text, as Linear("rent <= income"); got {self.text!r}.')
        object.__setattr__(self, "relation", parse(self.text))

    def __repr__(self) -> str:
        return f"Linear({_written(self.text)})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": "Linear", "text": self.text}


@dataclass(frozen=True, repr=False)
class MaxChanges:
    """At most so many features differ from the row that is explained.

    Attributes:
        limit: How many.
    """

    limit: int

    def __post_init__(self) -> None:
        limit = _number("`limit` of MaxChanges", self.limit)
        if limit != int(limit):
            raise InvalidInputError(f"`limit` of MaxChanges must be a whole number; got {self.limit!r}.")
        object.__setattr__(self, "limit", int(limit))

    def __repr__(self) -> str:
        return f"MaxChanges({self.limit})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"rule": "MaxChanges", "limit": self.limit}


Rule = Immutable | Increasing | Decreasing | Range | Allowed | Linear | MaxChanges
"""Anything that may stand in a list of constraints."""


def _name(rule: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"{rule} takes the name of a feature, a text; got {name!r}.")
    return name


def _number(what: str, value: object) -> float | int:
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= _LARGEST:
        raise InvalidInputError(f"{what} must be a finite number; got {value!r}.")
    return number


def _value(feature: str, value: object) -> Value:
    level = plain(value)
    if not isinstance(level, str | bool | int | float) or (not isinstance(level, str) and level != level):
        raise InvalidInputError(
            f"Allowed({_written(feature)}) takes texts, numbers and booleans as levels; got {value!r}."
        )
    return level


def _values(feature: str, values: object) -> tuple[Value, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(
            f"Allowed({_written(feature)}) takes a list of levels, or lists by own level; got {values!r}."
        )
    return tuple(_value(feature, value) for value in values)


def _written(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _list(values: Iterable[Value]) -> str:
    return f"[{', '.join(map(_written, values))}]"
