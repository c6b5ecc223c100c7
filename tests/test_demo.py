"""The demo from training to picture, and the list of data sets."""

import io
import json
import sys
from functools import partial

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from plausiflow import demo
from plausiflow.cli import app
from plausiflow.core.training import Training
from plausiflow.datasets import catalog
from plausiflow.datasets.tables import loans_table, table_names
from plausiflow.densities import mixed
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier

PNG = b"\x89PNG\r\n"


@pytest.fixture
def quick(monkeypatch):
    """A small classifier, densities trained briefly, few rows, no calibration and no judges."""
    brief = Training(epochs=10, learning_rate=1e-2)
    monkeypatch.setattr(mixed, "FLOW_TRAINING", Training(epochs=3, learning_rate=1e-2))
    monkeypatch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=3, learning_rate=1e-2))
    monkeypatch.setattr(demo, "ROWS", 400)
    monkeypatch.setattr(demo, "TEST_ROWS", 15)
    monkeypatch.setattr(demo, "Explainer", partial(Explainer, confidence=None, judges=1))
    monkeypatch.setattr(demo, "MLPClassifier", lambda **_: MLPClassifier(hidden=(16,), training=brief))


def run(out, **settings):
    """The explanations, and what was printed."""
    printed = io.StringIO()
    found = demo.run(out, console=Console(file=printed, width=140), **settings)
    return found, printed.getvalue()


def assert_complete(out, result, printed):
    """Files, table of changes and summary are there and agree with the answers."""
    assert set(result.status["status"]) <= {"found", "infeasible"}
    assert (result.status["target"] == "granted").all()
    table = pd.read_csv(out / "demo.csv")
    assert len(table) == len(result.changes)
    assert set(table["row"]) <= set(result.rows.index)
    assert not table["feature"].isin(["age", "sex", "dependents"]).any()
    document = json.loads((out / "demo.json").read_text())
    assert len(document["rows"]) == len(result)
    assert (out / "demo.png").read_bytes().startswith(PNG)
    assert "Proposed rule: dependents never changes (nobody should be advised to" in printed
    assert 'A rule of our own: Linear("loan_amount <= 0.6 * income")' in printed
    assert "What changes towards granted" in printed
    found = result.status.index[result.status["status"] == "found"]
    for label in found[:3]:
        assert f"Application {label}: rejected, would be granted" in printed
    assert str(out / "demo.csv") in printed.replace("\n", "")
    assert "Counterfactual" in (out / "demo.html").read_text()
    rows = pd.read_csv(out / "rows.csv")
    again = Explainer.load(out / "credit").explain(rows, "granted")
    assert again.changes.drop(columns="row").equals(result.changes.drop(columns="row"))
    assert f"plausiflow serve {out / 'credit'} --rows {out / 'rows.csv'}\n" in printed


def test_the_demo_trains_explains_prints_and_saves(quick, tmp_path):
    out = tmp_path / "new" / "out"
    result, printed = run(out)
    assert_complete(out, result, printed)
    assert (result.status["status"] == "found").mean() > 0.8


def test_its_answers_keep_the_rules_it_prints(quick, tmp_path):
    result, _ = run(tmp_path)
    after = result.answers
    before = result.rows.iloc[result.of].reset_index(drop=True)
    assert (after[["age", "sex", "dependents"]] == before[["age", "sex", "dependents"]]).all(axis=None)
    assert (after["education"].cat.codes >= before["education"].cat.codes).all()
    assert (after["years_employed"] >= before["years_employed"]).all()
    assert (after["loan_amount"] <= 0.6 * after["income"] + 1e-6).all()
    assert (after.dtypes == before.dtypes).all()


def test_the_rows_are_applications_that_are_not_trained_on(quick, tmp_path):
    result, _ = run(tmp_path)
    table = loans_table(demo.ROWS + 5 * demo.TEST_ROWS)
    train, test = table.split(demo.ROWS, 5 * demo.TEST_ROWS)
    assert set(result.rows.index) <= set(test.x.index)
    assert not set(result.rows.index) & set(train.x.index)
    pd.testing.assert_frame_equal(result.rows, table.x.loc[result.rows.index])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file(quick, tmp_path):
    for name in ("one", "two"):
        run(tmp_path / name, random_state=3)
    assert (tmp_path / "one" / "demo.csv").read_text() == (tmp_path / "two" / "demo.csv").read_text()


def test_without_matplotlib_it_says_so_and_still_writes_the_file(quick, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, printed = run(tmp_path)
    assert "No picture. Plotting needs the package `matplotlib`" in printed
    assert 'pip install "plausiflow[plots]"' in printed.replace("\n", "")
    assert (tmp_path / "demo.csv").is_file()
    assert not (tmp_path / "demo.png").exists()


def test_the_demo_runs_from_the_command_line(quick, tmp_path):
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "demo.csv").is_file()
    assert (tmp_path / "demo.png").is_file()


def test_the_list_of_data_sets_has_all_of_them():
    done = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    names = {line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")}
    assert names - {""} == set(catalog.dataset_names()) | set(table_names())


def test_the_list_of_data_sets_tells_their_sizes():
    done = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "250"})
    lines = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line
    ]
    sizes = {cells[0]: cells[1:4] for cells in lines}
    assert sizes["heloc"] == ["10459", "23", "2"]
    assert sizes["digits"] == ["1797", "64", "10"]
    assert sizes["breast_cancer"] == ["569", "30", "2"]
