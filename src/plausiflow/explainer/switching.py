"""Switch learned rules of a fitted explainer off and on.

A learned ``NeverTogether`` has many pairs. One with some of its pairs stands for these: the learned rule is
split into two, and only the named pairs are switched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from plausiflow.constraints import CompiledRules, LearnedRule, LearnedRules, NeverTogether
from plausiflow.errors import InvalidInputError

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer


SwitchedRule: TypeAlias = LearnedRule | NeverTogether | str


def switch_off(explainer: Explainer, *rules: SwitchedRule) -> None:
    """Stop obeying learned rules, given as objects of ``learned_rules`` or as their texts.

    ``NeverTogether((("job", "none", "sector", "public"),))`` stands for pairs of a learned rule.
    """
    _switch(explainer, rules, active=False)


def switch_on(explainer: Explainer, *rules: SwitchedRule) -> None:
    """Obey learned rules again that were switched off."""
    _switch(explainer, rules, active=True)


def _switch(explainer: Explainer, rules: Sequence[SwitchedRule], *, active: bool) -> None:
    encoder, _, engine = explainer._fitted()
    every = list(explainer.learned_rules)
    for rule in rules:
        if isinstance(rule, NeverTogether):
            every = _split(every, rule)
    known = {str(rule): rule for rule in every}
    absent = [str(rule) for rule in rules if str(rule) not in known]
    if absent:
        raise InvalidInputError(
            f"`rules` must be learned rules of this explainer or their texts; got {', '.join(absent)}. "
            "`explainer.learned_rules` lists them."
        )
    chosen = {str(rule) for rule in rules}
    learned = LearnedRules(replace(rule, active=active) if str(rule) in chosen else rule for rule in every)
    compiled = CompiledRules(
        [*explainer.constraints, *(rule for rule in learned if rule.active)], encoder.schema, encoder.layout
    )
    explainer.engine_, explainer.learned_rules = replace(engine, rules=compiled), learned


def _split(learned: list[LearnedRule], some: NeverTogether) -> list[LearnedRule]:
    """Return the rules with the one that has some pairs, and others, split into two."""
    split: list[LearnedRule] = []
    for rule in learned:
        pairs = rule.rule.pairs if isinstance(rule.rule, NeverTogether) else ()
        if set(some.pairs) < set(pairs):
            left = tuple(pair for pair in pairs if pair not in some.pairs)
            split += [replace(rule, rule=NeverTogether(left)), replace(rule, rule=some)]
        else:
            split.append(rule)
    return split
