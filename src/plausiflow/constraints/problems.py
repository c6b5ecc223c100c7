"""What is wrong with a set of rules: unknown features, features of the wrong kind, contradictions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf

from plausiflow.constraints.limits import round_inwards
from plausiflow.constraints.linear import ROUNDING
from plausiflow.constraints.monotone import Decreasing, Increasing
from plausiflow.constraints.rule import Rule, unknown
from plausiflow.constraints.rules import Range
from plausiflow.tables import Feature


def find_problems(rules: Sequence[object], features: Mapping[str, Feature]) -> list[str]:
    """Return every problem of rules for a table of these features; empty if they can be used."""
    problems, sound = [], []
    for rule in rules:
        if not isinstance(rule, Rule) or not isinstance(rule, Hashable):
            expected = 'Immutable("age") or MaxChanges(3), or a frozen dataclass that inherits from Rule'
            problems.append(f"{rule!r} is not a rule; expected one such as {expected}")
            continue
        known = {name: features[name] for name in rule.feature_names if name in features}
        found = [unknown("feature", name, features) for name in rule.feature_names if name not in known]
        found += rule.problems(known)
        problems += [f"{rule}: {problem}" for problem in found]
        if not found:
            sound.append(rule)
    return [*problems, *_contradictions(sound, features), *_unreachable(sound, features)]


def _interval(name: str, rules: Sequence[Rule]) -> tuple[float, float]:
    """Return the intersection of all ranges of a feature."""
    bounds = [rule.bounds for rule in rules if isinstance(rule, Range) and rule.feature == name]
    return max((lo for lo, _ in bounds), default=-inf), min((hi for _, hi in bounds), default=inf)


def _contradictions(rules: Sequence[Rule], features: Mapping[str, Feature]) -> list[str]:
    """Return the problems of rules that fit the table but contradict each other."""
    problems = []
    rising = {rule.feature: rule for rule in rules if isinstance(rule, Increasing)}
    falling = {rule.feature: rule for rule in rules if isinstance(rule, Decreasing)}
    for name in (name for name in rising if name in falling):
        problems.append(f'{rising[name]} and {falling[name]} together fix it; write Immutable("{name}")')
    for name in dict.fromkeys(rule.feature for rule in rules if isinstance(rule, Range)):
        feature, (lo, hi) = features[name], _interval(name, rules)
        ranges = " and ".join(str(r) for r in rules if isinstance(r, Range) and r.feature == name)
        step, offset = feature.grid
        if lo > hi:
            problems.append(f"{ranges}: no number is in all of these ranges")
        elif any(lo <= value <= hi for value in feature.special):
            continue
        elif step and _is_empty(feature, lo, hi):
            plus = f" plus {offset:g}" if offset else ""
            problems.append(
                f"{ranges}: no multiple of {step:g}{plus}, the step of `{name}`, is in this range"
            )
    return problems


def _is_empty(feature: Feature, lo: float, hi: float) -> bool:
    """Return whether no number of the feature's grid is between two bounds."""
    first, last = (round_inwards(feature, end, side, *feature.grid) for end, side in ((lo, 1), (hi, -1)))
    return bool(first > last)


def _unreachable(rules: Sequence[Rule], features: Mapping[str, Feature]) -> list[str]:
    """Return the linear relations that hold nowhere within the training ranges and the rules' ranges."""
    problems = []
    for rule, relation in ((r, relation) for r in rules for relation in r.relations):
        least = most = relation.constant
        for name, a in relation.coefficients.items():
            (low, high), (lo, hi) = features[name].extent, _interval(name, rules)
            low, high = min(low, *features[name].special, high), max(high, *features[name].special, low)
            if max(low, lo) <= min(high, hi):
                low, high = max(low, lo), min(high, hi)
            least, most = least + min(a * low, a * high), most + max(a * low, a * high)
        tolerance = relation.slack(features) + ROUNDING * max(abs(least), abs(most))
        if most < -tolerance or (relation.equal and least > tolerance):
            problems.append(f"{rule}: no values within the ranges of its features satisfy it")
    return problems
