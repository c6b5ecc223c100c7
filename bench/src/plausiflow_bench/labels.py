"""``plausiflow benchmark labels``: where the density comes from when few rows have labels.

A perceptron is trained on the labelled rows of a table. The same perceptron is then explained for the same
test rows with four densities, and nothing else differs: of all rows with all their true labels, the reference
that scarce labels do not allow; of the labelled rows alone; of all rows, each with what the model decides;
and of all rows together, split by the model's probabilities (Bayes' rule). All are judged by densities that
know every true label and guide no search.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import Rules
from plausiflow.core import Density, Plausibility, Training
from plausiflow.datasets import Table, load_table
from plausiflow.densities import ContextThreshold, Judges, MixedDensity, PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier, labels_of
from plausiflow.search import Rows, Settings, monotone
from plausiflow.tables import Encoder, Schema
from plausiflow_bench.cases import Case, TableSelection, mean, rules_of, what_ran, write_section
from plausiflow_bench.mixed import measured
from plausiflow_bench.study import CpuTimer, Row
from plausiflow_bench.tables import markdown

STUDIED = ("loans", "law")
LABELLED, ROWS, TRAINING = 200, 200, 2000
TRAINED = Training(learning_rate=3e-3, batch_size=32, weight_decay=1e-4)
"""Of the perceptron, in smaller batches than usual: there are few rows."""
WAYS = ("given_all", "given_scarce", "model", "bayes")
COLUMNS = (
    "dataset", "seed", "method", "labelled", "rows", "accuracy", "log_density", "found", "plausible",
    "judged", "judged_worst", "true_plausible", "cost", "l2", "changes", "explain_cpu_ms_per_row",
    "fit_cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark labels --page` -->"


@dataclass(frozen=True, kw_only=True)
class ScarceSelection(TableSelection):
    """Which tables the study runs on, and how many of their training rows have labels.

    Attributes:
        labelled: The first so many.
    """

    tables: tuple[str, ...] = STUDIED
    rows: int | None = ROWS
    train: int | None = TRAINING
    labelled: int = LABELLED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labelled < 2:
            raise InvalidInputError(f"`labelled` must be at least 2; got {self.labelled}.")


@dataclass(kw_only=True, eq=False)
class _Explainer(Explainer):
    """An explainer whose density may learn from the first rows only."""

    first: int | None = None

    def _densities(
        self, rows: Rows, rules: Rules, encoder: Encoder, settings: Settings
    ) -> tuple[Plausibility, Judges | None]:
        n = len(rows.x) if self.first is None else self.first
        few = replace(rows, frame=rows.frame.iloc[:n], x=rows.x[:n], classes=rows.classes[:n])
        return super()._densities(few, rules, encoder, settings)


def run(selection: ScarceSelection) -> Iterator[Row]:
    """One row per table and way to learn the density."""
    for name in selection.tables:
        train, test = load_table(name).study_split()
        train, test = _first(train, selection.train), _first(test, selection.rows)
        model = _trained(train, selection)
        judges: Judges | None = None
        for way in WAYS:
            case = _fitted(way, model, train, test, selection)
            judges = judges or _judges(case)
            case.explainer.judges_ = judges
            yield case.identified(_measured(way, case, selection), selection.seed)


def _first(table: Table, count: int | None) -> Table:
    return table if count is None else replace(table, x=table.x.iloc[:count], y=table.y.iloc[:count])


def _trained(train: Table, selection: ScarceSelection) -> MLPClassifier:
    """The perceptron that all ways explain; it has seen the labelled rows only."""
    encoder = Encoder(Schema.infer(train.x, orders=train.orders))
    x, (labels, classes) = encoder.encode(train.x).x.float(), labels_of(train.y, len(train.x))
    n = selection.labelled
    model = MLPClassifier(hidden=(64, 64), training=TRAINED, seed=selection.seed)
    return model.fit(x[:n], classes[:n], n_classes=len(labels))


def _fitted(way: str, model: MLPClassifier, train: Table, test: Table, selection: ScarceSelection) -> Case:
    explainer = _Explainer(
        model,
        labels="model" if way == "model" else "bayes" if way == "bayes" else "given",
        first=selection.labelled if way == "given_scarce" else None,
        constraints=rules_of(train),
        orders=train.orders,
        judges=0,
        random_state=selection.seed,
    )
    before = os.times()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)  # the table shows what is reached
        explainer.fit(train.x, train.y)
    seconds = sum(after - start for after, start in zip(os.times()[:4], before[:4], strict=True))
    return Case(train=train, test=test, explainer=explainer, fit_cpu_seconds=seconds)


def _judges(case: Case) -> Judges:
    """Of all rows and their true labels, the same for all ways."""
    rules, layout = case.finder.rules, case.encoder.layout
    rising, falling = monotone(rules)
    context = ContextThreshold.of(layout, immutable=rules.immutable, rising=rising, falling=falling)
    judges = Judges(base=MixedDensity.of(layout, rules.immutable), context=context)
    return judges.fit(case.encoder.encode(case.train.x).x.float(), case.classes(case.train.y))


def _measured(way: str, case: Case, selection: ScarceSelection) -> Row:
    with CpuTimer() as timer:
        result = case.explainer.explain(case.test.x)
    density, own = case.finder.plausibility, case.usable
    assert isinstance(density, Density)
    with torch.no_grad():
        real = density.log_prob(case.x[own], case.classes(case.test.y.iloc[own.numpy()]))
    row: Row = {
        "method": way,
        "labelled": len(case.train.x) if way == "given_all" else selection.labelled,
        "log_density": mean(real),
        "l2": mean(torch.tensor(result.figures["l2"].to_numpy(np.float64))),
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measured(case, result.answers, result.of)


def write_page(rows: list[Row], path: Path) -> None:
    """Put the study of scarce labels between its marks in a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)}")
