"""Two versions on a small table: the task, the process of the old version, the measures, the command."""

import os
import pickle
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import plausiflow
from benchmarking import invoke, read_json
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.explainer import Explainer
from plausiflow_bench.tables import version_process, versions
from plausiflow_bench.tables.versions import OldVersion, VersionSelection

FEW = VersionSelection(tables=("loans",), rows=6)
OLDER = """
import json, pathlib, pickle, sys
if sys.argv[1] == "--check":
    print(json.dumps({"version": "0.0.1", "code": "older"}))
    sys.exit()
task = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
rows = task["x"][[label == task["targets"][0] for label in task["y"]]].iloc[:2]
answers = {"answers": rows, "of": __import__("numpy").array([0, 2])}
pathlib.Path(sys.argv[2]).write_bytes(pickle.dumps(answers))
"""
"""An old version that answers rows 0 and 2 with training rows, without looking at the rules."""


@pytest.fixture(autouse=True)
def few_judges(monkeypatch):
    """One judge, and a search without the calibration of the margin."""
    monkeypatch.setattr(versions, "JUDGES", 1)
    monkeypatch.setattr(plausiflow, "Explainer", partial(Explainer, confidence=None))
    versions._fit_case.cache_clear()


@pytest.fixture
def old(tmp_path):
    script = tmp_path / "old_process.py"
    script.write_text(OLDER)
    return OldVersion(python=Path(sys.executable), script=script)


@pytest.fixture
def work(old, tmp_path):
    versions.write_inputs(FEW, tmp_path)
    return versions.VersionWork(selection=FEW, old=old, old_name="older", folder=tmp_path)


def test_both_versions_get_one_model_and_the_targets_are_the_other_class(work, tmp_path):
    path = FEW.input_file(tmp_path, "loans")
    task, written = pickle.loads(path.read_bytes()), path.read_bytes()
    assert (task["model"].predict(task["rows"]) != np.array(task["targets"])).all()
    assert task["rules"] == [("Immutable", ("age", "sex")), ("Increasing", ("education",))]
    assert len(task["rows"]) == 6
    versions.write_inputs(FEW, tmp_path)
    assert path.read_bytes() == written


def test_both_versions_are_measured_alike_and_compared_where_both_answer(work):
    now, lower, higher, before = versions.compare([work(task) for task in FEW.tasks()])
    assert (now["method"], before["method"], before["version"]) == ("now", "before", "older")
    assert {row["rows"] for row in (now, lower, higher, before)} == {6}
    assert max(lower["both_answered"], higher["both_answered"]) <= 6
    assert (now["validity"], now["rules_broken"], now["learned_broken"]) == (1, 0, 0)
    assert before["found"] == pytest.approx(2 / 6)
    assert before["rules_broken"] > 0
    costs, old_costs = (np.array(row["row_costs"].split(), dtype=float) for row in (now, before))
    assert np.flatnonzero(np.isfinite(old_costs)).tolist() == [0, 2]
    both = np.isfinite(costs) & np.isfinite(old_costs)
    assert now["cost_ratio"] == pytest.approx(costs[both].mean() / old_costs[both].mean())
    assert now["judged_difference"] == pytest.approx(now["judged"] - before["judged"])
    assert "cost_ratio" not in before


def test_changes_and_cost_of_rows_with_one_other_cell_are_known(work, tmp_path):
    path = FEW.input_file(tmp_path, "loans")
    case, task = versions._fit_case(path, FEW, "loans"), pickle.loads(path.read_bytes())
    income = task["x"]["income"]
    step = 0.25 * float(income.max() - income.min())
    answers = task["rows"].iloc[:2].assign(income=task["rows"]["income"].iloc[:2] + step)
    row = versions.measure(case, task, answers, np.array([0, 1]))
    assert row["changes"] == 1
    assert row["cost"] == pytest.approx(0.25, rel=0.01)


def test_a_version_without_any_answer_is_compared_with_nothing(work, tmp_path):
    path = FEW.input_file(tmp_path, "loans")
    case, task = versions._fit_case(path, FEW, "loans"), pickle.loads(path.read_bytes())
    nothing = versions.measure(case, task, task["rows"].iloc[:0], np.zeros(0, dtype=np.int64))
    assert nothing["found"] == 0
    rows = [{"dataset": "loans", "method": name} | nothing for name in ("now", "before")]
    assert np.isnan(versions.compare(rows)[0]["cost_ratio"])


def test_a_version_whose_other_half_is_missing_is_left_as_it_is():
    row = {"dataset": "loans", "method": "now", "row_costs": "1 2", "judged": 1.0}
    assert versions.compare([row]) == [row]


def test_a_model_that_was_not_carried_over_exactly_is_refused(work, tmp_path):
    task = pickle.loads(FEW.input_file(tmp_path, "loans").read_bytes())
    with pytest.raises(ValueError, match="must give the same probabilities"):
        version_process.explain(task | {"proba": task["proba"] + 0.1})


def test_the_old_version_must_be_another_one_and_must_run(old, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(f'print(\'{{"version": "1", "code": "{version_process.describe()["code"]}"}}\')')
    with pytest.raises(InvalidInputError, match=r"another version of plausiflow.*the same code"):
        replace(old, script=own).describe()
    with pytest.raises(InvalidInputError, match=r"must be a Python interpreter; got .* does not start"):
        replace(old, python=tmp_path / "none").describe()
    own.write_text("import no_such_package")
    with pytest.raises(ModelError, match=r"The old version failed in .*no_such_package"):
        replace(old, script=own).describe()


def test_the_old_version_does_not_find_the_modules_of_this_one(old, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "this-version")
    script = tmp_path / "show.py"
    script.write_text("import json, os, sys\nprint(json.dumps([os.environ.get('PYTHONPATH'), sys.path]))")
    shown = replace(old, script=script)._call([])
    assert "this-version" not in shown
    assert str(tmp_path) not in shown


def test_the_command_prints_and_writes_rows_and_continues(old, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "OldVersion", partial(OldVersion, script=old.script))
    page, rows = tmp_path / "page.md", tmp_path / "rows.json"
    page.write_text(f"# Versions\n{versions.MARK}\n<!-- end -->\n")
    arguments = (
        "benchmark", "versions", "--old-python", sys.executable, "--datasets", "loans", "--rows", 6,
        "--folder", tmp_path / "run", "--json", rows, "--page", page,
    )  # fmt: skip
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    assert [row["method"] for row in read_json(rows)] == [
        "now",
        "now_confidence_0.95",
        "now_confidence_0.99",
        "before",
    ]
    assert "| loans | before | 0.0.1, code older | 6 |" in page.read_text()
    assert "4 finished earlier" in invoke(*arguments).output
    written = page.read_text()
    assert invoke("benchmark", "versions", "--reuse", rows, "--page", page).exit_code == 0
    assert page.read_text() == written


def test_the_command_needs_an_old_version():
    done = invoke("benchmark", "versions", "--datasets", "wine")
    assert done.exit_code == 2
    assert "--old-python" in done.stderr


@pytest.mark.slow
def test_another_copy_of_the_package_explains_in_its_own_process(tmp_path):
    package = tmp_path / "old" / "plausiflow"
    shutil.copytree(Path(plausiflow.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    with open(package / "__init__.py", "a") as file:
        file.write('\n__version__ = "0.0.1"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    old = OldVersion(python=python)
    assert old.describe()["version"] == "0.0.1"
    versions.write_inputs(FEW, tmp_path)
    work = versions.VersionWork(selection=FEW, old=old, old_name="copy", folder=tmp_path)
    row = work(next(task for task in FEW.tasks() if task.method == versions.BEFORE))
    assert (row["method"], row["found"], row["validity"], row["rules_broken"]) == ("before", 1, 1, 0)
    assert os.environ.get("PYTHONPATH") != str(package.parent)


def test_costs_at_equal_judged_are_on_the_line_between_two_runs_of_today():
    def row(method, cost, judged):
        costs = " ".join([str(cost)] * 3)
        case = {"dataset": "loans", "classifier": "hgb-100x6", "method": method}
        return case | {"row_costs": costs, "judged": judged}

    before, other = row("before", 2.0, 0.9), row("before", 2.0, 0.5)
    runs = [row("now", 1.0, 0.8), row("now_confidence_0.99", 2.0, 1.0)]
    *now, old = versions.compare([*runs, before])
    assert [one["cost_ratio"] for one in now] == [0.5, 1.0]
    assert old["equal_judged"] == pytest.approx(0.75)
    assert np.isnan(versions.compare([*runs, other])[-1]["equal_judged"]), "no two runs enclose it"
    assert "classifier" in versions.columns_of([before])


def test_trees_are_given_numbers_for_outcomes_and_keep_their_own_file(tmp_path):
    selection = VersionSelection(tables=("loans",), rows=6, train=80, models=("hgb-3x2",))
    versions.write_inputs(selection, tmp_path)
    path = selection.input_file(tmp_path, "loans", "hgb-3x2")
    assert path != selection.input_file(tmp_path, "loans")
    task = pickle.loads(path.read_bytes())
    assert set(task["y"].unique()) == {0, 1}
    decided = task["model"].predict(task["rows"])
    assert task["targets"] == (1 - decided).tolist()
    assert [task.classifier for task in selection.tasks()] == ["hgb-3x2"] * 4
