"""Numbers that are computed from others: learned in closed form, checked, saved, and obeyed by answers."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow import Explainer, LinearClassifier
from plausiflow.constraints import CompiledRules, Computed, RowChanges, learn_rules, rule_from_dict
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Encoder, Schema

RNG = np.random.default_rng(0)
N = 800
PRICE, QUANTITY = np.exp(RNG.normal(3, 0.5, N)).round(2), RNG.integers(1, 30, N)
DEBT, INCOME = RNG.integers(100, 9000, N), 100 * RNG.integers(90, 900, N)


WEIGHT, HEIGHT = RNG.normal(75, 14, N).round(1), RNG.normal(170, 10, N).round()
BMI = (WEIGHT / (HEIGHT / 100) ** 2).round(1)
RATE = RNG.uniform(1, 9, N).round(1)
INTEREST = (DEBT * RATE / 100 * QUANTITY).round()
MEAN = np.where(QUANTITY % 5 > 0, (DEBT / (QUANTITY % 5).clip(1)).round(2), 0.0)


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
        ({"a": DEBT, "b": INCOME, "t": (12 * DEBT / INCOME).round(3)}, 'Computed("t", "12 * a / b")'),
        ({"a": WEIGHT, "b": HEIGHT, "t": BMI}, 'Computed("t", "10000 * a / b ** 2")'),
        ({"a": PRICE, "b": DEBT + 500, "t": (PRICE / (DEBT + 500) ** 2)}, 'Computed("t", "a / b ** 2")'),
        ({"a": PRICE, "t": (3.5 * PRICE**2).round(2)}, 'Computed("t", "3.5 * a ** 2")'),
        ({"a": PRICE, "t": (1 / PRICE).round(6)}, 'Computed("t", "1 / a")'),
        (
            {"a": INCOME, "b": DEBT, "t": (100 * (DEBT - INCOME) / INCOME).round(1)},
            'Computed("t", "100 * b / a - 100")',
        ),
        ({"a": PRICE, "b": QUANTITY, "c": DEBT, "t": PRICE * QUANTITY * DEBT}, 'Computed("t", "a * b * c")'),
        ({"a": DEBT, "b": RATE, "c": QUANTITY, "t": INTEREST}, 'Computed("t", "0.01 * a * b * c")'),
        ({"a": DEBT, "b": QUANTITY % 5, "t": MEAN}, 'Computed("t", "a / b")'),
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
    rule = Computed("t", "a / b", tolerance=0.005005)
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
    rule = Computed("t", "100 * a / b", tolerance=0.05)
    assert rule_from_dict(json.loads(json.dumps(rule.to_dict()))) == rule
    for wrong in ({"expression": "a +"}, {"expression": 3}, {"tolerance": -1}, {"feature": 3}):
        with pytest.raises(InvalidInputError):
            rule_from_dict(rule.to_dict() | wrong)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a + b", "position 5: expected a number"),
        ("a * * b", "position 5: expected a number or a feature"),
        ("a ** b", "position 6: expected a number"),
        ("0 * a", "position 1: a factor must be a number other than zero"),
        ("3", "expected a product of powers"),
        ("a / a", "expected a product of powers"),
        ("log(a) * b", "expected a product of powers of at most 6 features, or log of one"),
        ("1 / log(a)", "that is not divided by"),
        ("a $ b", "position 3: this character is not allowed"),
        ("a b", "position 3: expected \\*"),
        ("a * t", 'must not have "t" itself'),
    ],
)
def test_an_expression_that_is_none_is_refused_at_its_position(text, problem):
    with pytest.raises(InvalidInputError, match=problem):
        Computed("t", text)


@pytest.mark.parametrize(
    "text",
    [
        "10000 * weight / height ** 2",
        "a * b * c",
        "100 * `b-2` / a - 100",
        "2.5 / a",
        "log1p(a)",
        "-3 * log(a) + 2",
    ],
)
def test_a_formula_is_written_as_it_is_read(text):
    formula = Computed("t", text).formula
    assert formula.text == text
    assert Computed("t", formula.text).formula == formula


def test_a_formula_is_that_of_numpy_for_arrays_and_tensors_and_is_solved_for_each_number():
    a, b, c = RNG.uniform(0.5, 9, (3, 50))
    formula = Computed("t", "3 * a ** 2 * b / c ** 0.5 - 7").formula
    expected = 3 * a**2 * b / np.sqrt(c) - 7
    np.testing.assert_allclose(formula.of_arrays([a, b, c]), expected)
    tensors = [torch.from_numpy(x) for x in (a, b, c)]
    np.testing.assert_allclose(formula.of_tensors(tensors).numpy(), expected)
    for place, x in enumerate((a, b, c)):
        np.testing.assert_allclose(formula.solved(place, torch.from_numpy(expected), tensors).numpy(), x)


def test_a_ratio_does_not_bind_a_row_that_it_would_divide_by_zero():
    frame = pd.DataFrame({"n": RNG.poisson(2, N), "t": RNG.integers(0, 99, N)})
    frame["mean"] = np.where(frame["n"] > 0, (frame["t"] / frame["n"].clip(lower=1)).round(2), 0.0)
    encoder = Encoder(Schema.infer(frame))
    rule = Computed("mean", "t / n", tolerance=0.005005)
    features = {feature.name: feature for feature in encoder.schema.features}
    after = frame.assign(mean=frame["mean"] + 1)
    broken = rule.broken(RowChanges(features, frame, after))
    assert (broken == (frame["n"] > 0)).all()
    assert not rule.broken(RowChanges(features, frame, frame)).any()
    allowance = CompiledRules([rule], encoder.schema, encoder.layout).for_rows(encoder.encode(frame).x, frame)
    assert allowance.contains(encoder.encode(frame).x).all()


def test_a_rule_about_text_is_refused():
    frame = pd.DataFrame({"t": PRICE, "a": PRICE, "b": np.where(QUANTITY > 9, "x", "y")})
    features = {feature.name: feature for feature in Schema.infer(frame).features}
    assert Computed("t", "a * b").problems(features) == ["`b` is of kind category, not a number"]


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


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (0.3 * PRICE + 0.5 * QUANTITY + 0.2 * HEIGHT, "0.3 * a + 0.5 * b + 0.2 * c"),
        (2.5 * PRICE - 0.125 * HEIGHT + 40, "2.5 * a - 0.125 * c + 40"),
    ],
)
def test_a_weighted_sum_is_learned_in_its_closed_form(target, expected):
    frame = pd.DataFrame({"a": PRICE, "b": QUANTITY, "c": HEIGHT, "t": target.round(3), "other": WEIGHT})
    encoder = Encoder(Schema.infer(frame))
    rules = [str(rule) for rule in learn_rules(frame, encoder.encode(frame).x, encoder)]
    assert [rule.split(", tolerance")[0] for rule in rules if rule.startswith("Equal")] == [
        f'Equal("t", "{expected}"'
    ]


def test_a_model_of_noisy_columns_is_no_weighted_sum():
    noisy = (0.3 * PRICE + 0.5 * QUANTITY + RNG.normal(0, 0.1, N)).round(2)
    frame = pd.DataFrame({"a": PRICE, "b": QUANTITY, "t": noisy})
    encoder = Encoder(Schema.infer(frame))
    rules = [str(rule) for rule in learn_rules(frame, encoder.encode(frame).x, encoder)]
    assert not [rule for rule in rules if rule.startswith(("Equal", "Computed"))]


def test_answers_keep_an_index_that_is_computed_from_two_others():
    x = pd.DataFrame({"weight": WEIGHT, "height": HEIGHT, "bmi": BMI, "age": AGE})
    y = np.where(BMI + AGE / 10 + RNG.normal(0, 0.5, N) > 31, "high", "low")
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    result = explainer.explain(x.iloc[:40], target="low")
    assert result.status["status"].isin(["found", "already"]).mean() >= 0.95
    after = result.best_answers
    assert np.abs(after["bmi"] - after["weight"] / (after["height"] / 100) ** 2).max() <= 0.0501
    assert {"weight", "bmi"} <= set(result.changes["feature"])
