"""The base class of every rule, and rules as JSON.

A rule is saved as an object with its name: ``{"rule": "Range", "feature": "income", "lo": 0}``.
"""

from __future__ import annotations

import difflib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ClassVar, Self

from plausiflow.constraints.clauses import Clause, relation_clauses
from plausiflow.constraints.limits import Limits
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.violations import RowChanges
from plausiflow.errors import InvalidInputError
from plausiflow.tables import CellValue, Feature, Mask


class Rule(ABC):
    """A rule about which counterfactuals are allowed.

    A rule knows no table; :class:`~plausiflow.constraints.CompiledRules` applies it to one. ``str(rule)`` is
    the rule as people write it. Results and messages use it as the name of the rule.

    **How to add a rule.** Write a frozen dataclass that inherits from ``Rule``, in any module:

    .. code-block:: python

        @dataclass(frozen=True)
        class Multiple(Rule):
            feature: str
            of: float

            def narrow(self, limits: Limits) -> Limits:
                return limits.restrict_step(self.of)

            def broken(self, changes: RowChanges) -> Mask:
                return changes.changed(self.feature) & (changes.numbers_after(self.feature) % self.of != 0)

    Only :meth:`broken` is required. It checks every decoded answer, so no answer breaks the rule. The other
    methods help the search and the user, and have defaults:

    - :attr:`feature_names`: the features that the rule mentions; by default its field ``feature``.
    - :meth:`problems`: why the rule does not fit a table, reported before a search.
    - :meth:`narrow`: what the rule leaves to one feature: a range, a direction, a step or some levels. The
      search stays inside. Without it, the search does not know the rule and may find no answer.
    - :attr:`relations` and :attr:`max_changes`: linear relations, and the number of features that may change.
    - :meth:`clauses`: statements of which one must be true, for rules such as "if this, then that".
    - :meth:`to_dict` and :meth:`from_dict`: JSON; by default the fields of the dataclass.

    The class is registered under its name. Import its module before you load an explainer that uses it.
    """

    _classes: ClassVar[dict[str, type[Rule]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        if cls.__name__.startswith("_"):
            return
        other = Rule._classes.setdefault(cls.__name__, cls)
        if other.__module__ != cls.__module__:
            raise InvalidInputError(
                f"The name of a rule must be unique; {cls.__name__} of {cls.__module__} already exists in "
                f"{other.__module__}. Choose another name."
            )
        Rule._classes[cls.__name__] = cls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(literal, _arguments(self).values()))})"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that the rule mentions."""
        feature = getattr(self, "feature", None)
        return () if feature is None else (feature,)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Linear relations that a counterfactual must satisfy."""
        return ()

    @property
    def max_changes(self) -> int | None:
        """How many features may change, or None."""
        return None

    @property
    def lenient(self) -> bool:
        """Whether a row that breaks the rule may keep the values that do so."""
        return False

    def clauses(self, features: Mapping[str, Feature]) -> tuple[Clause, ...]:
        """Return what the search must satisfy about several features; by default the relations.

        Args:
            features: Features of the table, by name.
        """
        relations = ((relation, relation.slack(features)) for relation in self.relations)
        return tuple(clause for relation, slack in relations for clause in relation_clauses(relation, slack))

    def problems(self, features: Mapping[str, Feature]) -> list[str]:
        """Return why the rule does not fit a table, one text for each problem.

        Args:
            features: Those of the mentioned features that the table has, by name. Names that it lacks are
                reported without this method.
        """
        return []

    def narrow(self, limits: Limits) -> Limits:
        """Return what the rule leaves of the limits of one of its features."""
        return limits

    @abstractmethod
    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows break the rule, in original units, shape ``(n,)``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object: its name, and the fields of the dataclass."""
        values = _arguments(self).items()
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values}
        return {"rule": type(self).__name__, **plain}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Self:
        """Return the rule that :meth:`to_dict` wrote; the keys have been checked."""
        return cls(**{key: value for key, value in entry.items() if key != "rule"})

    @classmethod
    def keys(cls) -> tuple[set[str], set[str]]:
        """Return the keys that a JSON object of this rule must have, and those that it may have."""
        own: list[Field[Any]] = [field for field in fields(cls) if field.init] if is_dataclass(cls) else []
        optional = {
            field.name
            for field in own
            if field.default is not MISSING or field.default_factory is not MISSING
        }
        return {field.name for field in own} - optional, optional


def _arguments(rule: Rule) -> dict[str, Any]:
    if not is_dataclass(rule):
        return {}
    return {field.name: getattr(rule, field.name) for field in fields(rule) if field.init}


def literal(value: object) -> str:
    """Return a value as people write it in a rule: text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def unknown(what: str, value: CellValue, known: Iterable[CellValue]) -> str:
    """Return the problem of a name or level that does not exist."""
    by_text = {str(each): each for each in known}
    close = difflib.get_close_matches(str(value), by_text, n=1)
    if close:
        return f"there is no {what} {value!r}; did you mean {by_text[close[0]]!r}?"
    listed = ", ".join(repr(each) for each in list(by_text.values())[:10])
    return f"there is no {what} {value!r}; there are {listed}{' and more' if len(by_text) > 10 else ''}"


def rule_from_dict(entry: Mapping[str, Any]) -> Rule:
    """Return the rule of a JSON object; the ``transitions`` of Allowed may also be an object.

    Example:
        >>> rule_from_dict({"rule": "Range", "feature": "income", "lo": 0})
        Range("income", 0, None)
    """
    if not isinstance(entry, Mapping):
        raise InvalidInputError(f"A rule must be an object with the key `rule`; got {entry!r}.")
    name, known = entry.get("rule"), Rule._classes
    if not isinstance(name, str) or name not in known:
        close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]}?" if close else "Import the module that defines it."
        raise InvalidInputError(f"`rule` must be one of {', '.join(known)}; got {name!r}. {hint}")
    required, optional = known[name].keys()
    keys = set(entry) - {"rule"}
    missing, unknown = sorted(required - keys), sorted(map(str, keys - required - optional))
    if missing or unknown:
        problems = [f"{key} is missing" for key in missing] + [f"{key} is unknown" for key in unknown]
        raise InvalidInputError(
            f"{name} takes {', '.join(sorted(required | optional))}: {', '.join(problems)}."
        )
    return known[name].from_dict(entry)


def rules_from_dicts(entries: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules of a JSON list; an error lists every object that is not a rule."""
    if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence):
        raise InvalidInputError(f"Rules must be a list of objects; got {type(entries).__name__}.")
    rules, problems = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            rules.append(rule_from_dict(entry))
        except InvalidInputError as error:
            problems.append(f"- rule {number}: {error}")
    if problems:
        raise InvalidInputError("The rules cannot be read:\n" + "\n".join(problems))
    return tuple(rules)
