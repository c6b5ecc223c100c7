"""Conditions of rules as clauses: ``job == 'clerk' and age >= 18``, and their negation.

A condition about levels or special values becomes a statement about states, which a search handles exactly;
every other comparison is a linear relation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from plausiflow.constraints.clauses import Clause, Holds, InStates, State, signed, special_values
from plausiflow.constraints.grammar import Comparison, Condition, IsMissing, Membership
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.rule import unknown
from plausiflow.tables import CellValue, Feature, level_key

MAX_CLAUSES = 64


def condition_problems(conditions: Sequence[Condition], features: Mapping[str, Feature]) -> list[str]:
    """Return why conditions do not fit a table of these features; names that it lacks are left out."""
    problems = []
    for condition in conditions:
        known = [features[name] for name in condition.feature_names if name in features]
        problems += [
            f"`{f.name}` is an identifier and never changes" for f in known if f.kind == "identifier"
        ]
        if isinstance(condition, Comparison) and not condition.feature_names:
            problems.append("it compares no features")
        if isinstance(condition, Comparison) and _as_membership(condition, features) is None:
            problems += [f"`{f.name}` has no numbers; compare it with one of its levels by == or in"
                         for f in known if not f.is_numeric and f.kind != "identifier"]  # fmt: skip
        member = _as_membership(condition, features)
        if member is not None and member.feature in features:
            problems += _value_problems(member, features[member.feature])
    return problems


def _value_problems(condition: Membership, feature: Feature) -> list[str]:
    if feature.kind == "identifier":
        return []
    if feature.is_number:
        wrong = [v for v in condition.values if isinstance(v, str | bool)]
        return [f"`{feature.name}` is a number; got {value!r}" for value in wrong]
    known = {level_key(level): level for level in feature.levels}
    return [unknown("level", value, known) for value in condition.values if level_key(value) not in known]


def implication_clauses(
    conditions: Sequence[Condition], consequences: Sequence[Condition], features: Mapping[str, Feature]
) -> tuple[Clause, ...]:
    """Return clauses that are true exactly where the consequences hold or a condition does not."""
    refused: list[Clause] = [()]
    for condition in conditions:
        refused = [a + b for a, b in product(refused, condition_clauses(condition, features, negated=True))]
    needed = [clause for c in consequences for clause in condition_clauses(c, features)]
    return tuple(a + b for a, b in product(refused, needed))


def condition_clauses(
    condition: Condition, features: Mapping[str, Feature], *, negated: bool = False
) -> list[Clause]:
    """Return clauses that are all true exactly where the condition is met, or (negated) where it is not."""
    if isinstance(condition, IsMissing):
        return [(InStates(condition.feature, (None,), negated=condition.negated != negated),)]
    member = _as_membership(condition, features)
    if member is not None:
        feature, out = features[member.feature], member.negated != negated
        return (
            _number_clauses(member, feature, out)
            if feature.is_number
            else _level_clauses(member, feature, out)
        )
    assert isinstance(condition, Comparison)
    relation, half = condition.relation, condition.relation.half_step(features)
    sign = _NEGATION[condition.sign] if negated else condition.sign
    turned = negated and condition.sign in (">=", ">")
    if sign == "==":
        return [(signed(relation, 1.0, half),), (signed(relation, -1.0, half),)]
    if sign == "!=":
        return [(signed(relation, 1.0, -half), signed(relation, -1.0, -half))]
    return [(signed(relation, -1.0 if turned else 1.0, -half if sign == ">" else 0.0),)]


_NEGATION = {">=": ">", ">": ">=", "==": "!=", "!=": "=="}


def _as_membership(condition: Condition, features: Mapping[str, Feature]) -> Membership | None:
    """Return a comparison of one feature with a level or a special value as a membership."""
    if isinstance(condition, Membership):
        return condition
    if not isinstance(condition, Comparison) or condition.sign not in ("==", "!="):
        return None
    if len(condition.feature_names) != 1:
        return None
    name, a = next(iter(condition.relation.coefficients.items()))
    if name not in features:
        return None
    value: CellValue = -condition.relation.constant / a + 0.0
    feature = features[name]
    if feature.is_number and value not in special_values(feature):
        return None
    return Membership(name, (value,), condition.sign == "!=")


def _level_clauses(condition: Membership, feature: Feature, negated: bool) -> list[Clause]:
    levels = {level_key(level): level for level in feature.levels}
    states: tuple[State, ...] = tuple(levels[level_key(value)] for value in condition.values)
    return [(InStates(feature.name, states, negated),)]


def _number_clauses(condition: Membership, feature: Feature, negated: bool) -> list[Clause]:
    values = [float(value) for value in condition.values]
    states: tuple[State, ...] = tuple(value for value in values if value in special_values(feature))
    others = [Relation({feature.name: 1.0}, -v, equal=True) for v in values if v not in states]
    in_states = [InStates(feature.name, states, negated)] if states else []
    steps = [relation.half_step({feature.name: feature}) for relation in others]
    if negated:
        apart: list[Clause] = [
            (signed(relation, 1.0, -step), signed(relation, -1.0, -step))
            for relation, step in zip(others, steps, strict=True)
        ]
        return [*[(statement,) for statement in in_states], *apart]
    near = [
        Holds(relation.coefficients, relation.constant, tolerance=step, equal=True)
        for relation, step in zip(others, steps, strict=True)
    ]
    return [(*in_states, *near)]
