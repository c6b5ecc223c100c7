"""Products and ratios of two numbers: learned in closed form, checked, saved, and obeyed by answers."""

import json

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier
from plausiflow.constraints import CompiledRules, Computed, RowChanges, learn_rules, rule_from_dict
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Encoder, Schema

RNG = np.random.default_rng(0)
N = 800
PRICE, QUANTITY = np.exp(RNG.normal(3, 0.5, N)).round(2), RNG.integers(1, 30, N)
DEBT, INCOME = RNG.integers(100, 9000, N), 100 * RNG.integers(90, 900, N)


def learned(frame):
    encoder = Encoder(Schema.infer(frame))
    rules = learn_rules(frame, encoder.encode(frame).x, encoder)
    return [str(rule) for rule in rules if isinstance(rule.rule, Computed)]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"a": PRICE, "b": QUANTITY, "t": (PRICE * QUANTITY).round(2)}, 'Computed("t", "a * b")'),
        ({"a": PRICE, "b": QUANTITY, "t": PRICE * QUANTITY}, 'Computed("t", "a * b")'),
        ({"a": DEBT, "b": INCOME, "t": (DEBT / INCOME).round(3)}, 'Computed("t", "a / b")'),
        ({"a": DEBT, "b": INCOME, "t": (100 * DEBT / INCOME).round(1)}, 'Computed("t", "100 * a / b")'),
    ],
)
def test_a_product_or_ratio_is_learned_in_its_closed_form(columns, rule):
    assert learned(pd.DataFrame({**columns, "other": RNG.normal(0, 1, N)})) == [rule]


AGE, WAGE = RNG.integers(18, 70, N), np.exp(RNG.normal(3, 0.5, N))


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"a": AGE, "t": AGE**2}, 'Computed("t", "a ** 2")'),
        ({"a": DEBT - 4000, "t": (DEBT - 4000) ** 2}, 'Computed("t", "a ** 2")'),
        ({"a": AGE, "t": AGE**2 / 100}, 'Computed("t", "0.01 * a ** 2")'),
        ({"a": WAGE, "t": np.log(WAGE)}, 'Computed("t", "log(a)")'),
        ({"a": AGE, "t": np.log(AGE).round(3)}, 'Computed("t", "log(a)")'),
        ({"a": WAGE, "t": np.log(WAGE).astype(np.float32)}, 'Computed("t", "log(a)")'),
        ({"a": AGE - 18, "t": np.log1p(AGE - 18.0)}, 'Computed("t", "log1p(a)")'),
    ],
)
def test_a_square_or_logarithm_is_learned(columns, rule):
    assert learned(pd.DataFrame({**columns, "other": RNG.normal(0, 1, N)})) == [rule]


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_shuffled_columns_show_no_function(seed):
    rng = np.random.default_rng(seed)
    assert learned(pd.DataFrame({"a": AGE, "t": rng.permutation(AGE**2)})) == []
    assert learned(pd.DataFrame({"a": WAGE, "t": np.log(WAGE) + rng.normal(0, 0.001, N)})) == []
    assert learned(pd.DataFrame({"a": AGE % 2, "t": AGE % 2, "b": AGE % 3})) == []


def test_answers_compute_functions_again(tmp_path):
    x = pd.DataFrame({"age": AGE, "age2": AGE**2, "wage": WAGE.round(2)})
    x["lwage"] = np.log(x["wage"])
    y = np.where(x["lwage"] - 3 + (x["age2"] - 2000) / 3000 + RNG.normal(0, 0.2, N) > 0, "yes", "no")
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    result = explainer.explain(x.iloc[:40])
    assert result.status["status"].isin(["found", "already"]).mean() >= 0.95
    after = result.best_answers
    assert (after["age2"] == after["age"] ** 2).all()
    np.testing.assert_allclose(after["lwage"], np.log(after["wage"]), atol=1e-6)
    assert {"age", "age2", "wage", "lwage"} <= set(result.changes["feature"])
    explainer.save(tmp_path / "saved")
    again = Explainer.load(tmp_path / "saved")
    pd.testing.assert_frame_equal(again.explain(x.iloc[:3]).counterfactuals, result.counterfactuals.iloc[:3])


@pytest.mark.parametrize("seed", range(8))
def test_noise_and_shuffled_columns_show_no_product(seed):
    rng = np.random.default_rng(seed)
    total = (PRICE * QUANTITY).round(2)
    assert learned(pd.DataFrame({"a": PRICE, "b": QUANTITY, "t": rng.permutation(total)})) == []
    noisy = (total * rng.normal(1, 0.01, N)).round(2)
    assert learned(pd.DataFrame({"a": PRICE, "b": QUANTITY, "t": noisy})) == []


def test_the_check_on_tables_and_on_encoded_rows_is_that_of_the_definition():
    frame = pd.DataFrame({"a": DEBT, "b": INCOME, "t": (DEBT / INCOME).round(2)})
    encoder = Encoder(Schema.infer(frame))
    rule = Computed("t", "a", "/", "b", tolerance=0.005005)
    rows = frame.iloc[:200]
    after = rows.assign(t=rows["t"] + np.where(np.arange(200) % 2, 0.0, 0.01)).round(2)
    expected = np.abs(after["t"] - after["a"] / after["b"]) > 0.005005
    features = {feature.name: feature for feature in encoder.schema.features}
    assert (rule.broken(RowChanges(features, rows, after)) == expected).all()
    rules = CompiledRules([rule], encoder.schema, encoder.layout)
    allowance = rules.for_rows(encoder.encode(rows).x, rows)
    inside = allowance.contains(encoder.encode(after).x).numpy()
    in_range = after["t"].between(frame["t"].min(), frame["t"].max())
    assert (inside == (~expected & in_range)).all()


def test_a_rule_is_saved_as_json_and_damaged_ones_are_refused():
    rule = Computed("t", "a", "/", "b", factor=100.0, tolerance=0.05)
    assert rule_from_dict(json.loads(json.dumps(rule.to_dict()))) == rule
    for wrong in ({"operation": "log"}, {"operation": "+"}, {"factor": 0}, {"tolerance": -1}, {"first": 3}):
        with pytest.raises(InvalidInputError):
            rule_from_dict(rule.to_dict() | wrong)


def test_a_rule_about_text_is_refused():
    frame = pd.DataFrame({"t": PRICE, "a": PRICE, "b": np.where(QUANTITY > 9, "x", "y")})
    features = {feature.name: feature for feature in Schema.infer(frame).features}
    assert Computed("t", "a", "*", "b").problems(features) == ["`b` is of kind category, not a number"]


@pytest.mark.slow
def test_answers_are_computed_again(tmp_path):
    x = pd.DataFrame({"price": PRICE, "quantity": QUANTITY, "debt": DEBT, "income": INCOME})
    x["total"] = (x["price"] * x["quantity"]).round(2)
    x["share"] = (100 * x["debt"] / x["income"]).round(1)
    odds = (x["total"] - 300) / 150 - (x["share"] - 10) / 5 + RNG.normal(0, 0.3, N)
    y = np.where(odds > 0, "yes", "no")
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    assert {'Computed("total", "price * quantity")', 'Computed("share", "100 * debt / income")'} <= {
        str(rule) for rule in explainer.learned_rules
    }
    result = explainer.explain(x.iloc[:30])
    assert result.status["status"].isin(["found", "already"]).mean() >= 0.95
    after = result.best_answers
    assert np.abs(after["total"] - after["price"] * after["quantity"]).max() < 0.00501
    assert np.abs(after["share"] - 100 * after["debt"] / after["income"]).max() < 0.0501
    explainer.save(tmp_path / "saved")
    again = Explainer.load(tmp_path / "saved")
    pd.testing.assert_frame_equal(again.explain(x.iloc[:3]).counterfactuals, result.counterfactuals.iloc[:3])
