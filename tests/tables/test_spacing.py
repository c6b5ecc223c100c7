"""Numbers with an offset, such as 5, 15, 25 or prices that end in .99: found, kept by answers, saved."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plausiflow import Explainer, GridStep, LinearClassifier, Range
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Schema

RNG = np.random.default_rng(0)
TENS = 5.0 + 10 * RNG.integers(0, 40, 600)
PRICES = (0.99 + RNG.integers(0, 30, 600)).round(2)


def grid_of(values, **settings):
    feature = Schema.infer(pd.DataFrame({"a": values}), **settings).feature("a")
    return feature.step, feature.spacing, feature.offset


@pytest.mark.parametrize(
    ("values", "grid"),
    [
        (TENS, (5.0, 10.0, 5.0)),
        (PRICES, (0.01, 1.0, 0.99)),
        (PRICES.astype(np.float32), (0.01, 1.0, 0.99)),
        (1 + 2 * RNG.integers(0, 40, 600), (1.0, 2.0, 1.0)),
        (-TENS, (5.0, 10.0, 5.0)),
        (np.append(TENS, [10.0, 20.0]), (5.0, 10.0, 5.0)),  # two odd values
        (np.append(TENS, np.arange(0, 400, 10)), (5.0, 0.0, 0.0)),  # too many
        (np.append(TENS, np.full(200, -9.0)), (5.0, 10.0, 5.0)),  # a special value does not count
        (10 * RNG.integers(0, 40, 600), (10.0, 0.0, 0.0)),
        (RNG.integers(0, 90, 600), (1.0, 0.0, 0.0)),
        (RNG.normal(0, 1, 600), (0.0, 0.0, 0.0)),
    ],
)
def test_the_offset_that_made_the_numbers_is_found(values, grid):
    assert grid_of(values) == grid


def test_a_declared_step_has_no_offset():
    assert grid_of(TENS, steps={"a": 5}) == (5.0, 0.0, 0.0)


@given(st.integers(0, 2**32 - 1))
def test_whole_numbers_have_no_offset_by_chance(seed):
    rng = np.random.default_rng(seed)
    for values in (rng.integers(0, 60, 300), rng.poisson(20, 300), rng.geometric(0.1, 300)):
        assert grid_of(values)[1:] == (0.0, 0.0)


def test_a_schema_with_an_offset_is_restored_from_json():
    schema = Schema.infer(pd.DataFrame({"a": TENS}))
    assert schema.feature("a").description == "integer, 5 to 395 in steps of 10 from 5"
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@pytest.fixture(scope="module")
def fitted():
    skewed = (0.5 + np.floor(np.exp(RNG.normal(2, 1.2, 600)))).clip(max=400)  # a logarithmic scale
    x = pd.DataFrame({"price": PRICES, "size": TENS, "skewed": skewed, "b": RNG.normal(0, 1, 600)})
    odds = (x["price"] - 15) / 6 + (x["size"] - 200) / 60 + np.log(x["skewed"]) - 2 + x["b"]
    y = np.where(odds + RNG.normal(0, 0.5, 600) > 0, "yes", "no")
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    assert explainer.encoder_.schema.feature("skewed").log
    return explainer, x.iloc[:40]


def off_grid(values, step, offset):
    places = (values - offset) / step
    return np.abs(places - np.rint(places)) > 1e-9


def test_answers_keep_offset_and_step(fitted):
    explainer, rows = fitted
    result = explainer.explain(rows)
    assert result.status["status"].isin(["found", "already"]).all()
    for name, step, offset in (("price", 1.0, 0.99), ("size", 10.0, 5.0), ("skewed", 1.0, 0.5)):
        assert (result.changes["feature"] == name).any()
        assert not off_grid(result.counterfactuals[name], step, offset).any()


def test_answers_keep_the_offset_within_a_range(fitted, tmp_path):
    explainer, rows = fitted
    result = explainer.explain(rows, constraints=[Range("size", 98, 312), Range("price", 3, 20.5)])
    after = result.best_answers
    assert after["size"].between(105, 305).all()
    assert after["price"].between(3.99, 19.99).all()
    assert not off_grid(after["size"], 10, 5).any()
    explainer.save(tmp_path / "saved")
    again = Explainer.load(tmp_path / "saved").explain(rows.iloc[:5])
    pd.testing.assert_frame_equal(again.counterfactuals, explainer.explain(rows.iloc[:5]).counterfactuals)


def test_a_step_of_the_user_comes_first(fitted):
    explainer, rows = fitted
    finer = explainer.explain(rows, constraints=[GridStep("size", 5)]).best_answers
    assert not off_grid(finer["size"], 10, 5).any()  # 5, 15, 25 are multiples of 5
    result = explainer.explain(rows, constraints=[GridStep("size", 10)])
    changed = result.changes[result.changes["feature"] == "size"]
    assert len(changed)
    assert not off_grid(changed["to"].astype(float), 10, 0).any()


def test_a_range_without_a_number_of_the_grid_is_refused(fitted):
    explainer, rows = fitted
    with pytest.raises(InvalidInputError, match="no multiple of 10 plus 5"):
        explainer.explain(rows, constraints=[Range("size", 96, 104)])
