"""Rules of the form "if this holds, so does that"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plausiflow.constraints.clauses import Clause, clauses_broken
from plausiflow.constraints.conditions import MAX_CLAUSES, condition_problems, implication_clauses
from plausiflow.constraints.grammar import Condition, parse_conditions
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


@dataclass(frozen=True, repr=False)
class Implies(Rule):
    """If the counterfactual meets a condition, it meets a consequence too.

    A condition compares a feature with a value (``job == 'clerk'``, ``days != -1``,
    ``job in ['clerk', 'nurse']``, ``income is missing``) or numbers with each other
    (``rent <= 0.4 * income``); several are joined by ``and``. A missing value breaks no rule.
    :mod:`plausiflow.constraints.grammar` has the grammar.

    Attributes:
        condition: The condition.
        consequence: What holds then.
        both_ways: Whether the condition holds as well wherever the consequence does.

    Example:
        >>> Implies("n_contacts == 0", "last_result == 'none'")
        Implies("n_contacts == 0", "last_result == 'none'")
    """

    condition: str
    consequence: str
    both_ways: bool = False
    conditions: tuple[Condition, ...] = field(init=False, compare=False)
    consequences: tuple[Condition, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for text in (self.condition, self.consequence):
            if not isinstance(text, str):
                raise InvalidInputError(
                    'Implies takes two conditions as texts, as in Implies("age < 18", "job == \'none\'"); '
                    f"got {text!r}."
                )
        if not isinstance(self.both_ways, bool):
            raise InvalidInputError(f"`both_ways` of Implies must be True or False; got {self.both_ways!r}.")
        object.__setattr__(self, "conditions", parse_conditions(self.condition))
        object.__setattr__(self, "consequences", parse_conditions(self.consequence))

    def __repr__(self) -> str:
        end = ", both_ways=True" if self.both_ways else ""
        return f"Implies({literal(self.condition)}, {literal(self.consequence)}{end})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features of both conditions."""
        both = (*self.conditions, *self.consequences)
        return tuple(dict.fromkeys(name for condition in both for name in condition.feature_names))

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return which comparisons do not fit the features."""
        found = condition_problems([*self.conditions, *self.consequences], features)
        complete = set(self.feature_names) <= set(features)
        if complete and not found and len(self.clauses(features)) > MAX_CLAUSES:
            found.append("its lists of numbers have too many combinations; write several rules")
        return found

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the statements of which one must be true."""
        clauses = implication_clauses(self.conditions, self.consequences, features)
        if self.both_ways:
            clauses += implication_clauses(self.consequences, self.conditions, features)
        return clauses

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged."""
        return self.clauses(features)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows meet the condition but not the consequence."""
        return clauses_broken(self.clauses(changes.features), changes)
