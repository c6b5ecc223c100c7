"""Categories that tell the range of a number: learned, checked, saved, and obeyed by answers."""

import json

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier
from plausiflow.constraints import Bands, RowChanges, learn_rules, rule_from_dict
from plausiflow.constraints.mined_bands import _shortest
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Encoder, Schema

RNG = np.random.default_rng(0)
N = 800


def learned(frame):
    encoder = Encoder(Schema.infer(frame))
    rules = learn_rules(frame, encoder.encode(frame).x, encoder)
    return [rule.rule for rule in rules if isinstance(rule.rule, Bands)], encoder


def test_groups_of_a_whole_number_are_learned_with_their_ends():
    age = RNG.integers(18, 80, N)
    group = pd.cut(age, [0, 29, 44, 64, 99], labels=["a", "b", "c", "d"]).astype(str)
    (rule,), _ = learned(pd.DataFrame({"age": age, "group": group}))
    assert rule == Bands("group", "age", (("a", None, 29), ("b", 30, 44), ("c", 45, 64), ("d", 65, None)))


def test_a_flag_of_a_real_number_is_learned_with_a_short_bound():
    score = RNG.normal(0, 1, N)
    (rule,), _ = learned(pd.DataFrame({"score": score, "high": score > 0.5}))
    (_, _, below), (_, above, _) = rule.bands
    assert [level for level, _, _ in rule.bands] == [False, True]
    assert below == above == pytest.approx(0.5, abs=0.02)


def test_a_level_for_each_number_and_special_values_are_understood():
    years = RNG.integers(1, 17, N)
    names = np.array([f"e{(7 * year) % 17}" for year in years])
    (rule,), encoder = learned(
        pd.DataFrame({"years": np.where(RNG.random(N) < 0.3, -9, years), "name": names})
    )
    assert encoder.schema.feature("years").special == (-9.0,)
    assert [level for level, _, _ in rule.bands] == [f"e{(7 * year) % 17}" for year in range(1, 17)]
    assert rule.bands[3] == ("e11", 4.0, 4.0)


@pytest.mark.parametrize("seed", range(10))
def test_independent_and_overlapping_columns_show_no_bands(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, N)
    frame = pd.DataFrame({"x": x, "near": x + rng.normal(0, 0.1, N) > 0, "far": rng.random(N) < 0.4})
    assert learned(frame)[0] == []


@pytest.mark.parametrize(
    ("low", "high", "number"), [(29.3, 31.7, 30), (0.4987, 0.5012, 0.5), (9, 10, 10), (-3.2, 4, 0), (7, 7, 7)]
)
def test_a_bound_has_the_fewest_digits(low, high, number):
    assert _shortest(low, high) == number


def test_the_check_is_that_of_the_definition():
    rule = Bands("g", "x", (("a", None, 2), ("b", 3, None)))
    train = pd.DataFrame({"x": np.r_[np.arange(30) % 20, np.full(30, -9)], "g": ["a", "b"] * 30})
    known = {f.name: f for f in Schema.infer(train).features}
    rows = pd.DataFrame({"x": [2, 3, 2, 3, -9], "g": ["a", "a", "b", "b", "b"]})
    assert known["x"].special == (-9.0,)
    assert rule.broken(RowChanges(known, rows, rows)).tolist() == [False, True, True, False, False]
    assert rule.problems({"g": known["x"], "x": known["g"]})
    assert rule_from_dict(json.loads(json.dumps(rule.to_dict()))) == rule


@pytest.mark.parametrize("bands", [[["a", 1]], [["a", "x", 2]], "ab", [["a", float("nan"), None]]])
def test_damaged_bands_are_refused(bands):
    with pytest.raises(InvalidInputError, match="bands"):
        rule_from_dict({"rule": "Bands", "feature": "g", "number": "x", "bands": bands})


@pytest.mark.slow
def test_answers_have_the_level_of_their_number(tmp_path):
    income = RNG.integers(10, 100, N)
    band = np.array([f"b{value // 10}" for value in income])
    x = pd.DataFrame({"income": income, "band": band, "debt": RNG.integers(0, 50, N)})
    y = np.where(x["income"] - x["debt"] + RNG.normal(0, 3, N) > 30, "yes", "no")
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    (rule,) = (rule for rule in explainer.learned_rules if isinstance(rule.rule, Bands))
    assert rule.text.startswith("Bands(\"band\", \"income\"): band by income: 'b1' up to 19; 'b2' 20 to 29;")
    result = explainer.explain(x.iloc[:30])
    assert result.status["status"].isin(["found", "already"]).all()
    after = result.best_answers
    assert (result.changes["feature"] == "band").any()
    assert (after["band"] == "b" + (after["income"] // 10).astype(int).astype(str)).all()
    explainer.save(tmp_path / "saved")
    assert Explainer.load(tmp_path / "saved").learned_rules == explainer.learned_rules
