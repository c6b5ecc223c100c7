"""``plausiflow benchmark realism``: do counterfactuals look like rows that people have?

For each table an MLP and boosted trees are explained. The measures come from judges that share nothing with
the densities (:mod:`plausiflow.explanations.realism`), from rules, and from the truths that are planted in
generated tables. NICE and DiCE get the MLP, the same rows and the same targets; they support few rules, so
they are compared on the rows where their answers obey the rules, and ``auc_ours`` is ours on the same rows.
``real`` is a control: test rows under their own label. ``real_matched`` is another one: real rows that meet
what every answer must meet, as dense and as narrowly decided as our answers.

A task is one row of the table. Finished tasks are stored, so a run that was stopped continues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from plausiflow.datasets import load_table
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import Fitted
from plausiflow.tables import IntArray
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment
from plausiflow_bench.harness.runner import StudyTask
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.realism.measures import (
    RealismCase,
    judge,
    judge_matched_rows,
    measure,
    outliers_of_immutable,
    recovered_truths,
    rules_on_noise,
)
from plausiflow_bench.tables import peers
from plausiflow_bench.tables.cases import TableSelection, first_rows, fit_case, table_rules

TABLES = ("adult", "german_credit", "law", "loans", "contacts", "orders")
MODELS, PEERS, ROWS = ("mlp", "hgb"), ("nice_sparsity", "dice_genetic"), 200
COLUMNS = (
    "dataset", "classifier", "method", "rows", "found", "changes", "rules_broken", "learned_broken",
    "truths_broken", "grid_broken", "auc", "auc_spread", "auc_ours", "outliers", "outliers_immutable",
    "compared", "truths_recovered", "rules_on_noise",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark realism --page` -->"


@dataclass(frozen=True, kw_only=True)
class RealismSelection(TableSelection):
    """The tables, models and peers of the study.

    Attributes:
        models: Any of ``MODELS``.
        peers: How other libraries are run; None leaves them out.
    """

    tables: tuple[str, ...] = TABLES
    rows: int | None = ROWS
    models: tuple[str, ...] = MODELS
    peers: peers.PeerSettings | None = field(default_factory=lambda: peers.PeerSettings(methods=PEERS))

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.models if name not in MODELS]
        if unknown:
            raise InvalidInputError(
                f"`models` must be among {', '.join(MODELS)}; got {', '.join(map(repr, unknown))}."
            )

    def quick(self) -> RealismSelection:
        """Return a small version: two tables, few rows, the MLP."""
        return replace(self, tables=("law", "contacts"), rows=50, train=1000, models=("mlp",))

    def tasks(self) -> list[StudyTask]:
        """Return one task for each table, model and method."""
        others = () if self.peers is None else self.peers.methods
        return [
            StudyTask(study="realism", dataset=name, classifier=model, method=method, fold=0, seed=self.seed)
            for name in self.tables
            for model in self.models
            for method in ("real", "real_matched", "plausiflow", *(others if model == "mlp" else ()))
        ]


@dataclass(frozen=True)
class RealismWork:
    """Computes the row of a task.

    Attributes:
        selection: The selection that the task belongs to.
    """

    selection: RealismSelection

    def __call__(self, task: StudyTask) -> Row:
        """Return the row of a task."""
        selection = self.selection
        case = _case(task.dataset, task.classifier, selection.rows, selection.train, task.seed)
        if task.method == "real":
            row = judge(case, case.test.x, case.classes(case.test.y))
        elif task.method == "plausiflow":
            row = _measure_ours(case)
        elif task.method == "real_matched":
            row = _measure_matched(case)
        else:
            row = _measure_peer(case, task, selection)
        sizes: Row = {"rows": len(case.test.x), "training_rows": len(case.train.x), "seed": task.seed}
        named: Row = {"dataset": task.dataset, "classifier": task.classifier, "method": task.method}
        return named | row | sizes | environment()


@lru_cache(maxsize=2)
def _case(name: str, model: str, rows: int | None, train: int | None, seed: int) -> RealismCase:
    """Return a table with an explainer fitted to it; the last two are kept."""
    if model == "mlp":
        fitted = fit_case(name, train, seed, 0)
        return RealismCase(train=fitted.train, test=first_rows(fitted.test, rows), explainer=fitted.explainer)
    train_table, test = load_table(name).study_split()
    train_table = first_rows(train_table, train)
    explainer = Explainer(
        _boosted_trees(train_table.x, seed).fit(train_table.x, train_table.y),
        constraints=table_rules(train_table),
        orders=train_table.orders,
        judges=0,
        random_state=seed,
    )
    with ignore_plausibility_warnings():
        explainer.fit(train_table.x, train_table.y)
    return RealismCase(train=train_table, test=first_rows(test, rows), explainer=explainer)


def _boosted_trees(x: pd.DataFrame, seed: int) -> Fitted:
    categories = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((encoder, categories), remainder="passthrough")
    return make_pipeline(columns, HistGradientBoostingClassifier(random_state=seed))


@lru_cache(maxsize=2)
def _explain(case: RealismCase) -> Explanations:
    return case.explainer.explain(case.test.x)


def _targets(result: Explanations) -> IntArray:
    assert result.encoded is not None
    return result.encoded[2].numpy()


def _measure_ours(case: RealismCase) -> Row:
    result = _explain(case)
    best = result.best[result.is_found]
    of = result.of[best]
    answers, targets = result.answers.iloc[best], _targets(result)[of]
    row = measure(case, answers, of, targets)
    needed = max(1, int(result.is_needed.sum()))
    extra: Row = {
        "found": float(result.is_found.sum()) / needed,
        "outliers_immutable": outliers_of_immutable(case, answers, targets),
        "rules_on_noise": rules_on_noise(case),
    }
    if case.train.truths:
        extra["truths_recovered"] = recovered_truths(case)
    return row | extra


def _measure_matched(case: RealismCase) -> Row:
    result = _explain(case)
    best = result.best[result.is_found]
    targets = _targets(result)[result.of[best]]
    proba = case.explainer.predict_proba(result.answers.iloc[best])[list(case.labels)].to_numpy(np.float64)
    return judge_matched_rows(case, proba[np.arange(len(best)), targets], targets)


def _measure_peer(case: RealismCase, task: StudyTask, selection: RealismSelection) -> Row:
    """Measure a peer on the rows where its answers obey the rules, and ours on the same rows."""
    assert selection.peers is not None
    fitted = fit_case(task.dataset, selection.train, task.seed, 0)
    fitted = fitted if selection.rows is None else fitted.first_rows(selection.rows)
    with tempfile.TemporaryDirectory() as folder:
        peers.write_task(fitted, Path(folder), selection.peers.seconds_per_row, task.seed)
        lines = selection.peers.answers(Path(folder), task.method)
    answers, of = peers.read_answers(fitted, lines)
    targets = fitted.y_target.numpy()[of]
    row = measure(case, answers, of, targets)
    obey = ~case.violations(case.test.x.iloc[of], answers)[0]
    row |= judge(case, answers[obey], targets[obey])
    result = _explain(case)
    both = result.best[np.isin(np.arange(len(case.test.x)), of[obey]) & result.is_found]
    ours = judge(case, result.answers.iloc[both], _targets(result)[result.of[both]])
    return row | {"auc_ours": ours["auc"]}


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(list(rows))}")
