"""The rule that a number changes to multiples of a step only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plausiflow.constraints.arguments import check_name, check_number
from plausiflow.constraints.clauses import special_values
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import MAX_DECIMALS, Feature, Mask


@dataclass(frozen=True, repr=False)
class GridStep(Rule):
    """A number that changes becomes a multiple of a step, or one of its special values.

    Attributes:
        feature: Name of the feature.
        step: The step, positive and with at most six decimals.

    Example:
        >>> GridStep("amount", 500)
        GridStep("amount", 500)
    """

    feature: str
    step: float

    def __post_init__(self) -> None:
        check_name("GridStep", self.feature)
        step = check_number(f"`step` of GridStep({literal(self.feature)})", self.step)
        if not step > 0 or round(step, MAX_DECIMALS) != step:
            raise InvalidInputError(
                f"`step` of GridStep({literal(self.feature)}) must be positive, with at most {MAX_DECIMALS} "
                f"decimals; got {self.step!r}."
            )
        object.__setattr__(self, "step", step)

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the feature has no grid, or whether no multiple is within its range."""
        found = []
        for feature in features.values():
            if not feature.is_number:
                found.append(f"`{feature.name}` is of kind {feature.kind}, not a number with a grid")
            elif np.floor(feature.maximum / self.step) * self.step < feature.minimum:
                low, high = feature.extent
                found.append(f"no multiple is between {low:g} and {high:g}, the values of `{feature.name}`")
        return found

    def narrow(self, limits: Limits) -> Limits:
        """Restrict the step."""
        return limits.restrict_step(self.step)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows change the number to something else."""
        values, special = changes.numbers_after(self.feature), special_values(changes.features[self.feature])
        steps = values / self.step
        off = np.abs(steps - np.rint(steps)) > 1e-9 * np.maximum(1.0, np.abs(steps))
        return np.asarray(changes.changed(self.feature) & off & ~np.isin(values, special))
