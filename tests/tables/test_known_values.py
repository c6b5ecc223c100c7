"""Numbers of which (nearly) all values are known: found in the table, kept by answers, saved."""

import json

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, GridStep, LinearClassifier
from plausiflow.densities import KDE
from plausiflow.tables import Encoder, Schema

RNG = np.random.default_rng(0)
SIZES = np.array([80, 107, 120, 170, 210, 245, 340, 420, 528, 545, 1000, 1080, 1200, 2100, 2340.0])
HELD = RNG.choice(SIZES, 900)
RATES = RNG.choice(np.sqrt(np.arange(2, 16)), 900)


def feature_of(values, **settings):
    return Schema.infer(pd.DataFrame({"a": values}), **settings).feature("a")


@pytest.mark.parametrize("values", [SIZES, np.sqrt(np.arange(2, 16))])
def test_values_that_all_repeat_are_known(values):
    assert feature_of(
        RNG.choice(values, 900), kinds={"a": "integer" if values is SIZES else "continuous"}
    ).known == tuple(values)


@pytest.mark.parametrize(
    "values",
    [
        RNG.choice(SIZES, 60),  # too few rows to know that there are no others
        RNG.integers(0, 2000, 900),  # many values occur once
        RNG.integers(0, 40, 900),  # every point of the grid occurs
        RNG.normal(size=900),
    ],
)
def test_other_numbers_have_no_known_values(values):
    assert feature_of(values).known == ()


def test_the_share_of_new_rows_with_a_new_value_is_what_the_single_values_say():
    drawn = RNG.zipf(2.0, 4000)
    some, rest = drawn[:2000], drawn[2000:]
    _, counts = np.unique(some, return_counts=True)
    assert abs((counts == 1).mean() * len(counts) / 2000 - (~np.isin(rest, some)).mean()) < 0.01


def test_a_declared_step_leaves_no_known_values():
    assert feature_of(RNG.choice(SIZES, 900), steps={"a": 1}).known == ()


def test_an_odd_value_is_not_known():
    known = feature_of(np.append(RNG.choice(SIZES[:-1] * 10, 900), [1234.5])).known
    assert 1234.5 not in known
    assert len(known) == len(SIZES) - 1


def test_a_special_value_inside_the_range_is_known():
    values = np.append(RNG.choice(SIZES, 900), np.full(2000, 300.0))
    feature = feature_of(values, special={"a": [300]}, kinds={"a": "integer"})
    assert feature.special == (300.0,)
    assert 300.0 in feature.known


def test_known_values_are_restored_from_json():
    schema = Schema.infer(pd.DataFrame({"a": HELD, "b": RATES}), kinds={"a": "integer", "b": "continuous"})
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert schema.feature("a").description.endswith("in steps of 1, 15 known values")


@pytest.mark.parametrize("values", [HELD, RATES])
def test_neighbours_of_known_values_are_known_and_decode_to_their_bits(values):
    kind = "integer" if values is HELD else "continuous"
    frame = pd.DataFrame({"a": values})
    encoder = Encoder(Schema.infer(frame, kinds={"a": kind}))
    known = np.array(encoder.schema.feature("a").known)
    x = encoder.encode(frame).x
    near, below, above = encoder.layout.grid_neighbours(x + 1e-4)
    np.testing.assert_array_equal(near, x)
    np.testing.assert_array_equal(encoder.decode(near)["a"], values)
    place = np.searchsorted(known, values)
    np.testing.assert_array_equal(encoder.decode(below)["a"], known[(place - 1).clip(0)])
    np.testing.assert_array_equal(encoder.decode(above)["a"], known[(place + 1).clip(max=len(known) - 1)])


@pytest.fixture(scope="module")
def explained():
    frame = pd.DataFrame({"disk": HELD, "rate": RATES, "price": RNG.normal(0, 1, 900)})
    wanted = HELD / 2000 + RATES / 4 + frame["price"] > 1.2
    kinds = {"disk": "integer", "rate": "continuous"}
    explainer = Explainer(LinearClassifier(), kinds=kinds, density=KDE(), confidence=None, judges=0)
    return explainer.fit(frame, wanted), frame


def test_answers_have_known_values(explained):
    explainer, frame = explained
    result = explainer.explain(frame.iloc[:60])
    assert (result.status["status"] == "found").mean() > 0.9
    assert set(result.answers["disk"]) <= set(HELD)
    assert set(result.answers["rate"]) <= set(RATES)
    assert len(result.changes.query("feature == 'disk'"))


def test_a_step_of_a_rule_comes_before_known_values(explained):
    explainer, frame = explained
    result = explainer.explain(frame.iloc[:60], constraints=[GridStep("disk", 250)])
    changed = result.changes.query("feature == 'disk'")["to"].astype(float)
    assert len(changed)
    assert (changed % 250 == 0).all()
