"""A verdict for every row of a table, and answers that hold on the decoded rows.

What a search found in encoded rows is decoded, encoded again and judged anew: by the model, by the density,
and by the rules on the tables themselves. Rows that cannot be read, are decided as wanted already, were not
reached in time or have no answer get a verdict that says so, and why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.densities import RowScores
from plausiflow.search.criterion import Targets
from plausiflow.search.engine import Engine
from plausiflow.search.task import Candidates, change_costs, cheapest
from plausiflow.tables import Encoded, Encoder, Mask

AT_ONCE, AT_ONCE_TIMED = 1024, 64
WITHOUT_MARGIN = "plausible, but not all with a margin to spare: a second opinion may differ"


@dataclass(kw_only=True, eq=False)
class SearchResult:
    """What became of each row.

    Attributes:
        status: One word for each row, objects, shape ``(n,)``.
        reason: Why, where the word alone does not say, objects, shape ``(n,)``.
        of: The row that each answer is for, in order of row and then of cost, shape ``(m,)``.
        x_cf: The answers as encoded again from the decoded ones, shape ``(m, width)``.
        decoded: The answers as rows of the table.
        cost: Of each answer, shape ``(m,)``.
        score: Nats above the threshold, the margin apart; negative for those that are relaxed, ``(m,)``.
        misses: Nearest misses of rows without an answer, and ``misses_of``, ``misses_why``.
    """

    status: npt.NDArray[np.object_]
    reason: npt.NDArray[np.object_]
    of: Tensor
    x_cf: Tensor
    decoded: pd.DataFrame
    cost: Tensor
    score: Tensor
    misses: pd.DataFrame
    misses_of: npt.NDArray[np.int64]
    misses_why: list[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRequest:
    """What is asked.

    Attributes:
        frame: Rows of the table.
        encoded: The same, encoded.
        already: Which rows are as wanted, shape ``(n,)``.
        wanted: What is wanted of them.
        count: SearchResult wanted for each row.
        locked: Features that each row keeps, shape ``(n, features)``.
        deadline: On the monotonic clock; nothing waits as long as it takes.
        relaxed: Whether the nearest miss is an answer where there is no other.
        second_opinion: Whether answers keep a margin.
    """

    frame: pd.DataFrame
    encoded: Encoded
    already: Tensor
    wanted: Targets
    count: int = 1
    locked: Mask | None = None
    deadline: float | None = None
    relaxed: bool = False
    second_opinion: bool = True

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def in_time(self, rows: Tensor) -> Iterator[Tensor]:
        """Some of the rows after the other, until the time is over."""
        for some in rows.split(AT_ONCE if self.deadline is None else AT_ONCE_TIMED):
            if len(some) == 0 or self.late:
                return
            yield some


@torch.no_grad()
def answered(finder: Engine, encoder: Encoder, question: SearchRequest) -> SearchResult:
    """Search the rows, verify what is found on the decoded rows, and give every row its verdict."""
    n = len(question.frame)
    status, reason = np.full(n, "", dtype=object), np.full(n, "", dtype=object)
    usable = question.encoded.usable
    status[~usable] = "invalid_input"
    reason[~usable] = question.encoded.problems[~usable]
    already = question.already.numpy() & usable
    status[already] = "already"
    rows = torch.from_numpy((usable & ~already).nonzero()[0])
    parts: list[_Verified] = []
    status[rows.numpy()] = "not_reached"
    for some in question.in_time(rows):
        found = _search(finder, encoder, question, some, margin=question.second_opinion)
        status[some.numpy()] = "infeasible"
        status[found.of.numpy()] = "found"
        parts.append(found)
    reason[status == "not_reached"] = "the time limit was over before this row was searched"
    searched = torch.from_numpy(np.isin(status, ("found", "infeasible")).nonzero()[0])
    answers = _Verified.joined(encoder, question.frame, parts)
    short = searched[torch.bincount(answers.of, minlength=n)[searched] < question.count]
    again = question.in_time(short) if question.second_opinion else []
    more = [_search(finder, encoder, question, some, margin=False, quick=True) for some in again]
    if more:
        both = _Verified.joined(encoder, question.frame, [answers, *more]).distinct(question.count)
        gained = torch.bincount(both.of, minlength=n) > torch.bincount(answers.of, minlength=n)
        status[gained.numpy()] = "found"
        reason[gained.numpy()] = WITHOUT_MARGIN
        parts = [both]
    left = torch.from_numpy((status == "infeasible").nonzero()[0])
    reason[left.numpy()] = "no answer was found; the time was over before the reason was looked for"
    # With all the time there is, reasons are asked for at once: their number is bounded.
    asked = question.in_time(left) if question.deadline is not None else [left] * bool(len(left))
    parts_missed = [_missed(finder, encoder, question, some, reason) for some in asked]
    misses = _Verified.joined(encoder, question.frame, parts_missed) if parts_missed else None
    if misses is not None and question.relaxed and len(misses.of):
        status[misses.of.numpy()] = "relaxed"
        parts.append(misses)
    empty = misses is None or question.relaxed
    answers = _Verified.joined(encoder, question.frame, parts)
    return SearchResult(
        status=status,
        reason=reason,
        of=answers.of,
        x_cf=answers.x_cf,
        decoded=answers.decoded,
        cost=answers.cost,
        score=answers.score,
        misses=question.frame.iloc[:0] if misses is None or empty else misses.decoded,
        misses_of=np.zeros(0, dtype=np.int64) if misses is None or empty else misses.of.numpy(),
        misses_why=[] if misses is None or empty else [_lack(score) for score in misses.score.tolist()],
    )


@dataclass(frozen=True, eq=False)
class _Verified:
    """SearchResult that hold on the decoded rows, ordered by row and cost."""

    of: Tensor
    x_cf: Tensor
    decoded: pd.DataFrame
    cost: Tensor
    score: Tensor

    def only(self, which: Tensor) -> _Verified:
        decoded = self.decoded.iloc[which.numpy()].reset_index(drop=True)
        return _Verified(self.of[which], self.x_cf[which], decoded, self.cost[which], self.score[which])

    def distinct(self, count: int) -> _Verified:
        """Each answer once, and the cheapest ``count`` of every row."""
        first = Candidates(rows=self.of, x=self.x_cf, cost=self.cost).first_places()
        return self.only(first[cheapest(self.of[first], self.cost[first], count)])

    @classmethod
    def joined(cls, encoder: Encoder, frame: pd.DataFrame, parts: list[_Verified]) -> _Verified:
        parts = [part for part in parts if len(part.of)]
        if not parts:
            x = torch.zeros(0, encoder.layout.width, dtype=torch.float64)
            return cls(torch.zeros(0, dtype=torch.long), x, frame.iloc[:0], x.sum(dim=1), x.sum(dim=1))
        of = torch.cat([part.of for part in parts])
        order = torch.argsort(torch.cat([part.cost for part in parts]), stable=True)
        order = order[torch.argsort(of[order], stable=True)]
        decoded = pd.concat([part.decoded for part in parts], ignore_index=True)
        return cls(
            of[order],
            torch.cat([part.x_cf for part in parts])[order],
            decoded.iloc[order.numpy()].reset_index(drop=True),
            torch.cat([part.cost for part in parts])[order],
            torch.cat([part.score for part in parts])[order],
        )


def _search(
    finder: Engine,
    encoder: Encoder,
    question: SearchRequest,
    rows: Tensor,
    *,
    margin: bool,
    quick: bool = False,
) -> _Verified:
    index = rows.numpy()
    frame, locked = question.frame.iloc[index], None if question.locked is None else question.locked[index]
    x, wanted = question.encoded.x[rows], question.wanted[rows]
    guide = None if margin else RowScores.without_margin(finder.plausibility, x, wanted.y)
    task = finder.task(x, wanted, frame=frame, locked=locked, guide=guide)
    found = finder.find(task, question.count, wider=not margin, quick=quick)
    verified = _verified(finder, encoder, question, found, rows)
    spare = task.guide.bar - RowScores.without_margin(finder.plausibility, x, wanted.y).bar
    place = torch.searchsorted(rows, verified.of)
    holds = (verified.score >= spare[place]).nonzero()[:, 0]
    kept = holds[cheapest(verified.of[holds], verified.cost[holds], question.count)]
    return verified.only(kept)


def _verified(
    finder: Engine, encoder: Encoder, question: SearchRequest, found: Candidates, rows: Tensor
) -> _Verified:
    """What candidates for some rows of the question are once decoded; those that break a rule are gone."""
    of = rows[found.rows]
    before = question.frame.iloc[of.numpy()]
    x, everyone = question.encoded.x[of], torch.arange(len(of))
    decoded = encoder.decode(found.x, like=before, encoded=x)
    again = encoder.encode(decoded)
    locked = None if question.locked is None else question.locked[of.numpy()]
    filled = encoder.decode(x, like=before, encoded=x) if encoder.missing == "impute" else before
    broken = finder.rules.violations(filled, decoded, locked).to_numpy().any(axis=1)
    holds = torch.from_numpy(again.usable & ~broken)
    holds[holds.clone()] = finder.holds(again.x[holds], decoded[holds.numpy()], question.wanted[of[holds]])
    guide = RowScores.without_margin(finder.plausibility, x, question.wanted.y[of])
    cost = change_costs(finder.rules.layout, finder.weights, x, again.x)
    score = guide.score(again.x, everyone)
    return _Verified(of, again.x, decoded, cost, score).only(holds.nonzero()[:, 0])


def _missed(
    finder: Engine, encoder: Encoder, question: SearchRequest, rows: Tensor, reason: npt.NDArray[np.object_]
) -> _Verified:
    """Nearest misses of rows without an answer; writes down why there is none."""
    index = rows.numpy()
    frame, locked = question.frame.iloc[index], None if question.locked is None else question.locked[index]
    x, wanted = question.encoded.x[rows], question.wanted[rows]
    found = finder.nearest_misses(x, wanted, frame=frame, locked=locked)
    misses = _verified(finder, encoder, question, found, rows)
    first = cheapest(misses.of, misses.cost, 1)
    misses = misses.only(first)
    blame = finder.blocking(x, wanted, frame=frame, locked=locked, stop=lambda: question.late)
    lacks = dict(zip(misses.of.tolist(), misses.score.tolist(), strict=True))
    for row, names in zip(index.tolist(), blame, strict=True):
        if names:
            many = "each of " if len(names) > 1 else ""
            reason[row] = f"{many}{', '.join(names)} blocks: without it there is an answer"
        elif row in lacks:
            reason[row] = _lack(lacks[row])
        else:
            reason[row] = "no allowed row was found that the model decides as wanted"
    return misses


def _lack(score: float) -> str:
    return f"the nearest allowed row that the model decides as wanted is {-score:.2f} nats short of plausible"
