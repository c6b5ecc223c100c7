"""From a request to a verdict for every row, and answers that hold on the decoded rows.

What a search found in encoded rows is decoded, encoded again and verified: by the user's own model, by the
density, and by the rules on the tables themselves. A row that cannot be read, meets its target already, was
not reached in time or has no answer gets a verdict that says so, and why.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import MaxChanges
from plausiflow.core import RowScores, Targets
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.search.answers import WITHOUT_MARGIN, Answers, verify_candidates
from plausiflow.search.candidates import cheapest
from plausiflow.search.diagnose import describe_lack, diagnose_rows, find_misses
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.search.roles import ChangeRoles, settle_changes
from plausiflow.search.task import Fallback
from plausiflow.tables import Encoded, Encoder

NOT_LASTING = "no counterfactual was found that retrained models decide as wanted, too; this one may not last"
KEPT_MARGIN = 0.5
"""The share of the calibrated margin that a lasting answer keeps where none has all of it."""
NOT_ASKED = "no answer was found; reasons were not asked for"


@dataclass(kw_only=True, eq=False)
class SearchResult:
    """The verdict and the answers of each row.

    Attributes:
        status: Verdict of each row, objects, shape ``(n,)``.
        reason: Why, if the verdict alone does not say, objects, shape ``(n,)``.
        of: The row that each answer is for, in order of row and then of cost, shape ``(m,)``.
        x_cf: The answers, encoded again from the decoded ones, shape ``(m, width)``.
        decoded: The answers as rows of the table.
        cost: Cost of each answer, shape ``(m,)``.
        score: Plausibility score without the margin, negative for relaxed answers, shape ``(m,)``.
        misses: Nearest misses of rows without an answer.
        misses_of: The row of each miss.
        misses_why: What each miss lacks.
        roles: What each change serves; None until :func:`~plausiflow.search.finish.finish_answers`.
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
    roles: ChangeRoles | None = None


def search_targets(
    engine: Engine, encoder: Encoder, request: SearchRequest, choices: list[Targets]
) -> tuple[SearchRequest, SearchResult]:
    """Search the rows for one of several targets each; return the request with the chosen targets.

    Every other outcome is searched, and of those with an answer the cheapest is chosen, else the first. The
    bins of an interval are searched one after the other, each for the rows that have no answer yet.
    """
    if len(choices) == 1:
        return request, search_rows(engine, encoder, request)
    if choices[0].low is not None:
        return _search_in_turn(engine, encoder, request, choices)
    n, count = len(request.frame), len(choices)
    targets = Targets.concat(choices)
    result = search_rows(engine, encoder, request.repeat(torch.arange(n).repeat(count), targets))
    places = torch.arange(n) + n * _cheapest_choice(result, n, count)
    chosen = _select(result, places)
    for row in np.flatnonzero(chosen.status == "infeasible"):
        chosen.reason[row] = f"no other outcome has an answer; for the most likely one: {chosen.reason[row]}"
    return replace(request, targets=targets[places]), chosen


def _search_in_turn(
    engine: Engine, encoder: Encoder, request: SearchRequest, choices: list[Targets]
) -> tuple[SearchRequest, SearchResult]:
    """Search the choices one after the other, each for the rows that have no answer yet.

    A row that has none in the end gets the reason, or the nearest miss, of its first choice.
    """
    n = len(request.frame)
    y, left = choices[0].y.clone(), torch.arange(n)
    parts: list[tuple[Tensor, SearchResult]] = []
    for turn, targets in enumerate(choices):
        rows = left if turn == 0 else left[targets.y[left] != choices[turn - 1].y[left]]
        if len(rows):
            result = search_rows(engine, encoder, request.repeat(rows, targets[rows]), reasons=False)
            done = torch.from_numpy((result.status != "infeasible").nonzero()[0])
            parts.append((rows[done], _select(result, done)))
            y[rows[done]] = targets.y[rows[done]]
            left = left[~torch.isin(left, rows[done])]
    if len(left):
        parts.append((left, search_rows(engine, encoder, request.repeat(left, choices[0][left]))))
    return replace(request, targets=replace(choices[0], y=y)), _combine(n, parts)


def _combine(n: int, parts: list[tuple[Tensor, SearchResult]]) -> SearchResult:
    """Return the results of parts of ``n`` rows, each with the numbers of its rows, as one."""
    status, reason = np.full(n, "", dtype=object), np.full(n, "", dtype=object)
    for rows, result in parts:
        status[rows.numpy()], reason[rows.numpy()] = result.status, result.reason
    results = [result for _, result in parts]
    of = torch.cat([rows[result.of] for rows, result in parts])
    order = torch.argsort(of, stable=True)
    missed = np.concatenate([rows.numpy()[result.misses_of] for rows, result in parts])
    places = np.argsort(missed, kind="stable")
    why = [text for result in results for text in result.misses_why]
    return SearchResult(
        status=status,
        reason=reason,
        of=of[order],
        x_cf=torch.cat([result.x_cf for result in results])[order],
        decoded=_stack([result.decoded for result in results]).iloc[order.numpy()].reset_index(drop=True),
        cost=torch.cat([result.cost for result in results])[order],
        score=torch.cat([result.score for result in results])[order],
        misses=_stack([result.misses for result in results]).iloc[places],
        misses_of=missed[places],
        misses_why=[why[i] for i in places],
    )


def _stack(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables; empty ones keep their dtypes to themselves."""
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


@torch.no_grad()
def search_rows(
    engine: Engine, encoder: Encoder, request: SearchRequest, *, reasons: bool = True
) -> SearchResult:
    """Search the rows, verify what is found on the decoded rows, and give every row its verdict.

    Without ``reasons``, a row that has no answer gets neither a reason nor a nearest miss.
    """
    n = len(request.frame)
    status, reason = np.full(n, "", dtype=object), np.full(n, "", dtype=object)
    usable = request.encoded.usable
    status[~usable] = "invalid_input"
    reason[~usable] = request.encoded.problems[~usable]
    already = request.already.numpy() & usable
    status[already] = "already"
    rows = torch.from_numpy((usable & ~already).nonzero()[0])
    parts: list[Answers] = []
    beyond: dict[int, int] = {}
    status[rows.numpy()] = "not_reached"
    search = partial(_search, engine, encoder, request)
    relaxes = request.second_opinion and request.k == 1 and engine.strategy.relaxes
    if engine.durability is not None:

        def unanswered(some: Tensor) -> Tensor:
            return some[torch.from_numpy(status[some.numpy()] != "found")]

        for own, targets, some, lacking in engine.durability.searches(
            engine, request.targets, rows, unanswered
        ):
            asked = replace(request, targets=targets)
            lasting = partial(_search, own, encoder, asked, margin=request.second_opinion)
            if relaxes and not lacking:
                lasting = partial(lasting, relax=True, kept_margin=KEPT_MARGIN)
            for _, part in request.search_in_time(some, lasting):
                of = part.answers.of.numpy()
                status[of], reason[of] = "found", lacking
                reason[part.without_margin.numpy()] = WITHOUT_MARGIN
                parts.append(part.answers)
        rows = unanswered(rows)
    ordinary = partial(search, margin=request.second_opinion, relax=relaxes)
    for some, part in request.search_in_time(rows, ordinary):
        beyond |= part.beyond
        status[some.numpy()] = "infeasible"
        status[part.answers.of.numpy()] = "found"
        if engine.durability is not None:
            reason[part.answers.of.numpy()] = NOT_LASTING
        reason[part.without_margin.numpy()] = WITHOUT_MARGIN
        parts.append(part.answers)
    reason[status == "not_reached"] = "the time limit was over before this row was searched"
    searched = torch.from_numpy(np.isin(status, ("found", "infeasible")).nonzero()[0])
    answers = Answers.concat(encoder, request.frame, parts)
    short = searched[torch.bincount(answers.of, minlength=n)[searched] < request.k]
    again = short if request.second_opinion and not relaxes else short[:0]
    quick = partial(search, margin=False, quick=True)
    more = [part.answers for _, part in request.search_in_time(again, quick)]
    if more:
        both = Answers.concat(encoder, request.frame, [answers, *more]).unique(request.pool)
        gained = torch.bincount(both.of, minlength=n) > torch.bincount(answers.of, minlength=n)
        status[gained.numpy()] = "found"
        reason[gained.numpy()] = WITHOUT_MARGIN
        parts = [both]
    left = torch.from_numpy((status == "infeasible").nonzero()[0])
    left = left if reasons else left[:0]
    if request.diagnose:
        reason[left.numpy()] = "no answer was found; the time was over before the reason was looked for"
        diagnose = partial(diagnose_rows, engine, encoder, request, known=beyond)
        found_now = [diagnosis for _, diagnosis in request.search_in_time(left, diagnose)]
        misses = Answers.concat(encoder, request.frame, [diagnosis.misses for diagnosis in found_now])
        for diagnosis in found_now:
            for row, text in diagnosis.reasons.items():
                reason[row] = text
        # The search was at fault: what a search without a rule found keeps the rule.
        recovered = Answers.concat(encoder, request.frame, [d.answers for d in found_now])
        status[recovered.of.numpy()] = "found"
        parts.append(recovered)
    else:
        misses = _without_reasons(engine, encoder, request, left, reason)
    if request.relaxed and len(misses.of):
        status[misses.of.numpy()] = "relaxed"
        parts.append(misses)
    answers = Answers.concat(encoder, request.frame, parts)
    if request.relaxed:
        misses = Answers.concat(encoder, request.frame, [])
    return SearchResult(
        status=status,
        reason=reason,
        of=answers.of,
        x_cf=answers.x_cf,
        decoded=answers.decoded,
        cost=answers.cost,
        score=answers.score,
        misses=misses.decoded,
        misses_of=misses.of.numpy(),
        misses_why=[describe_lack(score) for score in misses.score.tolist()],
    )


class _SearchedRows(NamedTuple):
    """What a search of some rows found.

    Attributes:
        answers: Verified answers.
        beyond: The number of the limit on changes that alone blocks a row, by row of the request.
        without_margin: Rows of the request whose answers are only plausible without the margin.
    """

    answers: Answers
    beyond: dict[int, int]
    without_margin: Tensor


def _search(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    rows: Tensor,
    *,
    margin: bool,
    relax: bool = False,
    kept_margin: float = 0.0,
    quick: bool = False,
) -> _SearchedRows:
    """Search some rows; with ``relax``, rows without an answer inside the margin also without it.

    ``kept_margin`` is the share of the margin that is asked for even then.

    The proof that a limit on changes blocks is an answer that breaks this limit and nothing else. Changes of
    such an answer that nothing needs are undone first: it may then keep the limit.
    """
    limits = {str(rule): i for i, rule in enumerate(engine.rules.constraints) if isinstance(rule, MaxChanges)}
    x, targets, frame, locked = request.part(rows)
    plain = None if margin and not relax else row_scores(engine.plausibility, x, targets.y, with_margin=False)
    task = engine.task(x, targets, frame=frame, locked=locked, scores=None if margin else plain)
    least = torch.zeros_like(task.scores.margin)
    if relax and plain is not None:
        least = kept_margin * task.scores.margin
        plain = plain if kept_margin == 0 else _with_less_margin(task.scores, 1 - kept_margin)
        task = replace(task, fallback=Fallback(plain, engine.wider_bank or engine.bank))
    found = engine.search(task, request.k, count=request.pool, wider=not margin, quick=quick)
    verified = verify_candidates(engine, encoder, request, found, rows, frozenset(limits))
    answers, place = verified.answers, torch.searchsorted(rows, verified.answers.of)
    broken = torch.from_numpy(verified.broken.to_numpy(bool, copy=True))
    inside = answers.score >= task.scores.margin[place]
    holds = inside & ~broken.any(dim=1)
    if relax:
        outside = (answers.score >= least[place]) & ~broken.any(dim=1)
        holds |= outside & ~torch.isin(answers.of, answers.of[holds])
    alone = (inside & (broken.sum(dim=1) == 1)).nonzero()[:, 0]
    names = [limits[str(name)] for name in verified.broken.columns]
    beyond = {int(answers.of[i]): names[int(broken[i].long().argmax())] for i in alone.tolist()}
    kept = holds.nonzero()[:, 0]
    kept = kept[cheapest(answers.of[kept], answers.cost[kept], request.pool)]
    own, relaxed = answers.select(kept), answers.of[kept[~inside[kept]]]
    if len(alone) == 0 or request.late:
        return _SearchedRows(own, beyond, relaxed)
    most = min(rule.limit for rule in engine.rules.constraints if isinstance(rule, MaxChanges))
    settled = settle_changes(engine, encoder, request, answers.select(alone), most=most).answers
    changes = engine.rules.layout.changed(settled.x_cf, request.encoded.x[settled.of]).sum(dim=1)
    gained = settled.select((changes <= most).nonzero()[:, 0])
    # Answers inside the margin replace others.
    replaced = torch.isin(own.of, relaxed) & torch.isin(own.of, gained.of)
    own, relaxed = own.select((~replaced).nonzero()[:, 0]), relaxed[~torch.isin(relaxed, gained.of)]
    both = Answers.concat(encoder, request.frame, [own, gained]).unique(request.pool)
    return _SearchedRows(both, beyond, relaxed)


def _with_less_margin(scores: RowScores, share: float) -> RowScores:
    """Return scores whose threshold is lower by a share of the margin."""
    other = copy.copy(scores)
    other.threshold, other.margin = scores.threshold - share * scores.margin, (1 - share) * scores.margin
    return other


def _without_reasons(
    engine: Engine, encoder: Encoder, request: SearchRequest, left: Tensor, reason: npt.NDArray[np.object_]
) -> Answers:
    """Return the nearest misses that a relaxed answer needs; nobody asked for reasons."""
    reason[left.numpy()] = NOT_ASKED
    if not request.relaxed:
        return Answers.concat(encoder, request.frame, [])
    missed = request.search_in_time(left, partial(find_misses, engine, encoder, request))
    return Answers.concat(encoder, request.frame, [misses for _, misses in missed])


def _cheapest_choice(result: SearchResult, n: int, count: int) -> Tensor:
    """Return the choice of each row with the cheapest answer, the first if there is none, shape ``(n,)``."""
    cost = result.cost.new_full((n * count,), torch.inf)
    # A relaxed answer is worse than any that was found.
    relaxed = torch.from_numpy((result.status == "relaxed").astype(np.float64))[result.of]
    cost.scatter_reduce_(0, result.of, result.cost + 1e9 * relaxed, "amin")
    return cost.view(count, n).argmin(dim=0)


def _select(result: SearchResult, places: Tensor) -> SearchResult:
    """Return the results of the chosen targets, numbered by the rows of the request."""
    index = places.numpy()
    row_of = torch.full((len(result.status),), -1)
    row_of[places] = torch.arange(len(places))
    mine = (row_of[result.of] >= 0).nonzero()[:, 0]
    mine = mine[torch.argsort(row_of[result.of[mine]], stable=True)]
    missed = row_of.numpy()[result.misses_of]
    order = np.flatnonzero(missed >= 0)
    order = order[np.argsort(missed[order], kind="stable")]
    return SearchResult(
        status=result.status[index],
        reason=result.reason[index],
        of=row_of[result.of[mine]],
        x_cf=result.x_cf[mine],
        decoded=result.decoded.iloc[mine.numpy()].reset_index(drop=True),
        cost=result.cost[mine],
        score=result.score[mine],
        misses=result.misses.iloc[order],
        misses_of=missed[order],
        misses_why=[result.misses_why[i] for i in order],
    )


@torch.no_grad()
def plausibility_scores(engine: Engine, encoded: Encoded, choices: list[Targets]) -> npt.NDArray[np.float64]:
    """Return the plausibility scores of rows for their targets, NaN for unreadable rows, shape ``(n,)``.

    For an interval it is the best score of the bins that the interval meets.
    """
    if len(choices) != 1 and choices[0].low is None:
        raise InvalidInputError("`target` must name one outcome for each row; 'other' leaves it open.")
    usable = torch.from_numpy(encoded.usable)
    x, everyone = encoded.x[usable], torch.arange(int(usable.sum()))
    values = np.full(len(encoded.usable), np.nan)
    scores = [row_scores(engine.plausibility, x, own.y[usable], with_margin=False) for own in choices]
    values[encoded.usable] = torch.stack([own.score(x, everyone) for own in scores]).amax(dim=0).numpy()
    return values
