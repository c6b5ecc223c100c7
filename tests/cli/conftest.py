"""Fixtures of the tests of commands: files of tables, models and rules, and a saved explainer."""

import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from commanding import LEVELS, NUMBERS, QUICK, done, shortened
from plausiflow.datasets.tables import loans_table

RULES = 'immutable = ["age"]\nincreasing = ["income"]\n[range]\ndebt_ratio = [0, 0.9]\n'


@pytest.fixture
def brief(monkeypatch):
    """Short training of densities and surrogates, and short searches."""
    shortened(monkeypatch)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Files: a table with its outcome, rows of another one with an id, numbers alone, rules, models."""
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    skops_io = pytest.importorskip("skops.io")
    folder = tmp_path_factory.mktemp("files")
    train, test = loans_table(n=600).split(300, 4)
    table = train.x[[*NUMBERS, *LEVELS]].assign(loan=train.y)
    table["education"] = table["education"].astype(str)
    table.to_csv(folder / "loans.csv", index=False)
    rows = test.x[[*NUMBERS, *LEVELS]]
    rows.assign(customer=[f"00{i}" for i in range(len(rows))]).to_csv(folder / "rows.csv", index=False)
    numbers = table[NUMBERS].assign(paid=(table["loan"] == "granted").astype(int))
    numbers.to_csv(folder / "numbers.csv", index=False)
    rows[NUMBERS].to_csv(folder / "number_rows.csv", index=False)
    (folder / "rules.toml").write_text(RULES)
    numbers = pd.read_csv(folder / "numbers.csv")
    boosted = xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1)
    boosted.fit(numbers[NUMBERS], numbers["paid"]).save_model(folder / "model.json")
    boosted.save_model(folder / "model.ubj")
    named = numbers["paid"].map({0: "no", 1: "yes"})
    numbers.assign(paid=named).to_csv(folder / "named.csv", index=False)
    light = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(numbers[NUMBERS], named)
    light.booster_.save_model(folder / "model.txt")
    table = pd.read_csv(folder / "loans.csv")
    steps = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), LEVELS))
    pipeline = make_pipeline(steps, LogisticRegression()).fit(table[[*NUMBERS, *LEVELS]], table["loan"])
    skops_io.dump(pipeline, folder / "model.skops")
    return folder


@pytest.fixture(scope="session")
def explainer(folder):
    """A directory that `fit` saved: logistic regression, rules, a fifth held out."""
    with pytest.MonkeyPatch.context() as patch:
        shortened(patch)
        out = folder / "credit"
        done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--out", out,
             "--rules", folder / "rules.toml", *QUICK)  # fmt: skip
    return out
