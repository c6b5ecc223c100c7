"""The measurements of ``plausiflow benchmark speed``.

A whole call of ``explain`` is timed: the model's decisions, the search, and the check of every answer. What
is trained or drawn before is not. Whatever is timed has run before; what is quick is repeated with other
rows, and medians are taken.
"""

from __future__ import annotations

import warnings
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
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import DataNotFoundError
from plausiflow.explainer import Explainer
from plausiflow.methods import PPCEF
from plausiflow.models import MLPClassifier
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.cases import rules_of
from plausiflow_bench.speed_models import Data, Models, gaussian
from plausiflow_bench.speed_plan import Place, Plan
from plausiflow_bench.study import Row, summary, target_policy

REPEATS, WARM_UP = 9, 100
STAND_IN = "loans"
"""The table that is there where the one asked for is not."""
_MIB = 2**20

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """All that the studies share; each of its public methods is one of them.

    Attributes:
        data: The rows of most studies.
        models: That are trained once.
        plan: How much is measured.
        place: Where.
        sizes: Rows explained at once.
        classifiers: ``lr``, ``mlp``.
        densities: ``one``, ``ensemble``.
        seed: Of everything that is drawn.
    """

    data: Data
    models: Models
    plan: Plan
    place: Place
    sizes: tuple[int, ...]
    classifiers: tuple[str, ...]
    densities: tuple[str, ...]
    seed: int

    def batch(self) -> Iterator[Row]:
        """Rows per second against the number of rows explained at once."""
        for classifier, density in product(self.classifiers, self.densities):
            method = self._method(classifier, density)
            for size in self.sizes:
                yield self._named(classifier, density) | self._repeated(method, self.data, size)

    def single(self) -> Iterator[Row]:
        """One row at a time: of the data set, and of a mixed table."""
        generator = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(len(self.data.x_test), generator=generator)[: self.plan.single]
        for classifier, density in product(self.classifiers, self.densities):
            if (classifier, density) == ("mlp", "ensemble"):
                continue
            explain = partial(_explained, self._method(classifier, density))
            answers, row = self._one_by_one(explain, self.data.x_test[chosen].split(1))
            feasible = fmean(bool(answer.feasible) for answer in answers)
            yield self._named(classifier, density) | row | {"feasible": feasible}
        explainer, test = self._table()
        frames = [test.x.iloc[i : i + 1] for i in range(self.plan.single)]
        results, row = self._one_by_one(explainer.explain, frames)
        named: Row = {"dataset": test.name, "classifier": "mlp", "density": "ensemble"}
        yield named | row | {"feasible": fmean(bool(result.is_found[0]) for result in results)}

    def columns(self) -> Iterator[Row]:
        """Cost against the number of columns."""
        first = 0.0
        for d in self.plan.columns:
            row = self._drawn(d, self.plan.rows)
            first = first or float(row["ms_per_row"]) / d
            yield row | {"ratio": float(row["ms_per_row"]) / d / first}

    def growth(self) -> Iterator[Row]:
        """Cost against the number of rows."""
        first = 0.0
        for rows in self.plan.growth:
            row = self._drawn(self.plan.growth_columns, rows)
            first = first or float(row["ms_per_row"])
            yield row | {"ratio": float(row["ms_per_row"]) / first}

    def paper(self) -> Iterator[Row]:
        """The paper's solver and ours, on the same models and rows."""
        x = self._here(self.data.x_test[: self.plan.paper])
        train = self._here(self.data.x_train), self._here(self.data.y_train)
        for classifier in self.classifiers:
            ours = self._method(classifier, "one")
            paper = PPCEF.paper(classifier=ours.classifier, plausibility=ours.scored_by())
            assert isinstance(paper.solver, PenaltyAdam)
            theirs = replace(paper, solver=replace(paper.solver, steps=self.plan.steps or paper.solver.steps))
            _explained(replace(paper, solver=replace(paper.solver, steps=3)), x)
            _explained(ours, x)
            _, bank = self.place.timed(partial(ours.fit, *train))
            named = self._named(classifier, "one") | {"rows": len(x)}
            adam, sqp = self._once(theirs, x), self._once(ours, x)
            ratio = self.place.cost(adam) / (self.place.cost(sqp) + self.place.cost(bank))
            yield named | {"solver": "penalty_adam", "ratio": 1.0} | adam
            yield named | {"solver": "sqp", "ratio": ratio, "bank_seconds": self.place.cost(bank)} | sqp

    def memory(self) -> Iterator[Row]:
        """What is allocated on CUDA after each of some runs."""
        classifier = self.classifiers[0]
        method = self._method(classifier, "one")
        x = self._here(self.data.drawn(self.plan.run_rows, self.seed))
        for run in range(1, self.plan.runs + 1):
            spent = self.place.timed(partial(_explained, method, x))[1]
            used: Row = {"run": run, "rows": len(x), "allocated_mib": torch.cuda.memory_allocated() / _MIB}
            used["reserved_mib"] = torch.cuda.memory_reserved() / _MIB
            yield self._named(classifier, "one") | used | spent

    def agreement(self) -> Iterator[Row]:
        """Answers on CUDA held against those of the processor, for every test row."""
        for classifier, density in product(self.classifiers, self.densities):
            there = _explained(self._method(classifier, density), self._here(self.data.x_test))
            own = self.models.method(classifier, density, self.data, self.plan.recipe, torch.device("cpu"))
            here = _explained(own, self.data.x_test)
            row: Row = {"rows": len(here)} | _measures(there)
            row["same_feasible"] = float((there.feasible.cpu() == here.feasible).double().mean())
            row |= {f"{name}_cpu": value for name, value in _measures(here).items()}
            yield self._named(classifier, density) | row

    def _method(self, classifier: str, density: str) -> PPCEF:
        return self.models.method(classifier, density, self.data, self.plan.recipe, self.place.device)

    def _named(self, classifier: str, density: str) -> Row:
        return {"dataset": self.data.name, "classifier": classifier, "density": density}

    def _here(self, rows: Tensor) -> Tensor:
        return rows.to(self.place.device)

    def _repeated(self, method: PPCEF, data: Data, size: int) -> Row:
        """Explain so many rows at once, several times with other rows each; medians of what that takes."""
        before = size if self.place.kind == "cuda" else min(size, WARM_UP)
        _explained(method, self._here(data.drawn(before, self.seed)))
        rows: list[Row] = []
        while len(rows) < REPEATS and sum(float(row["seconds"]) for row in rows) < self.plan.enough:
            x = self._here(data.drawn(size, 1000 * self.seed + len(rows)))
            rows.append(self._once(method, x))
        values = {name: [float(row[name]) for row in rows] for name in rows[0]}
        combined: Row = {name: _COMBINED.get(name, fmean)(own) for name, own in values.items()}
        rate = size / float(combined["seconds"])
        return {"rows": size, "repeats": len(rows)} | combined | {"rows_per_second": rate}

    def _once(self, method: PPCEF, x: Tensor) -> Row:
        found, spent = self.place.timed(partial(_explained, method, x))
        return spent | _measures(found)

    def _drawn(self, d: int, rows: int) -> Row:
        """Rows of d columns, drawn, under models that learned from as many rows for each d."""
        data = gaussian(d, self.plan.train, self.plan.rows, self.seed)
        method = self.models.method("lr", "one", data, self.plan.recipe.brief(), self.place.device)
        row = self._repeated(method, data, rows)
        named: Row = {"dataset": data.name, "classifier": "lr", "density": "one", "columns": d}
        return named | row | {"ms_per_row": 1000 * self.place.cost(row) / rows}

    def _one_by_one(self, explain: Callable[[T], R], rows: Sequence[T]) -> tuple[list[R], Row]:
        """Explain rows one at a time, after a few that do not count; processor milliseconds of each."""
        for row in rows[-3:]:
            explain(row)
        results = [self.place.timed(partial(explain, row)) for row in rows]
        waits = [1000 * float(spent["cpu_seconds"]) for _, spent in results]
        p50, p95 = np.quantile(waits, (0.5, 0.95)).tolist()
        return [answer for answer, _ in results], {"rows": len(rows), "p50_ms": p50, "p95_ms": p95}

    def _table(self) -> tuple[Explainer, Table]:
        """An explainer of the mixed table, and rows that it has not seen."""
        try:
            table = load_table(self.plan.table)
        except DataNotFoundError:
            table = load_table(STAND_IN)
        train, test = table.split(self.plan.table_train, 60)
        explainer = Explainer(
            MLPClassifier(hidden=(64, 64), seed=self.seed),
            constraints=rules_of(train),
            orders=train.orders,
            confidence=self.plan.confidence,
            judges=self.plan.judges,
            random_state=self.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlausibilityWarning)  # only what it costs is of interest here
            return explainer.fit(train.x, train.y), test


_COMBINED: dict[str, Callable[[list[float]], float]] = {
    "seconds": median,
    "cpu_seconds": median,
    "peak_gib": max,
}
"""How repeats become one number; means where it is not said."""


def _explained(method: PPCEF, x: Tensor) -> Counterfactuals:
    return method.explain(x, target_policy(method.classifier.n_classes))


def _measures(found: Counterfactuals) -> Row:
    """Share feasible, mean distance and gradients per row."""
    row = summary(found)
    return {name: row[name] for name in ("feasible", "l2", "gradients")}
