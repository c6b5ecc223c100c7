"""``plausiflow benchmark solvers``: both solvers on models trained here, with the same rows and targets.

The paper's Adam gets 2,000 steps and no box, as published. The SQP runs in the [0, 1] box in both of its
modes (``sqp``, ``sqp_quality``) and without the box (``sqp_no_box``), which is the fair comparison on rows
where Adam leaves the box. ``farther`` is the share of rows where the solver is over 1 % farther than Adam,
among the rows where Adam is feasible; ``farther_in_box`` counts only rows where Adam also stays in the box,
which ``sqp`` requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from plausiflow.methods import PPCEF
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow_bench.harness.rows import CpuTimer, Row, compare_distances, summarize
from plausiflow_bench.harness.selection import (
    Selection,
    fit_classifier,
    fit_thresholded_flow,
    load_fold,
    target_policy,
)

COLUMNS = (
    "dataset", "classifier", "fold", "solver", "rows", "feasible", "validity", "plausibility", "l2", "l1",
    "l2_common", "l2_common_penalty", "farther", "farther_in_box", "out_of_box", "gradients", "cpu_seconds",
    "ratio",
)  # fmt: skip


def run(selection: Selection) -> Iterator[Row]:
    """Yield one row per data set, classifier, fold and solver.

    The solvers are ``penalty_adam``, ``sqp``, ``sqp_quality`` and ``sqp_no_box``.
    """
    return selection.run(partial(_case, selection))


def _case(selection: Selection, dataset: str, kind: str, fold: int) -> Iterator[Row]:
    data = load_fold(dataset, fold)
    x = selection.first_rows(data.x_test)
    model = fit_classifier(dataset, kind, fold, selection.seed)
    plausibility = fit_thresholded_flow(dataset, fold, selection.seed)
    target = target_policy(model.n_classes)

    adam = PPCEF(
        classifier=model, plausibility=plausibility, solver=PenaltyAdam.paper(binary_linear=False)
    ).explain(x, target)
    spent = float(adam.cpu_seconds.sum())
    yield {"solver": "penalty_adam"} | summarize(adam) | compare_distances(adam, adam) | {"ratio": 1.0}

    with CpuTimer() as bank:
        boxed = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0).fit(
            data.x_train, data.y_train
        )
    quality = replace(boxed, solver=SQP(mode="quality"))
    free = replace(boxed, lower=None, upper=None)
    for name, method in (("sqp", boxed), ("sqp_quality", quality), ("sqp_no_box", free)):
        method.bank_ = boxed.bank_
        found = method.explain(x, target)
        ratio = spent / (float(found.cpu_seconds.sum()) + bank.seconds)
        extra: Row = {"bank_cpu_seconds": bank.seconds, "ratio": ratio}
        yield {"solver": name} | summarize(found) | compare_distances(found, adam) | extra
