"""Rules that were learned from the training table.

A learned rule is an ordinary rule with its evidence. It is lenient: a row that breaks it may keep the values
that do so, but a counterfactual that changes one of them must satisfy it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from plausiflow.constraints.bands import Bands
from plausiflow.constraints.clauses import FREE, Clause, State, clauses_broken
from plausiflow.constraints.computed import Computed
from plausiflow.constraints.implies import Implies
from plausiflow.constraints.known_pairs import PAIRS_NAMED, Determines, NeverTogether
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.linear_rules import Equal, Linear
from plausiflow.constraints.rule import Rule, rule_from_dict
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask

PAIRS_SHOWN = 5


@dataclass(frozen=True, repr=False)
class LearnedRule(Rule):
    """A rule that (practically) all training rows satisfy.

    Attributes:
        rule: The rule.
        rows: Number of training rows that it was learned from.
        support: Number of these rows that the rule is about, such as those that meet its condition.
        exceptions: Number of training rows that break it.
        active: Whether searches obey it; see ``Explainer.switch_off``.
    """

    rule: Rule
    rows: int
    support: int
    exceptions: int
    active: bool = True

    def __post_init__(self) -> None:
        counts = (self.rows, self.support, self.exceptions)
        if not isinstance(self.rule, Rule) or not all(type(c) is int and c >= 0 for c in counts):
            raise InvalidInputError(
                f"A learned rule needs a rule and counts of rows; got {self.rule!r} and {counts!r}."
            )
        if not isinstance(self.active, bool):
            raise InvalidInputError(f"`active` of a learned rule must be a boolean; got {self.active!r}.")

    def __repr__(self) -> str:
        return repr(self.rule)

    @property
    def text(self) -> str:
        """The rule as code, with its evidence in words."""
        off = "" if self.active else "; switched off"
        unnamed = isinstance(self.rule, NeverTogether) and len(self.rule.pairs) > PAIRS_NAMED
        pairs = f"{self.description}; " if unnamed or isinstance(self.rule, Bands) else ""
        return f"{self.rule}: {pairs}{self.evidence}{off}"

    @property
    def description(self) -> str:
        """The rule in words, for people who do not read code.

        Example:
            >>> LearnedRule(Implies("age < 18", "job == 'none'"), 900, 80, 0).description
            "if age < 18, then job == 'none'"
        """
        match self.rule:
            case Implies(condition=first, consequence=second, both_ways=True):
                return f"{first} exactly if {second}"
            case Implies(condition=first, consequence=second):
                return f"if {first}, then {second}"
            case Determines(feature=first, other=second):
                return f"{first} determines {second}"
            case Bands(feature=first, number=second, bands=bands):
                some = [f"{_state(level)} {_range(lo, hi)}" for level, lo, hi in bands[:PAIRS_SHOWN]]
                more = len(bands) - len(some)
                return f"{first} by {second}: {'; '.join(some)}{f'; and {more:,} more' if more else ''}"
            case Computed(feature=first):
                return f"{first} = {self.rule.expression}"
            case Equal(feature=first, expression=second):
                return f"{first} = {second}"
            case Linear(text=text):
                return text
            case NeverTogether(pairs=pairs):
                some = [f"{a} {_state(s)} with {b} {_state(t)}" for a, s, b, t in pairs[:PAIRS_SHOWN]]
                more = len(pairs) - len(some)
                return f"never: {'; '.join(some)}{f'; and {more:,} more' if more else ''}"
        return str(self.rule)

    @property
    def evidence(self) -> str:
        """How many rows it was learned from, and how many of them break it."""
        broken = f"{self.exceptions:,} {'exception' if self.exceptions == 1 else 'exceptions'}"
        about = "" if self.support == self.rows else f", {self.support:,} of them about it"
        return f"learned from {self.rows:,} rows{about}, {broken}"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features of the rule."""
        return self.rule.feature_names

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Linear relations of the rule."""
        return self.rule.relations

    @property
    def lenient(self) -> bool:
        """True: a row may keep values that break the rule."""
        return True

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the rule does not fit a table."""
        return self.rule.problems(features)

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the clauses of the rule."""
        return self.rule.clauses(features)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows break the rule by what they changed."""
        if not changes.changed(*self.feature_names).any():
            return np.zeros(len(changes.after), dtype=bool)
        if isinstance(self.rule, NeverTogether | Determines):
            return self.rule.newly_broken(changes)
        return clauses_broken(self.rule.clauses(changes.features), changes, lenient=True)

    def violated(self, changes: RowChanges) -> Mask:
        """Return which rows of ``changes.after`` break the rule, whatever they were before."""
        return np.asarray(self.rule.broken(changes))

    def to_dict(self) -> dict[str, Any]:
        """Return the rule and its evidence as a JSON object."""
        counts = {name: getattr(self, name) for name in ("rows", "support", "exceptions", "active")}
        return {"rule": "LearnedRule", "learned": self.rule.to_dict(), **counts}

    @classmethod
    def keys(cls) -> tuple[set[str], set[str]]:
        """Return the required and the optional keys of a JSON object."""
        return {"learned", "rows", "support", "exceptions"}, {"active"}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        rest = {key: value for key, value in entry.items() if key not in ("rule", "learned")}
        return cls(rule_from_dict(entry["learned"]), **rest)


class LearnedRules(tuple[LearnedRule, ...]):
    """The learned rules of an explainer; ``print`` and notebooks show them with their evidence.

    Example:
        >>> LearnedRules([LearnedRule(Equal("total", "net + tax"), 500, 500, 0)])
        Equal("total", "net + tax"): learned from 500 rows, 0 exceptions
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(rule.text for rule in self) or "no learned rules"

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return self.to_frame().to_html(max_rows=60)

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each rule: as code, in words, and its evidence."""
        names = ("rows", "support", "exceptions", "active")
        columns = {name: [getattr(rule, name) for rule in self] for name in names}
        texts = {"rule": list(map(str, self)), "description": [rule.description for rule in self]}
        return pd.DataFrame(texts | columns)


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"up to {high:g}" if high is not None else "any" if low is None else f"from {low:g}"
    return f"{low:g} to {high:g}" if low != high else f"{low:g}"


def _state(state: State) -> str:
    """Return a state of a feature in words."""
    if state is None:
        return "missing"
    return FREE if state == FREE else repr(state)
