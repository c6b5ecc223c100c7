"""``plausiflow benchmark published``: both solvers on the published models, beside what was published.

Models (logistic regression, MLP or NODE, and the flow), threshold, rows and targets are those of the
published fold 0. The paper's Adam runs as published, without a box; the SQP stays in [0, 1] (a row outside
keeps its own value as bound). The page shows PPCEF's published row beside both, on exactly the same models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from plausiflow.core import Counterfactuals, judge
from plausiflow.densities import Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow_bench.cases import write_section
from plausiflow_bench.published_maf import PublishedMAF
from plausiflow_bench.reference import Reference
from plausiflow_bench.sheets import Cell, Sheet, number
from plausiflow_bench.study import CpuTimer, Row, Selection, closeness, summary

COLUMNS = (
    "dataset", "classifier", "solver", "rows", "coverage", "validity", "plausibility", "feasible", "l1", "l2",
    "log_density", "difference", "farther", "gradients", "cpu_seconds", "ratio",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark published --page` -->"
_SOLVERS = {"published": "published", "penalty_adam": "PPCEF (paper)", "sqp": "PPCEF"}


def run(selection: Selection, directory: Path | None = None) -> Iterator[Row]:
    """One row per data set, classifier and solver: ``published``, ``penalty_adam``, ``sqp``."""
    if selection.folds != (0,):
        raise InvalidInputError(f"Only fold 0 was published with its models; got folds {selection.folds}.")
    return selection.run(partial(_case, selection, directory))


def _case(selection: Selection, directory: Path | None, dataset: str, kind: str, fold: int) -> Iterator[Row]:
    assert fold == 0
    reference = Reference.load(dataset, directory)
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


def sheet(rows: Sequence[Row]) -> Sheet:
    """The published counterfactuals, the paper's solver and ours, one line for each data set."""
    measures = {"validity": "Validity", "plausibility": "Prob. plaus.", "l2": "L2"}
    lines = []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in rows):
        own = {str(row["solver"]): row for row in rows if row["dataset"] == dataset}
        if own.keys() != _SOLVERS.keys():
            raise InvalidInputError(
                f"The page needs rows of the solvers {', '.join(_SOLVERS)} for {dataset}, each once; got "
                f"{', '.join(own)}. Run one classifier of which counterfactuals were published."
            )
        values = [number(float(own[solver][name]), 3) for name in measures for solver in _SOLVERS]
        ratios = [float(own[s]["l2"]) / float(own["published"]["l2"]) for s in ("penalty_adam", "sqp")]
        lines.append(tuple(map(Cell, [dataset, *values, *(number(ratio, 3) for ratio in ratios)])))
    names = [f"{name}, {who}" for name in measures.values() for who in _SOLVERS.values()]
    return Sheet(
        title="PPCEF on the published models, fold 0",
        header=("Dataset", *names, "L2 ratio, PPCEF (paper)", "L2 ratio, PPCEF"),
        lines=tuple(lines),
        notes=(
            "Classifier, flow, threshold, rows and targets are those of the published run, whose stored "
            "counterfactuals are measured in the first column of each three. Elsewhere on this page both "
            "models are trained here.",
        ),
    )


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Put the table into its place on a page."""
    ran = {name: sorted({str(row[name]) for row in rows}) for name in ("classifier", "seed", "commit")}
    said = "; ".join(f"{name} {', '.join(values)}" for name, values in ran.items())
    write_section(path, MARK, f"{sheet(rows).markdown()}\n\nRun: {said}.")
