"""The commands for people's own tables: fit, explain and serve, from files to files."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

from plausiflow import Explainer, Immutable, Increasing, Linear, LinearClassifier, Range, Training
from plausiflow.classifiers import blackbox
from plausiflow.cli import app, explaining, training
from plausiflow.cli.places import placed
from plausiflow.cli.rules_file import read_rules
from plausiflow.cli.table_options import interval, range_of, target_of
from plausiflow.cli.tables import Dialect, read_table, write_table
from plausiflow.data.schema import Schema
from plausiflow.data.tables import loans_table
from plausiflow.data.texts import column_like, column_of
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError
from plausiflow.persistence import estimators
from plausiflow.search import fitting as search_fitting
from plausiflow.search import verified
from plausiflow.search.evolution import Evolution

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
skops_io = pytest.importorskip("skops.io")
pytest.importorskip("pyarrow")

DOCS = Path(__file__).parents[1] / "docs"
NUMBERS, LEVELS = ["age", "income", "debt_ratio"], ["education", "job"]
RULES = 'immutable = ["age"]\nincreasing = ["income"]\n[range]\ndebt_ratio = [0, 0.9]\n'
QUICK = ("--confidence", "none", "--judges", "0", "--plausibility", "0.1")
DIALECT = Dialect()


@pytest.fixture
def brief(monkeypatch):
    """Densities and students that learn for a moment only; short searches."""
    shortened(monkeypatch)


def shortened(patch):
    patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
    patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
    patch.setattr(search_fitting, "MEMBERS", 2)
    patch.setattr(blackbox, "FEWEST", 1000)
    patch.setattr(verified, "ITERATIONS", 4)
    short = partial(verified.VerifiedSearch, evolution=Evolution(rounds=1))
    patch.setattr(search_fitting, "VerifiedSearch", short)


def invoke(*arguments, **settings):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **settings)


def done(*arguments):
    """A command that must succeed."""
    finished = invoke(*arguments)
    assert finished.exit_code == 0, finished.output
    return finished


def refused(*arguments):
    """The one line that a command which cannot be run prints on standard error."""
    finished = invoke(*arguments)
    assert finished.exit_code == 2, finished.output
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("Note: ")]
    assert len(lines) == 1, finished.stderr
    assert lines[0].startswith("plausiflow: ")
    assert "Traceback" not in finished.output
    return lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files: a table with its outcome, rows of another one with an id, numbers alone, rules, models."""
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


@pytest.fixture(scope="module")
def explainer(folder):
    """A directory that `fit` saved: logistic regression, rules, a fifth held out."""
    with pytest.MonkeyPatch.context() as patch:
        shortened(patch)
        out = folder / "credit"
        done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--out", out,
             "--rules", folder / "rules.toml", *QUICK)  # fmt: skip
    return out


# What was learned and answered


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
from test_cli import shortened

shortened(types.SimpleNamespace(setattr=setattr))
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""
CASES = {
    "logistic": ("loans.csv", "rows.csv", "loan", lambda x, y, folder: LinearClassifier(seed=0)),
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
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
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


def test_a_new_process_explains_as_the_library_does_to_the_bit(folder, tmp_path, brief):
    commands = fitted_twice(folder, tmp_path)
    run(sys.executable, "-W", "error", "-c", SHORTENED, json.dumps(commands))
    assert_explained_alike(folder, tmp_path)


@pytest.mark.slow
def test_the_installed_command_explains_as_the_library_does_to_the_bit(folder, tmp_path):
    for command in fitted_twice(folder, tmp_path):
        run(Path(sys.executable).with_name("plausiflow"), *command)
    assert_explained_alike(folder, tmp_path)


def test_what_is_learned_and_answered_is_told(folder, explainer, tmp_path, brief):
    out = tmp_path / "credit"
    told = done("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", "--out", out, *QUICK)
    table = pd.read_csv(folder / "loans.csv")
    counts = table["loan"].value_counts()
    assert f"300 rows, 5 features, loan: {counts.index[0]} {counts.iloc[0]}" in told.stdout
    assert "Model: logistic, trained on 240 rows\n" in told.stdout
    assert "Taken for: a network of plausiflow, LinearClassifier" in told.stdout
    tried = r"Tried on 60 rows that were held out \(20%\): accuracy (0\.\d+) \(0\.\d+ with the most common"
    assert float(re.search(tried, told.stdout)[1]) > 0.6
    assert f"Saved: {out} (" in told.stdout
    assert f"Next: plausiflow explain {out} {folder / 'loans.csv'} --target opposite" in told.stdout


def test_rows_that_are_held_out_are_a_fifth_of_each_outcome_and_not_learned_from(folder, explainer):
    y = pd.read_csv(folder / "loans.csv")["loan"]
    chosen = training.held_out(y, 0.2, numbers=False, seed=0)
    assert y[chosen].value_counts().to_dict() == {k: round(0.2 * n) for k, n in y.value_counts().items()}
    assert Explainer.load(explainer).origin_.rows == (~chosen).sum()


def test_an_outcome_of_two_rows_is_not_held_out():
    y = pd.Series(["a"] * 100 + ["b"] * 2)
    assert training.held_out(y, 0.9, numbers=False, seed=0).tolist()[100:] == [False, False]


def test_rules_of_a_file_hold_and_are_told(folder, explainer, tmp_path):
    assert Explainer.load(explainer).constraints == (
        Immutable("age"), Increasing("income"), Range("debt_ratio", 0, 0.9),
    )  # fmt: skip
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", tmp_path / "a.csv")
    before, after = pd.read_csv(folder / "rows.csv"), pd.read_csv(tmp_path / "a.csv")
    assert sorted(after["row"]) == [1, 2, 3, 4]
    answered = after[after["rank"].notna()].set_index("row")
    own = before.set_axis(range(1, 5), axis=0).loc[answered.index]
    assert (answered["age"] == own["age"]).all()
    assert (answered["income"] >= own["income"]).all()


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
    assert "takes rows as the table that it was trained on" in line
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
    assert "Give it with --model" in line
    done(*command, "--model", folder / "model.txt")
    assert len(pd.read_csv(tmp_path / "a.csv")) == 4
    line = refused(*command, "--model", folder / "model.json", "--force")
    assert "`model` must be the one that was explained" in line


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
    assert own.origin_.rows == 120


def test_a_column_that_looks_like_an_identifier_is_noted(folder, tmp_path, brief):
    table = pd.read_csv(folder / "loans.csv")
    table.assign(customer=[f"C{i:04}" for i in range(len(table))]).to_csv(tmp_path / "t.csv", index=False)
    told = done(
        "fit", tmp_path / "t.csv", "--target", "loan", "--train", "logistic", "--out", tmp_path / "e", *QUICK
    )
    assert told.stderr.count("Note: `customer` is taken for an identifier") == 1


# The table of answers


def test_every_row_has_a_line_and_a_verdict(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv", dtype=str)
    rows.loc[1, "job"] = "astronaut"
    rows.loc[2, "income"] = "much"
    rows.loc[3, "age"] = ""
    rows.to_csv(tmp_path / "rows.csv", index=False)
    told = done("explain", explainer, tmp_path / "rows.csv", "--out", tmp_path / "a.csv")
    answers = pd.read_csv(tmp_path / "a.csv")
    assert answers["row"].tolist() == [1, 2, 3, 4]
    assert answers["status"].tolist()[1:] == ["invalid_input"] * 3
    assert "'astronaut'" in answers["reason"][1]
    assert "'much'" in answers["reason"][2]
    assert "`age` is nan" in answers["reason"][3]
    assert answers.loc[1:, ["rank", "age", "cost", "job"]].isna().all(axis=None)
    assert answers["customer"].tolist() == [0, 1, 2, 3]
    assert "invalid_input" in told.stdout
    assert "Row 2: Cannot be explained" in told.stdout


def test_columns_that_are_no_features_are_carried_along_as_they_are(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv", dtype=str).assign(loan="rejected", note="1.50", status="old")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    told = done("explain", explainer, tmp_path / "rows.csv", "--k", 2, "--out", tmp_path / "a.csv")
    assert "kept in --out as they are: customer, note, status" in told.stderr
    assert "the column `loan` is what the model decides, and is not used" in told.stderr
    answers = pd.read_csv(tmp_path / "a.csv", dtype=str)
    assert list(answers.columns) == [
        "row", "rank", "plausiflow_status", "reason", "predicted", "target", *NUMBERS, *LEVELS, "cost",
        "probability", "score", "judged", "customer", "note", "status",
    ]  # fmt: skip
    assert set(answers["note"]) == {"1.50"}
    assert set(answers["status"]) == {"old"}
    assert (answers["customer"] == answers["row"].map(lambda row: f"00{int(row) - 1}")).all()
    found = answers[answers["plausiflow_status"] == "found"]
    assert found.groupby("row")["rank"].apply(list).map(lambda ranks: ranks == ["1", "2"]).all()


def test_a_column_names_the_rows_in_every_file(folder, explainer, tmp_path):
    files = ("--out", tmp_path / "a.csv", "--json", tmp_path / "a.json", "--report", tmp_path / "a.html")
    done("explain", explainer, folder / "rows.csv", "--key", "customer", *files)
    answers = pd.read_csv(tmp_path / "a.csv", dtype=str)
    assert answers.columns[0] == "customer"
    assert "row" not in answers
    names = ["000", "001", "002", "003"]
    assert answers["customer"].tolist() == names
    assert [row["row"] for row in json.loads((tmp_path / "a.json").read_text())["rows"]] == names
    assert "003" in (tmp_path / "a.html").read_text()
    assert "is a feature that answers may change" in refused(
        "explain", explainer, folder / "rows.csv", "--key", "age"
    )


def test_the_index_that_pandas_writes_names_the_rows(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv").drop(columns="customer")
    rows.set_axis([17, 4, 8, 9], axis=0).to_csv(tmp_path / "rows.csv")
    done("explain", explainer, tmp_path / "rows.csv", "--out", tmp_path / "a.csv")
    assert pd.read_csv(tmp_path / "a.csv")["row"].tolist() == [17, 4, 8, 9]


def test_locks_ranges_and_probabilities_are_kept(folder, explainer, tmp_path):
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--locked", "job,education",
         "--range", "income=:60000", "--range", "debt_ratio=0.1:0.5", "--min-probability", 0.6,
         "--no-second-opinion", "--relaxed", "--time-limit", 60, "--out", tmp_path / "a.csv")  # fmt: skip
    before = pd.read_csv(folder / "rows.csv").set_axis(range(1, 5), axis=0)
    after = pd.read_csv(tmp_path / "a.csv").set_index("row").query("rank == 1")
    assert len(after)
    own = before.loc[after.index]
    assert (after[LEVELS] == own[LEVELS]).all(axis=None)
    assert (after["income"] <= 60000).all()
    assert after["debt_ratio"].between(0.1, 0.5).all()
    assert (after["probability"] >= 0.6 - 1e-9).all()


def test_parquet_and_csv_have_the_same_answers_and_parquet_the_dtypes_of_the_rows(
    folder, explainer, tmp_path
):
    rows = read_table(folder / "rows.csv", DIALECT).reset_index(drop=True)
    rows = rows.astype({"age": "int16", "job": "category", "education": "str", "income": "Int64"})
    rows["since"] = pd.Timestamp("2024-02-29")
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    for name in ("a.parquet", "b.csv"):
        done("explain", explainer, tmp_path / "rows.parquet", "--target", "granted", "--out", tmp_path / name)
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", tmp_path / "c.csv")
    made = pd.read_parquet(tmp_path / "a.parquet")
    assert made["job"].dtype == rows["job"].dtype
    assert made["income"].dtype == "Int64"
    assert made["age"].dtype in ("int16", "Int16")
    assert made["since"].tolist() == [pd.Timestamp("2024-02-29")] * 4
    written = pd.read_csv(tmp_path / "c.csv")
    for name, column in pd.read_csv(tmp_path / "b.csv").drop(columns=["since", "customer"]).items():
        assert column.tolist() == pytest.approx(written[name].tolist(), nan_ok=True, abs=0)
    assert made["income"].astype(float).tolist() == pytest.approx(written["income"].tolist(), nan_ok=True)


def test_missing_cells_stay_missing_and_whole_numbers_whole(folder, tmp_path, brief):
    table = pd.read_csv(folder / "loans.csv").assign(owner=[True, False, True] * 100)
    gaps = np.random.default_rng(0).random(table.shape) < 0.1
    gaps[:, list(table).index("loan")] = False
    table = table.astype({"age": "Int64", "income": "Int64", "owner": "boolean", "job": "category"}).mask(
        gaps
    )
    for name, kind in (("t.csv", "logistic"), ("t.parquet", "gbm")):
        write_table(table, tmp_path / name, DIALECT)
        done("fit", tmp_path / name, "--target", "loan", "--train", kind, "--out", tmp_path / "e", "--force",
             *QUICK)  # fmt: skip
        write_table(table.head(2), tmp_path / f"rows_{name}", DIALECT)
        done("explain", tmp_path / "e", tmp_path / f"rows_{name}", "--out", tmp_path / "a.csv", "--force")
        answers = pd.read_csv(tmp_path / "a.csv", dtype=str).query("rank == '1'")
        assert set(answers["status"]) == {"found"}
        own = table.iloc[answers["row"].astype(int) - 1].reset_index(drop=True)
        features = answers.reset_index(drop=True)[list(own.columns.drop("loan"))]
        assert (features.isna() == own.drop(columns="loan").isna()).all(axis=None)
        assert not features["income"].dropna().str.contains(".", regex=False).any()


def test_a_table_survives_writing_and_reading(tmp_path):
    frame = pd.DataFrame(
        {
            "zip": ["01067", "80331"],
            "rooms": [2, 3],
            "price": [0.1 + 0.2, 1e300],
            "sold": [True, False],
            "street": ['"A", \n', "ä;b"],
        }
    ).set_axis([1, 2], axis=0)
    for name in ("t.csv", "t.parquet"):
        write_table(frame, tmp_path / name, DIALECT)
        assert_frame_equal(read_table(tmp_path / name, DIALECT), frame, check_exact=True)
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path):
    path = tmp_path / "new" / "t.csv"
    with suppress(OSError), placed(path) as beside:
        beside.write_text("a")
        raise OSError
    assert list(path.parent.iterdir()) == []


# Cells and columns


@pytest.mark.parametrize(
    ("texts", "values", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0], "int64"),
        (["1", "", "3"], [1.0, np.nan, 3.0], "float64"),
        (["1", "NA", "nan"], [1.0, np.nan, np.nan], "float64"),
        (["999999999999999999", "1"], [999999999999999999, 1], "int64"),
        (["9007199254740993", ""], [9007199254740993, pd.NA], "Int64"),
        (["0.1", "1e3", "-.5", "2."], [0.1, 1000.0, -0.5, 2.0], "float64"),
        (["True", "false", "TRUE"], [True, False, True], "bool"),
        (["true", ""], [True, np.nan], "object"),
        (["007", "12"], ["007", "12"], "str"),
        (["+49170", "+49171"], ["+49170", "+49171"], "str"),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"], "str"),
        (["2024-02-29", ""], ["2024-02-29", np.nan], "str"),
        (["NA", "DE"], ["NA", "DE"], "str"),
        (["1_000", "2"], ["1_000", "2"], "str"),
        (["", ""], [np.nan, np.nan], "str"),
        ([" 5", "6 "], [5, 6], "int64"),
        (["1,234", "a"], ["1,234", "a"], "str"),
    ],
)
def test_cells_are_what_people_mean(texts, values, expected):
    column = column_of("c", texts)
    pd.testing.assert_series_equal(column, pd.Series(values, dtype=expected, name="c"), check_exact=True)


def test_numbers_are_read_to_the_last_bit():
    texts = ["0.30000000000000004", "2.2250738585072014e-308", "9007199254740993.0", "1.7976931348623157e308"]
    assert column_of("c", texts).tolist() == [float(text) for text in texts]


def test_a_decimal_comma_is_told():
    with pytest.raises(InvalidInputError, match=r"decimal comma, such as '1,5'.*Write '1\.5'"):
        column_of("c", ["1,5", "2"])


def trained_on(column, **settings):
    return Schema.infer(pd.DataFrame({"c": column}), **settings).features[0]


@pytest.mark.parametrize(
    ("trained", "texts", "values", "expected"),
    [
        (pd.Series([*range(99), 0]), ["5", "7.0"], [5, 7], "int64"),
        (pd.Series([*range(99), 0]), ["5", ""], [5.0, np.nan], "float64"),
        (pd.Series([*range(99), 0]), ["5", "x"], [5, "x"], "object"),
        (pd.Series(np.linspace(0, 1, 99)), ["1", "0.5"], [1.0, 0.5], "float64"),
        (pd.Series(["1", "2"] * 30), ["1", "2"], ["1", "2"], "str"),
        (pd.Series(["01", "None"] * 30), ["01", "None"], ["01", "None"], "str"),
        (pd.Series([1, 2, 3] * 30), ["3", "2.0"], [3, 2], "int64"),
        (pd.Series([True, False] * 30), ["TRUE", "false"], [True, False], "bool"),
        (pd.Series([True, False, None] * 30, dtype="boolean"), ["true", "NA"], [True, pd.NA], "boolean"),
    ],
)
def test_rows_are_read_with_the_dtypes_of_the_training_table(trained, texts, values, expected):
    column = column_like(trained_on(trained), texts)
    pd.testing.assert_series_equal(column, pd.Series(values, dtype=expected, name="c"), check_exact=True)


def test_categories_keep_their_order_and_a_new_one_is_not_lost():
    dtype = pd.CategoricalDtype(["low", "high"], ordered=True)
    feature = trained_on(pd.Series(["low", "high"] * 30, dtype=dtype))
    assert column_like(feature, ["high", "low", ""]).dtype == dtype
    assert column_like(feature, ["high", "other"]).tolist() == ["high", "other"]


def test_dates_are_dates_where_the_training_table_has_dates():
    days = pd.Series(pd.date_range("2024-01-01", periods=60))
    feature = trained_on(days, kinds={"c": "identifier"})
    read = column_like(feature, ["2024-02-29", "", "2024-03-01 12:30"])
    assert read.dtype == days.dtype
    assert read.tolist()[::2] == [pd.Timestamp("2024-02-29"), pd.Timestamp("2024-03-01 12:30")]
    assert column_like(feature, ["29.2.2024", "soon"]).tolist() == ["29.2.2024", "soon"]


def test_identifiers_are_read_as_they_were():
    text = trained_on(pd.Series([f"{i:05}" for i in range(60)]), kinds={"c": "identifier"})
    assert column_like(text, ["00017", "18"]).tolist() == ["00017", "18"]
    number = trained_on(pd.Series(range(60)), kinds={"c": "identifier"})
    assert column_like(number, ["17", "18"]).tolist() == [17, 18]
    assert column_like(number, ["17", "x"]).tolist() == ["17", "x"]


@pytest.mark.parametrize(
    ("text", "labels", "wanted"),
    [
        ("granted", ("granted", "rejected"), "granted"),
        ("opposite", ("granted", "rejected"), "opposite"),
        ("runner-up", (0, 1, 2), "runner_up"),
        ("other", ("other", "else"), "other"),
        ("1", (0, 1), 1),
        ("1.0", (0, 1), 1),
        ("true", (False, True), True),
        ("1:2", ("1:2", "2:3"), "1:2"),
        ("100:150", (), (100.0, 150.0)),
        (":150", (), (None, 150.0)),
        ("-5.5:", (), (-5.5, None)),
    ],
)
def test_a_target_is_a_label_a_policy_or_an_interval(text, labels, wanted):
    found = target_of(text, labels)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_range_is_a_column_and_its_bounds():
    assert range_of("income=0:5000") == Range("income", 0, 5000)
    assert range_of("a=b=:3") == Range("a=b", None, 3)
    assert interval(":") is None
    for text in ("income", "income=5", "=1:2", "income=a:b", "income=:"):
        with pytest.raises(InvalidInputError, match="such as income=0:5000"):
            range_of(text)


# Files that cannot be used


FILES = {
    "semicolons.csv": (b"age;loan\n1;yes\n", "Add --separator ';'"),
    "tabs.csv": (b"age\tloan\n1\tyes\n", "Add --separator 'tab'"),
    "latin.csv": (
        "age,loan\n1,Gr\u00fcn\n".encode("latin-1"),
        "line 2 has the byte 0xfc. Save it as UTF-8, or add --encoding latin-1",
    ),
    "wide.csv": ("age,loan\n1,yes\n".encode("utf-16"), "add --encoding utf-16"),
    "twice.csv": (b"age,loan,age\n1,yes,2\n", "more than one column named 'age'"),
    "unnamed.csv": (b"age,,loan\n1,2,yes\n", "Column 2 of"),
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n\n", "is empty"),
    "header.csv": (b"age,loan\n", "has a header and no rows"),
    "headless.csv": (b",\n1,2\n", "has no header"),
    "ragged.csv": (b"age,loan\n1,yes\n2\n", "Line 3 of"),
    "long.csv": (b"age,loan\n1,yes,no\n", "has 3 cells, and the header 2"),
    "quote.csv": (b'age,loan\n1,"yes\n', "unclosed double quote"),
    "zeros.csv": (b"age,loan\n1,\0\n", "holds zero bytes"),
    "commas.csv": (b'age,loan\n"1,5",yes\n"2,5",no\n', "decimal comma, such as '1,5'"),
    "alone.csv": (b"loan\nyes\nno\n", "has no column besides 'loan'"),
    "one.csv": (b"age,loan\n1,yes\n2,yes\n", "must hold two outcomes or more; it holds 1"),
    "gone.csv": (b"age,loan\n1,yes\n2,\n", "is missing in 1 of 2 rows, first in row 2"),
    "broken.parquet": (b"PAR1nothingPAR1", "cannot be read as Parquet"),
    "table.xlsx": (b"PK", "Tables are files that end in .csv or .parquet"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_used_is_one_line_with_a_remedy(tmp_path, name):
    content, remedy = FILES[name]
    (tmp_path / name).write_bytes(content)
    line = refused("fit", tmp_path / name, "--target", "loan", "--out", tmp_path / "out")
    assert remedy in line
    assert not (tmp_path / "out").exists()


def test_separators_encodings_and_byte_marks_are_read_where_they_are_named(tmp_path):
    text = "age;name\n1;J\u00e4ger\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    frame = read_table(tmp_path / "t.csv", Dialect(separator=";", encoding="latin-1"))
    assert frame.to_dict("list") == {"age": [1], "name": ["J\u00e4ger"]}
    (tmp_path / "t.csv").write_bytes(text.replace(";", "\t").encode("utf-8-sig"))
    assert list(read_table(tmp_path / "t.csv", Dialect(separator="tab"))) == ["age", "name"]
    write_table(frame, tmp_path / "u.csv", Dialect(separator=";", encoding="latin-1"))
    assert (tmp_path / "u.csv").read_bytes() == text.encode()


def test_without_pyarrow_parquet_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    line = refused("fit", tmp_path / "t.parquet", "--target", "loan", "--out", tmp_path / "out")
    assert 'pip install "plausiflow[files]"' in line


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--target", "lona"), "no column 'lona' (did you mean 'loan'?); its columns are age, income"),
        (("--target", "loan", "--drop", "jbo"), "no column 'jbo' (did you mean 'job'?)"),
        (("--target", "loan", "--drop", "loan"), "--drop names 'loan', which is the target"),
        (("--target", "loan", "--train", "mlp", "--model", "model.skops"), "--model and --train exclude"),
        (("--target", "loan", "--train", "svm"), "'svm' is not one of"),
        (("--target", "loan", "--confidence", "high"), "such as 0.95, or none; got 'high'"),
        (("--target", "loan", "--confidence", "2"), "`confidence` must be a share between 0 and 1"),
        (("--target", "loan", "--plausibility", "7"), "`plausibility` must be a quantile"),
        (("--target", "loan", "--judges", "-1"), "`judges` must be"),
        (("--target", "loan", "--hold-out", "1"), "--hold-out must be a share from 0 to 0.9"),
        (("--target", "loan", "--rows", "1"), "--rows must be 2 or more"),
        (("--target", "loan", "--separator", ";;"), "--separator must be one character"),
        (("--target", "loan", "--encoding", "klingon"), "--encoding must be one that Python knows"),
        (("--target", "loan", "--model", "nope.skops"), "There is no model nope.skops"),
        (("--target", "loan", "--rules", "nope.toml"), "There is no file of rules nope.toml"),
        ((), "Missing option '--target'. See: plausiflow fit --help"),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_one_line_before_anything_is_learned(
    folder, tmp_path, monkeypatch, arguments, remedy
):
    monkeypatch.setattr(Explainer, "fit", lambda *_: pytest.fail("something was learned"))
    line = refused("fit", folder / "loans.csv", "--out", tmp_path / "out", *arguments)
    assert remedy in line


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--target", "grantd"), "--target must be opposite, runner_up, other or one of granted, rejected"),
        (("--range", "income"), "--range must be a column and its bounds"),
        (("--range", "incme=0:1"), "there is no feature 'incme'; did you mean 'income'?"),
        (("--locked", "jbo"), "there is no feature 'jbo'; did you mean 'job'?"),
        (("--k", "0"), "`k` must be a whole number"),
        (("--key", "costumer"), "no column 'costumer' (did you mean 'customer'?)"),
        (("--min-probability", "1.5"), "`min_probability` must be a probability"),
        (("--out", "answers.xlsx"), "end in .csv or .parquet; got answers.xlsx"),
    ],
)
def test_a_wrong_question_is_one_line_with_a_remedy(folder, explainer, arguments, remedy):
    assert remedy in refused("explain", explainer, folder / "rows.csv", *arguments)


def test_rows_and_explainers_that_are_not_there_are_told(folder, explainer, tmp_path):
    assert "There is no file" in (line := refused("explain", explainer, folder / "row.csv"))
    assert "Did you mean rows.csv?" in line
    assert "is a directory; a CSV or Parquet file is expected" in refused(
        "explain", explainer, make(tmp_path / "d.csv")
    )
    assert "directory of a saved explainer" in refused("explain", tmp_path / "nope", folder / "rows.csv")
    pd.read_csv(folder / "rows.csv").rename(columns={"income": "incom"}).to_csv(
        tmp_path / "r.csv", index=False
    )
    assert "no column 'income' (did you mean 'incom'?)" in refused("explain", explainer, tmp_path / "r.csv")
    (explainer.parent / "damaged").mkdir(exist_ok=True)
    (explainer.parent / "damaged" / "explainer.json").write_text("{}")
    assert "is not that of one" in refused("explain", explainer.parent / "damaged", folder / "rows.csv")


def make(path):
    path.mkdir()
    return path


def test_nothing_is_written_over_unless_that_is_asked_for(folder, explainer, tmp_path, monkeypatch):
    command = ("explain", explainer, folder / "rows.csv")
    (tmp_path / "a.csv").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Explainer, "explain", lambda *_, **__: pytest.fail("something was explained"))
        for option in ("--out", "--report", "--json"):
            assert "exists already. Give another name, or --force" in refused(
                *command, option, tmp_path / "a.csv"
            )
        assert "is the file of rows itself" in refused(*command, "--out", folder / "rows.csv", "--force")
        assert "is a directory; a file is expected" in refused(*command, "--out", make(tmp_path / "d.csv"))
        same = ("--out", tmp_path / "b.csv", "--json", tmp_path / "b.csv")
        assert "--out and --json are both" in refused(*command, *same)
        file = tmp_path / "a.csv" / "b.csv"
        assert "cannot be written" in refused(*command, "--out", file)
    assert (tmp_path / "a.csv").read_text() == "mine"
    done(*command, "--out", tmp_path / "a.csv", "--force")
    assert (tmp_path / "a.csv").read_text() != "mine"


def test_only_an_explainer_is_ever_replaced_by_another(folder, explainer, tmp_path, brief):
    command = ("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", *QUICK)
    (tmp_path / "file").write_text("mine")
    make(tmp_path / "photos").joinpath("cat.png").write_text("mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explainer, "fit", lambda *_: pytest.fail("something was learned"))
        for force in ((), ("--force",)):
            assert "is a file; a directory is expected" in refused(
                *command, "--out", tmp_path / "file", *force
            )
            assert "holds cat.png, and no saved explainer" in refused(
                *command, "--out", tmp_path / "photos", *force
            )
        assert "holds an explainer already" in refused(*command, "--out", explainer)
    for force in ((), ("--force",)):
        done(*command, "--out", tmp_path / "new" / "e", *force)
    assert (tmp_path / "photos" / "cat.png").read_text() == "mine"


# Models that cannot be read


class Trap:
    def __reduce__(self):
        return Path.write_text, (Path("trap.txt"), "code was run")


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.skops", "model.json", "model.txt"])
def test_a_pickle_is_never_read_whatever_it_is_called(folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps(Trap()))
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--model", name, "--out", "out")
    assert "is a pickle, which runs code when it is read" in line
    assert 'skops.io.dump(model, "model.skops")' in line
    assert not Path("trap.txt").exists()


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("model.onnx", b"x", "is no model that can be read here"),
        ("model.skops", b"no zip", "BadZipFile"),
        ("model.json", b"{}", "KeyError: 'learner'"),
        ("model.json", b"[1", "JSONDecodeError"),
        ("model.json", b'{"learner": {"objective": {"name": "rank:ndcg"}}}', "its objective is 'rank:ndcg'"),
        ("model.ubj", b"no booster", "XGBoost cannot read it"),
        ("model.txt", b"tree", "it is no file that `booster.save_model` of LightGBM wrote"),
        ("model.txt", b"objective=lambdarank\nfeature_names=a\n", "its objective is 'lambdarank'"),
        ("model.txt", b"objective=multiclass num_class:3\nfeature_names=a\n", "the table has 2"),
        ("model.txt", b"objective=binary\nfeature_names=a\n", "LightGBM cannot read"),
        ("model.txt", b"\xff", "UnicodeDecodeError"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_read_is_one_line(folder, tmp_path, name, content, remedy):
    (tmp_path / name).write_bytes(content)
    line = refused(
        "fit", folder / "loans.csv", "--target", "loan", "--model", tmp_path / name, "--out", tmp_path / "o"
    )
    assert remedy in line
    assert str(tmp_path / name) in line


def test_a_model_of_types_that_are_not_trusted_is_not_read(folder, tmp_path):
    skops_io.dump(make_pipeline(Odd(), LogisticRegression()), tmp_path / "model.skops")
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--model", tmp_path / "model.skops",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "holds types that are not trusted" in line


class Odd(StandardScaler):
    pass


def test_outcomes_that_a_model_does_not_know_are_told(folder, tmp_path):
    line = refused("fit", folder / "named.csv", "--target", "paid", "--model", folder / "model.json",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "`paid` holds 'no', 'yes', and the outcomes of" in line
    assert "are 0, 1. Write them as the model was trained on them" in line


# Rules


def test_the_file_of_rules_in_the_documentation_can_be_used(tmp_path, brief):
    example = re.search(r"```toml\n(.*?)```", (DOCS / "rules.md").read_text(), re.DOTALL)[1]
    (tmp_path / "rules.toml").write_text(example)
    loans = loans_table(n=200)
    loans.x.assign(loan=loans.y).to_csv(tmp_path / "loans.csv", index=False)
    told = done("fit", tmp_path / "loans.csv", "--target", "loan", "--train", "logistic", "--out",
                tmp_path / "e", "--rules", tmp_path / "rules.toml", *QUICK)  # fmt: skip
    own = Explainer.load(tmp_path / "e")
    assert len(own.constraints) == told.stdout.count("Rule: ") == 9
    assert Linear("loan_amount <= 0.6 * income") in own.constraints
    assert own.encoder_.schema.feature("education").levels[0] == "none"
    assert own.encoder_.schema.feature("dependents").kind == "integer"
    assert own.weights == {"credit_score": 2.0}
    assert Range("income", 10000, None) in own.constraints


def test_everything_that_is_wrong_with_rules_is_told_at_once(folder, tmp_path):
    (tmp_path / "rules.toml").write_text(
        """
        imutable = ["age"]
        increasing = "income"
        decreasing = ["debt_ration"]
        max_changes = 1.5
        linear = ["income <", "rent <= income"]
        [range]
        income = 5
        age = { least = 1 }
        debt_ratio = []
        [allowed]
        job = "clerk"
        [kinds]
        age = "number"
        agee = "integer"
        [orders]
        education = "low to high"
        [weights]
        income = "dear"
        """
    )
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "rules.toml has 14 problems: " in line
    for part in (
        "there is no key 'imutable'; did you mean 'immutable'?",
        "`increasing` must be a list of texts; got 'income'",
        "decreasing: there is no column 'debt_ration'; did you mean 'debt_ratio'?",
        "max_changes: `limit` of MaxChanges must be a whole number",
        "linear: ",
        "linear: there is no column 'rent'",
        "range.income: a range is [smallest, largest]",
        "range.age: a range is",
        "range.debt_ratio: a range is",
        "allowed.job: ",
        "kinds: there is no column 'agee'; did you mean 'age'?",
        "kinds.age: there is no kind 'number'",
        "orders.education must be a list of levels",
        "weights.income must be a number; got 'dear'",
    ):
        assert part in line, line


def test_rules_that_contradict_the_table_are_told_at_once(folder, tmp_path):
    (tmp_path / "rules.toml").write_text('increasing = ["job"]\n[range]\nincome = [9, 1]\n')
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--train", "logistic", "--out", tmp_path / "o")  # fmt: skip
    assert "`job` is a category without an order" in line
    assert "the lower bound 9 is above the upper bound 1" in line


def test_a_file_that_is_no_toml_is_told_with_its_line(folder, tmp_path):
    (tmp_path / "rules.toml").write_text("immutable = [age]\n")
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "is no TOML" in line
    assert "line 1" in line


def test_moves_by_own_level_are_written_as_tables_or_as_pairs(tmp_path):
    (tmp_path / "rules.toml").write_text(
        '[allowed]\ngrade = { C = ["B"] }\nrooms = [[1, [2]], [2, [3, 4]]]\n'
    )
    rules = read_rules(tmp_path / "rules.toml", ["grade", "rooms"]).constraints
    assert [rule.transitions for rule in rules] == [(("C", ("B",)),), ((1, (2,)), (2, (3, 4)))]


# Help, exit codes, the service


def examples(command):
    """The commands that a help text shows."""
    text = done(command, "--help").stdout
    return re.findall(rf"^ *(plausiflow {command} .*?) *$", text, re.MULTILINE)


def test_the_examples_of_the_help_texts_can_be_run(folder, tmp_path, brief, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(folder / "loans.csv")
    table.assign(id=range(len(table)), date="2024-02-29").to_csv("loans.csv", index=False)
    rows = pd.read_csv(folder / "rows.csv").head(2)
    rows.assign(id=7, date="2024-02-29").to_csv("rows.csv", index=False)
    for name in ("rules.toml", "model.skops"):
        Path(name).write_bytes((folder / name).read_bytes())
    Path("token.txt").write_text("a" * 20 + "\n")
    served = recorded(monkeypatch)
    shown = {command: examples(command) for command in ("fit", "explain", "serve")}
    assert [len(lines) for lines in shown.values()] == [3, 2, 2]
    *others, quick = shown["fit"]
    assert "--confidence none" in quick
    for line in others:
        done(*shlex.split(f"{line} --force --confidence none --judges 0")[1:])
    done(*shlex.split(quick)[1:])
    for line in shown["explain"]:
        done(*shlex.split(line)[1:])
    Path("mortgage").symlink_to("quick")
    for line in shown["serve"]:
        done(*shlex.split(line)[1:])
    assert [sorted(call["explainers"]) for call in served] == [["credit"], ["credit", "mortgage"]]
    for name in ("answers.csv", "report.html", "answers.json"):
        assert Path(name).stat().st_size > 100


def recorded(monkeypatch):
    """What the server is asked to do, instead of doing it."""
    server = pytest.importorskip("plausiflow.service.server")
    calls = []

    def record(explainers, **settings):
        settings["ready"]("http://127.0.0.1:8080/")
        calls.append({"explainers": explainers, **settings})

    monkeypatch.setattr(server, "serve", record)
    return calls


def test_serve_hands_over_explainers_rows_token_and_limits(folder, explainer, tmp_path, monkeypatch):
    calls = recorded(monkeypatch)
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    limits = ("--max-rows", 7, "--queue-rows", 20, "--time-limit", 2.5)
    told = done("serve", explainer, "--rows", folder / "rows.csv", "--token-file", tmp_path / "token",
                "--port", 9, "--host", "0.0.0.0", *limits)  # fmt: skip
    (call,) = calls
    assert list(call["explainers"]) == ["credit"]
    assert (call["host"], call["port"], call["token"]) == ("0.0.0.0", 9, "0123456789abcdef")
    settings = call["settings"]
    assert (settings.max_rows, settings.queue_rows, settings.time_limit) == (7, 20, 2.5)
    rows = pd.read_csv(folder / "rows.csv")[[*NUMBERS, *LEVELS]]
    assert_frame_equal(call["rows"]["credit"].reset_index(drop=True), rows, check_dtype=False)
    assert "Serving credit at http://127.0.0.1:8080/" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--host", "0.0.0.0"), "there is no token"),
        (("--token-file", "nope"), "There is no file nope. Make one: python -c"),
        (("--rows", "a.csv", "--rows", "b.csv"), "--rows must be given once for each of the 1 directories"),
        (("--max-rows", "0"), "`max_rows` must be a whole number"),
    ],
)
def test_a_service_that_cannot_be_is_one_line_with_a_remedy(explainer, monkeypatch, arguments, remedy):
    recorded(monkeypatch)
    assert remedy in refused("serve", explainer, *arguments)


def test_two_explainers_of_one_name_cannot_be_served(explainer, tmp_path, monkeypatch):
    recorded(monkeypatch)
    assert "credit is there twice" in refused("serve", explainer, tmp_path / "credit")


def test_without_its_packages_the_service_names_the_extra(explainer, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "plausiflow.service.server", raising=False)
    assert 'pip install "plausiflow[serve]"' in refused("serve", explainer)


def test_an_error_that_nobody_expected_is_one_line_and_another_exit_code(folder, explainer, monkeypatch):
    def broken(*_, **__):
        raise KeyError("surprise")

    monkeypatch.setattr(Explainer, "explain", broken)
    finished = invoke("explain", explainer, folder / "rows.csv")
    assert finished.exit_code == 1
    line = finished.stderr.splitlines()[-1]
    assert "unexpected KeyError: 'surprise'" in line
    assert "--debug" in line
    assert "Traceback" not in finished.output
    traced = invoke("--debug", "explain", explainer, folder / "rows.csv")
    assert traced.exit_code == 1
    assert isinstance(traced.exception, KeyError)


def test_an_interrupted_command_has_its_own_exit_code_and_leaves_nothing(
    folder, explainer, tmp_path, monkeypatch
):
    def interrupted(self, path):
        Path(path).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(explaining.Explanations, "to_json", interrupted)
    finished = invoke("explain", explainer, folder / "rows.csv", "--json", tmp_path / "a.json")
    assert finished.exit_code == 130
    assert "plausiflow: stopped" in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(folder, explainer, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(explaining.Explanations, "to_json", full)
    line = refused("explain", explainer, folder / "rows.csv", "--json", tmp_path / "a.json")
    assert "No space left on device" in line


def test_every_option_that_the_documentation_names_exists(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    commands = ((), ("fit",), ("explain",), ("batch",), ("serve",), ("benchmark", "batch"))
    helps = "".join(done(*command, "--help").stdout for command in commands)
    named = {
        name
        for page in ("cli.md", "rules.md", "scale.md")
        for name in re.findall(r"--[a-z][a-z-]*", (DOCS / page).read_text())
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if name not in helps] == []


def test_commands_that_do_not_exist_are_one_line_and_help_is_help():
    assert "No such command 'fitt'" in refused("fitt")
    assert "No such option: --folder" in refused("--folder")
    assert done("--help").stdout.count("explain") >= 1
    assert "Usage" in invoke("benchmark").output
