"""The benchmarks on the command line: they print and write the same rows, and say no in one line."""

import subprocess
import sys

import pytest
import torch

from benchmarking import PLAIN, PLAIN_DENSITIES, PNG, invoke, read_json
from plausiflow.models import LinearClassifier
from plausiflow_bench.commands.options import report


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


def test_rows_that_were_there_before_a_study_failed_are_kept(tmp_path):
    def failing():
        yield {"dataset": "wine", "l2": 0.5}
        raise RuntimeError("the second one")

    with pytest.raises(RuntimeError, match="the second one"):
        report(failing(), ("dataset", "l2"), "A study", tmp_path / "rows.json")
    assert read_json(tmp_path / "rows.json") == [{"dataset": "wine", "l2": 0.5}]


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
        (("published", "--folds", "0,1"), "Only the models of fold 0"),
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
    assert "--folds takes whole numbers such as 0,1" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.slow
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
