"""The benchmarks on tiny selections: what they report, how they write it, how the command line says no."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from plausiflow.benchmark import densities, figures, judged, performance, published, solvers, study, tables
from plausiflow.benchmark.study import Selection, closeness, geometric_mean, out_of_box, summary
from plausiflow.classifiers import NODE, LinearClassifier, MLPClassifier
from plausiflow.cli import app
from plausiflow.counterfactuals import Counterfactuals
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble
from plausiflow.errors import DataNotFoundError, InvalidInputError, MissingExtraError
from plausiflow.search import Judges, calibration
from plausiflow.solvers import PenaltyAdam
from plausiflow.training import Training

PLAIN = {
    "dataset", "classifier", "fold", "solver", "rows", "coverage", "validity", "plausibility", "feasible",
    "l1", "l2", "log_density", "cpu_seconds", "wall_seconds", "seed", "commit",
}  # fmt: skip
PLAIN_DENSITIES = {
    "dataset", "fold", "method", "rows", "log_density", "cpu_seconds", "wall_seconds", "seed", "commit",
}  # fmt: skip
PNG = b"\x89PNG\r\n"

NAN = math.nan


@pytest.fixture
def quick(monkeypatch):
    """Small models and short searches, trained anew for each test and forgotten after it."""
    brief = Training(epochs=6, learning_rate=1e-2)
    monkeypatch.setattr(study, "LinearClassifier", partial(LinearClassifier, training=brief))
    monkeypatch.setattr(study, "MLPClassifier", partial(MLPClassifier, hidden=(8,), training=brief))
    monkeypatch.setattr(
        study, "NODE", partial(NODE, n_trees=16, training=Training(epochs=30, learning_rate=5e-2))
    )
    small = partial(ConditionalFlow, transforms=2, hidden=(16,), training=brief)
    monkeypatch.setattr(study, "ConditionalFlow", small)
    monkeypatch.setattr(densities, "ConditionalFlow", small)
    paper = PenaltyAdam.paper(binary_linear=False)
    monkeypatch.setattr(solvers.PenaltyAdam, "paper", lambda **_: replace(paper, steps=20))
    monkeypatch.setattr(figures.PenaltyAdam, "paper", lambda **_: replace(paper, steps=320))
    monkeypatch.setattr(PenaltyAdam, "paper", lambda *, binary_linear: PenaltyAdam(steps=20, keep="last"))
    caches = (study.fold_of, study.fitted_classifier, study.fitted_plausibility)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read_json(path):
    """The rows of a file that every JSON reader accepts: there is no NaN and no Infinity in JSON."""
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def answers(x, x_cf, **changed):
    """Counterfactuals for class 1, feasible wherever there are any, unless changed."""
    x, x_cf = torch.tensor(x), torch.tensor(x_cf)
    n, found = len(x), torch.isfinite(x_cf).all(dim=1)
    return Counterfactuals(
        **{
            "x": x,
            "x_cf": x_cf,
            "y": torch.zeros(n, dtype=torch.long),
            "y_target": torch.ones(n, dtype=torch.long),
            "y_cf": torch.where(found, 1, -1),
            "found": found,
            "valid": found,
            "plausible": found,
            "log_prob": torch.where(found, torch.arange(n).double(), torch.nan),
            "log_delta": torch.zeros(n, dtype=torch.float64),
            "gradients": 10 * torch.arange(n),
            "seconds": torch.full((n,), 0.5, dtype=torch.float64),
            "cpu_seconds": torch.full((n,), 0.25, dtype=torch.float64),
        }
        | changed
    )


# ---------------------------------------------------------------- the measures


def test_a_summary_is_over_the_rows_found_but_feasible_is_over_all():
    x = [[0.0, 0.0]] * 4
    x_cf = [[0.3, 0.4], [1.0, 0.0], [0.0, 2.0], [NAN, NAN]]
    found = answers(x, x_cf, valid=torch.tensor([True, True, False, False]))
    row = summary(found)
    assert row["rows"] == 4
    assert row["coverage"] == 0.75
    assert row["validity"] == pytest.approx(2 / 3)
    assert row["plausibility"] == 1.0
    assert row["feasible"] == 0.5
    assert row["l1"] == pytest.approx((0.7 + 1 + 2) / 3)
    assert row["l2"] == pytest.approx((0.5 + 1 + 2) / 3)
    assert row["log_density"] == pytest.approx((0 + 1 + 2) / 3)
    assert row["out_of_box"] == pytest.approx(1 / 3)
    assert row["gradients"] == 15
    assert (row["cpu_seconds"], row["wall_seconds"]) == (1.0, 2.0)


def test_a_summary_without_answers_is_nan_where_there_is_nothing_to_average():
    row = summary(answers([[0.0, 0.0]] * 2, [[NAN, NAN]] * 2))
    assert (row["coverage"], row["feasible"]) == (0.0, 0.0)
    assert all(math.isnan(row[name]) for name in ("validity", "plausibility", "l1", "l2", "log_density"))


def test_out_of_box_allows_a_row_outside_to_keep_its_own_value():
    x = [[0.5, 0.5], [0.5, 0.5], [-0.2, 0.5], [-0.2, 0.5], [1.3, 0.5], [1.3, 0.5], [0.5, 0.5]]
    x_cf = [[0.0, 1.0], [0.5, 1.01], [-0.2, 0.5], [-0.21, 0.5], [1.3, 0.9], [1.31, 0.5], [-1e-8, 0.5]]
    assert out_of_box(answers(x, x_cf)).tolist() == [False, True, False, True, False, True, False]


def test_closeness_counts_what_is_over_one_percent_farther_or_missing_where_the_other_is_feasible():
    x = [[0.0]] * 6
    plausible = torch.tensor([True, True, True, True, True, False])
    penalty = answers(x, [[0.5], [0.5], [0.5], [0.5], [1.5], [0.5]], plausible=plausible)
    # Closer, 0.8 % farther, 2 % farther, nothing, closer to a point out of the box, not compared.
    found = answers(x, [[0.25], [0.504], [0.51], [NAN], [1.0], [9.0]])
    row = closeness(found, penalty)
    assert row["farther"] == pytest.approx(2 / 5)
    assert row["farther_in_box"] == pytest.approx(2 / 4)
    assert row["l2_common"] == pytest.approx((0.25 + 0.504 + 0.51 + 1.0) / 4)
    assert row["l2_common_penalty"] == pytest.approx((0.5 + 0.5 + 0.5 + 1.5) / 4)


def test_an_answer_that_is_not_feasible_counts_as_farther():
    penalty = answers([[0.0]] * 2, [[0.5], [0.5]])
    found = answers([[0.0]] * 2, [[0.1], [0.1]], valid=torch.tensor([True, False]))
    assert closeness(found, penalty)["farther"] == 0.5


def test_a_search_compared_with_itself_is_nowhere_farther():
    found = answers([[0.0]] * 3, [[0.5], [0.7], [NAN]])
    row = closeness(found, found)
    assert row["farther"] == 0
    assert row["l2_common"] == row["l2_common_penalty"] == pytest.approx(0.6)


def test_closeness_is_nan_where_there_is_nothing_to_compare_with():
    nothing = answers([[0.0]], [[NAN]])
    assert all(math.isnan(value) for value in closeness(nothing, nothing).values())


def test_the_geometric_mean_is_the_root_of_the_product():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert geometric_mean(iter([5.0])) == pytest.approx(5)


def test_the_geometric_mean_leaves_out_what_is_no_number():
    assert geometric_mean([2.0, NAN, 8.0]) == pytest.approx(4)
    assert math.isnan(geometric_mean([]))
    assert math.isnan(geometric_mean([NAN]))


def test_a_selection_lists_every_case_and_takes_the_first_rows():
    selection = Selection(datasets=("wine", "moons"), classifiers=("lr", "mlp"), folds=(0, 3), rows=2)
    assert list(selection.cases()) == [
        (dataset, classifier, fold)
        for dataset in ("wine", "moons")
        for fold in (0, 3)
        for classifier in ("lr", "mlp")
    ]
    assert selection.few(torch.arange(5)).tolist() == [0, 1]
    assert Selection().few(torch.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_studies_ask_for_the_other_class_or_the_runner_up():
    assert study.target_policy(2) == "opposite"
    assert study.target_policy(3) == "runner_up"


def test_where_a_row_comes_from_is_part_of_it():
    origin = study.environment()
    assert origin["torch"] == torch.__version__.split("+")[0]
    assert origin["commit"]


# ---------------------------------------------------------------- tables and files


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("l2", 0.123456, "0.1235"),
        ("l1", 0.123456, "0.123"),
        ("difference", 3.1e-05, "0.000031"),
        ("gradients", 12.34, "12.3"),
        ("ratio", 40.04, "40.0"),
        ("cpu_seconds", 1.234, "1.23"),
        ("validity", 1.0, "1.000"),
        ("anything", 2.0, "2.000"),
        ("log_density", -12.3456, "-12.346"),
        ("rows", 2092, "2092"),
        ("dataset", "moons", "moons"),
        ("l2", NAN, "–"),
        ("l2", None, "–"),
    ],
)
def test_a_cell_has_the_decimals_of_its_column_and_a_dash_for_nothing(name, value, shown):
    assert tables.text(name, value) == shown


ROWS = [
    {"dataset": "moons", "solver": "penalty_adam", "l2": 0.5, "farther": NAN, "extra": 1},
    {"dataset": "moons", "solver": "sqp", "l2": 0.25, "ratio": 20.0, "extra": 2},
    {"dataset": "wine", "solver": "sqp", "l2": 0.125, "ratio": 5.0, "extra": 3},
    {"dataset": "wine", "solver": "sqp_quality", "l2": 0.125, "ratio": 1.0, "extra": 3},
]


def test_a_table_shows_the_columns_that_there_are_in_order_and_sums_up_the_ratios(capsys):
    kept = tables.print_table(iter(ROWS), ("dataset", "solver", "rows", "l2", "farther", "ratio"), "A title")
    printed = capsys.readouterr().out
    assert kept == ROWS
    lines = printed.splitlines()
    assert lines[0].strip() == "A title"
    head = next(line for line in lines if "dataset" in line)
    assert head.replace("┃", " ").split() == ["dataset", "solver", "l2", "farther", "ratio"]
    first = next(line for line in lines if "penalty_adam" in line)
    assert first.replace("│", " ").split() == ["moons", "penalty_adam", "0.5000", "–", "–"]
    assert "geometric mean 10.0, smallest 5.0" in " ".join(printed.split())
    assert f"commit {study.environment()['commit']}" in printed


def test_a_table_for_a_page_has_the_same_cells():
    assert tables.markdown(ROWS[:2], ("dataset", "rows", "l2", "ratio")).splitlines() == [
        "| dataset | l2 | ratio |",
        "| --- | --- | --- |",
        "| moons | 0.5000 | – |",
        "| moons | 0.2500 | 20.0 |",
    ]


def test_a_table_without_ratios_has_no_caption():
    assert tables.caption(ROWS[:1]) == ""


def test_files_are_lists_of_flat_objects_with_null_for_what_is_no_number(tmp_path):
    path = tmp_path / "new" / "rows.json"
    study.write_json(ROWS, path)
    rows = read_json(path)
    assert rows[0] == {"dataset": "moons", "solver": "penalty_adam", "l2": 0.5, "farther": None, "extra": 1}
    assert rows[1:] == ROWS[1:]


def test_infinite_numbers_are_no_json_either(tmp_path):
    study.write_json([{"log_density": -math.inf, "ratio": math.inf}], tmp_path / "rows.json")
    assert read_json(tmp_path / "rows.json") == [{"log_density": None, "ratio": None}]


# ---------------------------------------------------------------- the studies


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
        study.fitted_classifier("wine", "mlp", 0, 0)
    study.fitted_classifier("wine", "mlp", 0, 1)
    assert len(fits) == 2


def test_densities_are_judged_on_rows_they_have_not_seen(quick):
    rows = list(densities.run(Selection(datasets=("wine",), folds=(1,), seed=2)))
    assert [row["method"] for row in rows] == ["maf", "nsf", "realnvp", "nice", "kde", "gmm"]
    fold = study.fold_of("wine", 1)
    for row in rows:
        assert row.keys() >= PLAIN_DENSITIES
        assert (row["rows"], row["fold"], row["seed"]) == (36, 1, 2)
        assert row["published_cap"] == pytest.approx(-13 / 2 * math.log(2 * math.pi))
        assert row["cpu_seconds"] > 0
        assert row["evaluation_ms"] > 0
    x, y = fold.x_test.double(), fold.y_test
    for density, row in ((KDE(), rows[4]), (GMM(seed=2), rows[5])):
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
    with pytest.raises(InvalidInputError, match=r"Only fold 0.*got folds \(0, 1\)"):
        next(published.run(Selection(folds=(0, 1)), reference_directory))


def test_without_a_folder_of_published_runs_the_error_names_the_variable(monkeypatch):
    monkeypatch.delenv("PLAUSIFLOW_REFERENCE", raising=False)
    with pytest.raises(DataNotFoundError, match="Set PLAUSIFLOW_REFERENCE to the folder"):
        next(published.run(Selection(datasets=("moons",))))


def test_the_page_of_all_studies_has_a_table_for_each(quick, reference_directory, tmp_path, monkeypatch):
    monkeypatch.setattr(densities, "make", lambda name, seed: GMM(components=1, seed=seed))
    done = []
    path = tmp_path / "docs" / "performance.md"
    performance.write(path, Selection(datasets=("wine",), rows=5), reference_directory, done.append)
    page = path.read_text()
    titles = ["Published models", "Published NODE", "Models trained here", "Densities", "Batch sizes"]
    assert done == titles
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == titles
    assert page.count("| wine |") == 3 + 2 + 2 * 4 + 6
    assert f"Commit {study.environment()['commit']}" in page


def test_the_page_says_which_study_could_not_be_run(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(densities, "make", lambda name, seed: GMM(components=1, seed=seed))
    path = tmp_path / "performance.md"
    performance.write(path, Selection(datasets=("wine",), rows=5), tmp_path / "nowhere", lambda title: None)
    assert path.read_text().count("Not run: `wine.npz` was looked for in") == 2


def test_the_cost_of_batches_is_reported_per_row(quick, monkeypatch):
    monkeypatch.setattr(performance, "BATCHES", (1, 60))
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


# ---------------------------------------------------------------- the command line


def test_the_solvers_benchmark_prints_and_writes_the_same_rows(quick, tmp_path):
    path = tmp_path / "rows.json"
    done = invoke(
        "benchmark", "solvers", "--datasets", "wine, moons", "--classifiers", "lr", "--folds", "0,1",
        "--rows", 5, "--seed", 1, "--json", path,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = read_json(path)
    assert [(row["dataset"], row["fold"]) for row in rows[::4]] == [
        ("wine", 0), ("wine", 1), ("moons", 0), ("moons", 1),
    ]  # fmt: skip
    for row in rows:
        assert row.keys() >= PLAIN
        assert row["seed"] == 1
        assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    assert "Solvers on models trained here" in done.stdout
    assert sum(line.split()[:1] == ["wine"] for line in done.stdout.splitlines()) == 8
    assert f"Rows: {path}" in done.stdout.replace("\n", "")


def test_the_densities_benchmark_prints_and_writes_the_same_rows(quick, tmp_path):
    path = tmp_path / "rows.json"
    done = invoke("benchmark", "densities", "--datasets", "wine", "--densities", "gmm,maf", "--json", path)
    assert done.exit_code == 0, done.output
    rows = read_json(path)
    assert [row["method"] for row in rows] == ["gmm", "maf"]
    assert all(row.keys() >= PLAIN_DENSITIES for row in rows)
    assert f"{rows[0]['log_density']:.3f}" in done.stdout


def test_the_published_benchmark_prints_and_writes_the_same_rows(quick, reference_directory, tmp_path):
    path = tmp_path / "rows.json"
    arguments = ("--datasets", "wine", "--rows", 5, "--reference", reference_directory, "--json", path)
    done = invoke("benchmark", "published", *arguments)
    assert done.exit_code == 0, done.output
    rows = read_json(path)
    assert [row["solver"] for row in rows] == ["published", "penalty_adam", "sqp"]
    assert all(row.keys() >= PLAIN | {"difference"} for row in rows)
    assert rows[0]["cpu_seconds"] is None
    assert f"{rows[2]['l2']:.4f}" in done.stdout


def test_figure_1_is_drawn_from_the_command_line(quick, tmp_path):
    path = tmp_path / "figure1.png"
    done = invoke("benchmark", "figure1", "--out", path)
    assert done.exit_code == 0, done.output
    assert path.read_bytes().startswith(PNG)
    assert "Picture: " in done.stdout


def test_benchmarks_run_on_one_thread(quick):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        done = invoke("benchmark", "densities", "--datasets", "wine", "--densities", "gmm", "--rows", 5)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert done.exit_code == 0
    assert after == 1


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("solvers", "--datasets", "wines"), "Did you mean 'wine'?"),
        (("densities", "--datasets", "nope"), "must be one of moons, law, audit"),
        (("solvers", "--datasets", "wine", "--classifiers", "lr,svm"), "choose from lr, mlp, node"),
        (("densities", "--datasets", "wine", "--densities", "spline"), "choose from maf, nsf, realnvp, nice"),
        (("solvers", "--datasets", "wine", "--folds", "5"), "0 to 4; got 5"),
        (("solvers", "--datasets", "wine", "--folds", "-1"), "0 to 4; got -1"),
        (("published", "--folds", "0,1"), "Only fold 0"),
        (("published", "--datasets", "wine", "--reference", "nowhere"), "PLAUSIFLOW_REFERENCE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_choice_is_one_line_with_a_remedy(arguments, remedy):
    done = invoke("benchmark", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert remedy in done.stderr
    assert done.stderr.startswith("plausiflow: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.output


def test_a_data_set_that_was_not_published_is_a_wrong_choice(reference_directory):
    done = invoke("benchmark", "published", "--datasets", "breast_cancer", "--reference", reference_directory)
    assert done.exit_code == 2
    assert "`breast_cancer.npz` was looked for in" in done.stderr
    assert "moons.npz" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_folds_that_are_no_numbers_are_a_wrong_choice_too():
    done = invoke("benchmark", "solvers", "--datasets", "wine", "--folds", "first")
    assert done.exit_code == 2
    assert "--folds takes whole numbers like 0,1" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("arguments", [(), ("--debug",)], ids=["plain", "debug"])
def test_the_trace_of_an_error_is_shown_only_where_it_is_asked_for(arguments):
    program = "from plausiflow.cli import app; app()"
    command = [sys.executable, "-c", program, *arguments, "benchmark", "solvers", "--datasets", "nope"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "must be one of moons" in done.stderr
    assert ("Traceback" in done.stderr) == bool(arguments)
    assert done.returncode == (1 if arguments else 2)


def test_a_wrong_name_is_noticed_before_anything_is_trained(quick, monkeypatch):
    trained = []
    fit = LinearClassifier.fit
    monkeypatch.setattr(LinearClassifier, "fit", lambda self, x, y: trained.append(1) or fit(self, x, y))
    done = invoke("benchmark", "solvers", "--datasets", "wine,nope", "--classifiers", "lr", "--rows", 2)
    assert done.exit_code == 2
    assert not trained


@pytest.mark.parametrize("rows", [0, -3])
def test_a_number_of_rows_that_leaves_none_is_a_wrong_choice(quick, rows):
    done = invoke("benchmark", "densities", "--datasets", "wine", "--densities", "gmm", "--rows", rows)
    assert done.exit_code == 2
    assert "rows" in done.stderr


def test_no_data_set_at_all_is_a_wrong_choice(quick):
    done = invoke("benchmark", "densities", "--datasets", ",", "--densities", "gmm")
    assert done.exit_code == 2


def test_help_lists_the_commands():
    assert all(name in invoke("--help").stdout for name in ("demo", "datasets", "benchmark"))
    listed = invoke("benchmark", "--help").stdout
    assert all(name in listed for name in ("published", "solvers", "densities", "performance", "figure1"))


# ---------------------------------------------------------------- what the studies must show


@pytest.mark.slow
@pytest.mark.parametrize("dataset", study.PAPER_DATASETS)
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


def test_a_narrow_terminal_shows_the_most_important_columns_in_their_order():
    rows = [{"dataset": "wine", "solver": "sqp", "rows": 36, "feasible": 1.0, "l2": 0.4, "gradients": 11.0}]
    columns = ["dataset", "solver", "rows", "feasible", "l2", "gradients"]
    assert tables.fitting(rows, columns, 200) == columns
    assert tables.fitting(rows, columns, 42) == ["dataset", "solver", "feasible", "l2"]


# ---------------------------------------------------------------- judged plausibility

JUDGED = set(judged.COLUMNS) - {"true_plausibility"}  # which only the loans have
JUDGED_METHODS = ["real", "paper", "sqp_one_flow", "sqp_mean_of_ensemble", "sqp_min_of_ensemble", "nearest"]


@pytest.fixture
def quick_judged(quick, monkeypatch):
    """As ``quick``, with a small ensemble, small judges and a calibration on few rows."""
    training = Training(epochs=6, learning_rate=1e-2)
    base = ConditionalFlow(transforms=2, hidden=(16,), training=training)
    monkeypatch.setattr(judged, "CrossFitEnsemble", partial(CrossFitEnsemble, members=3, base=base))
    monkeypatch.setattr(judged, "Judges", partial(Judges, base=base))
    monkeypatch.setattr(calibration, "ROWS", 30)
    monkeypatch.setattr(calibration, "ROWS_OF_CLASS", 10)
    caches = (judged.fitted_ensemble, judged.fitted_judges)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize(("dataset", "classifier"), [("moons", "lr"), ("wine", "mlp")])
def test_judges_look_at_every_method_and_at_real_rows(quick_judged, dataset, classifier):
    rows = list(judged.run(Selection(datasets=(dataset,), classifiers=(classifier,), rows=12, seed=3)))
    assert [row["method"] for row in rows] == JUDGED_METHODS
    for row in rows:
        assert row.keys() >= JUDGED | {"feasible", "coverage", "seed", "commit"}
        assert (row["dataset"], row["classifier"], row["fold"]) == (dataset, classifier, 0)
        assert (row["rows"], row["seed"]) == (12, 3)
    real, paper, one, ensemble, strict, nearest = rows
    assert (real["coverage"], real["l2"], real["l1"]) == (1.0, 0.0, 0.0)
    assert math.isnan(real["l2_common"])
    for row in (real, one, ensemble, strict, nearest):
        assert 0 <= row["judged_worst"] <= row["judged"] <= 1
        assert all(math.isfinite(row[name]) for name in ("lof", "lof_median", "lof_target", "iso_forest"))
    for row in (one, ensemble, strict, nearest):
        assert row["validity"] == row["plausibility"] == 1.0
        assert row["feasible"] == row["coverage"]
    assert one["coverage"] == ensemble["coverage"] == 1.0
    for row in (one, ensemble):
        assert row["cpu_seconds"] > 0
    assert ensemble["training_cpu_seconds"] == strict["training_cpu_seconds"] > 0
    assert paper["training_cpu_seconds"] == one["training_cpu_seconds"] > 0
    assert all(row["calibration_cpu_seconds"] > 0 for row in (ensemble, strict))
    if nearest["coverage"] == 1:  # it is one that the search could have given
        assert ensemble["l2"] <= nearest["l2"] + 1e-6


def test_the_ensemble_and_the_judges_are_trained_once_for_all_classifiers(quick_judged, monkeypatch):
    fits = []
    for kind in (CrossFitEnsemble, Judges):
        fit = kind.fit
        monkeypatch.setattr(
            kind, "fit", lambda self, x, y, fit=fit: fits.append(type(self).__name__) or fit(self, x, y)
        )
    rows = list(judged.run(Selection(datasets=("wine",), classifiers=("lr", "mlp"), rows=5)))
    assert sorted(fits) == ["CrossFitEnsemble", "Judges"]
    assert [row["method"] for row in rows] == JUDGED_METHODS * 2
    # Each classifier calibrates a copy.
    assert not judged.fitted_ensemble("wine", 0, 0)[0].margin_.any()


@pytest.mark.parametrize(
    "seed",
    [0, 1, 2],
)
def test_no_judge_is_a_member_of_the_ensemble(quick_judged, seed):
    ensemble, _ = judged.fitted_ensemble("wine", 0, seed)
    judges = judged.fitted_judges("wine", 0)
    assert not {flow.seed for flow in ensemble.flows_} & {flow.seed for flow in judges.flows_}


def test_the_costs_on_the_page_are_geometric_means_over_the_cases():
    def case(dataset, paper, one, many, trained):
        names = {"dataset": dataset, "classifier": "lr", "fold": 0}
        seconds = {"paper": paper, "sqp_one_flow": one, "sqp_mean_of_ensemble": many}
        return [
            names
            | {"method": method, "cpu_seconds": value}
            | {"training_cpu_seconds": 5 * trained if method == "sqp_mean_of_ensemble" else 1.0}
            for method, value in seconds.items()
        ]

    said = judged.cost_summary(case("a", 16.0, 1.0, 2.0, 1.0) + case("b", 16.0, 1.0, 8.0, 4.0))
    assert "costs 4.0 times one with one flow (at most 8.0)" in said
    assert "4.0 times one with the ensemble (at least 2.0)" in said
    assert "costs 2.00 times the single flow" in said


def test_distances_in_common_are_over_the_rows_where_the_paper_is_feasible():
    x = [[0.0]] * 4
    paper = answers(x, [[0.5], [0.5], [NAN], [0.5]], plausible=torch.tensor([True, True, False, False]))
    found = answers(x, [[0.25], [NAN], [9.0], [9.0]])
    assert judged._common_distance(found, paper) == pytest.approx(0.25)
    assert judged._common_distance(paper, paper) == pytest.approx(0.5)
    assert math.isnan(judged._common_distance(found, None))


def test_averages_are_over_folds_and_classifiers_by_data_set_and_method():
    def row(dataset, method, fold, classifier, judged_share, l2):
        names = {"dataset": dataset, "method": method, "fold": fold, "classifier": classifier, "rows": 10}
        return names | {"judged": judged_share, "l2": l2, "commit": "abc", "coverage": 1.0}

    rows = [
        row("wine", "real", 0, "lr", 0.5, NAN),
        row("wine", "paper", 0, "lr", 0.2, 1.0),
        row("wine", "real", 1, "lr", 0.7, NAN),
        row("wine", "paper", 1, "mlp", 0.4, NAN),
        row("moons", "real", 0, "lr", 0.1, 0.0),
    ]
    pooled = judged.averages(rows)
    assert [(row["dataset"], row["method"]) for row in pooled] == [
        ("wine", "real"), ("wine", "paper"), ("moons", "real"),
    ]  # fmt: skip
    assert [row["judged"] for row in pooled] == pytest.approx([0.6, 0.3, 0.1])
    assert math.isnan(pooled[0]["l2"])
    assert [row["l2"] for row in pooled[1:]] == [1.0, 0.0]
    for row in pooled:
        assert row.keys() == {"dataset", "method", "coverage", "judged", "l2"}
    assert judged.averages([]) == []


def test_the_judged_benchmark_prints_and_writes_the_same_rows(quick_judged, tmp_path):
    path = tmp_path / "rows.json"
    done = invoke(
        "benchmark", "judged", "--datasets", "wine", "--classifiers", "lr", "--folds", "0", "--rows", 5,
        "--seed", 1, "--json", path,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = read_json(path)
    assert [row["method"] for row in rows] == JUDGED_METHODS
    assert all(row["seed"] == 1 for row in rows)
    assert "Judged plausibility" in done.stdout
    assert "Means over folds and classifiers" in done.stdout
    assert f"Rows: {path}" in done.stdout.replace("\n", "")
