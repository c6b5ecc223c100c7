"""Rules that bind only if a feature changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from plausiflow.constraints.arguments import check_name
from plausiflow.constraints.clauses import Clause, Kept, clauses_broken
from plausiflow.constraints.rule import Rule, literal, rule_from_dict
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, Mask


@runtime_checkable
class Conditional(Protocol):
    """A rule that can be made to bind only if another feature changes."""

    def when_changed(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the rule as clauses."""
        ...


@dataclass(frozen=True, repr=False)
class WhenChanged(Rule):
    """A rule that binds a counterfactual only if it changes a feature.

    Attributes:
        feature: Name of the feature.
        rule: The rule that then binds: Increasing, Decreasing, Range, Allowed with a list of levels,
            Immutable, Linear, Equal or Implies.

    Example:
        >>> from plausiflow.constraints import Equal
        >>> WhenChanged("job", Equal("tenure", "0"))
        WhenChanged("job", Equal("tenure", "0"))
    """

    feature: str
    rule: Rule

    def __post_init__(self) -> None:
        check_name("WhenChanged", self.feature)
        if not isinstance(self.rule, Rule) or not isinstance(self.rule, Conditional):
            raise InvalidInputError(
                "`rule` of WhenChanged must be Increasing, Decreasing, Range, Allowed, Immutable, Linear, "
                f'Equal or Implies, as in WhenChanged("job", Equal("tenure", "0")); got {self.rule!r}.'
            )

    def __repr__(self) -> str:
        return f"WhenChanged({literal(self.feature)}, {self.rule!r})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The feature and those of the rule."""
        return tuple(dict.fromkeys([self.feature, *self.rule.feature_names]))

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return the problems of the rule, and whether the feature can change."""
        found = []
        if self.feature in features and features[self.feature].kind in ("identifier", "constant"):
            found.append(f"`{self.feature}` never changes")
        known = {name: features[name] for name in self.rule.feature_names if name in features}
        found += self.rule.problems(known)
        if not found and len(known) == len(self.rule.feature_names) and not self._clauses(features):
            found.append(f"{self.rule} depends on the row's own level; list the levels for all rows instead")
        return found

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return the clauses of the rule, each with the alternative that the feature is kept."""
        return tuple((*clause, Kept((self.feature,))) for clause in self._clauses(features))

    def _clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        assert isinstance(self.rule, Conditional)
        return self.rule.when_changed(features)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows change the feature and break the rule."""
        return clauses_broken(self.clauses(changes.features), changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object, with the other rule inside."""
        return {"rule": "WhenChanged", "feature": self.feature, "then": self.rule.to_dict()}

    @classmethod
    def keys(cls) -> tuple[set[str], set[str]]:
        """Return the required and the optional keys of a JSON object."""
        return {"feature", "then"}, set()

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule of a JSON object."""
        return cls(entry["feature"], rule_from_dict(entry["then"]))
