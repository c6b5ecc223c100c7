"""The product against the engine: what an explainer costs beside the model and beside PPCEF on tensors.

Each row is one table and one model, measured in one run: the training of the model and ``Explainer.fit``;
``Explainer.explain`` of many rows and ``PPCEF.explain`` of the same rows as tensors, with the explainer's own
model, density and margin, where only numbers move; one row at a time; three counterfactuals in place of one;
and the first answer of a fresh process, which imports the library and loads the explainer.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from plausiflow.core import Counterfactuals
from plausiflow.datasets import Table, load_table
from plausiflow.errors import DataNotFoundError
from plausiflow.explainer import Explainer
from plausiflow.methods import PPCEF
from plausiflow_bench.harness.rows import Row, cpu_seconds
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.plan import SpeedPlan, TimedDevice
from plausiflow_bench.tables.cases import table_rules

CASES = (
    ("heloc", "lr"),
    ("heloc", "mlp"),
    ("adult", "mlp"),
    ("german_credit", "mlp"),
    ("loans", "mlp"),
    ("loans", "boosted"),
)
"""Tables and models; ``boosted`` trees have no gradients, so PPCEF cannot explain them."""
FIRST_ANSWER = """
import pathlib, pickle, sys, plausiflow
model, row = pickle.loads(pathlib.Path(sys.argv[2]).read_bytes())
plausiflow.Explainer.load(sys.argv[1], model=model).explain(row, target="opposite")
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductBench:
    """The measurements of explainers.

    Attributes:
        plan: The amount of work.
        device: The device that is measured.
        seed: Seed of everything that is trained.
    """

    plan: SpeedPlan
    device: TimedDevice
    seed: int

    def rows(self) -> Iterator[Row]:
        """Yield one row for each table and model; tables that are not on this machine are left out."""
        for name, kind in CASES:
            try:
                table = load_table(name)
            except DataNotFoundError:
                continue
            if name in self.plan.product_tables:
                named: Row = {"dataset": name, "classifier": kind}
                yield named | self._measure(table, kind)

    def _measure(self, table: Table, kind: str) -> Row:
        n_test = min(self.plan.product_rows, len(table.x) // 3)
        train, test = table.split(min(self.plan.product_train, len(table.x) - n_test), n_test)
        model = untrained_model(kind, self.seed)
        model_seconds = self._seconds(partial(model.fit, train.x, train.y))
        explainer = Explainer(
            model,
            constraints=table_rules(train),
            orders=train.orders,
            confidence=self.plan.confidence,
            judges=self.plan.judges,
            random_state=self.seed,
        )
        with ignore_plausibility_warnings():
            fit_seconds = self._seconds(partial(explainer.fit, train.x, train.y, verbose=False))
        row: Row = {"train": len(train.x), "model_seconds": model_seconds, "fit_seconds": fit_seconds}
        row["fit_ratio"] = fit_seconds / model_seconds
        ask = partial(explainer.explain, target="opposite", verbose=False)
        ask(test.x.iloc[:10])
        result, spent = self.device.time(partial(ask, test.x))
        row |= {"rows": len(test.x), "rows_per_second": len(test.x) / self.device.cost(spent)}
        row["found"] = float(result.is_found.mean())
        if kind != "boosted":
            row |= self._engine(explainer, test.x)
            row["ratio"] = float(row["rows_per_second"]) / float(row["engine_rows_per_second"])
        return row | self._single_rows(explainer, test.x)

    def _engine(self, explainer: Explainer, frame: pd.DataFrame) -> Row:
        """Return the speed of PPCEF for the same rows as tensors; categories stay as they are."""
        method, x = tensor_method(explainer, frame)
        x = x.to(self.device.device)
        explain = partial(explain_opposite, method)
        explain(x[:10])
        found, spent = self.device.time(partial(explain, x))
        speed = len(x) / self.device.cost(spent)
        return {"engine_rows_per_second": speed, "engine_feasible": float(found.feasible.double().mean())}

    def _single_rows(self, explainer: Explainer, frame: pd.DataFrame) -> Row:
        """Return the milliseconds of single rows, and the seconds until the first answer of a process."""
        if self.device.kind == "cuda":
            return {}
        rows = [frame.iloc[i : i + 1] for i in range(min(self.plan.single, len(frame)))]
        ask = partial(explainer.explain, target="opposite", verbose=False)
        one = [1000 * self._seconds(partial(ask, row)) for row in rows]
        three = [1000 * self._seconds(partial(ask, row, k=3)) for row in rows]
        named: Row = {"p50_ms": median(one), "p95_ms": float(np.quantile(one, 0.95))}
        return named | {
            "k3_ratio": median(three) / median(one),
            "first_answer_seconds": self._first_answer(explainer, rows[0]),
        }

    @staticmethod
    def _first_answer(explainer: Explainer, row: pd.DataFrame) -> float:
        """Return the processor seconds of a fresh process that imports, loads, and explains one row."""
        with tempfile.TemporaryDirectory() as folder:
            saved, given = Path(folder) / "explainer", Path(folder) / "given.pickle"
            explainer.save(saved)
            given.write_bytes(pickle.dumps((explainer.model, row)))
            start = cpu_seconds()
            command = [sys.executable, "-W", "ignore", "-c", FIRST_ANSWER, str(saved), str(given)]
            subprocess.run(command, check=True, capture_output=True)
            return cpu_seconds() - start

    def _seconds(self, work: Callable[[], object]) -> float:
        return self.device.cost(self.device.time(work)[1])


def untrained_model(kind: str, seed: int) -> Pipeline:
    """Return a model of scikit-learn: ``lr``, ``mlp`` or ``boosted``, for mixed tables."""
    numbers = make_column_selector(dtype_include=np.number)
    categories = make_column_selector(dtype_exclude=np.number)
    if kind == "boosted":
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        columns = make_column_transformer((codes, categories), remainder="passthrough")
        return make_pipeline(columns, HistGradientBoostingClassifier(random_state=seed))
    columns = make_column_transformer(
        (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), categories)
    )
    if kind == "lr":
        return make_pipeline(columns, LogisticRegression(max_iter=1000))
    return make_pipeline(columns, MLPClassifier((64, 64), early_stopping=True, random_state=seed))


def tensor_method(explainer: Explainer, frame: pd.DataFrame) -> tuple[PPCEF, torch.Tensor]:
    """Return PPCEF with the model and the density of an explainer, and encoded rows; only numbers move."""
    engine, encoder, model = explainer.engine_, explainer.encoder_, explainer.model_
    assert engine is not None
    assert encoder is not None
    assert model is not None
    assert model.classifier is not None
    numbers = set(encoder.layout.numbers)
    fixed = tuple(column for column in range(encoder.layout.width) if column not in numbers)
    method = PPCEF(
        classifier=model.classifier,
        plausibility=engine.plausibility,
        lower=0.0,
        upper=1.0,
        immutable=fixed,
    )
    method.bank_ = engine.bank
    return method, encoder.encode(frame).x


def explain_opposite(method: PPCEF, x: torch.Tensor) -> Counterfactuals:
    """Explain rows for the opposite decision."""
    return method.explain(x, "opposite")
