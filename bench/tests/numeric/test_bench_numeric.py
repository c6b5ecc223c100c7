"""The studies on tiny selections: what they report, what they draw, and what they must show."""

import math
import sys

import pytest

from benchmarking import PLAIN, PLAIN_DENSITIES, PNG
from plausiflow.densities import GMM, KDE
from plausiflow.errors import DataNotFoundError, InvalidInputError, MissingExtraError
from plausiflow.models import MLPClassifier
from plausiflow_bench.harness.rows import environment
from plausiflow_bench.harness.selection import PAPER_DATASETS, Selection, fit_classifier, load_fold
from plausiflow_bench.numeric import densities, figures, performance, solvers
from plausiflow_bench.published import study as published


@pytest.mark.parametrize(("dataset", "classifier"), [("moons", "lr"), ("wine", "mlp"), ("wine", "node")])
def test_both_solvers_are_compared_on_models_trained_here(quick, dataset, classifier):
    selection = Selection(datasets=(dataset,), classifiers=(classifier,), rows=20, seed=3)
    rows = list(solvers.run(selection))
    assert [row["solver"] for row in rows] == ["penalty_adam", "sqp", "sqp_quality", "sqp_no_box"]
    for row in rows:
        assert row.keys() >= PLAIN
        assert (row["dataset"], row["classifier"], row["fold"]) == (dataset, classifier, 0)
        assert (row["rows"], row["seed"]) == (20, 3)
    adam, sqp, quality, free = rows
    assert (adam["gradients"], adam["ratio"]) == (20, 1.0)
    assert sqp["feasible"] == quality["feasible"] == free["feasible"] == 1.0
    assert sqp["out_of_box"] == quality["out_of_box"] == 0.0
    assert quality["l2"] <= sqp["l2"] + 1e-6
    assert sqp["gradients"] <= quality["gradients"]
    expected = adam["cpu_seconds"] / (sqp["cpu_seconds"] + sqp["bank_cpu_seconds"])
    assert sqp["ratio"] == pytest.approx(expected)


def test_models_are_trained_once_for_a_case(quick, monkeypatch):
    fits = []
    fit = MLPClassifier.fit
    monkeypatch.setattr(MLPClassifier, "fit", lambda self, x, y: fits.append(1) or fit(self, x, y))
    for _ in range(2):
        fit_classifier("wine", "mlp", 0, 0)
    fit_classifier("wine", "mlp", 0, 1)
    assert len(fits) == 2


def test_densities_are_judged_on_rows_they_have_not_seen(quick):
    rows = list(densities.run(Selection(datasets=("wine",), folds=(1,), seed=2)))
    assert [row["method"] for row in rows] == ["maf", "nsf", "realnvp", "nice", "kde", "gmm"]
    fold = load_fold("wine", 1)
    for row in rows:
        assert row.keys() >= PLAIN_DENSITIES
        assert (row["rows"], row["fold"], row["seed"]) == (36, 1, 2)
        assert row["published_cap"] == pytest.approx(-13 / 2 * math.log(2 * math.pi))
        assert row["cpu_seconds"] > 0
        assert row["evaluation_ms"] > 0
    x, y = fold.x_test.double(), fold.y_test
    for density, row in ((KDE(), rows[4]), (GMM(random_state=2), rows[5])):
        log_prob = density.fit(fold.x_train, fold.y_train).log_prob(x, y)
        assert row["log_density"] == pytest.approx(float(log_prob.mean()), rel=1e-9)
        assert row["median_log_density"] == pytest.approx(float(log_prob.median()), rel=1e-9)


def test_the_published_models_are_solved_by_both_solvers(quick, reference_directory):
    selection = Selection(datasets=("moons",), classifiers=("lr", "node"), rows=10)
    rows = list(published.run(selection, reference_directory))
    assert [(row["classifier"], row["solver"]) for row in rows] == [
        ("lr", "published"), ("lr", "penalty_adam"), ("lr", "sqp"), ("node", "penalty_adam"), ("node", "sqp"),
    ]  # fmt: skip
    for row in rows:
        assert row.keys() >= PLAIN | {"difference"}
        assert row["rows"] == 10
    assert rows[0]["difference"] == 0
    assert math.isnan(rows[0]["cpu_seconds"])
    assert rows[2]["feasible"] == rows[4]["feasible"] == 1.0
    assert math.isnan(rows[4]["difference"])


def test_only_fold_0_was_published(reference_directory):
    with pytest.raises(InvalidInputError, match=r"Only the models of fold 0.*got folds \(0, 1\)"):
        next(published.run(Selection(folds=(0, 1)), reference_directory))


def test_without_a_folder_of_published_runs_the_error_names_the_variable(monkeypatch):
    monkeypatch.delenv("PLAUSIFLOW_REFERENCE", raising=False)
    with pytest.raises(DataNotFoundError, match="Set PLAUSIFLOW_REFERENCE to the folder"):
        next(published.run(Selection(datasets=("moons",))))


def test_the_page_of_all_studies_has_a_table_for_each(quick, reference_directory, tmp_path, monkeypatch):
    monkeypatch.setattr(densities, "make_density", lambda name, seed: GMM(components=1, random_state=seed))
    done = []
    path = tmp_path / "docs" / "performance.md"
    performance.write(path, Selection(datasets=("wine",), rows=5), reference_directory, done.append)
    page = path.read_text()
    titles = ["Published models", "Published NODE", "Models trained here", "Densities", "Batch sizes"]
    assert done == titles
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == titles
    assert page.count("| wine |") == 3 + 2 + 2 * 4 + 6
    assert f"Commit {environment()['commit']}" in page


def test_the_page_says_which_study_could_not_be_run(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(densities, "make_density", lambda name, seed: GMM(components=1, random_state=seed))
    path = tmp_path / "performance.md"
    performance.write(path, Selection(datasets=("wine",), rows=5), tmp_path / "nowhere", lambda title: None)
    assert path.read_text().count("Not run: `wine.npz` was looked for in") == 2


def test_the_cost_of_batches_is_reported_per_row(quick, monkeypatch):
    monkeypatch.setattr(performance, "BATCH_SIZES", (1, 60))
    one, many = performance.batch_sizes(Selection(datasets=("wine",)))
    assert (one["rows"], many["rows"]) == (1, 60)
    assert many["cpu_ms_per_row"] == pytest.approx(1000 * many["cpu_seconds"] / 60)
    assert many["cpu_ms_per_row"] < one["cpu_ms_per_row"]


def test_figure_1_is_a_picture(quick, tmp_path):
    path = tmp_path / "new" / "figure1.png"
    figures.figure_1(path)
    assert path.read_bytes().startswith(PNG)


def test_figure_1_without_matplotlib_names_the_extra(quick, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r'pip install "plausiflow\[plots\]"'):
        figures.figure_1(tmp_path / "figure1.png")


# ---------------------------------------------------------------- what the studies must show


@pytest.mark.slow
@pytest.mark.parametrize("dataset", PAPER_DATASETS)
def test_on_models_trained_here_the_sqp_is_feasible_everywhere_and_hardly_ever_farther(
    dataset, data_directory, monkeypatch
):
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    rows = list(solvers.run(Selection(datasets=(dataset,), classifiers=("lr", "mlp"))))
    for row in rows:
        if row["solver"] == "penalty_adam":
            continue
        case = (row["classifier"], row["solver"])
        assert row["feasible"] == row["validity"] == row["plausibility"] == 1.0, case
        # In the box, a point out of it is no rival; without the box every point is.
        farther = row["farther"] if row["solver"] == "sqp_no_box" else row["farther_in_box"]
        assert farther <= 0.01 or math.isnan(farther), case


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "least"), [("heloc", 37.5), ("digits", 75.0)])
def test_flows_fit_held_out_rows_and_pass_the_published_cap(dataset, least, data_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    rows = densities.run(Selection(datasets=(dataset,)), ("maf", "nsf", "realnvp", "nice"))
    maf, nsf, realnvp, nice = rows
    assert maf["log_density"] >= least
    assert nsf["log_density"] > maf["log_density"]
    for row in (realnvp, nice):
        assert row["log_density"] > row["published_cap"] + 20, row["method"]
    if dataset == "heloc":
        assert maf["cpu_seconds"] <= 60
