"""``plausiflow benchmark published``: both solvers on the published models, beside what was published.

Models (logistic regression, MLP or NODE, and the flow), threshold, rows and targets are those of the
published fold 0. The paper's Adam runs as published, without a box; the SQP stays in [0, 1] (a row outside
keeps its own value as bound).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from plausiflow.benchmark.reference import Reference
from plausiflow.benchmark.study import CpuTimer, Row, Selection, closeness, environment, summary
from plausiflow.counterfactuals import Counterfactuals
from plausiflow.densities import PublishedMAF, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow.verdicts import judge

COLUMNS = (
    "dataset", "classifier", "solver", "rows", "coverage", "validity", "plausibility", "feasible", "l1", "l2",
    "log_density", "difference", "farther", "gradients", "cpu_seconds", "ratio",
)  # fmt: skip


def run(selection: Selection, directory: Path | None = None) -> Iterator[Row]:
    """One row per data set, classifier and solver: ``published``, ``penalty_adam``, ``sqp``."""
    if selection.folds != (0,):
        raise InvalidInputError(f"Only fold 0 was published with its models; got folds {selection.folds}.")
    for dataset, classifier, _ in selection.cases():
        for row in _case(Reference.load(dataset, directory), classifier, selection):
            case: Row = {"dataset": dataset, "classifier": classifier, "fold": 0}
            yield case | row | {"seed": selection.seed} | environment()


def _case(reference: Reference, kind: str, selection: Selection) -> Iterator[Row]:
    model = reference.classifier(kind)  # type: ignore[arg-type]
    plausibility = Thresholded.at(
        PublishedMAF(reference.maf_arrays), float(reference.log_delta), model.n_classes
    )
    x = selection.few(reference.x_test)
    stored = reference.counterfactuals.get(("ppcef", kind))
    binary_linear = kind == "lr" and model.n_classes == 2

    method = PPCEF.paper(classifier=model, plausibility=plausibility, binary_linear=binary_linear)
    adam = method.explain(x, "paper")
    if stored is not None:
        stored = selection.few(stored)
        kept = judge(classifier=model, plausibility=plausibility, x=x, x_cf=stored, y_target=adam.y_target)
        spent: Row = {"gradients": float("nan"), "cpu_seconds": float("nan"), "wall_seconds": float("nan")}
        yield {"solver": "published"} | summary(kept) | spent | _difference(kept, stored)
    yield {"solver": "penalty_adam"} | summary(adam) | _difference(adam, stored)

    with CpuTimer() as bank:
        method = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0).fit(
            reference.x_train, reference.y_train
        )
    found = method.explain(x, "paper")
    row = summary(found)
    ratio = float(adam.cpu_seconds.sum()) / (float(row["cpu_seconds"]) + bank.seconds)
    extra: Row = {"bank_cpu_seconds": bank.seconds, "ratio": ratio}
    yield {"solver": "sqp"} | row | _difference(found, stored) | closeness(found, adam) | extra


def _difference(found: Counterfactuals, stored: Tensor | None) -> Row:
    """Mean absolute difference to the published counterfactuals."""
    return {"difference": float("nan") if stored is None else float((found.x_cf - stored).abs().nanmean())}
