"""The rule that a number is computed from others: a product of powers, or a logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plausiflow.constraints.arguments import check_name, check_number
from plausiflow.constraints.clauses import Clause, Multiplied, clauses_broken
from plausiflow.constraints.formulas import Formula, parse_formula
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


@dataclass(frozen=True, repr=False)
class Computed(Rule):
    """A number that is computed from others by a product of powers, or by a logarithm, up to rounding.

    If one of the numbers changes, the others follow. The rule does not bind a row in which one is missing, or
    in which a number that it divides by is zero. Sums are rules of their own: ``Equal``.

    Attributes:
        feature: Name of the number.
        expression: What it is equal to, such as ``price * quantity``, ``100 * debt / income``,
            ``weight / height ** 2`` or ``log(wage)``; a number may be added at the end. Names with spaces or
            dashes go in backticks.
        tolerance: By how much the two sides may differ; by default half of the step of the number.
        formula: The parsed expression.

    Example:
        >>> Computed("total", "price * quantity")
        Computed("total", "price * quantity")
    """

    feature: str
    expression: str
    tolerance: float | None = None
    formula: Formula = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_name("Computed", self.feature)
        if self.tolerance is not None and check_number("`tolerance` of Computed", self.tolerance) < 0:
            raise InvalidInputError(f"`tolerance` of Computed must not be negative; got {self.tolerance!r}.")
        object.__setattr__(self, "formula", parse_formula(self.expression))
        if self.feature in self.formula.names:
            raise InvalidInputError(
                f"The expression of Computed must not have {literal(self.feature)} itself; got "
                f"{self.expression!r}. Solve it for the feature."
            )

    def __repr__(self) -> str:
        return f"Computed({literal(self.feature)}, {literal(self.expression)})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return (self.feature, *self.formula.names)

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return which features are not numbers that can change."""
        return [
            f"`{name}` is of kind {features[name].kind}, not a number"
            for name in self.feature_names
            if name in features and (not features[name].is_numeric or features[name].kind == "constant")
        ]

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the two sides of the equality."""
        tolerance = self.tolerance
        if tolerance is None:
            step = features[self.feature].step
            tolerance = ROOM * step / 2 if step else 0.0
        return tuple((Multiplied(self.feature, self.formula, tolerance, sign),) for sign in (1.0, -1.0))

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows have another number."""
        return clauses_broken(self.clauses(changes.features), changes)


ROOM = 1.001
"""How much wider than half of a step a tolerance is, so that rounding in the last digit does not count."""
