"""Rules about sums of numbers: linear relations, and columns that are computed from others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from plausiflow.constraints.arguments import check_name, check_number, not_a_number
from plausiflow.constraints.clauses import Clause, clauses_broken, relation_clauses
from plausiflow.constraints.grammar import parse_equality, parse_relation
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


class _OneRelation(Rule):
    """A rule that is one linear relation between numbers."""

    relation: Relation

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features with a nonzero coefficient."""
        return tuple(self.relation.coefficients)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relation."""
        return (self.relation,)

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged."""
        return self.clauses(features)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows do not satisfy the relation."""
        return clauses_broken(self.clauses(changes.features), changes)


@dataclass(frozen=True, repr=False)
class Linear(_OneRelation):
    """A linear relation between numbers that a counterfactual satisfies, in original units.

    ``<`` and ``>`` mean ``<=`` and ``>=``. An equality holds up to half of the finest step of its features,
    which is as close as numbers on a grid can come. A relation does not bind a row in which one of its
    numbers is missing. Booleans count as zero and one. :mod:`plausiflow.constraints.grammar` has the grammar.

    Attributes:
        text: A relation such as ``rent <= 0.4 * income``; names with spaces or dashes go in backticks.
        relation: The parsed relation.
    """

    text: str
    relation: Relation = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidInputError(f'Linear takes a text, as Linear("rent <= income"); got {self.text!r}.')
        object.__setattr__(self, "relation", parse_relation(self.text))

    def bounds(self, feature: Feature) -> tuple[float, float] | None:
        """Return smallest and largest value of the only feature, as :class:`Range` has; None for a relation.

        None also where bounds would have to be computed and might be rounded.
        """
        if self.relation.equal or len(self.relation.coefficients) != 1 or not feature.is_number:
            return None
        factor, constant = *self.relation.coefficients.values(), self.relation.constant
        if abs(factor) != 1:
            return None
        return (-constant, math.inf) if factor > 0 else (-math.inf, constant)

    def narrow(self, limits: Limits) -> Limits:
        """Cut off an end, if the relation is a bound of a number."""
        bounds = self.bounds(limits.feature)
        return limits if bounds is None else limits.clip(*bounds)

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return which features are not numbers."""
        if not self.relation.coefficients:
            return ["it compares no features"]
        return [not_a_number(feature) for feature in features.values() if not feature.is_numeric]


@dataclass(frozen=True, repr=False)
class Equal(_OneRelation):
    """A number that is computed from others: the counterfactual's value is that of an expression.

    If one of the numbers changes, the others follow. The rule does not bind a row in which one is missing.

    Attributes:
        feature: Name of the feature.
        expression: A linear expression such as ``net + tax`` or ``0``; names with spaces or dashes go in
            backticks.
        tolerance: By how much the two sides may differ; by default half of the finest step of the features.
        relation: The parsed relation.

    Example:
        >>> Equal("total", "net + tax")
        Equal("total", "net + tax")
    """

    feature: str
    expression: str
    tolerance: float | None = None
    relation: Relation = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_name("Equal", self.feature)
        if not isinstance(self.expression, str):
            raise InvalidInputError(
                'Equal takes an expression as text, as in Equal("total", "net + tax"); '
                f"got {self.expression!r}."
            )
        if self.tolerance is not None and check_number("`tolerance` of Equal", self.tolerance) < 0:
            raise InvalidInputError(f"`tolerance` of Equal must not be negative; got {self.tolerance!r}.")
        object.__setattr__(self, "relation", parse_equality(self.feature, self.expression))

    def __repr__(self) -> str:
        end = "" if self.tolerance is None else f", tolerance={self.tolerance!r}"
        return f"Equal({literal(self.feature)}, {literal(self.expression)}{end})"

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return which features are not numbers."""
        if self.feature not in self.relation.coefficients:
            return [f"the expression has `{self.feature}` itself; write the other features only"]
        return [not_a_number(feature) for feature in features.values() if not feature.is_numeric]

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return both sides of the equality."""
        slack = self.relation.slack(features)
        return relation_clauses(self.relation, slack if self.tolerance is None else self.tolerance)
