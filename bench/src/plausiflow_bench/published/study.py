"""``plausiflow benchmark published``: both solvers on the published models, beside the published results.

Models (logistic regression, MLP or NODE, and the flow), threshold, rows and targets are those of the
published fold 0. The paper's Adam runs as published, without a box. The SQP stays in [0, 1]; a value outside
is its own bound. The page shows PPCEF's published results beside both, on exactly the same models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from plausiflow.core import Counterfactuals, verify_counterfactuals
from plausiflow.densities import Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.harness.rows import CpuTimer, Row, compare_distances, provenance, summarize
from plausiflow_bench.harness.selection import Selection
from plausiflow_bench.harness.sheets import Cell, Sheet, format_number
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun

COLUMNS = (
    "dataset", "classifier", "solver", "rows", "coverage", "validity", "plausibility", "feasible", "l1", "l2",
    "log_density", "difference", "farther", "gradients", "cpu_seconds", "ratio",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark published --page` -->"
_SOLVER_LABELS = {"published": "published", "penalty_adam": "PPCEF (paper)", "sqp": "PPCEF"}


def run(selection: Selection, directory: Path | None = None) -> Iterator[Row]:
    """Yield one row per data set, classifier and solver: ``published``, ``penalty_adam``, ``sqp``."""
    if selection.folds != (0,):
        raise InvalidInputError(f"Only the models of fold 0 were published; got folds {selection.folds}.")
    return selection.run(partial(_case, selection, directory))


def _case(selection: Selection, directory: Path | None, dataset: str, kind: str, fold: int) -> Iterator[Row]:
    assert fold == 0
    reference = PublishedRun.load(dataset, directory)
    model = reference.classifier(kind)  # type: ignore[arg-type]
    plausibility = Thresholded.at(
        PublishedMAF(reference.maf_arrays), float(reference.log_delta), model.n_classes
    )
    x = selection.first_rows(reference.x_test)
    stored = reference.counterfactuals.get(("ppcef", kind))
    binary_linear = kind == "lr" and model.n_classes == 2

    method = PPCEF.paper(classifier=model, plausibility=plausibility, binary_linear=binary_linear)
    adam = method.explain(x, "paper")
    if stored is not None:
        stored = selection.first_rows(stored)
        verified = verify_counterfactuals(
            classifier=model, plausibility=plausibility, x=x, x_cf=stored, y_target=adam.y_target
        )
        spent: Row = {"gradients": float("nan"), "cpu_seconds": float("nan"), "wall_seconds": float("nan")}
        yield {"solver": "published"} | summarize(verified) | spent | _difference(verified, stored)
    yield {"solver": "penalty_adam"} | summarize(adam) | _difference(adam, stored)

    with CpuTimer() as bank:
        method = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0).fit(
            reference.x_train, reference.y_train
        )
    found = method.explain(x, "paper")
    row = summarize(found)
    ratio = float(adam.cpu_seconds.sum()) / (float(row["cpu_seconds"]) + bank.seconds)
    extra: Row = {"bank_cpu_seconds": bank.seconds, "ratio": ratio}
    yield {"solver": "sqp"} | row | _difference(found, stored) | compare_distances(found, adam) | extra


def _difference(found: Counterfactuals, stored: Tensor | None) -> Row:
    """Return the mean absolute difference to the published counterfactuals."""
    return {"difference": float("nan") if stored is None else float((found.x_cf - stored).abs().nanmean())}


def make_sheet(rows: Sequence[Row]) -> Sheet:
    """Return a table of the published counterfactuals, the paper's solver and ours, one line per data set."""
    measures = {"validity": "Validity", "plausibility": "Prob. plaus.", "l2": "L2"}
    lines = []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in rows):
        by_solver = {str(row["solver"]): row for row in rows if row["dataset"] == dataset}
        if by_solver.keys() != _SOLVER_LABELS.keys():
            raise InvalidInputError(
                f"The page needs one row of each of {', '.join(_SOLVER_LABELS)} for {dataset}; got "
                f"{', '.join(by_solver)}. Run one classifier that has published counterfactuals."
            )
        values = [
            format_number(float(by_solver[solver][name]), 3) for name in measures for solver in _SOLVER_LABELS
        ]
        ratios = [
            float(by_solver[s]["l2"]) / float(by_solver["published"]["l2"]) for s in ("penalty_adam", "sqp")
        ]
        lines.append(tuple(map(Cell, [dataset, *values, *(format_number(ratio, 3) for ratio in ratios)])))
    names = [f"{name}, {who}" for name in measures.values() for who in _SOLVER_LABELS.values()]
    return Sheet(
        title="PPCEF on the published models, fold 0",
        header=("Dataset", *names, "L2 ratio, PPCEF (paper)", "L2 ratio, PPCEF"),
        lines=tuple(lines),
        notes=(
            "Classifier, flow, threshold, rows and targets are those of the published run. The first of each "
            "three columns measures the published counterfactuals. In the other tables of this page, both "
            "models are trained here.",
        ),
    )


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    ran = provenance(rows, ("classifier", "seed", "commit"))
    write_section(path, MARK, f"{make_sheet(rows).markdown()}\n\nRun: {ran}.")
