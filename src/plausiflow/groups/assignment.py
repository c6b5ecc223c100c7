"""Assign rows to actions: each row gets the cheapest action that helps it, once it has been verified.

Actions are tried in the order of what they cost alone, which is a lower bound of what they cost with the
changes that go along. A row is done once no other action can be cheaper. What is found is decoded, encoded
again and checked by the user's model, the density and every rule, as local counterfactuals are. Rows do not
influence each other, so a row alone gets the same action as among others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from plausiflow.core import suitable_threads
from plausiflow.densities import row_scores
from plausiflow.groups.actions import Actions
from plausiflow.groups.pairs import Trials, nearest_real, solve_others, try_actions
from plausiflow.groups.proposals import pairs_of
from plausiflow.groups.uncovered import TOO_EXPENSIVE, uncovered_reasons
from plausiflow.search import (
    Answers,
    Candidates,
    ChangeRoles,
    Engine,
    SearchRequest,
    SearchTask,
    settle_changes,
    verify_candidates,
)
from plausiflow.tables import Encoder, IntArray, ObjectArray

ROWS_AT_ONCE, CELLS_AT_ONCE = 8_000, 2_500_000
"""Rows, and encoded cells of all their pairs with an action, that are assigned at once; this bounds the
memory. Few large blocks take less time than many small ones."""
MOST_THREADS = 4
MOST_SOLVED, MOST_CHEAPER, SLIGHT_LACK = 30, 4, -2.0
"""Actions of a row whose other features are solved before it is given up; once the row has an action, to find
a cheaper one; and the plausibility score, in nats, that a cheaper one must have alone. Of worse ones, one in
seven has an answer that is cheaper."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Assigned:
    """Members of the groups, and why other rows have no action.

    Attributes:
        answers: The verified counterfactual of each member, ordered by row.
        roles: What each of their changes serves.
        action: Action of each row, -1 for none, shape ``(n,)``.
        reason: Why a row has no action, objects, shape ``(n,)``.
    """

    answers: Answers
    roles: ChangeRoles
    action: IntArray
    reason: ObjectArray

    def within(self, limit: float) -> Assigned:
        """Return the members that cost no more than a limit; the others have no action."""
        kept = (self.answers.cost <= limit).nonzero()[:, 0]
        if len(kept) == len(self.answers.of):
            return self
        action, reason = self.action.copy(), self.reason.copy()
        out = self.answers.of[self.answers.cost > limit].numpy()
        action[out], reason[out] = -1, TOO_EXPENSIVE
        return Assigned(
            answers=self.answers.select(kept), roles=self.roles.select(kept), action=action, reason=reason
        )


def search_task(engine: Engine, request: SearchRequest, rows: Tensor) -> SearchTask:
    """Return the task for some rows of a request, with the margin that it asks for."""
    x, targets, frame, locked = request.part(rows)
    engine = engine.lasting
    margin = request.second_opinion
    scores = None if margin else row_scores(engine.plausibility, x, targets.y, with_margin=False)
    return engine.task(x, targets, frame=frame, locked=locked, scores=scores)


@torch.no_grad()
def assign_rows(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    actions: Actions,
    rows: Tensor,
    most: float = math.inf,
) -> Assigned:
    """Assign rows of a request to actions; other rows have none and no reason.

    Args:
        engine: What was fitted, with the rules of the call.
        encoder: Encoder of the table.
        request: The request.
        actions: The actions.
        rows: The rows of the request that are assigned.
        most: The most that a member may cost.
    """
    action = np.full(len(request.frame), -1, dtype=np.int64)
    reason = np.full(len(request.frame), "", dtype=object)
    parts: list[Answers] = []
    roles: list[ChangeRoles] = []
    blocks = rows.split(_rows_at_once(len(rows), actions)) if len(rows) else ()
    assigned = _assign_blocks(engine, encoder, request, actions, blocks, most)
    for some, found in zip(blocks, assigned, strict=True):
        action[some.numpy()], reason[some.numpy()] = found.action.numpy(), found.reasons()
        parts.append(found.answers)
        roles.append(found.roles)
    answers = Answers.concat(encoder, request.frame, parts)
    joined = ChangeRoles.concat([_no_roles(), *roles], [0, *(len(part.of) for part in parts)])
    return Assigned(answers=answers, roles=joined, action=action, reason=reason)


def _rows_at_once(rows: int, actions: Actions) -> int:
    """Return the size of blocks: as equal as possible, and small enough for the memory."""
    cells = max(1, len(actions)) * actions.layout.width
    most = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // cells))
    return math.ceil(rows / math.ceil(rows / most))


def _assign_blocks(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    actions: Actions,
    blocks: Sequence[Tensor],
    most: float,
) -> Iterator[_RowBlock]:
    """Assign blocks of rows in as many threads as there are cores; a model without gradients in one."""

    def assign(rows: Tensor, *, alone: bool = True) -> _RowBlock:
        # Blocks side by side use one thread each; more would wait for each other.
        with torch.no_grad(), nullcontext() if alone else suitable_threads():
            return _RowBlock.assign(engine, encoder, request, actions, rows, most)

    threads = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, MOST_THREADS)
    if len(blocks) < 2 or threads < 2 or engine.true_model is not None:
        yield from map(assign, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(blocks), threads):
            some = blocks[start : start + threads]
            futures = [pool.submit(copy_context().run, partial(assign, rows, alone=False)) for rows in some]
            yield from (future.result() for future in futures)


def _no_roles() -> ChangeRoles:
    empty = np.empty(0, dtype=object)
    return ChangeRoles(np.empty(0, dtype=np.int64), empty, empty, np.empty(0, dtype=bool))


@dataclass(eq=False)
class _RowBlock:
    """Rows that are assigned at once; ``cost`` and ``action`` are those of the best verified answer.

    ``most`` is the most that a member may cost.
    """

    engine: Engine
    encoder: Encoder
    request: SearchRequest
    actions: Actions
    rows: Tensor
    most: float
    task: SearchTask
    trials: Trials
    near: Tensor
    cost: Tensor
    action: Tensor
    answers: Answers
    roles: ChangeRoles

    @classmethod
    def assign(
        cls,
        engine: Engine,
        encoder: Encoder,
        request: SearchRequest,
        actions: Actions,
        rows: Tensor,
        most: float,
    ) -> _RowBlock:
        task = search_task(engine, request, rows)
        trials = try_actions(task, actions, *pairs_of(actions, task.y_target))
        n = len(rows)
        empty = Answers.concat(encoder, request.frame, [])
        block = cls(
            engine, encoder, request, actions, rows, most, task, trials,
            torch.full_like(task.x, torch.nan), torch.full((n,), torch.inf, dtype=torch.float64),
            torch.full((n,), -1), empty, _no_roles(),
        )  # fmt: skip
        for places in block.turns():
            block.take(places)
        block.finish()
        return block

    def turns(self) -> Iterator[Tensor]:
        """Yield for each row its next action that may still be the cheapest, as positions of trials.

        The cheapest action that is enough alone comes first, then cheaper ones that have to be solved.
        """
        enough = self._in_order(self.trials.enough)
        yield from self._one_of_each_row(enough)
        solved, cheaper = torch.zeros(2, len(self.rows), dtype=torch.long)
        lacks_little = self.trials.score >= SLIGHT_LACK
        order = self._in_order(self.trials.possible & ~self.trials.enough)
        cost = self.cost[self.trials.rows[order]]
        order = order[torch.isinf(cost) | (lacks_little[order] & (self.trials.cost[order] < cost))]
        self._find_near(self.trials.rows[order].unique())
        for places in self._one_of_each_row(order):
            own = self.trials.rows[places]
            helped = self.action[own] >= 0
            may_win = lacks_little[places] & (cheaper[own] < MOST_CHEAPER)
            tried = torch.where(helped, may_win, solved[own] < MOST_SOLVED)
            if bool(tried.any()):
                yield places[tried]
                solved[own[tried]] += 1
                cheaper[own[tried & helped]] += 1

    def _find_near(self, own: Tensor) -> None:
        """Find the nearest real row with the wanted outcome of rows whose other features are to be solved."""
        self.near[own] = nearest_real(self.task.at(own), self.engine.bank)

    def _in_order(self, mask: Tensor) -> Tensor:
        """Return the positions of some trials that do not cost too much, ordered by row and cost."""
        places = (mask & (self.trials.cost <= self.most)).nonzero()[:, 0]
        places = places[torch.argsort(self.trials.cost[places], stable=True)]
        return places[torch.argsort(self.trials.rows[places], stable=True)]

    def _one_of_each_row(self, order: Tensor) -> Iterator[Tensor]:
        """Yield the first trial of each row, then the second, as long as one may be the cheapest."""
        rows = self.trials.rows[order]
        turn = torch.arange(len(order)) - torch.searchsorted(rows, rows)
        for number in range(int(turn.max()) + 1 if len(turn) else 0):
            places = order[turn == number]
            places = places[self.trials.cost[places] < self.cost[self.trials.rows[places]]]
            if len(places):
                yield places

    def take(self, places: Tensor) -> None:
        """Complete and verify actions, one of each row at most, and keep those that are cheapest so far."""
        trials = self.trials[places]
        found = Candidates(
            rows=trials.rows, x=trials.x, cost=torch.where(trials.enough, trials.cost, torch.inf)
        )
        open_ = (~trials.enough).nonzero()[:, 0]
        if len(open_):
            extra = self.engine.strategy.max_extra_cost
            solved = solve_others(
                self.task, self.actions, trials[open_], self.near, extra, self.cost[trials.rows[open_]]
            )
            x, cost = found.x.index_copy(0, open_, solved.x), found.cost.index_copy(0, open_, solved.cost)
            found = replace(found, x=x, cost=cost)
        better = (found.cost < self.cost[found.rows]).nonzero()[:, 0]
        if len(better):
            self._verify(found[better], trials.which[better])

    def _verify(self, found: Candidates, which: Tensor) -> None:
        verified = verify_candidates(self.engine, self.encoder, self.request, found, self.rows)
        own = found.rows[verified.candidate]
        holds = verified.answers.score >= self.task.scores.margin[own]
        holds = (holds & (verified.answers.cost <= self.most)).nonzero()[:, 0]
        if len(holds) == 0:
            return
        answers, own = verified.answers.select(holds), own[holds]
        which = which[verified.candidate[holds]]
        chosen = (answers.cost < self.cost[own]).nonzero()[:, 0]
        answers, own = answers.select(chosen), own[chosen]
        kept = (~torch.isin(self.answers.of, answers.of)).nonzero()[:, 0]
        self.answers = Answers.concat(self.encoder, self.request.frame, [self.answers.select(kept), answers])
        self.cost[own], self.action[own] = answers.cost, which[chosen]

    def finish(self) -> None:
        """Find out what each change serves; a member whose decision needs other changes is none."""
        if len(self.answers.of) == 0:
            return
        settled = settle_changes(self.engine, self.encoder, self.request, self.answers, undo=False)
        own = torch.searchsorted(self.rows, self.answers.of)
        wrong = self._needs_others(settled.roles, self.action[own])
        kept = (~wrong).nonzero()[:, 0]
        self.answers, self.roles = self.answers.select(kept), settled.roles.select(kept)
        self.action[own[wrong]] = -1

    def _needs_others(self, roles: ChangeRoles, which: Tensor) -> Tensor:
        """Return whether the decision needs a change that the action of an answer does not have."""
        blocks = {block.name: j for j, block in enumerate(self.actions.layout.blocks)}
        places = torch.tensor([blocks[name] for name in roles.feature[roles.needed]], dtype=torch.long)
        answer = torch.from_numpy(roles.answer[roles.needed])
        other = ~self.actions.features[which[answer], places]
        return torch.zeros(len(which), dtype=torch.bool).index_fill(0, answer[other], True)

    def reasons(self) -> ObjectArray:
        """Return why each row has no action, empty for members."""
        frame = self.request.frame.iloc[self.rows.numpy()]
        return uncovered_reasons(
            self.engine.rules,
            self.encoder,
            frame,
            self.task.x,
            self.actions,
            self.trials,
            self.action,
            self.most,
        )
