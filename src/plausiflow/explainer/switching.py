"""Switch learned rules of a fitted explainer off and on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from plausiflow.constraints import CompiledRules, LearnedRule, LearnedRules
from plausiflow.errors import InvalidInputError

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer


def switch_off(explainer: Explainer, *rules: LearnedRule | str) -> None:
    """Stop obeying learned rules, given as objects of ``learned_rules`` or as their texts."""
    _switch(explainer, rules, active=False)


def switch_on(explainer: Explainer, *rules: LearnedRule | str) -> None:
    """Obey learned rules again that were switched off."""
    _switch(explainer, rules, active=True)


def _switch(explainer: Explainer, rules: Sequence[LearnedRule | str], *, active: bool) -> None:
    encoder, _, engine = explainer._fitted()
    known = {str(rule): rule for rule in explainer.learned_rules}
    absent = [str(rule) for rule in rules if str(rule) not in known]
    if absent:
        raise InvalidInputError(
            f"`rules` must be learned rules of this explainer or their texts; got {', '.join(absent)}. "
            "`explainer.learned_rules` lists them."
        )
    chosen = {str(rule) for rule in rules}
    learned = LearnedRules(
        replace(rule, active=active) if str(rule) in chosen else rule for rule in explainer.learned_rules
    )
    compiled = CompiledRules(
        [*explainer.constraints, *(rule for rule in learned if rule.active)], encoder.schema, encoder.layout
    )
    explainer.engine_, explainer.learned_rules = replace(engine, rules=compiled), learned
