"""``plausiflow benchmark durable``: how many answers survive when the model is trained again.

Every model is retrained on samples that neither guided nor checked any search, in three ways: on a bootstrap
of the training rows, on a bootstrap with other hyperparameters, and on 90 % of the rows. Three methods answer
the same rows: the default, a minimum probability that the explainer's jurors calibrate, and ``durability``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from plausiflow.datasets import Table, load_table
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import draw_refits
from plausiflow.tables import FloatArray
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables.cases import TableSelection, table_rules

DEFAULT_TABLES = ("loans", "german_credit", "heloc", "adult", "law")
MODELS = ("lr", "mlp", "boosted")
TRAINING, ROWS = 700, 60
UNSEEN, OTHERS = 30, 10
"""Unseen bootstrap retrainings, and unseen ones of each other kind."""
LADDER = (0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Minimum probabilities that are tried, the smallest first."""
CALIBRATED_ROWS = 60
COLUMNS = (
    "dataset", "model", "method", "found", "survive", "rows_90", "other_settings", "fewer_rows", "cost",
    "changes", "judged", "lasting", "fit_cpu_seconds", "cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark durable --page` -->"
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "lr": {"logisticregression__C": 0.2},
    "mlp": {"mlpclassifier__hidden_layer_sizes": (32,), "mlpclassifier__alpha": 1e-2},
    "boosted": {
        "histgradientboostingclassifier__max_leaf_nodes": 15,
        "histgradientboostingclassifier__learning_rate": 0.06,
    },
}


@dataclass(frozen=True, kw_only=True)
class DurableSelection(TableSelection):
    """The tables and models of the study; ``train`` and ``rows`` have defaults of their own.

    Attributes:
        models: Any of ``lr``, ``mlp``, ``boosted``.
        unseen: The number of unseen bootstrap retrainings.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    models: tuple[str, ...] = MODELS
    unseen: int = UNSEEN


def run(selection: DurableSelection) -> Iterator[Row]:
    """Yield one row for each table, model and method."""
    for name in selection.tables:
        table = load_table(name)
        train, test = table.split(selection.train or TRAINING, selection.rows or ROWS)
        for kind in selection.models:
            yield from _Case(train, test, kind, selection).rows()


@dataclass(frozen=True, eq=False)
class _Case:
    """A table and a model."""

    train: Table
    test: Table
    kind: str
    selection: DurableSelection

    def rows(self) -> Iterator[Row]:
        model = untrained_model(self.kind, self.selection.seed).fit(self.train.x, self.train.y)
        unseen = self._unseen(model)
        base = 0.0
        for method, level in (("default", None), ("durability", 0.9)):
            start = cpu_seconds()
            explainer = self._fitted(model, level)
            fitted = cpu_seconds() - start
            result, spent = self._explain(explainer)
            row = self._row(method, result, unseen) | {"fit_cpu_seconds": fitted, "cpu_ms_per_row": spent}
            base = base or float(row["cost"])
            yield row | {"cost": float(row["cost"]) / base}
        least = self._calibrated(explainer)
        plain = replace_engine(explainer)
        result, spent = self._explain(plain, min_probability=least)
        row = self._row(f"min_probability={least:g}", result, unseen) | {"cpu_ms_per_row": spent}
        yield row | {"cost": float(row["cost"]) / base, "fit_cpu_seconds": fitted}

    def _fitted(self, model: object, durability: float | None) -> Explainer:
        explainer = Explainer(
            model,
            constraints=table_rules(self.train),
            orders=self.train.orders,
            durability=durability,
            random_state=self.selection.seed,
        )
        with ignore_plausibility_warnings():
            return explainer.fit(self.train.x, self.train.y, verbose=False)

    def _explain(
        self, explainer: Explainer, min_probability: float | None = None
    ) -> tuple[Explanations, float]:
        start = cpu_seconds()
        result = explainer.explain(self.test.x, "opposite", min_probability=min_probability, verbose=False)
        return result, 1000 * (cpu_seconds() - start) / len(self.test.x)

    def _calibrated(self, explainer: Explainer) -> float:
        """Return the smallest minimum probability whose answers the jurors accept as ``durability`` asks."""
        assert explainer.engine_ is not None
        durability = explainer.engine_.durability
        assert durability is not None
        assert explainer.encoder_ is not None
        plain, rows = replace_engine(explainer), self.train.x.iloc[:CALIBRATED_ROWS]
        for least in LADDER:
            result = plain.explain(rows, "opposite", min_probability=least, verbose=False)
            if len(result.answers) == 0 or result.encoded is None:
                continue
            x = explainer.encoder_.encode(result.answers).x
            targets = explainer.criterion_.of_class(result.encoded[2][result.of])
            if float(durability.lasting(x, result.answers, targets).mean()) >= 1 - (1 - durability.level) / 4:
                return least
        return LADDER[-1]

    def _unseen(self, model: Any) -> dict[str, list[Any]]:  # noqa: ANN401
        """Return retrained models that no search knows."""
        x, y, seed = self.train.x, self.train.y, 90_001 + self.selection.seed
        none: Any = (None, None)
        other = clone(model).set_params(**OTHER_SETTINGS[self.kind])
        generator = np.random.default_rng(seed)
        few = [generator.permutation(len(x))[: int(0.9 * len(x))] for _ in range(OTHERS)]
        return {
            "bootstrap": draw_refits(model, x, y, none, count=self.selection.unseen, seed=seed),
            "settings": draw_refits(other, x, y, none, count=OTHERS, seed=seed + 1),
            "fewer": [clone(model).fit(x.iloc[rows], pd.Series(y).iloc[rows]) for rows in few],
        }

    def _row(self, method: str, result: Explanations, unseen: dict[str, list[Any]]) -> Row:
        found = result.is_found
        answers = result.answers.iloc[result.best[found]]
        wanted = result.verdicts["target"].to_numpy()[found]
        shares = {kind: _survival(models, answers, wanted) for kind, models in unseen.items()}
        own = result.figures.iloc[result.best[found]]
        row: Row = {
            "dataset": self.train.name,
            "model": self.kind,
            "method": method,
            "training_rows": len(self.train.x),
            "rows": len(self.test.x),
            "seed": self.selection.seed,
            "found": float(found.mean()),
            "survive": float(shares["bootstrap"].mean()),
            "rows_90": float((shares["bootstrap"] >= 0.9).mean()),
            "other_settings": float(shares["settings"].mean()),
            "fewer_rows": float(shares["fewer"].mean()),
            "cost": float(own["cost"].mean()),
            "changes": float(own["n_changes"].mean()),
            "judged": float(own["judged"].mean()),
        }
        if "lasting" in own:
            row["lasting"] = float(own["lasting"].mean())
        return row | environment()


def replace_engine(explainer: Explainer) -> Explainer:
    """Return a copy of an explainer that does not ask for durability."""
    plain = copy.copy(explainer)
    assert plain.engine_ is not None
    plain.engine_ = replace(plain.engine_, durability=None)
    return plain


def _survival(models: list[Any], answers: pd.DataFrame, wanted: npt.NDArray[np.object_]) -> FloatArray:
    """Return the share of models that decide each answer as wanted."""
    if len(answers) == 0:
        return np.empty(0)
    votes = [np.ravel(model.predict(answers)) == wanted for model in models]
    return np.asarray(np.mean(votes, axis=0), dtype=np.float64)


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    shown: list[Row] = [
        {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    text = f"{markdown(shown, COLUMNS)}\n\n{describe_runs(rows)}"
    write_section(path, MARK, text)
