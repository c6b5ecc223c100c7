"""The paper's tables from the rows of a run, with the published values beside ours.

A cell is a mean over the folds that were run (± their standard deviation), followed in brackets by the
published mean over the same folds and the difference to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from plausiflow.errors import DataNotFoundError
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.harness.selection import CLASSIFIERS, PAPER_DATASETS
from plausiflow_bench.harness.sheets import Cell, Sheet, format_number, mark_best, mean_and_std
from plausiflow_bench.methods import METHODS
from plausiflow_bench.paper.selection import (
    ESTIMATORS,
    EXTRA_METHODS,
    JUDGED_FOLD,
    LOSSES,
    PAPER_METHODS,
    PUBLISHED_LOSS,
    PUBLISHED_WEIGHT,
    WEIGHTS,
)
from plausiflow_bench.published.runs import published_metrics

LABELS = {name: method.label for name, method in METHODS.items()} | {
    "ppcef_paper": "PPCEF (paper)",
    "ppcef_ensemble": "PPCEF (ensemble)",
}
MODEL_NAMES = {"lr": "logistic regression", "mlp": "perceptron (MLP)", "node": "NODE"}
_TWO_CLASSES = ("moons", "law", "audit", "heloc")


@dataclass(frozen=True)
class Measure:
    """A measure in a table.

    Attributes:
        name: The column of the rows.
        heading: The heading in the table.
        decimals: How many decimals are printed.
        better: ``higher``, ``lower``, or empty if neither is better.
        published: Whether published values exist.
    """

    name: str
    heading: str
    decimals: int = 2
    better: str = ""
    published: bool = True


PUBLISHED_MEASURES = (
    Measure("coverage", "Coverage ↑", 2, "higher"),
    Measure("validity", "Validity ↑", 2, "higher"),
    Measure("plausibility", "Prob. plaus. ↑", 2, "higher"),
    Measure("lof", "LOF"),
    Measure("iso_forest", "IsoForest"),
    Measure("log_density", "Log dens. ↑", 2, "higher"),
    Measure("l1", "L1 ↓", 2, "lower"),
    Measure("l2", "L2 ↓", 3, "lower"),
    Measure("seconds", "Time [s] ↓", 2, "lower"),
)
EXTRA_MEASURES = (
    Measure("target_validity", "Target validity ↑", 2, "higher", published=False),
    Measure("judged", "Judged ↑", 2, "higher", published=False),
    Measure("sparsity", "Changed ↓", 2, "lower", published=False),
    Measure("out_of_box", "Out of box ↓", 2, "lower", published=False),
    Measure("cpu_seconds", "CPU [s] ↓", 2, "lower", published=False),
)
ABLATION_MEASURES = tuple(
    column for column in PUBLISHED_MEASURES if column.name not in ("lof", "iso_forest", "seconds")
)

DEVIATIONS = {
    "CBCE": "S1: the published CBCE has two counterfactuals per fold, which do not depend on the row.",
    "MLP": "S2: the published searches on MLP, except for PPCEF, ran with dropout on; ours never do.",
    "CEGP": "S3: the published CEGP ran without prototypes; ours has them.",
    "ARTELT": "S4: the density constraint of the published ARTELT had no effect; ours requires the median.",
    "CEM": "S5: the published CEM ran 5 rounds of 200 steps, with a dead zone as wide as its penalty.",
    "WACH": "S6: the published WACH accepted any class at probability 0.51.",
    "classes": "S7: the published log-densities of WACH, CEM, CEGP and CBCE are those of class |1 - y|, even "
    "if the counterfactual is in another class; our searches have that class as their target.",
    "time": "S8: published times, except for PPCEF, are those of single rows in a loop; ours are batched.",
    "folds": "S9: the published models were stopped early on the test fold; ours never see it.",
}


class Results:
    """The rows of a run, by task.

    Args:
        rows: Rows of the tasks that succeeded.
        published: The published metrics, or None if they are not available.
    """

    def __init__(self, rows: Iterable[Row], published: pd.DataFrame | None = None) -> None:
        self.rows = list(rows)
        self.published = published
        self._shared = [
            {**row, "study": study, "method": method}
            for row in self.rows
            if (row["study"], row["classifier"], row["method"]) == ("methods", "lr", "ppcef_paper")
            for study, method in (("loss", PUBLISHED_LOSS), ("lambda", str(PUBLISHED_WEIGHT)))
            if any((other["study"], other["dataset"]) == (study, row["dataset"]) for other in self.rows)
        ]
        self.folds = sorted({int(row["fold"]) for row in self.rows})

    def select(self, study: str, **named: str) -> list[Row]:
        """Return the rows of a study whose fields have the given values."""
        fields = {"study": study, **named}
        every = [*self.rows, *self._shared]
        return [row for row in every if all(row[key] == value for key, value in fields.items())]

    def values_of(self, field: str, study: str, order: Sequence[str], **named: str) -> list[str]:
        """Return the distinct values of a field: those in ``order`` first, in that order."""
        there = dict.fromkeys(str(row[field]) for row in self.select(study, **named))
        return sorted(there, key=lambda name: order.index(name) if name in order else len(order))

    def published_mean(self, dataset: str, classifier: str, method: str, name: str) -> float:
        """Return the published mean over the folds that were run, or NaN if nothing was published."""
        if self.published is None:
            return math.nan
        table = self.published
        rows = table[
            (table["dataset"] == dataset)
            & (table["classifier"] == _published_model(dataset, classifier))
            & (table["method"] == method.removesuffix("_paper"))
            & table["fold"].isin(self.folds)
        ]
        return float(rows[name].mean()) if len(rows) else math.nan


def _published_model(dataset: str, classifier: str) -> str:
    """Return the name of a classifier in the published files."""
    if classifier == "lr":
        return "LogisticRegression" if dataset in _TWO_CLASSES else "MultinomialLogisticRegression"
    return {"mlp": "MultilayerPerceptron", "node": "NODE"}[classifier]


def load_published_metrics(directory: str | Path | None = None) -> pd.DataFrame | None:
    """Return the published metrics, or None if their files are not available."""
    try:
        return published_metrics(directory)
    except DataNotFoundError:
        return None


def make_sheets(results: Results) -> list[Sheet]:
    """Return every table that has rows."""
    made = [methods_sheet(results, classifier) for classifier in CLASSIFIERS]
    made += [
        published_sheet(results),
        ablation_sheet(results, "loss", "Loss", LOSSES, "Ablation of the validity loss (the paper's Adam)"),
        ablation_sheet(results, "lambda", "λ", [str(w) for w in WEIGHTS], "Ablation of λ (the paper's Adam)"),
        densities_sheet(results),
        data_sheet(results),
    ]
    return [sheet for sheet in made if sheet.lines]


def methods_sheet(results: Results, classifier: str) -> Sheet:
    """Return the comparison of methods for a classifier."""
    columns = (*PUBLISHED_MEASURES, *EXTRA_MEASURES)

    def published(dataset: str, method: str, column: Measure) -> float:
        return results.published_mean(dataset, classifier, method, column.name)

    lines = _lines(
        results, "methods", (*PAPER_METHODS, *EXTRA_METHODS), columns, published, classifier=classifier
    )
    keys = ["CBCE", "CEGP", "CEM", "WACH", "classes", "time", "folds"]
    keys += {"lr": ["ARTELT"], "mlp": ["MLP"]}.get(classifier, [])
    linear = () if classifier == "lr" else ("ARTELT is for linear models.",)
    few = "" if classifier == "lr" else " and PPCEF (paper)"
    once = f"Judged, PPCEF (ensemble){few}: fold {JUDGED_FOLD} only."
    notes = (
        "Validity: the decision changed, to any class. Target validity: it changed to the target class.",
        "PPCEF (paper): the paper's Adam. PPCEF: our default solver with the same flow, in the [0, 1] box. "
        "PPCEF (ensemble): our default density, an ensemble of five flows, measured here by another flow.",
        once,
        *linear,
        *(DEVIATIONS[key] for key in keys),
    )
    title = f"Methods, {MODEL_NAMES[classifier]}"
    header = ("Dataset", "Method", *(column.heading for column in columns))
    return Sheet(title=title, header=header, lines=lines, groups=2, notes=notes if lines else ())


def ablation_sheet(results: Results, study: str, heading: str, order: Sequence[str], title: str) -> Sheet:
    """Return one of the ablations."""
    lines = _lines(results, study, list(order), ABLATION_MEASURES)
    return Sheet(
        title=title,
        header=("Dataset", heading, *(c.heading for c in ABLATION_MEASURES)),
        lines=lines,
        groups=2,
    )


def published_sheet(results: Results) -> Sheet:
    """Return PPCEF's published values, the paper's solver here and our solver; logistic regression."""
    lines = []
    for dataset in results.values_of("dataset", "methods", PAPER_DATASETS, classifier="lr"):
        cells = [Cell(dataset)]
        for name, decimals in (("validity", 3), ("plausibility", 3), ("l2", 3)):
            there = results.published_mean(dataset, "lr", "ppcef", name)
            ours = [
                _mean(results.select("methods", dataset=dataset, classifier="lr", method=method), name)
                for method in ("ppcef_paper", "ppcef")
            ]
            cells += [Cell(format_number(value, decimals)) for value in (there, *ours)]
            if name == "l2":
                cells += [Cell(format_number(value / there, 3)) for value in ours]
        lines.append(tuple(cells))
    headings = [
        f"{name}, {who}"
        for name in ("Validity", "Prob. plaus.", "L2")
        for who in ("published", "PPCEF (paper)", "PPCEF")
    ]
    return Sheet(
        title="PPCEF beside its published row, logistic regression",
        header=("Dataset", *headings, "L2 ratio, PPCEF (paper)", "L2 ratio, PPCEF"),
        lines=tuple(lines) if results.published is not None else (),
    )


def densities_sheet(results: Results) -> Sheet:
    """Return the mean log-density of test rows under each estimator."""
    lines = []
    for dataset in results.values_of("dataset", "densities", PAPER_DATASETS):
        values = [
            [float(r["log_density"]) for r in results.select("densities", dataset=dataset, method=name)]
            for name in ESTIMATORS
        ]
        best = mark_best([_average(each) for each in values], 2, "higher")
        cells = [Cell(mean_and_std(each, 2), b) for each, b in zip(values, best, strict=True)]
        lines.append((Cell(dataset), *cells))
    return Sheet(
        title="Density estimators: mean log-density of test rows",
        header=("Dataset", *ESTIMATORS),
        lines=tuple(lines),
        notes=("The published RealNVP and NICE could not expand volumes; ours can (docs/deviations.md).",),
    )


def data_sheet(results: Results) -> Sheet:
    """Return the data sets, and the quality of their models on test folds."""
    lines = []
    for dataset in results.values_of("dataset", "data", PAPER_DATASETS):
        rows = results.select("data", dataset=dataset)
        accuracies = [
            Cell(mean_and_std([float(r["accuracy"]) for r in rows if r["classifier"] == name], 2))
            for name in CLASSIFIERS
        ]
        sizes = [Cell(str(rows[0][name])) for name in ("rows", "features", "classes")]
        one = [r for r in rows if r["classifier"] == rows[0]["classifier"]]
        lines.append(
            (
                Cell(dataset),
                *sizes,
                *accuracies,
                Cell(mean_and_std([float(r["log_density"]) for r in one], 2)),
            )
        )
    header = ("Dataset", "N", "d", "C", "LR acc.", "MLP acc.", "NODE acc.", "MAF log dens.")
    return Sheet(title="Data sets and models", header=header, lines=tuple(lines))


def _lines(
    results: Results,
    study: str,
    order: Sequence[str],
    columns: Sequence[Measure],
    published: Callable[[str, str, Measure], float] = lambda *_: math.nan,
    **named: str,
) -> tuple[tuple[Cell, ...], ...]:
    """Return one line per data set and method, with the best values of a data set marked."""
    lines = []
    for dataset in results.values_of("dataset", study, PAPER_DATASETS, **named):
        methods = results.values_of("method", study, order, dataset=dataset, **named)
        rows = {m: results.select(study, dataset=dataset, method=m, **named) for m in methods}
        best = {
            c.name: mark_best([_mean(rows[m], c.name) for m in methods], c.decimals, c.better)
            if c.better
            else [False] * len(methods)
            for c in columns
        }
        for i, method in enumerate(methods):
            cells = [Cell(dataset), Cell(LABELS.get(method, method))]
            for column in columns:
                there = published(dataset, method, column) if column.published else math.nan
                cells.append(Cell(_text(rows[method], column, there), best[column.name][i]))
            lines.append(tuple(cells))
    return tuple(lines)


def _text(rows: Sequence[Row], column: Measure, published: float) -> str:
    text = mean_and_std([float(row[column.name]) for row in rows], column.decimals)
    if math.isnan(published):
        return text
    difference = _mean(rows, column.name) - published
    sign = "" if difference < 0 else "+"
    texts = (format_number(value, column.decimals) for value in (published, difference))
    return f"{text} ({f', {sign}'.join(texts)})"


def _mean(rows: Sequence[Row], name: str) -> float:
    return _average([float(row[name]) for row in rows])


def _average(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
