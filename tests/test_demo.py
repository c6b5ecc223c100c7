"""The demo from training to picture, and the list of data sets."""

import io
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from plausiflow import demo
from plausiflow.classifiers import MLPClassifier
from plausiflow.cli import app
from plausiflow.data import catalog
from plausiflow.densities import GMM, ConditionalFlow
from plausiflow.methods import PPCEF
from plausiflow.metrics import METRICS
from plausiflow.plots import draw_changes
from plausiflow.search.judges import Judges
from plausiflow.training import Training

PNG = b"\x89PNG\r\n"
COLUMNS = ["row", "feature", "from", "to", "decision", "wanted", "valid", "plausible"]


@pytest.fixture
def quick(monkeypatch):
    """A small classifier, a Gaussian for each class instead of flows, and judges trained briefly."""
    brief = Training(epochs=10, learning_rate=1e-2)
    monkeypatch.setattr(demo, "MLPClassifier", partial(MLPClassifier, hidden=(16,), training=brief))
    monkeypatch.setattr(demo, "PPCEF", partial(PPCEF, density=GMM(components=1, regularisation=1e-3)))
    flow = ConditionalFlow(transforms=1, hidden=(8,), training=Training(epochs=2))
    monkeypatch.setattr(demo, "Judges", partial(Judges, count=2, base=flow))


def run(out, **settings):
    """The answers, and what was printed."""
    printed = io.StringIO()
    found = demo.run(out, console=Console(file=printed, width=140), **settings)
    return found, printed.getvalue()


def assert_complete(out, found, printed):
    """CSV, picture, table of changes and metrics are there and agree with the answers."""
    fold = catalog.load("breast_cancer").fold(0)
    assert len(found) == len(fold.x_test)
    assert found.feasible.all()
    table = pd.read_csv(out / "demo.csv")
    assert list(table.columns) == COLUMNS
    assert table["valid"].all()
    assert table["plausible"].all()
    assert set(table["row"]) == set(fold.rows_test.tolist())
    assert (out / "demo.png").read_bytes().startswith(PNG)

    assert "breast_cancer: 569 rows, 30 features, classes malignant, benign" in printed
    for row in fold.rows_test[:3].tolist():
        assert f"Row {row}: decided " in printed
    assert all(metric.label in printed for metric in METRICS["sound"].values())
    assert str(out / "demo.csv") in printed.replace("\n", "")
    assert str(out / "demo.png") in printed.replace("\n", "")


def test_the_demo_trains_explains_prints_and_saves(quick, tmp_path):
    out = tmp_path / "new" / "out"
    found, printed = run(out)
    assert_complete(out, found, printed)


def test_the_demo_with_its_own_models_is_feasible_on_every_row(tmp_path):
    found, printed = run(tmp_path)
    assert_complete(tmp_path, found, printed)
    accuracy = float(printed.split("test rows ")[1].split()[0])
    assert accuracy > 0.9


def test_the_file_has_the_values_of_the_data_set_in_its_own_units(quick, tmp_path):
    found, _ = run(tmp_path)
    table = pd.read_csv(tmp_path / "demo.csv")
    data = catalog.load("breast_cancer")
    fold = data.fold(0)
    span = dict(zip(fold.feature_names, fold.range.tolist(), strict=True))
    place = {row: i for i, row in enumerate(fold.rows_test.tolist())}
    for line in table.itertuples(index=False):
        row, feature, before, after = line[:4]
        tolerance = 1e-6 * span[feature] + 1e-9
        assert before == pytest.approx(data.x.loc[row, feature], abs=tolerance)
        i, j = place[row], fold.feature_names.index(feature)
        expected = float(found.x_cf[i, j]) * span[feature] + float(fold.minimum[j])
        assert after == pytest.approx(expected, abs=tolerance)
        assert abs(after - before) > 0.9e-4 * span[feature]
        assert line.decision == data.class_names[int(found.y[i])]
        assert line.wanted == data.class_names[int(found.y_target[i])]


def test_the_file_lists_every_change_and_nothing_else(quick, tmp_path):
    found, _ = run(tmp_path)
    table = pd.read_csv(tmp_path / "demo.csv")
    moved = (found.x_cf - found.x).abs() > 1e-4
    assert len(table) == int(moved.sum())
    assert not table.duplicated(["row", "feature"]).any()


def test_rows_without_an_answer_are_not_in_the_table(quick, tmp_path):
    found, _ = run(tmp_path)
    fold = catalog.load("breast_cancer").fold(0)
    lost = found[:4]
    lost.found[1] = False
    lost.x_cf[1] = torch.nan
    rows = demo.changes_table(lost, fold)["row"]
    assert set(rows) == set(fold.rows_test[[0, 2, 3]].tolist())


def test_the_printed_changes_are_the_largest_ones_in_original_units(quick, tmp_path):
    found, printed = run(tmp_path)
    fold = catalog.load("breast_cancer").fold(0)
    first = printed.split("Row ")[1]
    change = (found.x_cf - found.x)[0]
    largest = change.abs().argsort(descending=True)[:6].tolist()
    lines = [line.replace("│", " ").split() for line in first.splitlines() if line.startswith("│")]
    values = catalog.load("breast_cancer").x.to_numpy()[int(fold.rows_test[0])]
    for j, line in zip(largest, lines, strict=True):
        *name, before, after, share = line
        assert " ".join(name) == fold.feature_names[j]
        assert float(before) == pytest.approx(values[j], rel=1e-3)
        assert float(after) == pytest.approx(values[j] + float(change[j] * fold.range[j]), rel=2e-3, abs=1e-4)
        assert float(share) == pytest.approx(float(change[j]), abs=6e-4)


def test_the_same_seed_gives_the_same_file(quick, tmp_path):
    for name in ("one", "two"):
        run(tmp_path / name, seed=3)
    run(tmp_path / "other", seed=4)
    one, two, other = (pd.read_csv(tmp_path / name / "demo.csv") for name in ("one", "two", "other"))
    pd.testing.assert_frame_equal(one, two)
    assert not np.array_equal(one["to"].to_numpy()[:50], other["to"].to_numpy()[:50])


def test_without_matplotlib_it_says_so_and_still_writes_the_file(quick, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, printed = run(tmp_path)
    assert "No picture: Drawing pictures needs the package `matplotlib`" in printed
    assert 'pip install "plausiflow[plots]"' in printed.replace("\n", "")
    assert (tmp_path / "demo.csv").is_file()
    assert not (tmp_path / "demo.png").exists()


def test_the_demo_runs_from_the_command_line(quick, tmp_path):
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "demo.csv").is_file()
    assert (tmp_path / "demo.png").is_file()
    assert "All test rows" in done.stdout


def test_the_picture_of_changes_leaves_out_rows_without_an_answer(quick, tmp_path):
    found, _ = run(tmp_path)
    fold = catalog.load("breast_cancer").fold(0)
    found.found[::2] = False
    found.x_cf[::2] = torch.nan
    figure = draw_changes(found, fold.feature_names, fold.class_names, most=5)
    bars, counts = figure.axes
    assert [text.get_text() for text in bars.get_legend().get_texts()] == ["to malignant", "to benign"]
    assert len(bars.get_yticks()) == 5
    assert sum(patch.get_height() for patch in counts.patches) == int(found.found.sum())


def test_the_list_of_data_sets_has_all_nine():
    done = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    names = {line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")}
    assert names - {""} == set(catalog.names())


def test_the_list_of_data_sets_tells_their_sizes():
    done = CliRunner().invoke(app, ["datasets"], env={"COLUMNS": "250"})
    lines = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line
    ]
    sizes = {cells[0]: cells[1:4] for cells in lines}
    assert sizes["heloc"] == ["10459", "23", "2"]
    assert sizes["digits"] == ["1797", "64", "10"]
    assert sizes["breast_cancer"] == ["569", "30", "2"]
