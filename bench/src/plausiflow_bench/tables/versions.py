"""``plausiflow benchmark versions``: this version of plausiflow beside an older one, on the same rows.

One pipeline of scikit-learn is trained for each table: scaled numbers, categories as indicators, a perceptron
with two hidden layers of 64 units. Both versions explain this model with their default settings, and get the
same training rows, test rows, rules and targets: the most probable other class. The old version runs with the
interpreter of its own environment (:mod:`plausiflow_bench.tables.version_process`).

The counterfactuals of both versions are rows of the table, and are measured alike: by the model itself, by
this version's rules and cost, and by six judges with seeds that nothing else uses. ``rules_broken`` is about
the rules that were given and those of every table, ``learned_broken`` about rules that this version learned
from the table. ``cost_ratio`` is the ratio of mean costs, now to before, over the rows that both versions
answer, and ``judged_difference`` the difference of ``judged``. The version of today also runs with a lower
and a higher ``confidence``: what a margin costs, and how many more answers judges accept. In the row of the
old version, ``equal_judged`` is the cost ratio where judges accept as many answers of both versions, on
straight lines between the runs of today.

``--models`` takes boosted trees such as ``xgb-100x6`` in place of the perceptron; categories are indicators.

A task is one table and one version, so both versions of all tables can run at once. Finished tasks are
stored, and a run that was stopped continues.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from plausiflow.atomic import write_atomically
from plausiflow.datasets import Table, table_names
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.explainer import Explainer
from plausiflow.explanations import find_changes
from plausiflow.search import EFFORTS
from plausiflow.tables import FloatArray, IntArray
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment
from plausiflow_bench.harness.runner import StudyTask
from plausiflow_bench.realism.measures import RealismCase
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables import version_process
from plausiflow_bench.tables.cases import (
    SCIKIT_LEARN,
    Case,
    TableSelection,
    first_rows,
    fit_judges,
    mean,
    study_table,
    table_rules,
)
from plausiflow_bench.tables.exact import estimator_of

TABLES = ("adult", "german_credit", "heloc", "breast_cancer", "wine", "loans", "law")
NOW, BEFORE = "now", "before"
CONFIDENCES = {"now_confidence_0.95": 0.95, "now_confidence_0.99": 0.99}
"""This version with a lower and a higher ``confidence`` than its default."""
ROWS, JUDGES, JUDGE_SEED, CHECK_SECONDS = 200, 6, 41_521_000, 300.0
MEASURES = ("validity", "rules_broken", "learned_broken", "changes", "cost", "judged")
COLUMNS = (
    "dataset", "method", "version", "rows", "accuracy", "found", "validity", "rules_broken",
    "learned_broken", "changes", "cost", "cost_ratio", "judged", "judged_difference",
)  # fmt: skip
TREE_COLUMNS = ("dataset", "classifier", *COLUMNS[1:], "equal_judged")
PERCEPTRON = "mlp"
MARK = "<!-- written by `plausiflow benchmark versions --page` -->"


@dataclass(frozen=True, kw_only=True)
class OldVersion:
    """An environment that has an older version of plausiflow.

    Attributes:
        python: The interpreter of the environment.
        name: Name of the version in tables, such as a commit; empty: the version that the package states.
        script: The script that the interpreter runs.
    """

    python: Path
    name: str = ""
    script: Path = Path(version_process.__file__)

    def describe(self) -> dict[str, str]:
        """Return the version and a hash of its source code.

        Raises:
            InvalidInputError: If the interpreter has no plausiflow, or the one that runs here.
        """
        found: dict[str, str] = json.loads(self._call(["--check"], seconds=CHECK_SECONDS))
        if found["code"] == version_process.describe()["code"]:
            raise InvalidInputError(
                f"`old-python` must have another version of plausiflow than this one; {self.python} has the "
                "same code. Install the older version in an environment of its own (docs/tables.md)."
            )
        return found

    def explain(self, task: Path) -> dict[str, Any]:
        """Return the counterfactuals of the old version for the task in a file."""
        with tempfile.TemporaryDirectory() as folder:
            answers = Path(folder) / "answers.pickle"
            self._call([str(task), str(answers)])
            found: dict[str, Any] = pickle.loads(answers.read_bytes())
        return found

    def _call(self, arguments: Sequence[str], *, seconds: float | None = None) -> str:
        """Run the script, and return what it prints.

        ``PYTHONPATH`` and the folder of the script would let it find the modules of this version.
        """
        command = [str(self.python), "-P", str(self.script), *arguments]
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own["OMP_NUM_THREADS"] = "1"
        try:
            done = subprocess.run(
                command, env=own, capture_output=True, text=True, timeout=seconds, check=False
            )
        except OSError as error:
            raise InvalidInputError(
                f"`old-python` must be a Python interpreter; got {self.python}, which does not start: "
                f"{error}."
            ) from error
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
            raise ModelError(f"The old version failed in {self.python}: {last}")
        return done.stdout


@dataclass(frozen=True, kw_only=True)
class VersionSelection(TableSelection):
    """The tables of the study, those of scikit-learn are known too, and the models that are explained."""

    tables: tuple[str, ...] = TABLES
    models: tuple[str, ...] = (PERCEPTRON,)
    rows: int | None = ROWS

    @staticmethod
    def known_tables() -> tuple[str, ...]:
        """Return the names of the catalogue and those of scikit-learn's tables."""
        return (*table_names(), *SCIKIT_LEARN)

    def tasks(self) -> list[StudyTask]:
        """Return one task for each table and version."""
        return [
            StudyTask(study="versions", dataset=name, classifier=model, method=method, fold=0, seed=self.seed)
            for name in self.tables
            for model in self.models
            for method in (NOW, *CONFIDENCES, BEFORE)
        ]

    def split(self, name: str, model: str = PERCEPTRON) -> tuple[Table, Table]:
        """Return the training and test rows of a table; outcomes are numbers for trees, as XGBoost needs."""
        train, test = study_table(name).study_split()
        parts = first_rows(train, self.train), first_rows(test, self.rows)
        if model == PERCEPTRON:
            return parts
        codes = {outcome: code for code, outcome in enumerate(sorted(train.y.unique()))}
        return replace(parts[0], y=parts[0].y.map(codes)), replace(parts[1], y=parts[1].y.map(codes))

    def input_file(self, folder: Path, name: str, model: str = PERCEPTRON) -> Path:
        """Return the file with the task of a table and a model."""
        kind = "" if model == PERCEPTRON else f"-{model}"
        return folder / "inputs" / f"{name}{kind}-{self.train}-{self.rows}-{self.seed}.pickle"


def write_inputs(selection: VersionSelection, folder: Path, *, fresh: bool = False) -> None:
    """Train the model of each table, and write what both versions get; files that exist are kept."""
    for name, kind in product(selection.tables, selection.models):
        path = selection.input_file(folder, name, kind)
        if fresh or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            task = make_task(*selection.split(name, kind), selection.seed, kind)
            write_atomically(path, pickle.dumps(task))


def make_task(train: Table, test: Table, seed: int, kind: str = PERCEPTRON) -> dict[str, Any]:
    """Train a model, and return it with rows, rules and targets, in types that all versions know."""
    model = untrained_model(kind, seed) if kind == PERCEPTRON else _untrained_trees(kind, seed)
    model.fit(train.x, train.y)
    proba = model.predict_proba(test.x)
    labels = model.classes_.tolist()
    return {
        "model": model,
        "x": train.x,
        "y": train.y,
        "rows": test.x,
        "proba": proba,
        "targets": [labels[k] for k in proba.argsort(axis=1)[:, -2].tolist()],
        "rules": describe_rules(train),
        "orders": {name: tuple(levels) for name, levels in train.orders.items()},
        "seed": seed,
    }


def _untrained_trees(kind: str, seed: int) -> Pipeline:
    """Return trees such as ``xgb-100x6`` behind indicators of the categories."""
    indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    categories = make_column_selector(dtype_exclude=np.number)
    front = make_column_transformer((indicators, categories), remainder="passthrough")
    return make_pipeline(front, estimator_of(kind, seed))


def describe_rules(table: Table) -> list[tuple[str, tuple[str, ...]]]:
    """Return the rules of a table, as names of classes with their arguments.

    Example:
        >>> from plausiflow.datasets import loans_table
        >>> describe_rules(loans_table(n=50))
        [('Immutable', ('age', 'sex')), ('Increasing', ('education',))]
    """
    immutable = [("Immutable", table.immutable)] if table.immutable else []
    return [*immutable, *(("Increasing", (name,)) for name in table.increasing)]


@dataclass(frozen=True, kw_only=True)
class VersionWork:
    """Computes the row of a task.

    Attributes:
        selection: The selection that the task belongs to.
        old: The environment of the old version.
        old_name: Its name in tables.
        folder: Where the inputs were written.
    """

    selection: VersionSelection
    old: OldVersion
    old_name: str
    folder: Path

    def __call__(self, task: StudyTask) -> Row:
        """Return the row of a task."""
        path = self.selection.input_file(self.folder, task.dataset, task.classifier)
        given = pickle.loads(path.read_bytes())
        if task.method == BEFORE:
            found = self.old.explain(path)
        else:
            found = version_process.explain(given, CONFIDENCES.get(task.method))
        case = _fit_case(path, self.selection, task.dataset, task.classifier)
        row: Row = {
            "dataset": task.dataset,
            "classifier": task.classifier,
            "method": task.method,
            "version": self.old_name if task.method == BEFORE else environment()["commit"],
            "rows": len(case.test.x),
            "accuracy": float(given["model"].score(case.test.x, case.test.y)),
        }
        sizes: Row = {"training_rows": len(case.train.x), "seed": task.seed}
        return row | measure(case, given, found["answers"], found["of"]) | sizes | environment()


@lru_cache(maxsize=2)
def _fit_case(path: Path, selection: VersionSelection, name: str, model: str = PERCEPTRON) -> Case:
    """Return what measures the counterfactuals of a table: encoder, rules and cost of this version, judges.

    Its density is a kernel density, which is fitted fast, because it searches nothing.
    """
    task = pickle.loads(path.read_bytes())
    train, test = selection.split(name, model)
    explainer = Explainer(
        task["model"],
        constraints=table_rules(train),
        orders=train.orders,
        density=KDE(),
        confidence=None,
        judges=0,
        random_state=selection.seed,
    )
    case = Case.fit(explainer, train, test)
    training = EFFORTS["standard"].training  # that of an explainer's own judges
    explainer.judges_ = fit_judges(case, count=JUDGES, seed=JUDGE_SEED, training=training)
    return case


@torch.no_grad()
def measure(case: Case, task: dict[str, Any], answers: pd.DataFrame, of: IntArray) -> Row:
    """Measure counterfactuals, at most one per test row.

    Args:
        case: The case, with judges.
        task: What the version got.
        answers: Counterfactuals as rows of the table.
        of: Position of the test row of each counterfactual.

    Returns:
        Means over the counterfactuals, and ``row_costs``: the cost of each test row as text, or ``nan``.
    """
    costs = np.full(len(case.test.x), np.nan)
    if not len(of):
        nothing: Row = dict.fromkeys(MEASURES, math.nan)
        return nothing | {"found": 0.0, "row_costs": _as_text(costs)}
    targets, judges = pd.Series(task["targets"]).iloc[of], case.explainer.judges_
    assert judges is not None
    x, again = case.x[torch.from_numpy(of)], case.encoder.encode(answers).x
    layout = case.encoder.layout
    costs[of] = case.engine.cost_model((x, layout.codes(x)), (again, layout.codes(again))).numpy()
    decided = task["model"].predict(answers) == targets.to_numpy()
    rules = RealismCase(train=case.train, test=case.test, explainer=case.explainer)
    given, learned = rules.violations(case.test.x.iloc[of], answers)
    changes = find_changes(case.test.x, answers, of)
    return {
        "found": len(of) / len(case.test.x),
        "validity": mean(torch.from_numpy(decided)),
        "rules_broken": mean(torch.from_numpy(given)),
        "learned_broken": mean(torch.from_numpy(learned)),
        "changes": len(changes.answer) / len(of),
        "cost": float(costs[of].mean()),
        "judged": mean(judges.passes(again, case.class_indices(targets), x)),
        "row_costs": _as_text(costs),
    }


def compare(rows: Sequence[Row]) -> list[Row]:
    """Add the comparison with the old version to the rows, for each table and model."""
    before = {_case_of(row): row for row in rows if row["method"] == BEFORE}
    now: dict[tuple[object, object], list[Row]] = {key: [] for key in before}
    compared = []
    for row in rows:
        if row["method"] != BEFORE and _case_of(row) in before:
            row = row | _differences(row, before[_case_of(row)])
            now[_case_of(row)].append(row)
        compared.append(row)
    return [
        row | {"equal_judged": _equal_judged(now[_case_of(row)])} if row["method"] == BEFORE else row
        for row in compared
    ]


def _case_of(row: Row) -> tuple[object, object]:
    return row["dataset"], row.get("classifier", PERCEPTRON)


def _equal_judged(now: Sequence[Row]) -> float:
    """Return the cost ratio at which judges accept as many answers as of the old version, NaN if unknown."""
    points = sorted((float(row["judged_difference"]), float(row["cost_ratio"])) for row in now)
    differences = [difference for difference, _ in points]
    if not points or not differences[0] <= 0 <= differences[-1]:
        return math.nan
    return float(np.interp(0.0, differences, [ratio for _, ratio in points]))


def _differences(now: Row, before: Row) -> Row:
    costs, old_costs = _row_costs(now), _row_costs(before)
    both = np.isfinite(costs) & np.isfinite(old_costs)
    ratio = float(costs[both].mean() / old_costs[both].mean()) if both.any() else math.nan
    return {
        "cost_ratio": ratio,
        "judged_difference": float(now["judged"]) - float(before["judged"]),
        "both_answered": int(both.sum()),
    }


def _as_text(costs: FloatArray) -> str:
    return " ".join(f"{cost:.7g}" for cost in costs)


def _row_costs(row: Row) -> FloatArray:
    return np.array(str(row["row_costs"]).split(), dtype=np.float64)


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns of a table of rows; only trees are named."""
    return COLUMNS if all(_case_of(row)[1] == PERCEPTRON for row in rows) else TREE_COLUMNS


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, columns_of(rows))}\n\n{describe_runs(rows)}")
