"""A loaded explainer gives the answers of the saved one to the bit, in another process too."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from pandas.testing import assert_series_equal
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, LinearClassifier, Training
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting
from sampling import slow_unless
from saving import (
    LONG_SEARCH,
    MODELS,
    NUMBERS,
    RULES,
    SETTINGS,
    STORED,
    assert_same,
    document_of,
    loaded,
    outcomes,
    target_of,
)

for library in ("lightgbm", "xgboost", "skops.io"):
    pytest.importorskip(library)


@pytest.mark.parametrize(
    "name", slow_unless(["network", "histogram", "xgboost", "function", "ridge"], MODELS)
)
def test_a_loaded_explainer_gives_the_same_answers_to_the_bit(name, saved, fitted, table):
    before, after = fitted(name), loaded(name, saved, fitted)
    assert document_of(saved(name))["model"]["stored"] == STORED[name]
    assert repr(after) == repr(before)
    rows, target = table[0].iloc[:2], target_of(name, table)
    assert_same(before.explain(rows, target), after.explain(rows, target))
    assert_series_equal(after.predict(table[0]), before.predict(table[0]))


@pytest.mark.parametrize("name", ["network", "histogram", "forest", "ridge"])
def test_a_loaded_explainer_is_the_fitted_one_in_every_tensor(name, saved, fitted):
    before, after = fitted(name), loaded(name, saved, fitted)
    for one, other in [
        (before.engine_.plausibility.state(), after.engine_.plausibility.state()),
        (before.judges_.state(), after.judges_.state()),
        (before.engine_.bank_state(), after.engine_.bank_state()),
    ]:
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    x = torch.rand(50, before.encoder_.layout.width, dtype=torch.float64)
    x = before.encoder_.layout.with_codes(x, before.encoder_.layout.codes(x))
    wanted = before.criterion_.of_class(torch.arange(50) % 2)
    assert torch.equal(before.engine_.validity(x, wanted), after.engine_.validity(x, wanted))
    assert torch.equal(before.engine_.cost_model.weights, after.engine_.cost_model.weights)
    assert before.engine_.rules.constraints == after.engine_.rules.constraints
    assert before.encoder_.schema == after.encoder_.schema
    assert before.encoder_.schema.notes == after.encoder_.schema.notes


@pytest.mark.parametrize("name", ["network", "lightgbm", "boosted numbers"])
def test_an_explainer_that_was_loaded_is_saved_as_it_was(name, saved, fitted, tmp_path):
    loaded(name, saved, fitted).save(tmp_path / "again")
    for path in saved(name).iterdir():
        if path.suffix == ".safetensors":
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    first, second = document_of(saved(name)), document_of(tmp_path / "again")
    for name in first.keys() - {"files", "checksum"}:  # an archive holds the time of day
        assert first[name] == second[name]


@pytest.mark.slow
def test_a_new_process_gives_the_same_answers_to_the_bit(table, tmp_path, monkeypatch):
    monkeypatch.setattr(verified, "ITERATIONS", LONG_SEARCH[0])
    monkeypatch.setattr(fitting, "BlackBoxSearch", LONG_SEARCH[1])
    names, rows = ["network", "logistic", "histogram", "xgboost"], table[0].iloc[:3]
    explainers = {}
    for name in names:
        y = outcomes(name, table)
        model = MODELS[name](table[0], y)
        explainers[name] = Explainer(model, constraints=RULES, **SETTINGS).fit(table[0], y)
        explainers[name].save(tmp_path / name)
    rows.to_json(tmp_path / "rows.json", orient="split")
    code = """
import json, sys
import pandas as pd
import torch
from plausiflow import Explainer

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
rows = pd.read_json(sys.argv[1], orient="split", precise_float=True).astype(json.loads(sys.argv[2]))
for folder in sys.argv[3:]:
    result = Explainer.load(folder).explain(rows)
    figures = result.figures.astype(float).map(float.hex)
    print(json.dumps([table.values.tolist() for table in (
        result.answers.map(repr), figures, result.verdicts.map(repr))]))
"""
    dtypes = json.dumps({column: str(dtype) for column, dtype in rows.dtypes.items() if dtype != "category"})
    arguments = [str(tmp_path / "rows.json"), dtypes, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        answers, figures, verdicts = json.loads(line)
        own = explainers[name].explain(rows)
        assert own.answers.map(repr).to_numpy().tolist() == answers
        assert own.figures.astype(float).map(float.hex).to_numpy().tolist() == figures
        assert own.verdicts.map(repr).to_numpy().tolist() == verdicts


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_an_explainer_without_labels_comes_back(labels, table, tmp_path):
    x, y = table
    model = MODELS["histogram"](x, y) if labels == "bayes" else MODELS["logistic"](x, y)
    explainer = Explainer(model, labels=labels, **SETTINGS).fit(x)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    assert_same(explainer.explain(x.iloc[:1]), after.explain(x.iloc[:1]))


def test_settings_and_odd_columns_come_back(table, tmp_path):
    """Missing cells written as None, an identifier, a constant, booleans, other settings."""
    x, y = table[0].copy(), table[1]
    x["job"] = x["job"].astype(object).where(np.arange(len(x)) % 7 > 0, None)
    x["income"] = x["income"].astype(float).where(np.arange(len(x)) % 11 > 0)
    x["number"] = [f"A{i}" for i in range(len(x))]
    x["country"], x["owner"] = "PL", np.arange(len(x)) % 2 == 0
    steps = make_column_transformer((OneHotEncoder(), ["job", "owner"]), (StandardScaler(), ["age"]))
    model = make_pipeline(steps, LogisticRegression()).fit(x, y)
    orders = {"education": sorted(x["education"].unique())}
    settings = {"weights": {"age": 2.0}, "max_extra_cost": 0.0, "margin": 0.05, "orders": orders, **SETTINGS}
    kinds = {"number": "identifier"}
    explainer = Explainer(model, kinds=kinds, **settings).fit(x, y)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    for name, value in settings.items():
        assert getattr(after, name) == value
    assert after.model_.description == explainer.model_.description
    assert after.model_.description.startswith("Pipeline, converted exactly")
    rows = x.iloc[[0, 7, 11]]
    assert_same(explainer.explain(rows), after.explain(rows))


def test_settings_may_be_numbers_of_numpy(table, tmp_path):
    x, y = table[0][NUMBERS], table[1]
    settings = {
        "plausibility": np.float32(0.25),
        "margin": np.float64(0.03),
        "max_extra_cost": np.float64(0.2),
    }
    model = LinearClassifier(training=Training(epochs=20))
    explainer = Explainer(model, confidence=None, judges=np.int64(1), **settings).fit(x, y)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    assert {name: getattr(after, name) for name in settings} == settings
    assert after.judges_.count == 1


def test_metrics_need_the_training_rows(fitted, saved, table, tmp_path):
    rows = table[0].iloc[:2]
    explainer = fitted("logistic")
    explainer.save(tmp_path / "all", training_rows=True)
    whole = Explainer.load(tmp_path / "all").explain(rows).metrics()
    assert_series_equal(whole, explainer.explain(rows).metrics(), check_exact=True)
    few = Explainer.load(saved("logistic")).explain(rows).metrics()
    assert set(few.index) < set(whole.index)
    assert not (saved("logistic") / "training.safetensors").exists()
