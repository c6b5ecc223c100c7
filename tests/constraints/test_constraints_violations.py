"""Violations of decoded rows: every broken rule is reported under its name."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.constraints import Immutable, Increasing, Linear, MaxChanges, locked_mask
from plausiflow.errors import InvalidInputError, ShapeError
from rule_table import ENCODER, NAMES, people, row, rules_for


def broken_rules(rules, before, after, locked=None):
    broken = rules.violations(before, after, locked)
    return set(broken.columns[broken.iloc[0]])


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"year": 2025}, {"constants and identifiers"}),
        ({"id": "q"}, {"constants and identifiers"}),
        ({"age": 80}, {"training range"}),
        ({"age": "old"}, {"training range"}),
        ({"job": "baker"}, {"known levels"}),
        ({"rent": np.nan}, {"missing values"}),
        ({"job": None, "age": 81}, {"missing values", "training range"}),
        ({"age": 41}, set()),
    ],
)
def test_rules_that_nobody_wrote_hold_too(change, names):
    assert broken_rules(rules_for(), row(), row(**change)) == names


def test_a_frozen_cell_must_be_the_same_to_the_bit():
    rules = rules_for(Immutable("rent", "job"))
    nudged = row(rent=np.nextafter(200.0, 201.0))
    assert broken_rules(rules, row(), nudged) == {'Immutable("rent", "job")'}
    assert broken_rules(rules, row(rent=np.nan, job=None), row(rent=np.nan, job=None)) == set()
    locked = locked_mask(["rent"], NAMES, 1)
    assert broken_rules(rules_for(), row(), nudged, locked) == {"locked"}


def test_a_relation_may_be_missed_by_rounding_only():
    def holds(text, **cells):
        frame = row(**cells).astype({"score": np.float32})
        return not rules_for(Linear(text)).violations(frame, frame).any(axis=None)

    assert holds("3 * gain <= 0.3 * income", gain=1e8, income=1e9 * (1 - 1e-15))
    assert not holds("3 * gain <= 0.3 * income", gain=1e8, income=1e9 * (1 - 1e-10))
    assert holds("tail >= score", tail=2.7, score=2.7 * (1 + 1e-7))
    assert not holds("tail >= score", tail=2.7, score=2.7 * (1 + 1e-6))


def test_no_row_may_leave_a_level_whose_place_in_the_order_is_not_known():
    rules = rules_for(Increasing("children"))
    assert broken_rules(rules, row(children=7), row(children=3)) == {'Increasing("children")'}
    assert broken_rules(rules, row(children=7), row(children=7)) == set()


def test_a_wider_dtype_of_the_same_values_is_no_change():
    wider = row().astype({"age": "Float64", "children": object, "degree": object, "owns": "boolean"})
    assert broken_rules(rules_for(MaxChanges(1), Immutable(*NAMES)), row(), wider) == set()


def test_violations_keep_the_index_and_come_in_the_order_of_the_rules():
    before = people(3, 1).set_index(pd.Index(["x", "y", "z"]))
    broken = rules_for(MaxChanges(2), Immutable("age")).violations(before, before)
    assert broken.index.tolist() == ["x", "y", "z"]
    assert broken.columns.tolist()[:3] == ["MaxChanges(2)", 'Immutable("age")', "locked"]
    assert not broken.to_numpy().any()


def test_tables_that_do_not_fit_are_refused():
    rules, frame = rules_for(), people(3, 1)
    x = ENCODER.encode(frame).x
    with pytest.raises(InvalidInputError, match="missing: 'age', 'job'"):
        rules.violations(frame, frame.drop(columns=["age", "job"]))
    with pytest.raises(ShapeError, match="`before` must have 2 rows"):
        rules.violations(frame, frame[:2])
    with pytest.raises(ShapeError, match="`x` must have shape"):
        rules.for_rows(x[:, 1:])
    with pytest.raises(ShapeError, match="`frame` must have 3 rows"):
        rules.for_rows(x, frame[:2])
    with pytest.raises(ShapeError, match="`locked` must hold booleans of shape"):
        rules.for_rows(x, locked=np.zeros((3, 2), dtype=bool))
    with pytest.raises(InvalidInputError, match="`without` must be the index of a rule"):
        rules.for_rows(x, without=0)
