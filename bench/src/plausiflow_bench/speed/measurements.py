"""The measurements of ``plausiflow benchmark speed``.

A whole call of ``explain`` is timed: the decisions of the model, the search, and the check of every
counterfactual. Training and drawing are not. Everything that is timed has run once before. Short measurements
are repeated with other rows, and medians are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from plausiflow.core import Counterfactuals
from plausiflow.datasets import Table, load_table
from plausiflow.errors import DataNotFoundError
from plausiflow.explainer import Explainer
from plausiflow.methods import PPCEF
from plausiflow.models import MLPClassifier
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.harness.rows import Row, summarize
from plausiflow_bench.harness.selection import ignore_plausibility_warnings, target_policy
from plausiflow_bench.speed.models import ModelCache, SpeedData, gaussian
from plausiflow_bench.speed.plan import SpeedPlan, TimedDevice
from plausiflow_bench.speed.product import ProductBench
from plausiflow_bench.tables.cases import table_rules

REPEATS, WARM_UP = 9, 100
FALLBACK_TABLE = "loans"
"""The table that replaces one whose file is not on this machine."""
_MIB = 2**20

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeedBench:
    """The measurements; each public method is one study.

    Attributes:
        data: The rows of most studies.
        models: The trained models.
        plan: The amount of work.
        device: The device that is measured.
        sizes: Batch sizes.
        classifiers: Any of ``lr``, ``mlp``.
        densities: Any of ``one``, ``ensemble``.
        seed: Seed of everything that is drawn.
    """

    data: SpeedData
    models: ModelCache
    plan: SpeedPlan
    device: TimedDevice
    sizes: tuple[int, ...]
    classifiers: tuple[str, ...]
    densities: tuple[str, ...]
    seed: int

    def product(self) -> Iterator[Row]:
        """Yield the explainer against the engine, on tables."""
        yield from ProductBench(plan=self.plan, device=self.device, seed=self.seed).rows()

    def batch(self) -> Iterator[Row]:
        """Yield rows per second against the batch size."""
        for classifier, density in product(self.classifiers, self.densities):
            method = self._method(classifier, density)
            for size in self.sizes:
                yield self._named(classifier, density) | self._measure_repeatedly(method, self.data, size)

    def single(self) -> Iterator[Row]:
        """Yield the latency of one row: of the data set, and of a mixed table."""
        generator = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(len(self.data.x_test), generator=generator)[: self.plan.single]
        for classifier, density in product(self.classifiers, self.densities):
            if (classifier, density) == ("mlp", "ensemble"):
                continue
            explain = partial(_explain, self._method(classifier, density))
            answers, row = self._measure_single_rows(explain, self.data.x_test[chosen].split(1))
            feasible = fmean(bool(answer.feasible) for answer in answers)
            yield self._named(classifier, density) | row | {"feasible": feasible}
        explainer, test = self._fit_table()
        frames = [test.x.iloc[i : i + 1] for i in range(self.plan.single)]
        results, row = self._measure_single_rows(explainer.explain, frames)
        named: Row = {"dataset": test.name, "classifier": "mlp", "density": "ensemble"}
        yield named | row | {"feasible": fmean(bool(result.is_found[0]) for result in results)}

    def columns(self) -> Iterator[Row]:
        """Yield the cost against the number of columns."""
        first = 0.0
        for d in self.plan.columns:
            row = self._measure_gaussian(d, self.plan.rows)
            first = first or float(row["ms_per_row"]) / d
            yield row | {"ratio": float(row["ms_per_row"]) / d / first}

    def growth(self) -> Iterator[Row]:
        """Yield the cost against the number of rows."""
        first = 0.0
        for rows in self.plan.growth:
            row = self._measure_gaussian(self.plan.growth_columns, rows)
            first = first or float(row["ms_per_row"])
            yield row | {"ratio": float(row["ms_per_row"]) / first}

    def paper(self) -> Iterator[Row]:
        """Yield the paper's solver and ours, on the same models and rows."""
        x = self._to_device(self.data.x_test[: self.plan.paper])
        train = self._to_device(self.data.x_train), self._to_device(self.data.y_train)
        for classifier in self.classifiers:
            ours = self._method(classifier, "one")
            paper = PPCEF.paper(classifier=ours.classifier, plausibility=ours.fitted_plausibility())
            assert isinstance(paper.solver, PenaltyAdam)
            theirs = replace(paper, solver=replace(paper.solver, steps=self.plan.steps or paper.solver.steps))
            _explain(replace(paper, solver=replace(paper.solver, steps=3)), x)
            _explain(ours, x)
            _, bank = self.device.time(partial(ours.fit, *train))
            named = self._named(classifier, "one") | {"rows": len(x)}
            adam, sqp = self._measure_once(theirs, x), self._measure_once(ours, x)
            ratio = self.device.cost(adam) / (self.device.cost(sqp) + self.device.cost(bank))
            yield named | {"solver": "penalty_adam", "ratio": 1.0} | adam
            yield named | {"solver": "sqp", "ratio": ratio, "bank_seconds": self.device.cost(bank)} | sqp

    def memory(self) -> Iterator[Row]:
        """Yield the memory allocated on CUDA after each of several runs."""
        classifier = self.classifiers[0]
        method = self._method(classifier, "one")
        x = self._to_device(self.data.sample(self.plan.run_rows, self.seed))
        for run in range(1, self.plan.runs + 1):
            spent = self.device.time(partial(_explain, method, x))[1]
            used: Row = {"run": run, "rows": len(x), "allocated_mib": torch.cuda.memory_allocated() / _MIB}
            used["reserved_mib"] = torch.cuda.memory_reserved() / _MIB
            yield self._named(classifier, "one") | used | spent

    def agreement(self) -> Iterator[Row]:
        """Yield a comparison of CUDA's results with those of the processor, for every test row."""
        for classifier, density in product(self.classifiers, self.densities):
            on_cuda = _explain(self._method(classifier, density), self._to_device(self.data.x_test))
            own = self.models.method(classifier, density, self.data, self.plan.recipe, torch.device("cpu"))
            on_cpu = _explain(own, self.data.x_test)
            row: Row = {"rows": len(on_cpu)} | _select_measures(on_cuda)
            row["same_feasible"] = float((on_cuda.feasible.cpu() == on_cpu.feasible).double().mean())
            row |= {f"{name}_cpu": value for name, value in _select_measures(on_cpu).items()}
            yield self._named(classifier, density) | row

    def _method(self, classifier: str, density: str) -> PPCEF:
        return self.models.method(classifier, density, self.data, self.plan.recipe, self.device.device)

    def _named(self, classifier: str, density: str) -> Row:
        return {"dataset": self.data.name, "classifier": classifier, "density": density}

    def _to_device(self, rows: Tensor) -> Tensor:
        return rows.to(self.device.device)

    def _measure_repeatedly(self, method: PPCEF, data: SpeedData, size: int) -> Row:
        """Explain a batch several times, with other rows each time; return the medians."""
        before = size if self.device.kind == "cuda" else min(size, WARM_UP)
        _explain(method, self._to_device(data.sample(before, self.seed)))
        rows: list[Row] = []
        while len(rows) < REPEATS and sum(float(row["seconds"]) for row in rows) < self.plan.enough:
            x = self._to_device(data.sample(size, 1000 * self.seed + len(rows)))
            rows.append(self._measure_once(method, x))
        values = {name: [float(row[name]) for row in rows] for name in rows[0]}
        combined: Row = {name: _AGGREGATIONS.get(name, fmean)(own) for name, own in values.items()}
        rate = size / float(combined["seconds"])
        return {"rows": size, "repeats": len(rows)} | combined | {"rows_per_second": rate}

    def _measure_once(self, method: PPCEF, x: Tensor) -> Row:
        found, spent = self.device.time(partial(_explain, method, x))
        return spent | _select_measures(found)

    def _measure_gaussian(self, d: int, rows: int) -> Row:
        """Explain Gaussian rows of d columns, with models trained on a fixed number of rows."""
        data = gaussian(d, self.plan.train, self.plan.rows, self.seed)
        method = self.models.method(
            "lr", "one", data, self.plan.recipe.with_short_training(), self.device.device
        )
        row = self._measure_repeatedly(method, data, rows)
        named: Row = {"dataset": data.name, "classifier": "lr", "density": "one", "columns": d}
        return named | row | {"ms_per_row": 1000 * self.device.cost(row) / rows}

    def _measure_single_rows(self, explain: Callable[[T], R], rows: Sequence[T]) -> tuple[list[R], Row]:
        """Explain rows one at a time, after a warm-up; return processor milliseconds per row."""
        for row in rows[-3:]:
            explain(row)
        results = [self.device.time(partial(explain, row)) for row in rows]
        waits = [1000 * float(spent["cpu_seconds"]) for _, spent in results]
        p50, p95 = np.quantile(waits, (0.5, 0.95)).tolist()
        return [answer for answer, _ in results], {"rows": len(rows), "p50_ms": p50, "p95_ms": p95}

    def _fit_table(self) -> tuple[Explainer, Table]:
        """Return an explainer of the mixed table, and held-out rows."""
        try:
            table = load_table(self.plan.table)
        except DataNotFoundError:
            table = load_table(FALLBACK_TABLE)
        train, test = table.split(self.plan.table_train, 60)
        explainer = Explainer(
            MLPClassifier(hidden=(64, 64), random_state=self.seed),
            constraints=table_rules(train),
            orders=train.orders,
            confidence=self.plan.confidence,
            judges=self.plan.judges,
            random_state=self.seed,
        )
        with ignore_plausibility_warnings():
            return explainer.fit(train.x, train.y), test


_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "seconds": median,
    "cpu_seconds": median,
    "peak_gib": max,
}
"""How repeats are combined; by their mean if not listed."""


def _explain(method: PPCEF, x: Tensor) -> Counterfactuals:
    return method.explain(x, target_policy(method.classifier.n_classes))


def _select_measures(found: Counterfactuals) -> Row:
    """Return the feasible share, mean distance and gradients per row."""
    row = summarize(found)
    return {name: row[name] for name in ("feasible", "l2", "gradients")}
