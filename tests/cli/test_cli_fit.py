"""``plausiflow fit``: what it trains, loads, holds out and prints."""

import re

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from commanding import NUMBERS, QUICK, done, refused, shortened
from plausiflow import Explainer
from plausiflow.cli import training
from plausiflow.cli.fit import _print_learned_rules
from plausiflow.constraints import LearnedRule, Linear
from plausiflow.persistence import estimators

lightgbm = pytest.importorskip("lightgbm")


def test_what_is_learned_and_answered_is_told(folder, explainer, tmp_path, brief):
    out = tmp_path / "credit"
    told = done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--out", out, *QUICK)
    table = pd.read_csv(folder / "loans.csv")
    counts = table["loan"].value_counts()
    assert f"300 rows, 5 features, loan: {counts.index[0]} {counts.iloc[0]}" in told.stdout
    assert "Model: logistic, trained on 240 rows\n" in told.stdout
    assert "Explained as: a network of plausiflow, LinearClassifier" in told.stdout
    tried = r"Tested on 60 rows that were held out \(20%\): accuracy (0\.\d+) \(0\.\d+ with the most common"
    assert float(re.search(tried, told.stdout)[1]) > 0.6
    assert f"Saved: {out} (" in told.stdout
    assert f"Next: plausiflow explain {out} {folder / 'loans.csv'} --target opposite" in told.stdout


def test_rows_that_are_held_out_are_a_fifth_of_each_outcome_and_not_learned_from(folder, explainer):
    y = pd.read_csv(folder / "loans.csv")["loan"]
    chosen = training.split_held_out(y, 0.2, numbers=False, seed=0)
    assert y[chosen].value_counts().to_dict() == {k: round(0.2 * n) for k, n in y.value_counts().items()}
    assert Explainer.load(explainer).training_summary_.rows == (~chosen).sum()


def test_an_outcome_of_two_rows_is_not_held_out():
    y = pd.Series(["a"] * 100 + ["b"] * 2)
    assert training.split_held_out(y, 0.9, numbers=False, seed=0).tolist()[100:] == [False, False]


@pytest.mark.parametrize(
    ("data", "model", "kind"),
    [
        ("loans.csv", "model.skops", "Pipeline"),
        ("numbers.csv", "model.ubj", "XGBClassifier"),
        ("named.csv", "model.txt", "LGBMClassifier"),
    ],
)
def test_a_model_in_a_file_is_explained_as_it_is(folder, tmp_path, brief, data, model, kind):
    target = "loan" if data == "loans.csv" else "paid"
    told = done(
        "fit", folder / data, "--target", target, "--model", folder / model, "--out", tmp_path / "e", *QUICK
    )
    assert f"Model: {kind} of {folder / model}" in told.stdout
    table = pd.read_csv(folder / data)
    own = Explainer.load(tmp_path / "e")
    right = (own.predict(table.drop(columns=target)) == table[target]).mean()
    assert right > 0.7
    assert f"which it may have been trained on: accuracy {right:.3f} (" in told.stdout


def test_the_model_of_a_saved_explainer_is_used_again(folder, explainer, tmp_path, brief):
    command = ("fit", folder / "loans.csv", "--target", "loan", "--model", explainer, *QUICK)
    line = refused(*command, "--out", tmp_path / "a")  # all rows have other ranges than those learned from
    assert "needs rows in the encoding of the table that it was trained on" in line
    done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--hold-out", 0,
         "--out", tmp_path / "b", *QUICK)  # fmt: skip
    done(
        "fit",
        folder / "loans.csv",
        "--target",
        "loan",
        "--model",
        tmp_path / "b",
        "--out",
        tmp_path / "c",
        *QUICK,
    )
    rows = pd.read_csv(folder / "rows.csv").drop(columns="customer")
    one, other = (Explainer.load(tmp_path / name).predict_proba(rows) for name in "bc")
    assert_frame_equal(one, other, check_exact=True)


def test_a_model_that_is_not_stored_is_given_to_explain(folder, tmp_path, brief, monkeypatch):
    named = pd.read_csv(folder / "named.csv")
    light = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(named[NUMBERS], named["paid"])
    own = Explainer(light, confidence=None, judges=0, plausibility=0.1).fit(named[NUMBERS], named["paid"])
    monkeypatch.setitem(estimators._ESTIMATORS, "lightgbm", ())
    own.save(tmp_path / "e")
    monkeypatch.undo()
    shortened(monkeypatch)
    command = ("explain", tmp_path / "e", folder / "number_rows.csv", "--out", tmp_path / "a.csv")
    assert "is not stored with it" in (line := refused(*command))
    assert "Pass it with --model" in line
    assert "Explainer.load" not in line
    done(*command, "--model", folder / "model.txt")
    assert len(pd.read_csv(tmp_path / "a.csv")) == 4
    line = refused(*command, "--model", folder / "model.json", "--force")
    assert "`model` must be the model that was explained" in line


def test_a_number_is_predicted_and_asked_for_by_its_bounds(folder, tmp_path, brief):
    table = pd.read_csv(folder / "loans.csv")
    table[NUMBERS].assign(limit=(table["income"] * 0.3 + table["age"]).round(1)).to_csv(
        tmp_path / "limits.csv", index=False
    )
    told = done("fit", tmp_path / "limits.csv", "--target", "limit", "--out", tmp_path / "e", *QUICK)
    assert "Model: gbm" in told.stdout
    assert "mean absolute error" in told.stdout
    command = ("explain", tmp_path / "e", folder / "number_rows.csv", "--out", tmp_path / "a.csv")
    assert "--target must be the smallest and the largest number" in refused(*command)
    done(*command, "--target", "20000:25000")
    found = pd.read_csv(tmp_path / "a.csv").query("status == 'found'")
    assert len(found)
    assert found["prediction"].between(20000, 25000).all()
    train = ("--train", "mlp", "--out", tmp_path / "f")
    assert "Use --train gbm" in refused("fit", tmp_path / "limits.csv", "--target", "limit", *train)


def test_fewer_rows_and_columns_are_learned_from_where_that_is_asked_for(folder, tmp_path, brief):
    told = done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--rows", 150,
                "--drop", "job,age", "--drop", "education", "--out", tmp_path / "e", *QUICK)  # fmt: skip
    assert "150 rows, 2 features" in told.stdout
    own = Explainer.load(tmp_path / "e")
    assert own.encoder_.schema.names == ("income", "debt_ratio")
    assert own.training_summary_.rows == 120


def test_a_column_that_looks_like_an_identifier_is_noted(folder, tmp_path, brief):
    table = pd.read_csv(folder / "loans.csv")
    table.assign(customer=[f"C{i:04}" for i in range(len(table))]).to_csv(tmp_path / "t.csv", index=False)
    told = done(
        "fit", tmp_path / "t.csv", "--target", "loan", "--train", "logistic", "--out", tmp_path / "e", *QUICK
    )
    assert told.stderr.count("Note: `customer` is treated as an identifier") == 1


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A table in which a column is the sum of two others, and others in the same order as their partners."""
    generator, n = np.random.default_rng(0), 400
    net, tax = generator.integers(10, 100, n), generator.integers(0, 30, n)
    frame = pd.DataFrame({"net": net, "tax": tax, "total": net + tax})
    frame["good"] = np.where(frame["total"] > 70, "yes", "no")
    path = tmp_path_factory.mktemp("sums") / "sums.csv"
    frame.to_csv(path, index=False)
    return path


def test_learned_rules_are_counted_and_shown(sums, tmp_path, brief):
    command = ("fit", sums, "--target", "good", "--train", "logistic", *QUICK)
    told = done(*command, "--out", tmp_path / "a")
    learned = Explainer.load(tmp_path / "a").learned_rules
    assert f"Rules learned from the table: {len(learned)}\n" in told.stdout
    line = '  Equal("total", "net + tax"): learned from 320 rows, 0 exceptions\n'
    assert line in told.stdout
    told = done(*command, "--out", tmp_path / "b", "--no-learn-rules", "--distance", "l1-mad")
    assert "learned from" not in told.stdout
    assert Explainer.load(tmp_path / "b").learned_rules == ()
    assert Explainer.load(tmp_path / "b").distance == "l1-mad"


def test_one_learned_rule_is_switched_off(sums, tmp_path, brief):
    command = ("fit", sums, "--target", "good", "--train", "logistic", *QUICK, "--out", tmp_path / "a")
    told = done(*command, "--switch-off", 'Equal("total", "net + tax")')
    assert '  Equal("total", "net + tax"): learned from 320 rows, 0 exceptions; switched off' in told.stdout
    off = [str(rule) for rule in Explainer.load(tmp_path / "a").learned_rules if not rule.active]
    assert off == ['Equal("total", "net + tax")']
    line = refused(*command, "--force", "--switch-off", 'Equal("total", "net + tx")')
    assert 'did you mean Equal("total", "net + tax")?' in line
    assert "exclude each other" in refused(*command, "--force", "--switch-off", "x", "--no-learn-rules")


def test_many_learned_rules_are_cut_but_not_those_that_are_off(capsys):
    rules = [LearnedRule(Linear(f"a <= {i} * b"), 10, 10, 0, active=i < 9) for i in range(1, 11)]
    _print_learned_rules(rules)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Rules learned from the table: 10"
    assert [line.endswith("switched off") for line in lines[1:6]] == [True, True, False, False, False]
    assert lines[6].startswith("  and 5 more")


def test_a_step_with_odd_values_is_noted_once(sums, tmp_path, brief):
    table = pd.read_csv(sums).assign(limit=lambda t: 500 * (1 + t["net"] // 3))
    table.loc[0, "limit"] = 1234
    table.to_csv(tmp_path / "t.csv", index=False)
    told = done("fit", tmp_path / "t.csv", "--target", "good", "--train", "logistic", "--hold-out", 0,
                "--out", tmp_path / "e", *QUICK)  # fmt: skip
    note = "Note: `limit` is treated as multiples of 500, although 1 of 400 rows has another value"
    assert told.stderr.count(note) == 1
    assert told.stderr.count("Note: `limit`") == 1
    assert note.removeprefix("Note: ") in str(Explainer.load(tmp_path / "e").encoder_.schema)
