"""Rules as JSON.

A list of objects, each with the name of its rule: ``{"rule": "Range", "feature": "income", "lo": 0}``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plausiflow.constraints.rules import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    Rule,
)
from plausiflow.errors import InvalidInputError

Entry = Mapping[str, Any]

# What an object of each rule must hold, what it may hold, and how it is read.
_FORMS: dict[str, tuple[set[str], set[str], Callable[[Entry], Rule]]] = {
    "Immutable": ({"features"}, set(), lambda entry: Immutable(*_names(entry["features"]))),
    "Increasing": ({"feature"}, set(), lambda entry: Increasing(entry["feature"])),
    "Decreasing": ({"feature"}, set(), lambda entry: Decreasing(entry["feature"])),
    "Range": (
        {"feature"},
        {"lo", "hi"},
        lambda entry: Range(entry["feature"], entry.get("lo"), entry.get("hi")),
    ),
    "Allowed": ({"feature"}, {"values", "transitions"}, lambda entry: _allowed(entry)),
    "Linear": ({"text"}, set(), lambda entry: Linear(entry["text"])),
    "MaxChanges": ({"limit"}, set(), lambda entry: MaxChanges(entry["limit"])),
}


def rule_from_dict(entry: Entry) -> Rule:
    """Read one rule.

    Args:
        entry: What ``rule.to_dict()`` gave; ``transitions`` may also be an object of lists by own level.

    Example:
        >>> rule_from_dict({"rule": "Range", "feature": "income", "lo": 0})
        Range("income", 0, None)
    """
    if not isinstance(entry, Mapping):
        raise InvalidInputError(f"A rule is an object with the key `rule`; got {entry!r}.")
    name = entry.get("rule")
    if not isinstance(name, str) or name not in _FORMS:
        close = difflib.get_close_matches(str(name), _FORMS, n=1, cutoff=0.5)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise InvalidInputError(f"`rule` must be one of {', '.join(_FORMS)}; got {name!r}.{meant}")
    needed, optional, read = _FORMS[name]
    keys = set(entry) - {"rule"}
    missing, unknown = sorted(needed - keys), sorted(map(str, keys - needed - optional))
    if missing or unknown:
        problems = [f"{key} is missing" for key in missing] + [f"{key} is not known" for key in unknown]
        raise InvalidInputError(
            f"{name} takes {', '.join(sorted(needed | optional))}: {', '.join(problems)}."
        )
    return read(entry)


def rules_from_dicts(entries: Sequence[Entry]) -> tuple[Rule, ...]:
    """Read a list of rules, and name everything that is wrong with it at once.

    Args:
        entries: One object for each rule, as of a JSON file.
    """
    if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence):
        raise InvalidInputError(f"Rules are a list of objects; got {type(entries).__name__}.")
    rules, problems = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            rules.append(rule_from_dict(entry))
        except InvalidInputError as error:
            problems.append(f"- rule {number}: {error}")
    if problems:
        raise InvalidInputError("The rules cannot be read:\n" + "\n".join(problems))
    return tuple(rules)


def _names(names: object) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidInputError(f"`features` of Immutable must be a list of names; got {names!r}.")
    return list(names)


def _allowed(entry: Entry) -> Allowed:
    if ("values" in entry) == ("transitions" in entry):
        raise InvalidInputError("Allowed takes either `values` or `transitions`.")
    if "values" in entry:
        if isinstance(entry["values"], Mapping):
            raise InvalidInputError(
                "`values` of Allowed must be a list; by own level they are `transitions`."
            )
        return Allowed(entry["feature"], entry["values"])
    moves = entry["transitions"]
    if isinstance(moves, Mapping):
        return Allowed(entry["feature"], moves)
    if not isinstance(moves, list | tuple) or not all(map(_is_pair, moves)):
        raise InvalidInputError("`transitions` of Allowed must be pairs of a level and a list of levels.")
    return Allowed(entry["feature"], dict(moves))


def _is_pair(move: object) -> bool:
    return isinstance(move, list | tuple) and len(move) == 2 and isinstance(move[0], str | bool | int | float)
