"""The study of judged plausibility: independent judges look at every method, and at real rows."""

import math
from functools import partial

import pytest
import torch

from benchmarking import NAN, answers, invoke, read_json
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, Judges, calibration
from plausiflow_bench.harness.selection import Selection
from plausiflow_bench.numeric import judged
from sampling import slow

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
    caches = (judged.fit_ensemble, judged.fit_judges)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize(("dataset", "classifier"), [("moons", "lr"), slow("wine", "mlp")])
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


@pytest.mark.slow
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
    assert not judged.fit_ensemble("wine", 0, 0)[0].margin_.any()


@pytest.mark.parametrize(
    "seed",
    [0, 1, 2],
)
def test_no_judge_is_a_member_of_the_ensemble(quick_judged, seed):
    ensemble, _ = judged.fit_ensemble("wine", 0, seed)
    judges = judged.fit_judges("wine", 0)
    assert not {flow.random_state for flow in ensemble.flows_} & {flow.random_state for flow in judges.flows_}


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
    pooled = judged.average_rows(rows)
    assert [(row["dataset"], row["method"]) for row in pooled] == [
        ("wine", "real"), ("wine", "paper"), ("moons", "real"),
    ]  # fmt: skip
    assert [row["judged"] for row in pooled] == pytest.approx([0.6, 0.3, 0.1])
    assert math.isnan(pooled[0]["l2"])
    assert [row["l2"] for row in pooled[1:]] == [1.0, 0.0]
    for row in pooled:
        assert row.keys() == {"dataset", "method", "coverage", "judged", "l2"}
    assert judged.average_rows([]) == []


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
