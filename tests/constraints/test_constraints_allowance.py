"""The allowance of a row: ranges of numbers, levels, or no choice."""

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import Allowed, Decreasing, Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema
from rule_table import ENCODER, JOBS, TRAINING, allowance_for, people, row, rules_for


def numbers_of(allowance, name):
    block = ENCODER.layout.block(name)
    ends = [allowance.lower[0, block.number], allowance.upper[0, block.number]]
    return [pytest.approx(float(block.scale.decode(end)), abs=1e-6) for end in ends]


def levels_of(allowance, name):
    columns = ENCODER.layout.block(name).levels
    return {
        level
        for level, column in zip(ENCODER.level_names(name), columns, strict=True)
        if allowance.levels[0, column]
    }


def test_without_rules_a_row_has_the_training_range_and_every_level_but_missing():
    allowance = allowance_for()
    assert numbers_of(allowance, "age") == [17, 79]
    assert numbers_of(allowance, "rent") == [TRAINING["rent"].min(), TRAINING["rent"].max()]
    assert levels_of(allowance, "job") == set(JOBS)
    assert levels_of(allowance, "rent") == {"number"}
    assert levels_of(allowance, "gain") == {"number", 0}
    assert allowance.max_changes is None
    assert allowance.clause_values(allowance.x).shape == (1, 0)


@pytest.mark.parametrize(("age", "ends"), [(95, [17, 95]), (12, [12, 79])])
def test_the_training_range_is_widened_by_the_rows_own_number(age, ends):
    assert numbers_of(allowance_for(age=age), "age") == ends


@pytest.mark.parametrize(
    ("rules", "age", "ends"),
    [
        ([Immutable("age")], 40, [40, 40]),
        ([Immutable("age")], 95, [95, 95]),
        ([Increasing("age")], 40, [40, 79]),
        ([Decreasing("age")], 40, [17, 40]),
        ([Range("age", 30, None)], 40, [30, 79]),
        ([Range("age", 30.2, 50.9)], 40, [31, 50]),
        ([Range("age", 50, None)], 40, [50, 79]),
        ([Range("age", None, 90)], 95, [17, 90]),
        ([Range("age", 30, None), Range("age", None, 60), Increasing("age")], 40, [40, 60]),
        ([Range("age", 85, None)], 95, [85, 95]),
    ],
)
def test_rules_cut_the_range_of_a_number(rules, age, ends):
    allowance = allowance_for(*rules, age=age)
    assert allowance.possible.all()
    assert numbers_of(allowance, "age") == ends


@pytest.mark.parametrize(
    ("rules", "cells", "name", "levels"),
    [
        ([Immutable("job")], {}, "job", {"clerk"}),
        ([Allowed("job", ["nurse"])], {}, "job", {"clerk", "nurse"}),
        ([Allowed("job", {"clerk": ["pilot"]})], {}, "job", {"clerk", "pilot"}),
        ([Allowed("job", {"nurse": ["pilot"]})], {}, "job", {"clerk"}),
        ([Allowed("job", [])], {}, "job", {"clerk"}),
        ([Allowed("job", ["nurse", "pilot"]), Allowed("job", ["pilot"])], {}, "job", {"clerk", "pilot"}),
        ([Increasing("degree")], {}, "degree", {"BSc", "MSc"}),
        ([Decreasing("degree")], {}, "degree", {"HS", "BSc"}),
        ([Increasing("children")], {"children": 2}, "children", {2, 3}),
        ([Range("children", 2, None)], {}, "children", {2, 3}),
        ([Range("children", 0.5, 2.5)], {}, "children", {1, 2}),
        ([Increasing("owns")], {"owns": True}, "owns", {True}),
        ([Increasing("gain")], {"gain": 100.0}, "gain", {"number"}),
        ([Decreasing("gain")], {"gain": 100.0}, "gain", {"number", 0}),
        ([Decreasing("gain")], {"gain": 0.0}, "gain", {0}),
        ([Range("gain", 1, None)], {"gain": 0.0}, "gain", {"number"}),
        ([Range("gain", 0, None)], {"gain": 7.0}, "gain", {"number", 0}),
        ([Immutable("gain")], {"gain": 0.0}, "gain", {0}),
        ([], {"job": None}, "job", {"missing"}),
        ([Range("rent", 0, 100)], {"rent": np.nan}, "rent", {"missing"}),
    ],
)
def test_rules_leave_levels(rules, cells, name, levels):
    allowance = allowance_for(*rules, **cells)
    assert allowance.possible.all()
    assert levels_of(allowance, name) == levels


@pytest.mark.parametrize(
    ("rules", "cells", "locked", "blocked_by"),
    [
        ([Immutable("age"), Range("age", 50, None)], {}, None, [0, 1]),
        ([Range("age", 50, None)], {}, ["age"], [0]),
        ([Range("age", 90, None)], {}, None, [0]),
        ([Range("children", 2, None), Decreasing("children")], {}, None, [0, 1]),
        ([Range("year", None, 2020)], {}, None, [0]),
        ([MaxChanges(1), Range("age", 50, None), Range("children", 3, None)], {}, None, [0, 1, 2]),
        ([Linear("rent >= income"), Immutable("income")], {}, None, [0, 1]),
        ([Linear("children >= 2"), Decreasing("children")], {}, None, [0, 1]),
    ],
)
def test_a_row_without_a_choice_is_marked_and_leaving_a_rule_out_frees_it(rules, cells, locked, blocked_by):
    allowance = allowance_for(*rules, locked=locked, **cells)
    assert not allowance.possible.any()
    assert not allowance.contains(allowance.x).any()
    assert (allowance.lower <= allowance.upper).all()
    free = [
        i
        for i in range(len(rules))
        if allowance_for(*rules, locked=locked, without=i, **cells).possible.all()
    ]
    assert free == blocked_by


def test_a_missing_level_stays_whatever_its_range():
    grades = pd.DataFrame({"grade": pd.array([1, 2, 3, None] * 10, dtype="Int64")})
    encoder = Encoder(Schema.infer(grades))
    x = encoder.encode(grades[:4]).x
    allowance = rules_for(Range("grade", 2, None), encoder=encoder).for_rows(x)
    assert allowance.levels.tolist() == [[False, True, True, False]] * 3 + [[False, False, False, True]]
    assert allowance.contains(x).tolist() == [False, True, True, True]


def test_a_missing_number_that_was_filled_is_under_the_rules():
    encoder = Encoder(ENCODER.schema, missing="impute")
    frame = row(rent=np.nan)
    x = encoder.encode(frame).x
    filled = encoder.decode(x, like=frame)
    assert filled["rent"].notna().all()
    for rule, inside in (
        (Range("rent", None, 1.0), False),
        (Range("rent", None, 499.0), True),
        (Linear("rent <= 10"), False),
    ):
        rules = rules_for(rule, encoder=encoder)
        assert rules.for_rows(x, frame).contains(x).item() is inside
        assert rules.violations(filled, filled).any(axis=None) != inside


def test_a_number_in_the_state_zero_is_zero_whatever_the_rounding_of_its_scale():
    for low in np.linspace(-0.9, -0.1, 40):
        number = Feature(
            name="a",
            kind="continuous",
            dtype=np.dtype(float),
            minimum=low,
            maximum=0.9,
            special=(0.0,),
            filling=0.0,
        )
        encoder = Encoder(Schema((number,)))
        frame = pd.DataFrame({"a": [0.0, 0.5]})
        x = encoder.encode(frame).x
        for rule in (Range("a", 0, None), Range("a", None, 0)):
            allowance = rules_for(rule, encoder=encoder).for_rows(x)
            assert allowance.contains(x[:1], torch.tensor([0])).all()
            assert allowance.contains(x[:1], torch.tensor([1])).all()


def test_a_small_bound_of_a_heavy_tail_is_kept():
    tail = pd.DataFrame({"a": np.geomspace(1e-3, 1e9, 50) * (1 + 1e-9 / 3)})
    encoder = Encoder(Schema.infer(tail, kinds={"a": "continuous"}))
    allowance = rules_for(Range("a", 0.05, None), encoder=encoder).for_rows(encoder.encode(tail).x)
    assert encoder.decode(allowance.lower)["a"].min() == pytest.approx(0.05, rel=1e-9)


def test_a_frozen_feature_has_equal_bounds_at_what_it_is():
    allowance = allowance_for(Immutable("age", "job", "gain"), locked=["degree", "rent"])
    for name in ("age", "job", "gain", "degree", "rent"):
        columns = ENCODER.layout.block(name).columns
        assert torch.equal(allowance.lower[:, columns], allowance.upper[:, columns])
        assert torch.equal(allowance.lower[:, columns], allowance.x[:, columns])


def test_of_several_limits_on_changes_the_smallest_counts():
    assert allowance_for(MaxChanges(5), MaxChanges(2)).max_changes == 2


def test_bounds_follow_the_precision_of_the_rows():
    frame = people(20, 3)
    x = ENCODER.encode(frame).x.float()
    allowance = rules_for(Range("rent", 100, 300), Linear("rent <= income")).for_rows(x)
    assert allowance.lower.dtype == allowance.clause_values(x).dtype == torch.float32


def test_rows_are_independent_and_can_be_taken_apart():
    frame = people(12, 5)
    x = ENCODER.encode(frame).x
    rules = rules_for(
        Increasing("age"), Linear("rent <= 0.4 * income"), Range("gain", None, 300), MaxChanges(4)
    )
    whole = rules.for_rows(x, frame)
    picked = torch.tensor([7, 2, 7])
    alone = rules.for_rows(x[picked], frame.iloc[picked.tolist()])
    part = whole.at(picked)
    for field in ("lower", "upper", "levels", "possible", "offsets", "binding"):
        assert torch.equal(getattr(part, field), getattr(alone, field))
    points_there = (x[picked] + 0.1).clamp(0, 1)
    assert torch.equal(whole.clause_values(points_there, picked), alone.clause_values(points_there))
    assert torch.equal(whole.contains(points_there, picked), alone.contains(points_there))
