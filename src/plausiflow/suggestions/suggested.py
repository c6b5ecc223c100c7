"""Rules that were proposed, as settings of an explainer, as a table, and as a file for a person to edit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from plausiflow.constraints import Immutable, Increasing, Rule

SuggestionKind = Literal["immutable", "increasing", "step", "special"]
TITLES: Mapping[SuggestionKind, str] = {
    "immutable": "never changes", "increasing": "may only rise", "step": "changes in steps of",
    "special": "has the special values",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One proposal.

    Attributes:
        feature: The column.
        kind: ``immutable``, ``increasing``, ``step`` or ``special``.
        value: The step, or the special values; empty otherwise.
        reason: Why it is proposed.
        active: Whether it is among the settings; the others are for a person to consider.
    """

    feature: str
    kind: SuggestionKind
    value: tuple[float, ...] = ()
    reason: str
    active: bool = True

    def __str__(self) -> str:
        values = f" {', '.join(f'{value:,.12g}' for value in self.value)}" if self.value else ""
        start = "" if self.active else "to consider: "
        return f"{start}{self.feature} {TITLES[self.kind]}{values} ({self.reason})"


@dataclass(frozen=True, kw_only=True, repr=False)
class SuggestedRules:
    """Proposed rules; a person must confirm them.

    Attributes:
        suggestions: The proposals, in the order of the columns of the table.
        notes: What could not be found out, and what needs no rule.

    Example:
        >>> dependents = Suggestion(feature="dependents", kind="immutable", reason="family")
        >>> income = Suggestion(feature="income", kind="step", value=(100.0,), reason="all are multiples")
        >>> suggested = SuggestedRules(suggestions=(dependents, income))
        >>> suggested.constraints, suggested.steps
        ([Immutable("dependents")], {'income': 100.0})
        >>> print(suggested)
        dependents never changes (family)
        income changes in steps of 100 (all are multiples)
    """

    suggestions: tuple[Suggestion, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.suggestions)

    def __len__(self) -> int:
        return len(self.suggestions)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.suggestions), *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"SuggestedRules({len(self)} proposals)"

    @property
    def constraints(self) -> list[Rule]:
        """The rules, for ``Explainer(constraints=...)``."""
        immutable = self._features("immutable")
        rules: list[Rule] = [Immutable(*immutable)] if immutable else []
        return rules + [Increasing(name) for name in self._features("increasing")]

    @property
    def steps(self) -> dict[str, float]:
        """The steps of numbers, for ``Explainer(steps=...)``."""
        return {one.feature: one.value[0] for one in self if one.kind == "step" and one.active}

    @property
    def special(self) -> dict[str, list[float]]:
        """The special values of numbers, for ``Explainer(special=...)``."""
        return {one.feature: list(one.value) for one in self if one.kind == "special" and one.active}

    def to_frame(self) -> pd.DataFrame:
        """Return one line for each proposal: ``feature``, ``kind``, ``value``, ``reason`` and ``active``."""
        names = ["feature", "kind", "value", "reason", "active"]
        return pd.DataFrame([[getattr(one, name) for name in names] for one in self], columns=names)

    def to_toml(self, heading: str = "") -> str:
        """Return the content of a file of rules, with each reason as a comment.

        Args:
            heading: What the proposals are about, such as "1,500 rows of loans.csv".
        """
        about = f" for {_comment(heading)}" if heading else ""
        lines = [
            f"# Rules that plausiflow proposes{about}.",
            "# They come from names and values of columns, which may mislead. Confirm each line, change it",
            "# or delete it; lines that begin with # have no effect. Then pass the file with --rules.",
        ]
        lines += [f"# Note: {_comment(note)}" for note in self.notes]
        for kind in ("immutable", "increasing"):
            own = [one for one in self if one.kind == kind]
            if own:
                lines += ["", f"{kind} = [", *(f"  {_listed(one)}" for one in own), "]"]
        for table, one_kind in (("steps", "step"), ("special", "special")):
            own = [one for one in self if one.kind == one_kind]
            if own:
                lines += ["", f"[{table}]", *map(_assigned, own)]
        return "\n".join(lines) + "\n"

    def _features(self, kind: SuggestionKind) -> list[str]:
        return [one.feature for one in self if one.kind == kind and one.active]


def _listed(one: Suggestion) -> str:
    return f"{'' if one.active else '# '}{_text(one.feature)},  # {_comment(one.reason)}"


def _assigned(one: Suggestion) -> str:
    value: Any = list(one.value) if one.kind == "special" else one.value[0]
    return f"{'' if one.active else '# '}{_text(one.feature)} = {value!r}  # {_comment(one.reason)}"


def _text(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in text)
