"""``plausiflow benchmark labels``: which rows and labels a density should learn from when labels are scarce.

An MLP is trained on the labelled rows of a table. It is then explained on the same test rows with four
densities, and nothing else differs: a density of all rows with their true labels, which is the reference that
scarce labels do not allow; of the labelled rows alone; of all rows, labelled by the model; and of all rows
together, split by the model's probabilities (Bayes' rule). The judges know every true label and guide no
search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import CompiledRules
from plausiflow.core import Density, Plausibility, Training
from plausiflow.datasets import Table, load_table
from plausiflow.densities import Judges
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier, encode_labels
from plausiflow.tables import Encoder, Schema
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row, cpu_seconds
from plausiflow_bench.tables.cases import (
    Case,
    TableSelection,
    first_rows,
    fit_judges,
    learn_default_plausibility,
    mean,
    table_rules,
)
from plausiflow_bench.tables.mixed import measure_answers

DEFAULT_TABLES = ("loans", "law")
LABELLED, ROWS, TRAINING = 200, 200, 2000
CLASSIFIER_TRAINING = Training(learning_rate=3e-3, batch_size=32, weight_decay=1e-4)
"""The training of the MLP; batches are small because there are few rows."""
DENSITY_SOURCES = ("given_all", "given_scarce", "model", "bayes")
COLUMNS = (
    "dataset", "seed", "method", "labelled", "rows", "accuracy", "log_density", "found", "plausible",
    "judged", "judged_worst", "true_plausible", "cost", "l2", "changes", "explain_cpu_ms_per_row",
    "fit_cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark labels --page` -->"


@dataclass(frozen=True, kw_only=True)
class LabelSelection(TableSelection):
    """The tables of the study, and the number of labelled training rows.

    Attributes:
        labelled: How many of the first training rows have labels.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    rows: int | None = ROWS
    train: int | None = TRAINING
    labelled: int = LABELLED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labelled < 2:
            raise InvalidInputError(f"`labelled` must be at least 2; got {self.labelled}.")


def run(selection: LabelSelection) -> Iterator[Row]:
    """Yield one row per table and density."""
    for name in selection.tables:
        train, test = load_table(name).study_split()
        train, test = first_rows(train, selection.train), first_rows(test, selection.rows)
        model = _fit_model(train, selection)
        judges: Judges | None = None
        for source in DENSITY_SOURCES:
            case = _fit_case(source, model, train, test, selection)
            judges = judges or fit_judges(case)
            case.explainer.judges_ = judges
            yield case.with_provenance(_measure(source, case, selection), selection.seed)


def _fit_model(train: Table, selection: LabelSelection) -> MLPClassifier:
    """Return the MLP that is explained; it is trained on the labelled rows."""
    encoder = Encoder(Schema.infer(train.x, orders=train.orders))
    x, (labels, classes) = encoder.encode(train.x).x.float(), encode_labels(train.y, len(train.x))
    n = selection.labelled
    model = MLPClassifier(hidden=(64, 64), training=CLASSIFIER_TRAINING, random_state=selection.seed)
    return model.fit(x[:n], classes[:n], n_classes=len(labels))


def _fit_case(
    source: str, model: MLPClassifier, train: Table, test: Table, selection: LabelSelection
) -> Case:
    explainer = Explainer(
        model,
        labels="model" if source == "model" else "bayes" if source == "bayes" else "given",
        constraints=table_rules(train),
        orders=train.orders,
        judges=0,
        random_state=selection.seed,
    )
    before = cpu_seconds()
    if source == "given_scarce":
        explainer.plausibility = _learn_from(first_rows(train, selection.labelled), train, selection.seed)
    return Case.fit(explainer, train, test, cpu_seconds() - before)


def _learn_from(labelled: Table, train: Table, seed: int) -> Plausibility:
    """Return the default plausibility of the labelled rows, in the encoding of all training rows."""
    encoder = Encoder(Schema.infer(train.x, orders=train.orders))
    labels, classes = encode_labels(train.y, len(train.x))
    rules = CompiledRules(table_rules(train), encoder.schema, encoder.layout)
    known = classes[: len(labelled.x)]
    return learn_default_plausibility(labelled.x, known, len(labels), encoder, rules, judges=0, seed=seed)[0]


def _measure(source: str, case: Case, selection: LabelSelection) -> Row:
    with CpuTimer() as timer:
        result = case.explainer.explain(case.test.x)
    density, usable = case.engine.plausibility, case.usable
    assert isinstance(density, Density)
    with torch.no_grad():
        real = density.log_prob(case.x[usable], case.class_indices(case.test.y.iloc[usable.numpy()]))
    row: Row = {
        "method": source,
        "labelled": len(case.train.x) if source == "given_all" else selection.labelled,
        "log_density": mean(real),
        "l2": mean(torch.tensor(result.figures["l2"].to_numpy(np.float64))),
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measure_answers(case, result.answers, result.of)


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
