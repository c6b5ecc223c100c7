"""What is wrong with a set of rules: unknown names and levels, kinds that do not fit, contradictions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from plausiflow.constraints.extents import ROUNDING, extent, interval, is_numeric, slack, writable
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
from plausiflow.tables import Feature, Value, key


def find_problems(rules: Sequence[object], features: Mapping[str, Feature]) -> list[str]:
    """Everything that is wrong with rules for a table of these features; empty where nothing is."""
    problems, sound = [], []
    for rule in rules:
        if not isinstance(rule, Rule):
            problems.append(f'{rule!r} is no rule; expected one such as Immutable("age") or MaxChanges(3)')
            continue
        found = [_unknown("feature", name, features) for name in named_by(rule) if name not in features]
        if not found or isinstance(rule, Linear):
            found += _misfits(rule, features)
        problems += [f"{rule}: {problem}" for problem in found]
        if not found:
            sound.append(rule)
    return [*problems, *_contradictions(sound, features), *_unreachable(sound, features)]


def named_by(rule: Rule) -> tuple[str, ...]:
    """The features that a rule mentions."""
    match rule:
        case Immutable(features=names):
            return names
        case Linear(relation=relation):
            return tuple(relation.coefficients)
        case MaxChanges():
            return ()
        case _:
            return (rule.feature,)


def _misfits(rule: Rule, features: Mapping[str, Feature]) -> list[str]:
    """What is wrong with one rule whose features exist; of a relation some may not."""
    match rule:
        case MaxChanges(limit=limit) if limit < 1:
            return ["without a change there is no counterfactual; expected at least 1"]
        case Increasing(feature=name) | Decreasing(feature=name) if features[name].kind == "category":
            return [
                f"`{name}` is a category without an order. Give its levels in order with `orders`, "
                "or list what a row may move to with Allowed"
            ]
        case Range(feature=name):
            return _range(rule, features[name])
        case Allowed(feature=name):
            return _allowed(rule, features[name])
        case Linear(relation=relation):
            if not relation.coefficients:
                return ["it compares no features"]
            known = [features[name] for name in relation.coefficients if name in features]
            return [f"`{each.name}` is {_kind(each)}, not a number" for each in known if not is_numeric(each)]
        case _:
            return []


def _range(rule: Range, feature: Feature) -> list[str]:
    if not is_numeric(feature):
        return [f"`{feature.name}` is {_kind(feature)}, not a number; list its levels with Allowed"]
    if rule.lo is not None and rule.hi is not None and rule.lo > rule.hi:
        return [f"the lower bound {rule.lo!r} is above the upper bound {rule.hi!r}"]
    return []


def _allowed(rule: Allowed, feature: Feature) -> list[str]:
    if feature.is_number:
        return [f"`{feature.name}` is a number without levels; use Range"]
    if feature.kind == "identifier":
        return [f"`{feature.name}` is an identifier and never changes"]
    moves = rule.transitions or ()
    written = [*(rule.values or ()), *(own for own, _ in moves), *(level for _, to in moves for level in to)]
    known = {key(level): level for level in feature.levels}
    return [_unknown("level", level, known) for level in dict.fromkeys(written) if key(level) not in known]


def _contradictions(rules: Sequence[Rule], features: Mapping[str, Feature]) -> list[str]:
    """Rules that fit the table, but not each other."""
    problems = []
    rising = {rule.feature: rule for rule in rules if isinstance(rule, Increasing)}
    falling = {rule.feature: rule for rule in rules if isinstance(rule, Decreasing)}
    for name in (name for name in rising if name in falling):
        problems.append(
            f'{rising[name]} and {falling[name]} together keep it as it is; write Immutable("{name}")'
        )
    for name in dict.fromkeys(rule.feature for rule in rules if isinstance(rule, Range)):
        feature, (lo, hi) = features[name], interval(name, rules)
        ranges = " and ".join(str(r) for r in rules if isinstance(r, Range) and r.feature == name)
        if lo > hi:
            problems.append(f"{ranges}: no number lies in all of these")
        elif feature.step and writable(feature, lo, 1) > writable(feature, hi, -1):
            problems.append(
                f"{ranges}: no multiple of {feature.step:g}, the step of `{name}`, lies in between"
            )
    return problems


def _unreachable(rules: Sequence[Rule], features: Mapping[str, Feature]) -> list[str]:
    """Relations that hold nowhere within the training ranges, cut by the rules' own ranges."""
    problems = []
    for rule in rules:
        if not isinstance(rule, Linear):
            continue
        least = most = rule.relation.constant
        for name, a in rule.relation.coefficients.items():
            (low, high), (lo, hi) = extent(features[name]), interval(name, rules)
            if max(low, lo) <= min(high, hi):
                low, high = max(low, lo), min(high, hi)
            least, most = least + min(a * low, a * high), most + max(a * low, a * high)
        tolerance = slack(rule.relation, features) + ROUNDING * max(abs(least), abs(most))
        if most < -tolerance or (rule.relation.equal and least > tolerance):
            problems.append(f"{rule}: no values within the ranges of its features satisfy it")
    return problems


def _kind(feature: Feature) -> str:
    names = {"boolean": "a boolean of texts", "identifier": "an identifier", "ordered": "an ordered category"}
    return names.get(feature.kind, f"a {feature.kind}")


def _unknown(what: str, value: Value, known: Iterable[Value]) -> str:
    by_text = {str(each): each for each in known}
    close = difflib.get_close_matches(str(value), by_text, n=1)
    if close:
        return f"there is no {what} {value!r}; did you mean {by_text[close[0]]!r}?"
    listed = ", ".join(repr(each) for each in list(by_text.values())[:10])
    return f"there is no {what} {value!r}; there are {listed}{' and more' if len(by_text) > 10 else ''}"
