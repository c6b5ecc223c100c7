"""``plausiflow benchmark exact``: proofs about tree models, their time, and searches against the optimum.

The first part needs no density: for each table and model it proves the cheapest allowed row for test rows
that the model decides unfavourably, under the table's own rules and the rules that were learned from it.
Seconds are those of the processor, so that other work of the machine does not count: a proof may take longer
by the clock, and counts if it took no more than its seconds of the processor. The second part (``--search``)
explains the same rows, with the default settings and without a density, and compares the costs with the
proven optimum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelEncoder, OneHotEncoder, StandardScaler

from plausiflow.constraints import CompiledRules, learn_rules
from plausiflow.core import TargetCriterion, Targets
from plausiflow.datasets import Table, load_table
from plausiflow.exact import ModelSpace, Proof, Prover, model_space
from plausiflow.explainer import Explainer
from plausiflow.models import resolve_model
from plausiflow.search import PROMISE, CostModel, RowCertifier, RowTask
from plausiflow.tables import Encoder, Schema
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.tables import exact_peers
from plausiflow_bench.tables.cases import TableSelection, table_rules
from plausiflow_bench.tables.peers import PeerSettings

DEFAULT_TABLES = ("german_credit", "heloc", "adult")
MODELS = ("xgb-100x6", "hgb-100x6", "xgb-300x6", "hgb-300x6", "rf-100x6")
TRAINING, ROWS, SECONDS = 4000, 30, 10.0
WANTED = {"german_credit": 0, "heloc": "Good", "adult": ">50K"}
PATIENCE = 6.0
"""How much longer a proof may take by the clock than its seconds of the processor."""
MARGIN = 0.02
COLUMNS = (
    "dataset", "model", "splits", "rows", "seconds", "proven", "median_cpu", "p90_cpu", "max_cpu", "gap_1s",
    "gap_end", "read_cpu", "setting", "found", "cost", "optimum", "steady", "ratio_median", "within_1",
    "difference", "over_steady", "judged", "below",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark exact --page` -->"


@dataclass(frozen=True, kw_only=True)
class ExactSelection(TableSelection):
    """The tables and models of the study.

    Attributes:
        models: Kind, number of trees and depth, such as ``xgb-100x6``; ``logistic``; or a network with the
            sizes of its hidden layers, such as ``mlp-32x32``.
        seconds: Seconds of the processor that each proof may take.
        search: Whether to compare searches with the optimum.
        peers: How other libraries run, to compare them with the optimum of a small network; None without.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    models: tuple[str, ...] = MODELS
    seconds: float = SECONDS
    search: bool = False
    peers: PeerSettings | None = None


def run(selection: ExactSelection) -> Iterator[Row]:
    """Yield one row for each table, model and setting."""
    for name in selection.tables:
        table = load_table(name)
        train = min(selection.train or TRAINING, len(table.x) * 7 // 10)
        parts = table.split(train, len(table.x) - train)
        for model in selection.models:
            yield from _ExactCase(*parts, model, selection).measured()
    if selection.peers is not None:
        yield from exact_peers.run(selection, selection.seconds, selection.peers)


@dataclass(frozen=True, eq=False)
class _ExactCase:
    """A table and a model of it."""

    train: Table
    test: Table
    kind: str
    selection: ExactSelection

    def measured(self) -> Iterator[Row]:
        about: Row = {"dataset": self.train.name, "model": self.kind, "training_rows": len(self.train.x)}
        about |= {"test_rows": len(self.rows), "seed": self.selection.seed, **environment()}
        start, prover = time.process_time(), self.certifier.prover
        about |= {"read_cpu": time.process_time() - start, "splits": _size(prover.space)}
        proofs = [self._prove(i) for i in range(len(self.rows))]
        yield about | self._proof_figures(proofs)
        if self.selection.search:
            steady = [self._prove(i, reach=PROMISE).cost for i in range(len(self.rows))]
            for setting, options in _SETTINGS.items():
                yield about | {"setting": setting} | self._search_figures(options, proofs, steady)

    @cached_property
    def outcomes(self) -> pd.Series:
        """The outcomes of the training rows as numbers, which XGBoost needs."""
        codes = LabelEncoder().fit_transform(self.train.y)
        return pd.Series(codes, index=self.train.y.index, name=self.train.target)

    @cached_property
    def wanted(self) -> int:
        """The favourable outcome; the last one if the study does not name it."""
        names = sorted(self.train.y.unique())
        named = WANTED.get(self.train.name)
        return names.index(named) if named in names else len(names) - 1

    @cached_property
    def model(self) -> Any:  # noqa: ANN401
        """The fitted pipeline."""
        x = self.train.x
        text = [c for c in x if not pd.api.types.is_numeric_dtype(x[c])]
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        estimator = estimator_of(self.kind, self.selection.seed)
        smooth = isinstance(estimator, LogisticRegression | MLPClassifier)
        numbers = StandardScaler() if smooth else FunctionTransformer()
        if not text:
            return make_pipeline(numbers, estimator).fit(x, self.outcomes)
        front = make_column_transformer((encoder, text), remainder=numbers if smooth else "passthrough")
        return make_pipeline(front, estimator).fit(x, self.outcomes)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Test rows that the model decides unfavourably."""
        unfavourable = self.model.predict(self.test.x) != self.wanted
        usable = self.encoder.encode(self.test.x).usable
        chosen: pd.DataFrame = self.test.x[unfavourable & usable].iloc[: self.selection.rows or ROWS]
        return chosen

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder(Schema.infer(self.train.x, orders=dict(self.train.orders)))

    @cached_property
    def certifier(self) -> RowCertifier:
        """Proves rows, without any density; ``read_s`` is the time that it takes to read the trees."""
        encoder, x = self.encoder, self.encoder.encode(self.train.x).x
        rules = table_rules(self.train)
        learned = learn_rules(self.train.x, x, encoder, rules, self.selection.seed)
        compiled = CompiledRules([*rules, *learned], encoder.schema, encoder.layout)
        model, _ = resolve_model(self.model, "auto", encoder, self.train.x, x, self.outcomes, "given", 0)
        criterion = TargetCriterion(MARGIN, cutoffs=model.decision.cutoffs)
        prover = Prover(model_space(model, compiled.layout), CostModel.plain(encoder.layout), criterion)
        return RowCertifier(model, encoder, compiled, prover, self.selection.seconds)

    def _prove(self, i: int, *, reach: float = 0.0) -> Proof:
        """Return what is proven about a row, or about rows that stay away from the cuts of trees."""
        certifier, row = self.certifier, self.rows.iloc[[i]].reset_index(drop=True)
        x = self.encoder.encode(row).x
        task = RowTask(row, x, Targets(torch.tensor([self.wanted])), None, float("inf"))
        return certifier.prove(task, certifier.prover, PATIENCE * self.selection.seconds, reach=reach)

    def _proof_figures(self, proofs: list[Proof]) -> Row:
        limit = self.selection.seconds
        seconds = np.array([min(proof.processor_seconds, limit) for proof in proofs])
        return {
            "rows": len(proofs),
            "seconds": limit,
            "proven": float(np.mean([_is_proven(proof, limit) for proof in proofs])),
            "median_cpu": float(np.median(seconds)),
            "p90_cpu": float(np.quantile(seconds, 0.9)),
            "max_cpu": float(seconds.max()),
            "gap_1s": float(np.mean([_gap(proof, 1.0) for proof in proofs])),
            "gap_end": float(np.mean([_gap(proof, limit) for proof in proofs])),
            "setting": "proof",
        }

    def _search_figures(self, options: dict[str, Any], proofs: list[Proof], steady: list[float]) -> Row:
        """Explain the rows, and compare the costs of found rows with the proven optimum.

        ``steady`` are the costs of the cheapest rows that stay away from all cuts of the trees.
        """
        explainer = Explainer(
            self.model, constraints=table_rules(self.train), orders=dict(self.train.orders), **options
        )
        with ignore_plausibility_warnings():
            explainer.fit(self.train.x, self.outcomes, effort="quick")
            result = explainer.explain(self.rows, target=self.wanted)
        cost = np.full(len(self.rows), np.nan)
        found = result.is_found
        cost[found] = result.found_figures("cost")[found]
        optimum = np.array([proof.cost if proof.optimal else np.nan for proof in proofs])
        both = np.isfinite(cost) & np.isfinite(optimum)
        ratio = cost[both] / optimum[both]
        return {
            "rows": int(both.sum()),
            "found": float(found.mean()),
            "cost": float(cost[both].mean()),
            "optimum": float(optimum[both].mean()),
            "steady": _mean(np.array(steady)[both]),
            "ratio_median": float(np.median(ratio)),
            "within_1": float((ratio <= 1.01).mean()),
            "difference": float((cost[both] - optimum[both]).mean() / optimum[both].mean()),
            "judged": _mean(result.found_figures("judged")[both]),
        }


_SETTINGS: dict[str, dict[str, Any]] = {
    "no density": {"plausibility": 0.0, "confidence": None, "judges": 0},
    "default": {},
}


def _is_proven(proof: Proof, seconds: float) -> bool:
    """Return whether a proof was finished within some seconds of the processor."""
    return (proof.optimal or proof.infeasible) and proof.processor_seconds <= seconds


def _gap(proof: Proof, seconds: float) -> float:
    """Return the relative gap between the final answer and the bound that was known after some seconds."""
    if _is_proven(proof, seconds):
        return 0.0
    bound = max((bound for at, bound in proof.trace if at <= seconds), default=0.0)
    return 1.0 if not np.isfinite(proof.cost) else max(0.0, 1 - bound / proof.cost)


def _size(space: ModelSpace) -> int:
    """Return the number of splits of trees; zero for other models."""
    return sum(len(own.example) for own in space.splits)


def _mean(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def estimator_of(kind: str, seed: int) -> Any:  # noqa: ANN401
    """Return an untrained model such as ``xgb-100x6``: kind, number of trees and depth."""
    if kind == "logistic":
        return LogisticRegression(max_iter=1000)
    library, size = kind.split("-")
    if library == "mlp":
        sizes = tuple(map(int, size.split("x")))
        return MLPClassifier(sizes, early_stopping=True, random_state=seed)
    trees, depth = map(int, size.split("x"))
    if library == "xgb":
        from xgboost import XGBClassifier

        return XGBClassifier(
            n_estimators=trees, max_depth=depth, learning_rate=0.1, n_jobs=1, random_state=seed
        )
    if library == "hgb":
        return HistGradientBoostingClassifier(
            max_iter=trees, max_depth=depth, early_stopping=False, random_state=seed
        )
    return RandomForestClassifier(trees, max_depth=depth, n_jobs=1, random_state=seed)


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    shown: list[Row] = [
        {
            name: f"{value:.3f}" if isinstance(value, float) else value
            for name, value in row.items()
            if value == value  # is not NaN
        }
        for row in map(_with_steady_difference, rows)
    ]
    write_section(path, MARK, f"{markdown(shown, COLUMNS)}\n\n{describe_runs(rows)}")


def _with_steady_difference(row: Row) -> Row:
    """Return a row with the difference to the cheapest rows that keep away from the cuts of the trees."""
    cost, steady = row.get("cost"), row.get("steady")
    if not isinstance(cost, float) or not isinstance(steady, float):
        return row
    return row | {"over_steady": cost / steady - 1}
