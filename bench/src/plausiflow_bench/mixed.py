"""``plausiflow benchmark tables``: what is found for rows of mixed tables, measured on the decoded rows.

Every figure is taken from a method's answers as rows of the table, which are encoded anew: the same for our
search, for the cheapest verified training row, for real rows and for peers. Judges are of two families: the
explainer's own, densities that guide no search, and :class:`NeighbourJudge`. On loans the true density is
known: ``true_plausible`` is the share of answers whose density, given what nobody can change, reaches the
median of the training rows of the wanted class.
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

from plausiflow.datasets import Table, true_log_prob_given
from plausiflow.densities import RowScores
from plausiflow.errors import NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.explanations import find_changes
from plausiflow.search import Candidates
from plausiflow.tables import Codes, Layout, Mask, is_missing
from plausiflow_bench.cases import Case, TableSelection, mean, what_ran, write_section
from plausiflow_bench.study import CpuTimer, Row
from plausiflow_bench.tables import markdown

SMALLEST_GROUP, AT_ONCE = 50, 32
COLUMNS = (
    "dataset", "method", "rows", "accuracy", "found", "worst_group", "worst_group_name", "group_gap",
    "validity", "plausible", "rules_broken", "immutable_identical", "judged", "judged_worst", "knn_judge",
    "true_plausible", "changes", "cost", "cpu_ms_per_row", "explain_cpu_ms_per_row", "fit_cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark tables --page` -->"


@dataclass(kw_only=True, eq=False)
class NeighbourJudge:
    """A second opinion of another family: whether real rows of the class are near.

    The distance of two rows is Gower's, not divided by the number of features: the difference of a number as
    a share of its training range, of an ordered category in steps from end to end, and one where a category
    differs. A row passes where its k-th nearest training row of the class is no farther than the median over
    that class's training rows, each without itself.

    Attributes:
        layout: Of encoded rows.
        neighbours: k.
        thresholds_: The medians, by class.
    """

    layout: Layout
    neighbours: int = 5
    thresholds_: tuple[float, ...] = ()
    rows_: tuple[Tensor, ...] = ()

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Keep the training rows ``(n, width)`` of each class ``(n,)``."""
        points = self._points(x)
        self.rows_ = tuple(points[y == k] for k in range(int(y.max()) + 1))
        # The nearest of all is the row itself.
        distances = [self._distance(rows, rows, self.neighbours + 1) for rows in self.rows_]
        self.thresholds_ = tuple(float(own.median()) for own in distances)
        return self

    def passes(self, x: Tensor, y: Tensor) -> Tensor:
        """Whether rows ``(n, width)`` have near neighbours in the classes ``(n,)``, bool, shape ``(n,)``."""
        if not self.rows_:
            raise NotFittedError("This judge has not been fitted. Call `fit(x, y)` with training rows first.")
        points, passed = self._points(x), torch.zeros(len(x), dtype=torch.bool)
        for k, (rows, threshold) in enumerate(zip(self.rows_, self.thresholds_, strict=True)):
            passed[y == k] = self._distance(points[y == k], rows, self.neighbours) <= threshold
        return passed

    def _points(self, x: Tensor) -> Tensor:
        """Rows as points whose city-block distance is the distance of the rows."""
        names = [block.name for block in self.layout.with_levels]
        codes = dict(zip(names, self.layout.codes(x).to(x).T, strict=True))
        columns = []
        for block in self.layout.blocks:
            if block.number is not None:
                columns.append(x[:, block.number : block.number + 1])
            elif block.ordered:
                columns.append(codes[block.name][:, None] / max(1, len(block.levels) - 1))
            else:  # two columns differ where a category does
                columns.append(x[:, block.columns] / 2)
        return torch.cat(columns, dim=1)

    @staticmethod
    def _distance(points: Tensor, rows: Tensor, k: int) -> Tensor:
        """From each point to the k-th nearest row, or the farthest where there are fewer."""
        if not len(rows):
            return points.new_full((len(points),), torch.inf)
        k = min(k, len(rows))
        parts = [torch.cdist(some, rows, p=1.0).kthvalue(k, dim=1).values for some in points.split(512)]
        return torch.cat(parts)


@lru_cache(maxsize=8)
def _neighbours(explainer: Explainer, train: Table) -> NeighbourJudge:
    case = Case(train=train, test=train, explainer=explainer, fit_cpu_seconds=0.0)
    return NeighbourJudge(layout=case.encoder.layout).fit(case.x, case.classes(train.y))


def run(selection: TableSelection) -> Iterator[Row]:
    """One row per table and method."""
    for name in selection.tables:
        case = selection.case(name)
        for method in (_real, _searched, _nearest):
            yield case.identified(method(case), selection.seed)


def _real(case: Case) -> Row:
    """Held-out rows as they are, under their own class: the yardstick for what judges accept."""
    own = case.usable
    x, y = case.x[own], case.classes(case.test.y.iloc[own.numpy()])
    with torch.no_grad():
        guide = RowScores.without_margin(case.finder.plausibility, x, y)
        plausible = guide.score(x, torch.arange(len(x))) >= 0
    row: Row = {
        "method": "real",
        "validity": mean(case.decided(x) == y),
        "plausible": mean(plausible),
    }
    return row | _second_opinions(case, case.test.x.iloc[own.numpy()], x, x, y)


def _searched(case: Case) -> Row:
    """Our answers; the search is timed once more alone, without what ``explain`` adds: reasons, judges."""
    with CpuTimer() as whole:
        result = case.explainer.explain(case.test.x)
    index = case.usable
    frame = case.test.x.iloc[index.numpy()]
    with CpuTimer() as timer:
        case.finder.find(case.finder.task(case.x[index], case.y_target[index], frame=frame))
    row: Row = {"method": "plausiflow"}
    seconds: Row = {
        "cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "explain_cpu_ms_per_row": 1000 * whole.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measured(case, result.answers, result.of) | seconds


def _nearest(case: Case) -> Row:
    """The cheapest training row that is an answer once the row's own immutable values are put into it."""
    finder, index = case.finder, case.usable
    task = finder.task(case.x[index], case.y_target[index], frame=case.test.x.iloc[index.numpy()])
    everything = max((len(rows) for rows in finder.bank.rows.values()), default=0)
    with CpuTimer() as timer, torch.no_grad():
        parts = [
            finder.bank.near(task, some, 1, among=everything)
            for some in torch.arange(len(index)).split(AT_ONCE)
        ]
    found = Candidates.joined(*parts)
    of = index[found.rows]
    before = case.test.x.iloc[of.numpy()]
    answers = case.encoder.decode(found.x, like=before)
    again = case.encoder.encode(answers)
    with torch.no_grad():
        holds = finder.validity(again.x, case.y_target[of]) >= 0
        holds &= task.guide.score(again.x, found.rows) >= 0
    holds &= torch.from_numpy(~finder.rules.violations(before, answers).to_numpy().any(axis=1))
    row: Row = {"method": "nearest_real_row"}
    seconds: Row = {
        "cpu_ms_per_row": 1000 * timer.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measured(case, answers[holds.numpy()], of[holds].numpy()) | seconds


@torch.no_grad()
def measured(case: Case, answers: pd.DataFrame, of: Codes) -> Row:
    """What at most one answer a row is worth, ``of`` telling whose each is; means are over the answers."""
    before, index = case.test.x.iloc[of], torch.from_numpy(of)
    again, x, wanted = case.encoder.encode(answers), case.x[index], case.y_target[index]
    everyone = torch.arange(len(of))
    guide = RowScores.without_margin(case.finder.plausibility, x, wanted)
    task = case.finder.task(x, wanted, guide=guide)
    broken = case.finder.rules.violations(before, answers).to_numpy().any(axis=1)
    changes = np.bincount(find_changes(case.test.x, answers, of).answer, minlength=len(of))
    found = np.isin(np.arange(len(case.test.x)), of)
    row: Row = {
        "found": float(found.mean()),
        "validity": mean((case.decided(again.x) == wanted) & torch.from_numpy(again.usable)),
        "plausible": mean(guide.score(again.x, everyone) >= 0),
        "rules_broken": mean(torch.from_numpy(broken)),
        "immutable_identical": _identical(before, answers, case.train.immutable),
        "changes": mean(torch.from_numpy(changes)),
        "cost": mean(task.costs(again.x, everyone)),
    }
    return row | _groups(case.test, found) | _second_opinions(case, answers, again.x, x, wanted)


def _second_opinions(case: Case, frame: pd.DataFrame, x: Tensor, given: Tensor, y: Tensor) -> Row:
    """Whether rows, as a table and encoded, are plausible for classes to those who guided nothing."""
    row: Row = {"knn_judge": mean(_neighbours(case.explainer, case.train).passes(x, y))}
    if case.explainer.judges_ is not None:
        passed = case.explainer.judges_.passes(x, y, given).double().mean(dim=0)
        row |= {"judged": float(passed.mean()), "judged_worst": float(passed.min())}
    if case.train.name == "loans":  # the only one whose density is known
        immutable = case.train.immutable
        typical = pd.Series(true_log_prob_given(case.train.x, case.train.y, immutable))
        medians = typical.groupby(case.train.y.to_numpy()).median()
        labels = [case.model.labels[k] for k in y.tolist()]
        log_prob = true_log_prob_given(frame, labels, immutable)
        row["true_plausible"] = mean(torch.from_numpy(log_prob >= medians.loc[labels].to_numpy()))
    return row


def _groups(test: Table, found: Mask) -> Row:
    """The protected group of at least 50 rows that is found least, and how far below the mean it is."""
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
    """The share of the named cells that are the same bit for bit, dtype included."""
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
    """Put the study of tables between its marks in a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)}")
