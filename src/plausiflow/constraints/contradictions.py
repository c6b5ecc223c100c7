"""Rules of a call that contradict rules of the fit: what is wrong, and a way out that works."""

from __future__ import annotations

from collections.abc import Sequence

from plausiflow.constraints.compile import CompiledRules
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.monotone import Decreasing, Increasing
from plausiflow.constraints.problems import find_problems
from plausiflow.constraints.rule import Rule
from plausiflow.constraints.rules import Range
from plausiflow.errors import InvalidInputError


def add_rules(fitted: CompiledRules, given: Sequence[Rule]) -> CompiledRules:
    """Return fitted rules with those of a call; an error names the rules of the fit that they contradict."""
    alone = find_problems(given, fitted.features)
    if not alone and find_problems([*fitted.constraints, *given], fitted.features):
        raise InvalidInputError(_contradiction(fitted, given))
    return CompiledRules([*fitted.constraints, *given], fitted.schema, fitted.layout)


def _contradiction(fitted: CompiledRules, given: Sequence[Rule]) -> str:
    lines = []
    for rule in given:
        for other in fitted.constraints:
            problems = find_problems([other, rule], fitted.features)
            if problems and not find_problems([other], fitted.features):
                lines.append(f"{rule} contradicts {other}, a rule of the fit. {_way_out(rule, other)}")
    everything = lines or find_problems([*fitted.constraints, *given], fitted.features)
    return "The rules of this call cannot be used:\n- " + "\n- ".join(everything)


def _way_out(rule: Rule, other: Rule) -> str:
    if isinstance(other, LearnedRule):
        return f"It was learned; leave it out with explainer.switch_off({str(other)!r})."
    if isinstance(rule, Increasing | Decreasing) and isinstance(other, Increasing | Decreasing):
        return f"To keep its value, leave {rule} out and pass locked=[{rule.feature!r}]."
    if isinstance(rule, Range) and isinstance(other, Range):
        (lo, hi) = other.bounds
        return f"Give a range that overlaps {lo:g} to {hi:g}, or fit an explainer without {other}."
    return f"Leave {rule} out, or fit an explainer without {other}."
