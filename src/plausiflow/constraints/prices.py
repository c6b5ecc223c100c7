"""Prices of levels: what it costs a row to move from one level of a category to another.

A price forbids nothing. It is written among the rules, because it belongs to the same table, is saved and
read in the same way, and may be given for one call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from plausiflow.constraints.arguments import check_name
from plausiflow.constraints.rule import Rule, literal, unknown
from plausiflow.constraints.rules import _check_level
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import CellValue, Feature, FloatArray, Mask, level_key
from plausiflow.validation import to_float

Move = tuple[CellValue, CellValue]


@dataclass(frozen=True, init=False, repr=False)
class Price(Rule):
    """What moves between levels cost, instead of one; a feature's weight multiplies its prices.

    A price is for one direction: ``("clerk", "manager")`` says nothing about the way back. Moves that are not
    listed cost what they cost without the rule. If a feature has several prices for a move, the last counts.

    Attributes:
        feature: Name of a category, ordered or not, or of a boolean.
        moves: A level, the level it changes to, and the price of this change.

    Example:
        >>> Price("job", {("clerk", "manager"): 2.0})
        Price("job", {("clerk", "manager"): 2.0})
        >>> matrix = pd.DataFrame({"clerk": [0, 0.5], "manager": [2, 0]}, index=["clerk", "manager"])
        >>> Price("job", matrix)  # from the row's label to the column's
        Price("job", {("clerk", "manager"): 2.0, ("manager", "clerk"): 0.5})
    """

    feature: str
    moves: tuple[tuple[CellValue, CellValue, float], ...]

    def __init__(self, feature: str, prices: Mapping[Move, float] | pd.DataFrame) -> None:
        check_name("Price", feature)
        pairs = _from_table(feature, prices) if isinstance(prices, pd.DataFrame) else prices
        if not isinstance(pairs, Mapping) or not pairs:
            raise InvalidInputError(
                f"Price({literal(feature)}, ...) takes a mapping such as {{('clerk', 'manager'): 2.0}}, or a "
                f"table with a row for each level and a column for each level it may change to; got "
                f"{prices!r}."
            )
        moves = tuple(_check_move(feature, move, price) for move, price in pairs.items())
        object.__setattr__(self, "feature", feature)
        object.__setattr__(self, "moves", moves)

    def __repr__(self) -> str:
        listed = ", ".join(
            f"({literal(own)}, {literal(to)}): {float(price)!r}" for own, to, price in self.moves
        )
        return f"Price({literal(self.feature)}, {{{listed}}})"

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the feature has no levels, or which levels it lacks."""
        found = []
        for feature in features.values():
            if not feature.has_levels:
                found.append(f"`{feature.name}` has no levels; use `weights` for the cost of a number")
                continue
            known = {level_key(level): level for level in feature.levels}
            named = dict.fromkeys(level for own, to, _ in self.moves for level in (own, to))
            absent = [level for level in named if level_key(level) not in known]
            found += [unknown("level", level, known.values()) for level in absent]
        return found

    def broken(self, changes: RowChanges) -> Mask:
        """Return False for every row: a price forbids nothing."""
        return np.zeros(len(changes.after), dtype=np.bool_)

    def matrix(self, feature: Feature) -> FloatArray:
        """Return the price of each change from a level (row) to another (column); NaN if not listed."""
        codes = {level_key(level): code for code, level in enumerate(feature.levels)}
        prices = np.full((len(codes), len(codes)), np.nan)
        for own, to, price in self.moves:
            prices[codes[level_key(own)], codes[level_key(to)]] = price
        return prices

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object, with moves as lists: JSON keys are always text."""
        return {"rule": "Price", "feature": self.feature, "moves": [list(move) for move in self.moves]}

    @classmethod
    def keys(cls) -> tuple[set[str], set[str]]:
        """Return the required and the optional keys of a JSON object."""
        return {"feature", "moves"}, set()

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        moves = entry["moves"]
        fine = isinstance(moves, list | tuple) and all(
            isinstance(move, list | tuple) and len(move) == 3 for move in moves
        )
        if not fine:
            raise InvalidInputError(
                f"`moves` of Price must be lists of a level, the level it changes to, and a price; "
                f"got {moves!r}."
            )
        return cls(entry["feature"], {(own, to): price for own, to, price in moves})


def price_matrices(rules: tuple[Rule, ...], features: Mapping[str, Feature]) -> dict[str, FloatArray]:
    """Return the prices of all features that have some, by name."""
    prices: dict[str, FloatArray] = {}
    for rule in rules:
        if isinstance(rule, Price):
            own = rule.matrix(features[rule.feature])
            before = prices.get(rule.feature, own)
            prices[rule.feature] = np.where(np.isnan(own), before, own)
    return prices


def _check_move(feature: str, move: object, price: object) -> tuple[CellValue, CellValue, float]:
    if not isinstance(move, tuple) or len(move) != 2:
        raise InvalidInputError(
            f"Price({literal(feature)}, ...) takes pairs of levels, (from, to), as keys; got {move!r}."
        )
    own, to = (_check_level(feature, level) for level in move)
    if own == to or not 0 < to_float(price) < math.inf:
        raise InvalidInputError(
            f"Price({literal(feature)}, ...) takes positive numbers for changes to another level; got "
            f"{price!r} for {move!r}. Use Allowed to forbid a change."
        )
    return own, to, to_float(price)


def _from_table(feature: str, table: pd.DataFrame) -> dict[Move, float]:
    """Return the prices of a table of levels by levels; its diagonal and empty cells do not count."""
    if table.index.has_duplicates or table.columns.has_duplicates:
        raise InvalidInputError(f"Price({literal(feature)}, ...): the levels of the table must be unique.")
    return {
        (own, to): price
        for own, row in zip(table.index.tolist(), table.to_numpy(dtype=object).tolist(), strict=True)
        for to, price in zip(table.columns.tolist(), row, strict=True)
        if own != to and not pd.isna(price)
    }
