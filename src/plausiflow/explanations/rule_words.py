"""Rules as people say them, for reports and for proposals."""

from __future__ import annotations

from collections.abc import Iterable

from plausiflow.constraints import (
    Allowed,
    Computed,
    Decreasing,
    Equal,
    GridStep,
    Immutable,
    Implies,
    Increasing,
    Linear,
    MaxChanges,
    Price,
    Range,
    Rule,
    WhenChanged,
)
from plausiflow.explanations.formatting import format_value, join_words
from plausiflow.tables import CellValue

MOST_MOVES = 6
"""A rule names so many moves, and counts the others."""


def rule_in_words(rule: Rule) -> str:
    """Return a rule as people say it; the code of a rule that has no such words.

    Example:
        >>> rule_in_words(Immutable("age", "sex"))
        'age and sex stay as they are'
        >>> rule_in_words(Range("income", 0, None))
        'income is at least 0'
        >>> rule_in_words(WhenChanged("job", Allowed("job", ["clerk", "nurse"])))
        'if job changes: job is clerk or nurse'
    """
    match rule:
        case Immutable():
            one = len(rule.features) == 1
            return f"{join_words(rule.features)} {'stays as it is' if one else 'stay as they are'}"
        case Increasing() | Decreasing():
            way = "rise" if isinstance(rule, Increasing) else "fall"
            least = f", and at least by {_number(rule.by)} if it changes" if rule.by else ""
            return f"{rule.feature} may only {way}{least}"
        case MaxChanges():
            return f"at most {rule.limit} {'feature changes' if rule.limit == 1 else 'features change'}"
        case Linear():
            return rule.text
        case Range():
            return _range_words(rule)
        case Allowed():
            return _allowed_words(rule)
        case Price():
            texts = [
                f"{format_value(own)} → {format_value(to)} costs {_number(price)}"
                for own, to, price in rule.moves
            ]
            return f"{rule.feature}: {_few(texts)}"
    return _relation_words(rule)


def _relation_words(rule: Rule) -> str:
    match rule:
        case Implies():
            start = "exactly if" if rule.both_ways else "if"
            return f"{start} {rule.condition}, then {rule.consequence}"
        case Equal() | Computed():
            return f"{rule.feature} is always {rule.expression}"
        case GridStep():
            return f"{rule.feature} changes in steps of {_number(rule.step)}"
        case WhenChanged():
            return f"if {rule.feature} changes: {rule_in_words(rule.rule)}"
    return str(rule)


def _range_words(rule: Range) -> str:
    low, high = (None if bound is None else _number(bound) for bound in (rule.lo, rule.hi))
    if high is None:
        return f"{rule.feature} is at least {low}"
    bounds = f"at most {high}" if low is None else f"{low} to {high}"
    return f"{rule.feature} is {bounds}"


def _allowed_words(rule: Allowed) -> str:
    if rule.transitions is None:
        return f"{rule.feature} is {_either(rule.values or ())}"
    texts = [
        f"from {format_value(own)} to {_either(to)}" if to else f"{format_value(own)} stays"
        for own, to in rule.transitions
    ]
    return f"{rule.feature} changes only {_few(texts)}"


def _either(values: Iterable[CellValue]) -> str:
    words = [format_value(value) for value in values]
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _few(texts: list[str]) -> str:
    more = len(texts) - MOST_MOVES
    return "; ".join(texts[:MOST_MOVES]) + (f"; and {more} more" if more > 0 else "")


def _number(value: float) -> str:
    return f"{value:,.12g}"
