"""Grids as people see them: odd values, declared steps, codes and families."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Encoder, Schema, SchemaWarning
from plausiflow.tables.grids import find_common_grid, find_grid

RNG = np.random.default_rng(1)


def feature_of(values, **settings):
    return Schema.infer(pd.DataFrame({"a": values}), **settings).feature("a")


@pytest.mark.parametrize("step", [500.0, 12.0, 0.5, 100.0, 0.25])
def test_one_odd_value_does_not_destroy_a_grid(step):
    values = step * RNG.integers(1, 80, 400)
    assert feature_of(values).step == step
    odd = values.copy()
    odd[:3] += step * 0.37
    feature = feature_of(odd)
    assert feature.step == step
    many = values.copy()
    many[:40] += step * 0.3
    assert feature_of(many).step < step


def test_without_odd_values_the_common_grid_is_the_exact_one():
    for values in (RNG.integers(0, 50, 300), RNG.normal(0, 1, 300).round(2), RNG.normal(0, 1, 300)):
        distinct, counts = np.unique(values.astype(float), return_counts=True)
        assert find_common_grid(distinct, counts, distinct.dtype) == find_grid(distinct, distinct.dtype)


def test_odd_values_keep_their_bits_and_changed_values_are_multiples():
    values = 500.0 * RNG.integers(1, 80, 400)
    values[:2] = [37.0, 123456.78]
    frame = pd.DataFrame({"a": values})
    encoder = Encoder(Schema.infer(frame))
    feature = encoder.schema.feature("a")
    assert (feature.minimum, feature.maximum) == (500.0, 39500.0)
    x = encoder.encode(frame).x
    assert_frame_equal(encoder.decode(x, like=frame), frame, check_exact=True)
    changed = encoder.decode(encoder.layout.snap(torch.rand_like(x)), like=frame)["a"]
    assert (changed % 500 == 0).all()
    assert changed.between(500, 39500).all()


def test_a_step_is_declared():
    values = RNG.integers(700, 20000, 300)
    feature = feature_of(values, steps={"a": 500})
    assert (feature.kind, feature.step) == ("integer", 500.0)
    assert feature.minimum % 500 == feature.maximum % 500 == 0
    assert values.min() <= feature.minimum
    assert feature.maximum <= values.max()
    for steps, text in (
        ({"a": 0}, "positive"),
        ({"a": 1e-9}, "decimals"),
        ({"b": 1}, "not a column"),
        ({"a": 1e6}, "no multiple"),
    ):
        with pytest.raises(InvalidInputError, match=text):
            feature_of(values, steps=steps)
    with pytest.raises(InvalidInputError, match="kinds"):
        feature_of(values, steps={"a": 5}, kinds={"a": "category"})


def test_numbers_that_are_codes_have_their_values_as_levels():
    codes = np.array([1, 2, 4, 7, 30, 55, 110, 120, 210, 300, 450, 700])
    with pytest.warns(SchemaWarning, match="like codes"):
        feature = feature_of(RNG.permutation(np.repeat(codes, 20)))
    assert feature.kind == "ordered"
    assert feature.levels == tuple(codes.tolist())
    assert feature_of(np.append(np.repeat(codes, 20), [33, 71])).kind == "integer"  # not all are known
    assert feature_of(RNG.integers(0, 12, 400)).kind == "integer"  # no gaps


def test_a_step_that_odd_values_break_is_noted_with_a_setting_that_undoes_it():
    values = np.append(RNG.integers(1, 40, 400) * 500, [1234, 77])
    schema = Schema.infer(pd.DataFrame({"a": values}))
    (note,) = schema.notes
    assert note.startswith("`a` is treated as multiples of 500, although 2 of 402 rows have other values")
    assert note.endswith("set steps={'a': 1}.")
    assert "Note: `a` is" in str(schema)
    again = Schema.infer(pd.DataFrame({"a": values}), steps={"a": 1})
    assert (again.feature("a").step, again.notes) == (1, ())
    (note,) = Schema.infer(pd.DataFrame({"a": np.append(values / 4, 1 / 3)})).notes
    assert note.endswith("3 of 403 rows have other values: an answer that changes it has a multiple. "
                         "If that is wrong, set kinds={'a': 'continuous'}.")  # fmt: skip
    assert Schema.infer(pd.DataFrame({"a": values[:400]})).notes == ()


def test_notes_are_kept_in_json_and_do_not_make_schemas_differ():
    frame = pd.DataFrame({"a": np.append(RNG.integers(1, 40, 400) * 500, 1234)})
    schema = Schema.infer(frame)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again.notes == schema.notes != ()
    assert replace(schema, notes=()) == schema


def test_columns_of_one_family_have_one_kind():
    frame = pd.DataFrame({f"status_{i}": RNG.integers(-2, 8, 600) for i in range(1, 6)})
    frame["status_6"] = RNG.integers(-2, 10, 600)
    frame["size_1"], frame["size_2"] = RNG.integers(0, 3, 600), RNG.integers(0, 9000, 600)
    with pytest.warns(SchemaWarning, match="`status_6` is treated as 'ordered'") as caught:
        schema = Schema.infer(frame)
    assert schema.notes == tuple(str(warning.message) for warning in caught)
    assert {schema.feature(f"status_{i}").kind for i in range(1, 7)} == {"ordered"}
    assert [schema.feature(name).kind for name in ("size_1", "size_2")] == ["ordered", "integer"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Schema.infer(frame, kinds={"status_6": "integer"}).feature("status_6").kind == "integer"


def test_a_family_with_a_column_without_a_grid_stays_as_it_is():
    frame = pd.DataFrame({"s_1": np.tile([1 / 3, *range(1, 10)], 5), "s_2": np.arange(50) % 11})
    assert [feature.kind for feature in Schema.infer(frame).features] == ["ordered", "integer"]


def test_whole_numbers_with_a_few_tenths_are_multiples_of_a_tenth_and_not_of_two():
    tenths = RNG.integers(500, 700, 80) / 10
    values = np.append(RNG.integers(50, 70, 3920).astype(float), tenths)
    assert 0.005 < (np.rint(tenths * 10) % 2 == 1).sum() / len(values) < 0.01  # few enough for a step of 0.2
    assert feature_of(values).step == 0.1


def test_numbers_with_many_decimals_keep_them():
    frame = pd.DataFrame({"a": RNG.uniform(0, 1, 400).round(4)})
    encoder = Encoder(Schema.infer(frame))
    assert encoder.schema.feature("a").step == 0.0001
    changed = encoder.decode(encoder.layout.snap(encoder.encode(frame).x * 0.93), like=frame)["a"]
    assert (changed == changed.round(4)).all()


@pytest.mark.parametrize("digits", [15, 17])
def test_the_noise_of_single_precision_hides_no_grid(digits):
    values = np.array(
        [float(f"{v:.{digits}g}") for v in RNG.integers(100, 900, 400).astype(np.float32) / 1000]
    )
    values = np.array([float(f"{float(np.float32(round(v, 3))):.{digits}g}") for v in values])
    assert (values != values.round(3)).mean() > 0.9
    assert feature_of(values).step == 0.001
