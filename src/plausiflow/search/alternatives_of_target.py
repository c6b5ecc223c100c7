"""One of several outcomes for each row: whichever is cheapest to come to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from plausiflow.search.criterion import Targets
from plausiflow.search.engine import Engine
from plausiflow.search.pipeline import SearchRequest, SearchResult, answered
from plausiflow.tables import Encoded, Encoder


def cheapest_of(
    finder: Engine, encoder: Encoder, question: SearchRequest, wishes: list[Targets]
) -> tuple[SearchRequest, SearchResult]:
    """SearchResult for one of the wishes of each row, and the question with the wish that was chosen.

    Every wish is searched; of those with an answer the one with the cheapest is chosen, else the first.
    """
    if len(wishes) == 1:
        return question, answered(finder, encoder, question)
    n, count = len(question.frame), len(wishes)
    rows = torch.arange(n).repeat(count)
    all_answers = answered(finder, encoder, _asked(question, rows, Targets.joined(wishes)))
    chosen = _chosen(all_answers, n, count)
    places = torch.arange(n) + n * chosen
    wanted = Targets.joined(wishes)[places]
    return replace(question, wanted=wanted), _only(all_answers, places)


def _asked(question: SearchRequest, rows: Tensor, wanted: Targets) -> SearchRequest:
    """The question about some rows, each as often as it is named, with other wishes."""
    index = rows.numpy()
    return replace(
        question,
        frame=question.frame.iloc[index],
        encoded=Encoded(question.encoded.x[rows], question.encoded.problems[index]),
        already=question.already[rows],
        wanted=wanted,
        locked=None if question.locked is None else question.locked[index],
    )


def _chosen(answers: SearchResult, n: int, count: int) -> Tensor:
    """The wish of each row with the cheapest answer, the first where there is none, shape ``(n,)``."""
    cost = answers.cost.new_full((n * count,), torch.inf)
    # A relaxed answer is worse than any that was found.
    relaxed = torch.from_numpy((answers.status == "relaxed").astype(np.float64))[answers.of]
    cost.scatter_reduce_(0, answers.of, answers.cost + 1e9 * relaxed, "amin")
    return cost.view(count, n).argmin(dim=0)


def _only(answers: SearchResult, places: Tensor) -> SearchResult:
    """What became of the chosen wishes, counted as the rows of the question."""
    index = places.numpy()
    row_of = torch.full((len(answers.status),), -1)
    row_of[places] = torch.arange(len(places))
    mine = (row_of[answers.of] >= 0).nonzero()[:, 0]
    mine = mine[torch.argsort(row_of[answers.of[mine]], stable=True)]
    missed = row_of.numpy()[answers.misses_of]
    order = np.flatnonzero(missed >= 0)
    order = order[np.argsort(missed[order], kind="stable")]
    status, reason = answers.status[index], answers.reason[index]
    for row in np.flatnonzero(status == "infeasible"):
        reason[row] = f"no other outcome has an answer; for the likeliest: {reason[row]}"
    return SearchResult(
        status=status,
        reason=reason,
        of=row_of[answers.of[mine]],
        x_cf=answers.x_cf[mine],
        decoded=answers.decoded.iloc[mine.numpy()].reset_index(drop=True),
        cost=answers.cost[mine],
        score=answers.score[mine],
        misses=answers.misses.iloc[order],
        misses_of=missed[order],
        misses_why=[answers.misses_why[i] for i in order],
    )
