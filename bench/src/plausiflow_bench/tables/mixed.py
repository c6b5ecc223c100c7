"""``plausiflow benchmark tables``: counterfactuals of mixed tables, measured on the decoded rows.

Every method is measured alike: its counterfactuals are rows of the table, which are encoded again. The
methods are our search, the cheapest verified training row, and real rows. There are two families of judges:
those of the explainer, which are densities that guide no search, and :class:`NeighbourJudge`. On loans the
true density is known: ``true_plausible`` is the share of counterfactuals whose density, given the immutable
features, reaches the median of the training rows of the target class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.datasets import Table
from plausiflow.densities import row_scores
from plausiflow.errors import NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.explanations import find_changes
from plausiflow.search import Candidates
from plausiflow.tables import IntArray, Layout, Mask, is_missing
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row
from plausiflow_bench.tables.cases import Case, TableSelection, mean
from plausiflow_bench.true_density import true_log_prob_given

SMALLEST_GROUP, CHUNK = 50, 32
COLUMNS = (
    "dataset", "method", "rows", "accuracy", "found", "worst_group", "worst_group_name", "group_gap",
    "validity", "plausible", "rules_broken", "immutable_identical", "judged", "judged_worst", "knn_judge",
    "true_plausible", "changes", "cost", "cpu_ms_per_row", "explain_cpu_ms_per_row", "fit_cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark tables --page` -->"


@dataclass(kw_only=True, eq=False)
class NeighbourJudge:
    """A judge that accepts a row if real rows of the class are near.

    The distance of two rows is Gower's, not divided by the number of features: the difference of a number as
    a share of its training range, the difference of an ordered category in steps as a share of all steps, and
    one for any other category that differs. A row passes if its k-th nearest training row of the class is no
    farther than the median over the training rows of that class, each without itself.

    Attributes:
        layout: Layout of encoded rows.
        neighbours: The number k.
        thresholds_: The median of each class.
    """

    layout: Layout
    neighbours: int = 5
    thresholds_: tuple[float, ...] = ()
    rows_: tuple[Tensor, ...] = ()

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Store the training rows ``(n, width)`` of each class ``(n,)``."""
        points = self._points(x)
        self.rows_ = tuple(points[y == k] for k in range(int(y.max()) + 1))
        # The nearest row is the row itself.
        distances = [self._distance(rows, rows, self.neighbours + 1) for rows in self.rows_]
        self.thresholds_ = tuple(float(own.median()) for own in distances)
        return self

    def passes(self, x: Tensor, y: Tensor) -> Tensor:
        """Return whether rows ``(n, width)`` have near neighbours in classes ``(n,)``, shape ``(n,)``."""
        if not self.rows_:
            raise NotFittedError("This judge is not fitted. Call `fit(x, y)` with training rows first.")
        points, passed = self._points(x), torch.zeros(len(x), dtype=torch.bool)
        for k, (rows, threshold) in enumerate(zip(self.rows_, self.thresholds_, strict=True)):
            passed[y == k] = self._distance(points[y == k], rows, self.neighbours) <= threshold
        return passed

    def _points(self, x: Tensor) -> Tensor:
        """Return rows as points whose city-block distance is the distance of the rows."""
        names = [block.name for block in self.layout.with_levels]
        codes = dict(zip(names, self.layout.codes(x).to(x).T, strict=True))
        columns = []
        for block in self.layout.blocks:
            if block.number is not None:
                columns.append(x[:, block.number : block.number + 1])
            elif block.ordered:
                columns.append(codes[block.name][:, None] / max(1, len(block.levels) - 1))
            else:  # a changed category changes two columns
                columns.append(x[:, block.columns] / 2)
        return torch.cat(columns, dim=1)

    @staticmethod
    def _distance(points: Tensor, rows: Tensor, k: int) -> Tensor:
        """Return the distance of each point to its k-th nearest row, or to the farthest of fewer."""
        if not len(rows):
            return points.new_full((len(points),), torch.inf)
        k = min(k, len(rows))
        parts = [torch.cdist(some, rows, p=1.0).kthvalue(k, dim=1).values for some in points.split(512)]
        return torch.cat(parts)


@lru_cache(maxsize=8)
def _fit_neighbour_judge(explainer: Explainer, train: Table) -> NeighbourJudge:
    case = Case(train=train, test=train, explainer=explainer, fit_cpu_seconds=0.0)
    return NeighbourJudge(layout=case.encoder.layout).fit(case.x, case.class_indices(train.y))


def run(selection: TableSelection) -> Iterator[Row]:
    """Yield one row per table and method."""
    for name in selection.tables:
        case = selection.case(name)
        for method in (_measure_real_rows, _measure_search, _measure_nearest_rows):
            yield case.with_provenance(method(case), selection.seed)


def _measure_real_rows(case: Case) -> Row:
    """Measure held-out rows under their own class, as the reference for the judges."""
    own = case.usable
    x, y = case.x[own], case.class_indices(case.test.y.iloc[own.numpy()])
    with torch.no_grad():
        scores = row_scores(case.engine.plausibility, x, y, with_margin=False)
        plausible = scores.score(x, torch.arange(len(x))) >= 0
    row: Row = {
        "method": "real",
        "validity": mean(case.predict(x) == y),
        "plausible": mean(plausible),
    }
    return row | _judge(case, case.test.x.iloc[own.numpy()], x, x, y)


def _measure_search(case: Case) -> Row:
    """Measure our search. It is timed within ``explain``, and once more without reasons and judges."""
    with CpuTimer() as whole:
        result = case.explainer.explain(case.test.x)
    index = case.usable
    frame = case.test.x.iloc[index.numpy()]
    with CpuTimer() as timer:
        case.engine.search(case.engine.task(case.x[index], case.y_target[index], frame=frame))
    row: Row = {"method": "plausiflow"}
    seconds: Row = {
        "cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "explain_cpu_ms_per_row": 1000 * whole.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measure_answers(case, result.answers, result.of) | seconds


def _measure_nearest_rows(case: Case) -> Row:
    """Measure the cheapest verified training row, with the immutable values of the factual row."""
    engine, index = case.engine, case.usable
    task = engine.task(case.x[index], case.y_target[index], frame=case.test.x.iloc[index.numpy()])
    everything = max((len(rows) for rows in engine.bank.rows.values()), default=0)
    with CpuTimer() as timer, torch.no_grad():
        parts = [
            engine.bank.verified(task, some, 1, among=everything)
            for some in torch.arange(len(index)).split(CHUNK)
        ]
    found = Candidates.concat(*parts)
    of = index[found.rows]
    before = case.test.x.iloc[of.numpy()]
    answers = case.encoder.decode(found.x, like=before)
    again = case.encoder.encode(answers)
    with torch.no_grad():
        holds = engine.validity(again.x, case.y_target[of]) >= 0
        holds &= task.scores.score(again.x, found.rows) >= 0
    holds &= torch.from_numpy(~engine.rules.violations(before, answers).to_numpy().any(axis=1))
    row: Row = {"method": "nearest_real_row"}
    seconds: Row = {
        "cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measure_answers(case, answers[holds.numpy()], of[holds].numpy()) | seconds


@torch.no_grad()
def measure_answers(case: Case, answers: pd.DataFrame, of: IntArray) -> Row:
    """Measure counterfactuals, at most one per test row.

    Args:
        case: The case.
        answers: Counterfactuals as rows of the table.
        of: Position of the test row of each counterfactual.

    Returns:
        Means over the counterfactuals, and the share of test rows that have one.
    """
    before, index = case.test.x.iloc[of], torch.from_numpy(of)
    again, x, y_target = case.encoder.encode(answers), case.x[index], case.y_target[index]
    everyone = torch.arange(len(of))
    scores = row_scores(case.engine.plausibility, x, y_target, with_margin=False)
    task = case.engine.task(x, y_target, scores=scores)
    broken = case.engine.rules.violations(before, answers).to_numpy().any(axis=1)
    changes = np.bincount(find_changes(case.test.x, answers, of).answer, minlength=len(of))
    found = np.isin(np.arange(len(case.test.x)), of)
    row: Row = {
        "found": float(found.mean()),
        "validity": mean((case.predict(again.x) == y_target) & torch.from_numpy(again.usable)),
        "plausible": mean(scores.score(again.x, everyone) >= 0),
        "rules_broken": mean(torch.from_numpy(broken)),
        "immutable_identical": _identical(before, answers, case.train.immutable),
        "changes": mean(torch.from_numpy(changes)),
        "cost": mean(task.costs(again.x, everyone)),
    }
    return row | _worst_group(case.test, found) | _judge(case, answers, again.x, x, y_target)


def _judge(case: Case, frame: pd.DataFrame, x: Tensor, given: Tensor, y: Tensor) -> Row:
    """Return the shares of rows, as a table and encoded, that the judges accept for classes."""
    row: Row = {"knn_judge": mean(_fit_neighbour_judge(case.explainer, case.train).passes(x, y))}
    if case.explainer.judges_ is not None:
        passed = case.explainer.judges_.passes(x, y, given).double().mean(dim=0)
        row |= {"judged": float(passed.mean()), "judged_worst": float(passed.min())}
    if case.train.name == "loans":  # the only table whose density is known
        immutable = case.train.immutable
        typical = pd.Series(true_log_prob_given(case.train.x, case.train.y, immutable))
        medians = typical.groupby(case.train.y.to_numpy()).median()
        labels = [case.model.labels[k] for k in y.tolist()]
        log_prob = true_log_prob_given(frame, labels, immutable)
        row["true_plausible"] = mean(torch.from_numpy(log_prob >= medians.loc[labels].to_numpy()))
    return row


def _worst_group(test: Table, found: Mask) -> Row:
    """Return the protected group of at least 50 rows with the lowest share found, and its gap to the mean."""
    shares = {
        f"{name} = {level}": float(found[rows].mean())
        for name in test.protected
        for level, rows in test.x.groupby(name, observed=True).indices.items()
        if len(rows) >= SMALLEST_GROUP
    }
    if not shares:
        return {"worst_group": float("nan"), "worst_group_name": "–", "group_gap": float("nan")}
    worst = min(shares, key=lambda name: shares[name])
    gap = float(found.mean()) - shares[worst]
    return {"worst_group": shares[worst], "worst_group_name": worst, "group_gap": gap}


def _identical(before: pd.DataFrame, after: pd.DataFrame, names: tuple[str, ...]) -> float:
    """Return the share of cells that are identical bit for bit, with the same dtype."""
    same = [_same_bits(before[name], after[name]) for name in names]
    return mean(torch.from_numpy(np.concatenate([np.zeros(0, dtype=bool), *same])))


def _same_bits(before: pd.Series, after: pd.Series) -> Mask:
    if before.dtype != after.dtype:
        return np.zeros(len(before), dtype=bool)
    if isinstance(before.dtype, np.dtype) and before.dtype.kind in "iuf":
        whole = np.dtype(f"u{before.dtype.itemsize}")
        return np.asarray(before.to_numpy().view(whole) == after.to_numpy().view(whole))
    same = before.to_numpy(object) == after.to_numpy(object)
    return np.asarray(same | (is_missing(before) & is_missing(after)), dtype=bool)


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
