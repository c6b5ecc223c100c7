"""The rule that a number is computed from others: a product, a ratio, a square or a logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plausiflow.constraints.arguments import check_name, check_number
from plausiflow.constraints.clauses import Clause, Multiplied, clauses_broken
from plausiflow.constraints.formulas import FUNCTIONS, OPERATIONS, Operation
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


@dataclass(frozen=True, repr=False)
class Computed(Rule):
    """A number that is the product or the ratio of two others, or a function of one, up to rounding.

    Attributes:
        feature: Name of the number.
        first: Name of the first factor, or of the numerator.
        operation: ``"*"`` or ``"/"``; or ``"square"``, ``"log"`` or ``"log1p"`` of the first number.
        second: Name of the second factor, or of the denominator; the first name again for a function.
        factor: What the result is multiplied by, such as 100 for percent.
        tolerance: By how much the two sides may differ.

    Example:
        >>> Computed("total", "price", "*", "quantity")
        Computed("total", "price * quantity")
        >>> Computed("share", "debt", "/", "income", factor=100, tolerance=0.05)
        Computed("share", "100 * debt / income")
        >>> Computed("age2", "age", "square", "age")
        Computed("age2", "age ** 2")
    """

    feature: str
    first: str
    operation: Operation
    second: str
    factor: float = 1.0
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name in (self.feature, self.first, self.second):
            check_name("Computed", name)
        if self.operation not in OPERATIONS:
            known = ", ".join(map(repr, OPERATIONS))
            raise InvalidInputError(
                f"`operation` of Computed must be one of {known}; got {self.operation!r}."
            )
        if self.operation in FUNCTIONS and self.second != self.first:
            raise InvalidInputError(
                f"`second` of Computed must be {self.first!r} again, because {self.operation!r} is a "
                f"function of one number; got {self.second!r}."
            )
        for setting in ("factor", "tolerance"):
            value = check_number(f"`{setting}` of Computed({literal(self.feature)})", getattr(self, setting))
            if value < 0 or (setting == "factor" and not value):
                raise InvalidInputError(f"`{setting}` of Computed must be positive; got {value!r}.")

    def __repr__(self) -> str:
        return f"Computed({literal(self.feature)}, {literal(self.expression)})"

    @property
    def expression(self) -> str:
        """What the number is equal to, as people write it."""
        factor = "" if self.factor == 1 else f"{self.factor:g} * "
        if self.operation == "square":
            return f"{factor}{self.first} ** 2"
        if self.operation in FUNCTIONS:
            return f"{factor}{self.operation}({self.first})"
        return f"{factor}{self.first} {self.operation} {self.second}"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(dict.fromkeys((self.feature, self.first, self.second)))

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return which features are not numbers that can change."""
        names = (name for name in dict.fromkeys(self.feature_names) if name in features)
        return [
            f"`{name}` is of kind {features[name].kind}, not a number"
            for name in names
            if not features[name].is_numeric or features[name].kind == "constant"
        ]

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the two sides of the equality."""
        parts = (self.feature, self.first, self.second, self.factor, self.operation, self.tolerance)
        return tuple((Multiplied(*parts, sign),) for sign in (1.0, -1.0))

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows have another number."""
        return clauses_broken(self.clauses(changes.features), changes)
