"""Implies, Equal, GridStep, WhenChanged and `by`: decoded rows, encoded rows and plain Python agree."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import (
    Allowed,
    Decreasing,
    Equal,
    GridStep,
    Immutable,
    Implies,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    WhenChanged,
    rule_from_dict,
)
from plausiflow.constraints.grammar import parse_conditions
from plausiflow.errors import InvalidInputError
from rule_table import ENCODER, NAMES, people, row, rules_for


def truth(rule, old, new):
    """Whether a row breaks a rule, in plain Python."""
    changed = {n for n in NAMES if not (old[n] == new[n] or (pd.isna(old[n]) and pd.isna(new[n])))}
    same = {
        'Implies("job == \'clerk\'", "owns == True")': lambda: new["job"] == "clerk" and not new["owns"],
        'Implies("age < 30 and degree in [\'HS\']", "children == 0")': (
            lambda: new["age"] < 30 and new["degree"] == "HS" and new["children"] != 0
        ),
        'Implies("gain == 0", "degree != \'MSc\'")': lambda: new["gain"] == 0 and new["degree"] == "MSc",
        'Implies("gain != 0", "age >= 40")': lambda: new["gain"] != 0 and new["age"] < 40,
        'Implies("rent is missing", "owns == True")': lambda: pd.isna(new["rent"]) and not new["owns"],
        'Implies("children > 1", "age - 10 * children > 10")': (
            lambda: new["children"] > 1 and not new["age"] - 10 * new["children"] > 10
        ),
        'Implies("owns == True", "gain == 0", both_ways=True)': lambda: new["owns"] != (new["gain"] == 0),
        'WhenChanged("degree", Increasing("age", by=2))': (
            lambda: "degree" in changed and new["age"] < old["age"] + 2
        ),
        'WhenChanged("job", Equal("children", "0"))': lambda: "job" in changed and new["children"] != 0,
        'WhenChanged("age", Immutable("job"))': lambda: "age" in changed and "job" in changed,
        'WhenChanged("owns", Range("age", 30, 60))': (
            lambda: "owns" in changed and not 30 <= new["age"] <= 60
        ),
        'WhenChanged("owns", Decreasing("children", by=1))': (
            lambda: "owns" in changed and not new["children"] <= old["children"] - 1
        ),
        'WhenChanged("owns", Allowed("job", ["nurse"]))': (
            lambda: "owns" in changed and "job" in changed and new["job"] != "nurse"
        ),
    }
    return same[repr(rule)]()


RULES = [
    Implies("job == 'clerk'", "owns == True"),
    Implies("age < 30 and degree in ['HS']", "children == 0"),
    Implies("gain == 0", "degree != 'MSc'"),
    Implies("gain != 0", "age >= 40"),
    Implies("rent is missing", "owns == True"),
    Implies("children > 1", "age - 10 * children > 10"),
    Implies("owns == True", "gain == 0", both_ways=True),
    WhenChanged("degree", Increasing("age", by=2)),
    WhenChanged("job", Equal("children", "0")),
    WhenChanged("age", Immutable("job")),
    WhenChanged("owns", Range("age", 30, 60)),
    WhenChanged("owns", Decreasing("children", by=1)),
    WhenChanged("owns", Allowed("job", ["nurse"])),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_encoded_rows_decoded_rows_and_plain_python_agree(rule):
    before, after = people(300, 3), people(300, 4)
    for name in ("rent", "job"):  # a missing value stays missing
        after[name] = after[name].where(before[name].notna() & after[name].notna(), before[name])
    keep = np.random.default_rng(0).random((300, len(NAMES))) < 0.5
    for j, name in enumerate(NAMES):
        after[name] = after[name].where(~keep[:, j], before[name])
    after["id"] = before["id"]
    expected = [
        truth(rule, old, new)
        for old, new in zip(before.to_dict("records"), after.to_dict("records"), strict=True)
    ]
    rules = rules_for(rule)
    broken = rules.violations(before, after)[str(rule)].to_numpy()
    assert broken.tolist() == expected
    assert 0 < sum(expected) < 300
    x, x_cf = ENCODER.encode(before).x, ENCODER.encode(after).x
    allowance = rules.for_rows(x, before)
    inside = allowance.clause_values(x_cf)
    held = (inside >= 0).all(dim=1)
    if allowance.pairs is not None:
        held &= ~allowance.pairs.broken(ENCODER.layout.codes(x_cf), ENCODER.layout.codes(x))
    assert (~held).tolist() == expected


@pytest.mark.parametrize("rule", [*RULES, GridStep("age", 5), Equal("age", "gain + 1", 2.0)], ids=repr)
def test_a_rule_survives_json_and_its_text(rule):
    names = {c.__name__: c for c in (Implies, Equal, WhenChanged, Increasing, Decreasing, Range, Allowed)}
    names |= {"Immutable": Immutable, "GridStep": GridStep}
    assert rule_from_dict(json.loads(json.dumps(rule.to_dict()))) == rule
    assert eval(repr(rule), names) == rule  # the text of a rule is the code that makes it
    assert hash(rule) == hash(rule_from_dict(rule.to_dict()))


def test_a_level_that_an_immutable_feature_rules_out_is_not_offered():
    frame = row(job="clerk", degree="BSc")
    rules = rules_for(Immutable("job"), Implies("job == 'clerk'", "degree != 'MSc'"))
    allowance = rules.for_rows(ENCODER.encode(frame).x, frame)
    block = ENCODER.layout.block("degree")
    assert allowance.levels[0, block.level_slice].tolist() == [True, True, False]


def test_grid_step_puts_changed_numbers_on_multiples_only():
    before = pd.concat([row(age=41), row(age=41), row(age=41)], ignore_index=True)
    after = before.assign(age=[45, 44, 41])
    assert rules_for(GridStep("age", 5)).violations(before, after)['GridStep("age", 5)'].tolist() == [
        False, True, False,
    ]  # fmt: skip
    block = rules_for(GridStep("age", 5)).layout.block("age")
    assert block.scale.step == 5


def test_increasing_by_asks_for_a_rise():
    before = pd.concat([row(age=40)] * 3, ignore_index=True)
    after = before.assign(age=[40, 41, 42])
    rules = rules_for(Increasing("age", by=2))
    assert rules.violations(before, after).iloc[:, 0].tolist() == [True, True, False]
    allowance = rules.for_rows(ENCODER.encode(before).x, before)
    assert allowance.contains(ENCODER.encode(after).x).tolist() == [False, False, True]


def test_a_total_is_the_sum_of_its_parts():
    before = pd.concat([row(age=40, gain=39)] * 2, ignore_index=True)
    after = before.assign(gain=[30, 39])
    rules = rules_for(Equal("age", "gain + 1"))
    assert rules.violations(before, after).iloc[:, 0].tolist() == [True, False]
    inside = rules.for_rows(ENCODER.encode(before).x, before).contains(ENCODER.encode(after).x)
    assert inside.tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("job = 'a'", 5, "write == for equality"),
        ("job == 'a", 8, "closing quote"),
        ("job in 'a'", 8, "a list of values"),
        ("job in ['a' 'b']", 13, "expected , or ]"),
        ("job not 'a'", 9, "expected `in`"),
        ("age is 3", 8, "expected `missing`"),
        ("age >= 3 or age <= 2", 10, "expected `and` or the end"),
        ("age >= 'x'", 8, "compared with one feature, by == or !="),
        ("'x' == job", 1, "starts with the name"),
        ("age + 1 in [2]", 9, "expected <=, >=, =="),
        ("age >= 1 >= 0", 10, "only one comparison"),
        ("age >= 1 and", 13, "expected a number"),
    ],
)
def test_an_unreadable_condition_is_pointed_at(text, position, problem):
    with pytest.raises(InvalidInputError) as error:
        parse_conditions(text)
    first, shown, caret = str(error.value).split("\n")
    assert f"at position {position}, " in first
    assert problem in first
    assert shown[4:] == text
    assert caret.index("^") - 4 == position - 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rules_for(Implies("job == 'x'", "age > 1")), "there is no level 'x'"),
        (lambda: rules_for(Implies("job >= 2", "age > 1")), "`job` has no numbers"),
        (lambda: rules_for(Implies("id == 'p1'", "age > 1")), "identifier"),
        (lambda: rules_for(Implies("agee > 2", "age > 1")), "did you mean 'age'"),
        (lambda: rules_for(Equal("job", "age")), "`job` is a category, not a number"),
        (lambda: rules_for(Equal("age", "age + 1")), "itself"),
        (lambda: rules_for(GridStep("job", 5)), "not a number with a grid"),
        (lambda: rules_for(GridStep("age", 1000)), "no multiple is between"),
        (lambda: rules_for(WhenChanged("id", Immutable("age"))), "never changes"),
        (lambda: rules_for(WhenChanged("age", Allowed("job", {"clerk": ["nurse"]}))), "own level"),
        (lambda: WhenChanged("age", MaxChanges(2)), "must be Increasing"),
        (lambda: GridStep("age", -1), "must be positive"),
        (lambda: Increasing("age", by=-1), "must not be negative"),
        (lambda: rules_for(Increasing("degree", by=0.5)), "whole number"),
        (lambda: Implies(1, "a > 2"), "two conditions as texts"),
        (lambda: Equal("age", 3), "an expression as text"),
    ],
)
def test_a_rule_that_does_not_fit_says_why(make, text):
    with pytest.raises(InvalidInputError) as error:
        make()
    assert text in str(error.value)


def test_the_value_of_a_clause_is_differentiable_in_the_numbers():
    frame = people(5, 9).assign(rent=100.0)
    x = ENCODER.encode(frame).x
    allowance = rules_for(Implies("job == 'nurse'", "rent <= 0.4 * income"), Linear("age >= 20")).for_rows(x)
    assert torch.autograd.gradcheck(allowance.clause_values, x.requires_grad_())


def test_all_clauses_at_once_are_the_clauses_one_by_one():
    before, after = people(200, 3), people(200, 4)
    x, x_cf = ENCODER.encode(before).x, ENCODER.encode(after).x
    relations = [Linear("rent <= 0.4 * income"), Equal("age", "children + 20", 3.0), Linear("gain + age > 9")]
    allowance = rules_for(*RULES, *relations).for_rows(x, before)
    rows = torch.arange(200).flip(0)
    alone = [allowance.clause_value(j, x_cf, rows) for j in range(len(allowance.clauses))]
    assert len(alone) >= len(relations) + 8
    torch.testing.assert_close(allowance.clause_values(x_cf, rows), torch.stack(alone, dim=1))
