"""Rules and locks as users write them: their text, their JSON, and every problem reported at once."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from plausiflow.constraints import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    locked_mask,
    rule_from_dict,
    rules_from_dicts,
)
from plausiflow.errors import InvalidInputError
from rule_table import rules_for

# ---------------------------------------------------------------- a rule by itself


RULES = [
    (Immutable("age", "sex"), 'Immutable("age", "sex")'),
    (Increasing("education_years"), 'Increasing("education_years")'),
    (Decreasing("debt"), 'Decreasing("debt")'),
    (Range("income", 0, None), 'Range("income", 0, None)'),
    (Range("rate", hi=np.float64(0.5)), 'Range("rate", None, 0.5)'),
    (Allowed("job", ["a", 'the "b"']), 'Allowed("job", ["a", "the \\"b\\""])'),
    (Allowed("job", {"HS": ["Bachelors"], "MSc": []}), 'Allowed("job", {"HS": ["Bachelors"], "MSc": []})'),
    (Allowed("children", {0: [1, 2], np.int64(1): [2]}), 'Allowed("children", {0: [1, 2], 1: [2]})'),
    (Linear("rent <= 0.4 * `net income`"), 'Linear("rent <= 0.4 * `net income`")'),
    (MaxChanges(3), "MaxChanges(3)"),
]


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_reads_as_it_is_written(rule, text):
    assert str(rule) == text
    assert eval(text) == rule
    assert hash(eval(text)) == hash(rule)


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_survives_json(rule, text):
    again = rule_from_dict(json.loads(json.dumps(rule.to_dict())))
    assert again == rule
    assert str(again) == text


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_cannot_be_changed(rule, text):
    with pytest.raises(AttributeError):
        setattr(rule, next(iter(vars(rule))), "other")


def test_transitions_in_a_file_may_be_an_object():
    entry = {"rule": "Allowed", "feature": "job", "transitions": {"a": ["b"]}}
    assert rule_from_dict(entry) == Allowed("job", {"a": ["b"]})


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda: Immutable(), "needs the name of a feature"),
        (lambda: Immutable(["age", "sex"]), "takes the name of a feature"),
        (lambda: Increasing(3), "takes the name of a feature"),
        (lambda: Range("a", "0", None), "`lo` of Range"),
        (lambda: Range("a", 0, math.nan), "`hi` of Range"),
        (lambda: Range("a"), "has no bound"),
        (lambda: Range("a", True, None), "finite number"),
        (lambda: Allowed("job", "nurse"), "takes a list of levels"),
        (lambda: Allowed("job", 3), "takes a list of levels"),
        (lambda: Allowed("job", {"a": "b"}), "takes a list of levels"),
        (lambda: Allowed("job", [None]), "texts, numbers and booleans"),
        (lambda: Linear(3), "takes a text"),
        (lambda: MaxChanges(2.5), "whole number"),
        (lambda: MaxChanges("3"), "finite number"),
    ],
)
def test_a_rule_of_the_wrong_shape_is_refused_where_it_is_written(write, problem):
    with pytest.raises(InvalidInputError, match=problem):
        write()


def test_everything_wrong_with_a_rules_file_is_named_at_once():
    entries = [
        {"rule": "Rnage", "feature": "a"},
        {"rule": "Range", "lo": 0, "high": 3},
        {"rule": "Linear", "text": "a <="},
        {"rule": "MaxChanges", "limit": 3},
        {"rule": "Allowed", "feature": "job"},
        {"rule": "Allowed", "feature": "job", "transitions": ["ab"]},
        {"rule": "Allowed", "feature": "job", "values": {"a": ["b"]}},
        {"rule": "Immutable", "features": "age"},
        "MaxChanges(3)",
    ]
    with pytest.raises(InvalidInputError) as error:
        rules_from_dicts(entries)
    text = str(error.value)
    for number in (1, 2, 3, 5, 6, 7, 8, 9):
        assert f"- rule {number}: " in text
    assert "- rule 4: " not in text
    assert "Did you mean Range?" in text
    assert "feature is missing, high is unknown" in text
    with pytest.raises(InvalidInputError, match="list of objects"):
        rules_from_dicts({"rule": "MaxChanges", "limit": 3})


# ---------------------------------------------------------------- rules of a table


def test_everything_wrong_with_rules_is_named_at_once():
    constraints = [
        Immutable("aeg", "sex"),
        Increasing("job"),
        Range("job", 0, 1),
        Range("degree", 0, 1),
        Range("age", 60, 30),
        Range("rent", 0, 100),
        Range("rent", 200, None),
        Range("income", 0.001, 0.002),
        Increasing("score"),
        Decreasing("score"),
        Allowed("job", ["nruse", "pilot"]),
        Allowed("job", {"king": ["nurse"]}),
        Allowed("age", [30]),
        Allowed("id", ["p1"]),
        Linear("age <= job + rents"),
        Linear("age <= 3 * degree"),
        Linear("3 <= 2"),
        Linear("age >= 1000"),
        Linear("children == 7"),
        MaxChanges(0),
        "age",
    ]
    with pytest.raises(InvalidInputError) as error:
        rules_for(*constraints)
    lines = str(error.value).split("\n- ")
    expected = [
        "there is no feature 'aeg'; did you mean 'age'?",
        "there is no feature 'sex'; there are 'id', 'age'",
        'Increasing("job"): `job` is a category without an order',
        'Range("job", 0, 1): `job` is a category, not a number; list its levels with Allowed',
        'Range("degree", 0, 1): `degree` is an ordered category',
        'Range("age", 60, 30): the lower bound 60 is above the upper bound 30',
        'Range("rent", 0, 100) and Range("rent", 200, None): no number is in all of these ranges',
        'Range("income", 0.001, 0.002): no multiple of 0.01',
        'Increasing("score") and Decreasing("score") together fix it; write Immutable("score")',
        "there is no level 'nruse'; did you mean 'nurse'?",
        "there is no level 'king'; there are 'clerk', 'nurse', 'pilot'",
        'Allowed("age", [30]): `age` is a number without levels; use Range',
        "`id` is an identifier and never changes",
        "there is no feature 'rents'; did you mean 'rent'?",
        'Linear("age <= job + rents"): `job` is a category, not a number',
        'Linear("age <= 3 * degree"): `degree` is an ordered category, not a number',
        'Linear("3 <= 2"): it compares no features',
        'Linear("age >= 1000"): no values within the ranges',
        'Linear("children == 7"): no values within the ranges',
        "MaxChanges(0): a counterfactual changes something; expected at least 1",
        "'age' is not a rule",
    ]
    assert lines[0] == "The constraints cannot be used:"
    for text in expected:
        assert sum(text in line for line in lines) == 1, text
    assert len(lines) == 1 + len(expected)


@pytest.mark.parametrize(
    "constraints",
    [
        [Range("age", 200, 300)],
        [Immutable("age"), Increasing("age"), Range("age", 0, None)],
        [Range("year", 2000, None), Increasing("year"), Immutable("id", "year")],
        [Linear("age + year >= 2000"), Linear("owns + children <= 3")],
        [Allowed("children", [0, 1.0]), Allowed("owns", [True]), Allowed("job", [" nurse "])],
        [Range("children", 1, 2), Range("owns", 0, 1)],
        [Range("age", 50, None), Linear("age >= 50")],
    ],
)
def test_rules_that_only_look_odd_are_fine(constraints):
    assert rules_for(*constraints).constraints == tuple(constraints)


def test_a_relation_that_holds_nowhere_within_the_ranges_of_the_rules_is_refused():
    with pytest.raises(InvalidInputError, match=r'Linear\("age >= 50"\): no values within the ranges'):
        rules_for(Range("age", None, 49), Linear("age >= 50"))


def test_a_rule_given_twice_counts_once():
    rules = rules_for(Immutable("age"), MaxChanges(3), Immutable("age"))
    assert rules.names == ('Immutable("age")', "MaxChanges(3)")
    assert repr(rules) == 'CompiledRules(Immutable("age"), MaxChanges(3))'


def test_immutable_and_monotone_features_come_in_the_order_of_the_table():
    rules = rules_for(Immutable("job", "age"), Immutable("id"), Decreasing("rent"), Increasing("age"))
    assert rules.immutable == ("id", "age", "job")
    assert rules.monotone == ("age", "rent")


# ---------------------------------------------------------------- locks


def test_locks_are_names_for_all_rows_or_for_each_or_a_table():
    names = ["a", "b", "c"]
    expected = [[True, False, True], [True, False, True]]
    assert locked_mask(["c", "a"], names, 2).tolist() == expected
    assert locked_mask([("a", "c"), {"a", "c"}], names, 2).tolist() == expected
    assert locked_mask(pd.DataFrame({"c": [True, True], "a": [True, True]}), names, 2).tolist() == expected
    assert not locked_mask(None, names, 2).any()
    assert not locked_mask([], names, 2).any()
    assert locked_mask([[], ["b"]], names, 2).tolist() == [[False] * 3, [False, True, False]]


@pytest.mark.parametrize(
    ("locked", "problems"),
    [
        ("age", ["must be a list of feature names"]),
        (3, ["must be a list of feature names"]),
        (["agee", "x"], ["'agee'; did you mean 'age'?", "no feature 'x'"]),
        ([["age"]], ["for each of the 2 rows; got 1"]),
        ([["agee"], ["job", "y"]], ["row 0: there is no feature 'agee'", "row 1: there is no feature 'y'"]),
        ([["age"], "age"], ["row 1: expected a list of names; got 'age'"]),
        ([["age"], None], ["row 1: expected a list of names; got None"]),
        (
            pd.DataFrame({"age": [1, 0, 1], "z": [True, None, False]}),
            ["no feature 'z'", "for each of the 2 rows; got 3", "other values in 'age', 'z'"],
        ),
    ],
)
def test_locks_that_do_not_fit_are_refused_with_every_reason(locked, problems):
    with pytest.raises(InvalidInputError) as error:
        locked_mask(locked, ["age", "job"], 2)
    for problem in problems:
        assert problem in str(error.value)
