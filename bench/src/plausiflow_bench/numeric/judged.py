"""``plausiflow benchmark judged``: is a counterfactual also plausible for densities that did not guide it?

Three flows that guide no search are the judges. Each is trained on its own 80 % of the training rows, with
thresholds from the other 20 %. They judge the counterfactuals of the paper's Adam and of the SQP with one
flow, of the SQP with the cross-fitted ensemble and its calibrated margin (mean over members, and minimum),
and the nearest feasible training row. Real test rows, under their own class, are the reference.
``plausibility`` is the verdict of each method's own density, ``judged`` the mean of the judges and
``judged_worst`` that of the strictest one; ``l2_common`` is over the rows where the paper's Adam is feasible.
On loans the true density is known: ``true_plausibility`` is the share above its class median.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from plausiflow.core import Context, Counterfactuals, evaluate, l2_distance, real_rows, verify_counterfactuals
from plausiflow.densities import CrossFitEnsemble, Judges, Thresholded
from plausiflow.methods import PPCEF
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row, geometric_mean, provenance, summarize
from plausiflow_bench.harness.selection import (
    Selection,
    fit_classifier,
    fit_thresholded_flow,
    ignore_plausibility_warnings,
    load_fold,
    target_policy,
)
from plausiflow_bench.true_density import true_density

COLUMNS = (
    "dataset", "classifier", "fold", "method", "rows", "coverage", "validity", "plausibility", "judged",
    "judged_worst", "l2", "l2_common", "l1", "lof", "lof_median", "lof_target", "iso_forest", "cpu_seconds",
    "training_cpu_seconds", "calibration_cpu_seconds", "true_plausibility",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark judged --page` -->"
MEASURES = ("judged", "judged_worst", "lof", "lof_median", "lof_target", "iso_forest")


@cache
def fit_single(dataset: str, fold: int, seed: int) -> tuple[Thresholded, float]:
    """Fit one flow to a fold; return it with the processor seconds of its training. Cached."""
    load_fold(dataset, fold)
    with CpuTimer() as timer:
        single = fit_thresholded_flow(dataset, fold, seed)
    return single, timer.seconds


@cache
def fit_ensemble(dataset: str, fold: int, seed: int) -> tuple[CrossFitEnsemble, float]:
    """Fit the ensemble of a fold, uncalibrated; return it with its processor seconds. Cached."""
    data = load_fold(dataset, fold)
    with CpuTimer() as timer:
        ensemble = CrossFitEnsemble(random_state=seed).fit(data.x_train, data.y_train)
    return ensemble, timer.seconds


@cache
def fit_judges(dataset: str, fold: int, count: int = Judges.count, seed: int = Judges.random_state) -> Judges:
    """Fit judges to a fold, by default with seeds that no member of the ensemble has. Cached."""
    data = load_fold(dataset, fold)
    return Judges(count=count, random_state=seed).fit(data.x_train, data.y_train)


def run(selection: Selection) -> Iterator[Row]:
    """Yield one row per data set, fold, classifier and method."""
    return selection.run(partial(_case, selection))


def _case(selection: Selection, dataset: str, kind: str, fold: int) -> Iterator[Row]:
    data = load_fold(dataset, fold)
    x = selection.first_rows(data.x_test)
    model = fit_classifier(dataset, kind, fold, selection.seed)
    single, one = fit_single(dataset, fold, selection.seed)
    ensemble, training = fit_ensemble(dataset, fold, selection.seed)
    target = target_policy(model.n_classes)
    judges = fit_judges(dataset, fold)
    context = Context(
        classifier=model, plausibility=None, x_train=data.x_train, y_train=data.y_train, judges=judges
    )

    truth = None
    if dataset == "loans":  # the only data set whose density is known
        truth = Thresholded(density=true_density(data)).fit(data.x_train, data.y_train)

    def row(
        name: str,
        found: Counterfactuals,
        paper: Counterfactuals | None,
        training: float = float("nan"),
        calibration: float = float("nan"),
    ) -> Row:
        common = _common_distance(found, paper)
        measures: Row = dict(evaluate(found, context, names=MEASURES))
        if truth is not None:
            with_cf = found[found.found]
            measures["true_plausibility"] = float(
                (truth.score(with_cf.x_cf.double(), with_cf.y_target) >= 0).double().mean()
            )
        return (
            {"method": name}
            | summarize(found)
            | measures
            | {
                "l2_common": common,
                "training_cpu_seconds": training,
                "calibration_cpu_seconds": calibration,
            }
        )

    real = real_rows(x, selection.first_rows(data.y_test), classifier=model, plausibility=single)
    yield row("real", real, None)
    adam = PPCEF(classifier=model, plausibility=single, solver=PenaltyAdam.paper(binary_linear=False))
    paper = adam.explain(x, target)
    yield row("paper", paper, paper, one)
    alone = PPCEF(classifier=model, plausibility=single, lower=0.0, upper=1.0).fit(data.x_train, data.y_train)
    yield row("sqp_one_flow", alone.explain(x, target), paper, one)
    for name in ("mean", "min"):
        aggregated = copy.deepcopy(ensemble).set_aggregation(name, data.x_train, data.y_train)
        method = PPCEF(
            classifier=model, density=aggregated, lower=0.0, upper=1.0, random_state=selection.seed
        )
        with CpuTimer() as calibration, ignore_plausibility_warnings():
            method.fit(data.x_train, data.y_train)
        yield row(f"sqp_{name}_of_ensemble", method.explain(x, target), paper, training, calibration.seconds)
        if name == "mean":
            nearest = _nearest(method, x, paper.y_target)
    yield row("nearest", nearest, paper)


def _nearest(method: PPCEF, x: Tensor, y_target: Tensor) -> Counterfactuals:
    """Return the nearest feasible training row of each row as its counterfactual."""
    assert method.bank_ is not None
    rows = method.bank_.nearest(x.double(), y_target, count=1)[:, 0].to(x)
    plausibility = method.fitted_plausibility()
    return verify_counterfactuals(
        classifier=method.classifier, plausibility=plausibility, x=x, x_cf=rows, y_target=y_target
    )


def _common_distance(found: Counterfactuals, paper: Counterfactuals | None) -> float:
    """Return the mean distance over the rows where the paper's solver is feasible."""
    if paper is None:
        return float("nan")
    rows = paper.feasible & found.found
    return float(l2_distance(found.x_cf[rows].double(), found.x[rows].double()).mean())


def frontier(dataset: str, selection: Selection) -> Iterator[Row]:
    """Yield the ensemble at growing margins up to its cap, then the other methods; fold 0, linear model."""
    data = load_fold(dataset, 0)
    x, model = selection.first_rows(data.x_test), fit_classifier(dataset, "lr", 0, selection.seed)
    ensemble = copy.deepcopy(fit_ensemble(dataset, 0, selection.seed)[0])
    judges = fit_judges(dataset, 0)
    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        ensemble.margin_ = share * ensemble.max_margin_
        method = PPCEF(classifier=model, plausibility=ensemble, lower=0.0, upper=1.0)
        found = method.fit(data.x_train, data.y_train).explain(x, target_policy(model.n_classes))
        with_cf = found[found.found]
        passed = float(judges.passes(with_cf.x_cf, with_cf.y_target).double().mean())
        point: Row = {
            "dataset": dataset,
            "method": "sqp_mean_of_ensemble",
            "share_of_cap": share,
            "judged": passed,
        }
        yield point | summarize(found)
    for row in _case(selection, dataset, "lr", 0):
        if row["method"] in ("paper", "sqp_one_flow", "nearest"):
            yield row


def average_rows(rows: list[Row]) -> list[Row]:
    """Return the mean of every number over folds and classifiers, by data set and method."""
    keys = list(dict.fromkeys((row["dataset"], row["method"]) for row in rows))
    pooled = []
    for dataset, method in keys:
        group = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
        means: Row = {
            name: float(torch.tensor([float(row[name]) for row in group], dtype=torch.float64).nanmean())
            for name in COLUMNS
            if isinstance(group[0].get(name), float)
        }
        pooled.append({"dataset": dataset, "method": method} | means)
    return pooled


def page_table(rows: list[Row]) -> str:
    """Return the means over folds and classifiers as Markdown, with a description of the run."""
    columns = (
        "dataset",
        "method",
        *(c for c in COLUMNS if c not in ("dataset", "classifier", "fold", "method", "rows")),
    )
    ran = provenance(rows, ("fold", "classifier", "seed", "commit"))
    table = markdown(average_rows(rows), columns)
    return f"{table}\n\nMeans over the cases: {ran}.\n\n{cost_summary(rows)}"


def cost_summary(rows: list[Row]) -> str:
    """Return the cost of the ensemble in processor seconds, as geometric means over the cases."""
    seconds: dict[str, list[float]] = {"one": [], "paper": [], "training": []}
    for case in {(row["dataset"], row["classifier"], row["fold"]): None for row in rows}:
        own = {row["method"]: row for row in rows if (row["dataset"], row["classifier"], row["fold"]) == case}
        if {"paper", "sqp_one_flow", "sqp_mean_of_ensemble"} - own.keys():
            continue
        paper, one, many = (own[name] for name in ("paper", "sqp_one_flow", "sqp_mean_of_ensemble"))
        seconds["one"].append(float(many["cpu_seconds"]) / float(one["cpu_seconds"]))
        seconds["paper"].append(float(paper["cpu_seconds"]) / float(many["cpu_seconds"]))
        members = CrossFitEnsemble().members
        seconds["training"].append(
            float(many["training_cpu_seconds"]) / members / float(one["training_cpu_seconds"])
        )
    return (
        f"Processor seconds, geometric means: a search with the ensemble costs "
        f"{geometric_mean(seconds['one']):.1f} times one with one flow (at most "
        f"{max(seconds['one'], default=float('nan')):.1f}), and the paper's Adam with one flow "
        f"{geometric_mean(seconds['paper']):.1f} times one with the ensemble (at least "
        f"{min(seconds['paper'], default=float('nan')):.1f}). Training a member costs "
        f"{geometric_mean(seconds['training']):.2f} times the single flow."
    )


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, page_table(rows))
