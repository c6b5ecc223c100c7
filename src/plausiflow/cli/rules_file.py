"""The file of rules, ``rules.toml``: what may change, and the kinds of columns.

``docs/rules.md`` describes the format. All problems of a file are reported at once.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plausiflow.constraints import Rule, rule_from_dict
from plausiflow.errors import InvalidInputError
from plausiflow.tables import KINDS

KEYS = (
    "immutable", "increasing", "decreasing", "range", "allowed", "linear", "equal", "step", "rules",
    "max_changes", "prices", "kinds", "orders", "special", "steps", "weights",
)  # fmt: skip
_LISTS = ("immutable", "increasing", "decreasing", "linear")
_SETTINGS = ("kinds", "orders", "special", "steps", "weights")
_TABLES = ("range", "allowed", "equal", "step", "prices", *_SETTINGS)


@dataclass(frozen=True, kw_only=True)
class RulesFile:
    """The content of a file of rules."""

    constraints: tuple[Rule, ...] = ()
    kinds: Mapping[str, Any] = field(default_factory=dict)  # Kinds of columns whose inferred kind is wrong.
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # Levels, lowest first.
    special: Mapping[str, Sequence[float]] = field(default_factory=dict)  # Special values of numbers.
    steps: Mapping[str, float] = field(default_factory=dict)  # Steps of numbers.
    weights: Mapping[str, float] = field(default_factory=dict)  # Costs of changes.


def read_rules(path: Path, columns: Sequence[str]) -> RulesFile:
    """Read a file of rules, which may name ``columns``; an error lists all problems."""
    entries = _parse(path)
    problems = [_unknown("key", key, KEYS) for key in entries if key not in KEYS]
    for key in _LISTS:
        if key in entries and not _is_list_of_text(entries[key]):
            problems.append(f"`{key}` must be a list of texts; got {entries.pop(key)!r}")
    for key in _TABLES:
        if key in entries and not isinstance(entries[key], dict):
            problems.append(f"`{key}` must be a table, [{key}], by column; got {entries.pop(key)!r}")
    if not isinstance(entries.get("rules", []), list):
        problems.append(
            f"`rules` must be tables, [[rules]], each with a `rule`; got {entries.pop('rules')!r}"
        )
    rules = []
    for place, rule_dict in _rule_dicts(entries):
        try:
            rule = rule_from_dict(_with_bounds(rule_dict))
        except InvalidInputError as error:
            problems.append(f"{place}: {str(error).rstrip('.')}")
            continue
        problems += [
            f"{place}: {_unknown('column', n, columns)}" for n in rule.feature_names if n not in columns
        ]
        rules.append(rule)
    settings = {key: entries.get(key, {}) for key in _SETTINGS}
    problems += _column_problems(settings, columns)
    if problems:
        raise InvalidInputError(
            f"{path} has {len(problems)} {'problem' if len(problems) == 1 else 'problems'}:\n- "
            + "\n- ".join(problems)
        )
    return RulesFile(constraints=tuple(rules), **settings)


def _parse(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InvalidInputError(f"There is no file of rules {path}. Name a TOML file.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f'{path} is not TOML: {error}. Put text between double quotes, as in immutable = ["age"].'
        ) from error


def _rule_dicts(entries: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rules as dictionaries, each with its place in the file."""
    if entries.get("immutable"):
        yield "immutable", {"rule": "Immutable", "features": entries["immutable"]}
    for key, rule in (("increasing", "Increasing"), ("decreasing", "Decreasing")):
        for name in entries.get(key, ()):
            yield key, {"rule": rule, "feature": name}
    for name, bounds in entries.get("range", {}).items():
        yield f"range.{name}", {"rule": "Range", "feature": name, "bounds": bounds}
    for name, values in entries.get("allowed", {}).items():
        pairs = isinstance(values, list) and any(isinstance(value, list) for value in values)
        key = "transitions" if pairs or isinstance(values, dict) else "values"
        yield f"allowed.{name}", {"rule": "Allowed", "feature": name, key: values}
    for name, moves in entries.get("prices", {}).items():
        yield f"prices.{name}", {"rule": "Price", "feature": name, "moves": moves}
    for text in entries.get("linear", ()):
        yield "linear", {"rule": "Linear", "text": text}
    for name, expression in entries.get("equal", {}).items():
        yield f"equal.{name}", {"rule": "Equal", "feature": name, "expression": expression}
    for name, step in entries.get("step", {}).items():
        yield f"step.{name}", {"rule": "GridStep", "feature": name, "step": step}
    for number, rule in enumerate(entries.get("rules", ()), start=1):
        yield f"rules, number {number}", rule
    if "max_changes" in entries:
        yield "max_changes", {"rule": "MaxChanges", "limit": entries["max_changes"]}


def _with_bounds(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a range with the keys ``lo`` and ``hi``, in whichever form it is written."""
    if not isinstance(rule, dict) or "bounds" not in rule:
        return rule
    bounds = rule.pop("bounds")
    if isinstance(bounds, list) and len(bounds) == 2:
        bounds = {"lo": bounds[0], "hi": bounds[1]}
    if not isinstance(bounds, dict) or not bounds or not set(bounds) <= {"lo", "hi"}:
        raise InvalidInputError(
            f"a range is [smallest, largest], or a table with `lo`, `hi` or both; got {bounds!r}"
        )
    return rule | bounds


def _column_problems(settings: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    problems = [
        f"{key}: {_unknown('column', name, columns)}"
        for key, table in settings.items()
        for name in table
        if name not in columns
    ]
    problems += [
        f"kinds.{name}: {_unknown('kind', kind, KINDS)}"
        for name, kind in settings["kinds"].items()
        if kind not in KINDS
    ]
    problems += [
        f"orders.{name} must be a list of levels, lowest first; got {levels!r}"
        for name, levels in settings["orders"].items()
        if not isinstance(levels, list)
    ]
    problems += [
        f"special.{name} must be a list of numbers, or [] for none; got {values!r}"
        for name, values in settings["special"].items()
        if not isinstance(values, list) or not all(map(_is_number, values))
    ]
    problems += [
        f"{key}.{name} must be a number; got {number!r}"
        for key in ("steps", "weights")
        for name, number in settings[key].items()
        if not _is_number(number)
    ]
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _unknown(what: str, value: object, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(value), known, n=1)
    if close:
        return f"there is no {what} {value!r}; did you mean {close[0]!r}?"
    return f"there is no {what} {value!r}; there are {', '.join(known[:12])}{' and more' * (len(known) > 12)}"
