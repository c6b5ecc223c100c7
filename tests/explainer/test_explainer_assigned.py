"""Settings that are assigned after ``fit``: the answers are those of a new explainer."""

from copy import copy

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier, Training
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError

pytestmark = pytest.mark.usefixtures("quickly_trained")


def table(n=240):
    draw = np.random.default_rng(0)
    x = pd.DataFrame({name: draw.normal(size=n) for name in "ab"})
    x["job"] = draw.choice(["clerk", "chef"], n)
    return x, (x["a"] + x["b"] + (x["job"] == "chef") > 0.5).map({True: "yes", False: "no"})


def fitted(**settings):
    given = {"confidence": None, "judges": 1} | settings
    model = LinearClassifier(training=Training(epochs=40, learning_rate=0.05))
    return Explainer(model, **given).fit(*table())


@pytest.fixture(scope="module")
def rows():
    x, y = table()
    return x[y == "no"].iloc[:4]


@pytest.fixture(scope="module")
def plain(quickly_trained):
    return fitted()


@pytest.mark.parametrize(
    ("name", "value"),
    [("distance", "l1"), ("weights", {"a": 5.0}), ("plausibility", 0.2)],
)
def test_an_assigned_setting_gives_the_answers_of_a_new_explainer(name, value, plain, rows):
    before = getattr(plain, name)
    first = plain.explain(rows, "yes")
    setattr(plain, name, value)
    found, expected = plain.explain(rows, "yes"), fitted(**{name: value}).explain(rows, "yes")
    pd.testing.assert_frame_equal(found.counterfactuals, expected.counterfactuals)
    pd.testing.assert_frame_equal(found.figures, expected.figures)
    setattr(plain, name, before)
    pd.testing.assert_frame_equal(plain.explain(rows, "yes").figures, first.figures)
    assert not found.figures.equals(first.figures)


def test_a_setting_that_needs_training_raises(plain, rows):
    explainer = copy(plain)
    explainer.missing = "impute"
    with pytest.raises(InvalidInputError, match="`missing` must stay as in `fit`"):
        explainer.explain(rows, "yes")


def test_an_assigned_setting_is_validated(plain, rows):
    explainer = copy(plain)
    explainer.distance = "l3"
    with pytest.raises(InvalidInputError, match="`distance` must be"):
        explainer.explain(rows, "yes")


def test_a_loaded_explainer_takes_other_weights_but_not_another_plausibility(tmp_path, plain, rows):
    plain.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved")
    loaded.weights = {"a": 5.0}
    expected = fitted(weights={"a": 5.0}).explain(rows, "yes")
    pd.testing.assert_frame_equal(loaded.explain(rows, "yes").figures, expected.figures)
    loaded.plausibility = 0.1
    with pytest.raises(InvalidInputError, match="Change it before `save`"):
        loaded.explain(rows, "yes")


def test_a_kept_margin_is_said(tmp_path, rows):
    fitted(confidence=0.5).save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved")
    loaded.distance = "l1-mad"
    with pytest.warns(PlausibilityWarning, match="calibrated with the settings of `fit`"):
        assert loaded.explain(rows, "yes").distance == "l1-mad"


def test_a_loaded_explainer_takes_another_share_of_extra_cost(tmp_path, plain, rows):
    plain.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved")
    loaded.max_extra_cost = 0.0
    expected = fitted(max_extra_cost=0.0).explain(rows, "yes")
    pd.testing.assert_frame_equal(loaded.explain(rows, "yes").figures, expected.figures)
    assert not expected.figures.equals(plain.explain(rows, "yes").figures)


def test_a_setting_of_a_copy_leaves_the_margin_of_the_original():
    original = fitted(confidence=0.5)
    margin = original.engine_.plausibility.margin_
    other = copy(original)
    other.distance, other.max_extra_cost = "l1", 0.0
    other.explain(table()[0].iloc[:2])
    assert other.engine_.plausibility is not original.engine_.plausibility
    assert original.engine_.plausibility.margin_ is margin
