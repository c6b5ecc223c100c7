"""Rules about the direction of a change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from plausiflow.constraints.arguments import check_name, check_number
from plausiflow.constraints.clauses import Clause, Holds
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.rule import Rule, literal
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


@dataclass(frozen=True, repr=False)
class _Monotone(Rule):
    """A feature that may move in one direction only."""

    feature: str
    by: float = 0
    _direction: ClassVar[int]

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_name(name, self.feature)
        if check_number(f"`by` of {name}", self.by) < 0:
            raise InvalidInputError(
                f"`by` of {name}({literal(self.feature)}) must not be negative; got {self.by!r}. Use the "
                "other direction."
            )
        object.__setattr__(self, "by", check_number(f"`by` of {name}", self.by))

    def __repr__(self) -> str:
        end = f", by={self.by!r}" if self.by else ""
        return f"{type(self).__name__}({literal(self.feature)}{end})"

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the feature has no order, or why `by` does not fit it."""
        found = [
            f"`{feature.name}` is a category without an order. Give its levels in order with `orders`, or "
            "list the levels that a row may move to with Allowed"
            for feature in features.values()
            if feature.kind == "category"
        ]
        steps = [f for f in features.values() if not f.is_number and not float(self.by).is_integer()]
        return found + [f"`by` counts levels of `{f.name}` and must be a whole number" for f in steps]

    def narrow(self, limits: Limits) -> Limits:
        """Forbid the other direction, and changes by less than ``by``."""
        rising, falling = self._direction > 0, self._direction < 0
        limits = replace(limits, rising=limits.rising or rising, falling=limits.falling or falling)
        if not self.by:
            return limits
        if limits.feature.is_number:
            bound = limits.values + self._direction * self.by
            return limits.clip(lo=bound) if rising else limits.clip(hi=bound)
        order = torch.arange(len(limits.feature.levels))
        moves = self._direction * (order[None] - order[:, None]) >= self.by
        return replace(limits.restrict_moves(moves), must_move=True)

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses, for WhenChanged."""
        side, rank = float(self._direction), not features[self.feature].is_number
        step = features[self.feature].step
        tolerance = min(step / 2, self.by / 2) if step else 0.0
        own = {self.feature: -side}
        return ((Holds({self.feature: side}, -self.by, own=own, tolerance=tolerance, rank=rank),),)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows move in the other direction, or by less than ``by``."""
        wrong = changes.moved(self.feature, -self._direction)
        if not self.by:
            return wrong
        if changes.features[self.feature].is_number:
            old, new = changes.numbers_before(self.feature), changes.numbers_after(self.feature)
        else:
            codes = changes.codes_before(self.feature), changes.codes_after(self.feature)
            old, new = (np.where(c >= 0, c, math.nan) for c in codes)
        rounding = 1e-9 * (np.abs(old) + self.by)
        return np.asarray(wrong | (self._direction * (new - old) < self.by - rounding))


class Increasing(_Monotone):
    """A number, or a category with an order, that may rise but not fall.

    Attributes:
        feature: Name of the feature.
        by: The smallest rise, in units of the number or in levels; with zero, it may also stay.
    """

    _direction = 1


class Decreasing(_Monotone):
    """A number, or a category with an order, that may fall but not rise.

    Attributes:
        feature: Name of the feature.
        by: The smallest fall, in units of the number or in levels; with zero, it may also stay.
    """

    _direction = -1
