"""``plausiflow fit`` and ``explain`` give the answers of the library, bit for bit, in another process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from commanding import LEVELS, NUMBERS, QUICK, done
from plausiflow import Explainer, Immutable, Increasing, LinearClassifier, Range

xgboost = pytest.importorskip("xgboost")


def boosted_trees(x, y):
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    front = make_column_transformer((encoder, LEVELS), (StandardScaler(), NUMBERS))
    return make_pipeline(front, HistGradientBoostingClassifier(random_state=0)).fit(x, y)


def stored_trees(folder):
    model = xgboost.XGBClassifier(n_jobs=1)
    model.load_model(folder / "model.json")
    return model


SHORTENED = """
import json, sys, types
from plausiflow.cli import app
from commanding import shortened

shortened(types.SimpleNamespace(setattr=setattr))
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""
CASES = {
    "logistic": ("loans.csv", "rows.csv", "loan", lambda x, y, folder: LinearClassifier(random_state=0)),
    "gbm": ("loans.csv", "rows.csv", "loan", lambda x, y, folder: boosted_trees(x, y)),
    "xgboost": ("numbers.csv", "number_rows.csv", "paid", lambda x, y, folder: stored_trees(folder)),
}


def fitted_twice(folder, out):
    """Explainers by the command and by the library; commands that explain rows with those of the first."""
    rules = [Immutable("age"), Increasing("income"), Range("debt_ratio", 0, 0.9)]
    commands = []
    for name, (data, rows, target, model) in CASES.items():
        given = name == "xgboost"
        chosen = ("--model", folder / "model.json") if given else ("--train", name, "--hold-out", "0")
        done("fit", folder / data, "--target", target, "--out", out / name, *chosen,
             "--rules", folder / "rules.toml", *QUICK)  # fmt: skip
        table = pd.read_csv(folder / data)
        x, y = table.drop(columns=target), table[target]
        own = Explainer(
            model(x, y, folder), constraints=rules, confidence=None, judges=0, plausibility=0.1
        ).fit(x, y)
        own.save(out / f"own {name}")
        written = ("--out", out / f"{name}.csv", "--json", out / f"{name}.json")
        commands.append(["explain", out / name, folder / rows, *written])
    return [list(map(str, command)) for command in commands]


def run(*command):
    """A new process that must succeed."""
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
    finished = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=os.environ | own
    )
    assert finished.returncode == 0, finished.stderr


def assert_explained_alike(folder, out):
    """What was written is what the library answers here."""
    for name, (_, rows, _, _) in CASES.items():
        frame = pd.read_csv(folder / rows).drop(columns="customer", errors="ignore")
        own = Explainer.load(out / f"own {name}")
        result = own.explain(frame.set_axis(range(1, len(frame) + 1), axis=0))
        assert (result.status["status"] == "found").any()
        assert (out / f"{name}.json").read_text() == result.to_json()
        written = pd.read_csv(out / f"{name}.csv")
        answered = written[written["rank"].notna()].reset_index(drop=True)
        assert_frame_equal(answered[list(frame)], result.answers.reset_index(drop=True), check_dtype=False)
        figures = ["cost", "probability", "score"]
        assert_frame_equal(answered[figures], result.figures[figures], check_exact=True)


@pytest.mark.slow
def test_a_new_process_explains_as_the_library_does_to_the_bit(folder, tmp_path, brief):
    commands = fitted_twice(folder, tmp_path)
    run(sys.executable, "-W", "error", "-c", SHORTENED, json.dumps(commands))
    assert_explained_alike(folder, tmp_path)


@pytest.mark.slow
def test_the_installed_command_explains_as_the_library_does_to_the_bit(folder, tmp_path):
    for command in fitted_twice(folder, tmp_path):
        run(Path(sys.executable).with_name("plausiflow"), *command)
    assert_explained_alike(folder, tmp_path)
