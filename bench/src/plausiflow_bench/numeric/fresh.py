"""``plausiflow benchmark judged --fresh``: the default against the paper's solver, before six fresh judges.

The judges have seeds that nothing else uses, and no constant of the library was settled with them or on folds
2 to 4. ``judged`` is the share of the counterfactuals that they accept, in the mean over the judges, and
``judged_worst`` that of the strictest one. ``l2`` and ``l2_paper`` are mean distances over the rows where the
paper's Adam, with one flow, is feasible, and ``l2_ratio`` is their quotient.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from plausiflow.core import Context, Counterfactuals, evaluate, l2_distance
from plausiflow.methods import PPCEF
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, provenance
from plausiflow_bench.harness.selection import (
    Selection,
    fit_classifier,
    ignore_plausibility_warnings,
    load_fold,
    target_policy,
)
from plausiflow_bench.numeric.judged import fit_ensemble, fit_judges, fit_single

JUDGES, SEED = 6, 31_337_000
COLUMNS = (
    "dataset", "classifier", "fold", "rows", "found", "judged", "judged_worst", "judged_paper", "l2",
    "l2_paper", "l2_ratio",
)  # fmt: skip
MEANS = COLUMNS[4:-1]
PAGE_COLUMNS = (
    "dataset",
    "found",
    "judged",
    "lowest",
    "judged_worst",
    "judged_paper",
    "l2",
    "l2_paper",
    "l2_ratio",
)
MARK = "<!-- written by `plausiflow benchmark judged --fresh --page` -->"


def run(selection: Selection) -> Iterator[Row]:
    """Yield one row per data set, fold and classifier."""
    return selection.run(partial(_case, selection))


def _case(selection: Selection, dataset: str, kind: str, fold: int) -> Iterator[Row]:
    data = load_fold(dataset, fold)
    x = selection.first_rows(data.x_test)
    model = fit_classifier(dataset, kind, fold, selection.seed)
    target, single = target_policy(model.n_classes), fit_single(dataset, fold, selection.seed)[0]
    adam = PPCEF(classifier=model, plausibility=single, solver=PenaltyAdam.paper(binary_linear=False))
    paper = adam.explain(x, target)
    ensemble = copy.deepcopy(fit_ensemble(dataset, fold, selection.seed)[0])
    method = PPCEF(classifier=model, density=ensemble, lower=0.0, upper=1.0, random_state=selection.seed)
    with ignore_plausibility_warnings():
        found = method.fit(data.x_train, data.y_train).explain(x, target)
    context = Context(
        classifier=model,
        plausibility=None,
        x_train=data.x_train,
        y_train=data.y_train,
        judges=fit_judges(dataset, fold, JUDGES, SEED),
    )
    both = found.found & paper.feasible
    ours, theirs = _distance(found[both]), _distance(paper[both])
    yield {
        "rows": len(x),
        "found": float(found.feasible.double().mean()),
        **evaluate(found, context, names=("judged", "judged_worst")),
        "judged_paper": evaluate(paper[paper.feasible], context, names=("judged",))["judged"],
        "l2": ours,
        "l2_paper": theirs,
        "l2_ratio": ours / theirs,
    }


def _distance(found: Counterfactuals) -> float:
    return float(l2_distance(found.x_cf.double(), found.x.double()).mean())


def average_rows(rows: list[Row]) -> list[Row]:
    """Return the means over folds and classifiers of each data set, and of the data sets."""
    means: list[Row] = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == dataset]
        mean: Row = {name: sum(float(row[name]) for row in own) / len(own) for name in MEANS}
        mean["lowest"] = min(float(row["judged"]) for row in own)
        means.append({"dataset": dataset, **mean, "l2_ratio": float(mean["l2"]) / float(mean["l2_paper"])})
    every: Row = {name: sum(float(row[name]) for row in means) / len(means) for name in ("judged", "found")}
    return [*means, {"dataset": "mean", **every}]


def write_page(rows: list[Row], path: Path) -> None:
    """Write the means into their section of a page."""
    cases = provenance(rows, ("fold", "classifier", "seed", "commit"))
    table = markdown(average_rows(rows), PAGE_COLUMNS)
    write_section(path, MARK, f"{table}\n\nMeans over the cases: {cases}.")
