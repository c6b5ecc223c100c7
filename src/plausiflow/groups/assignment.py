"""Assign rows to actions: each row gets the cheapest action that helps it, once it has been verified.

Actions are tried in the order of what they cost alone, which is a lower bound of what they cost with the
changes that go along. A row is done once no other action can be cheaper. What is found is decoded, encoded
again and checked by the user's model, the density and every rule, as local counterfactuals are. Rows do not
influence each other, so a row alone gets the same action as among others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from plausiflow.densities import row_scores
from plausiflow.groups.actions import Actions
from plausiflow.groups.pairs import Trials, nearest_real, solve_others, try_actions
from plausiflow.groups.proposals import pairs_of
from plausiflow.groups.uncovered import uncovered_reasons
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

ROWS_AT_ONCE = 2_000
"""Rows that are assigned at once; this bounds the memory."""
MOST_THREADS = 4
MOST_SOLVED, MOST_CHEAPER = 30, 4
"""Actions of a row whose other features are solved before it is given up; and, once the row has an action, to
find a cheaper one."""


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


def search_task(engine: Engine, request: SearchRequest, rows: Tensor) -> SearchTask:
    """Return the task for some rows of a request, with the margin that it asks for."""
    x, targets, frame, locked = request.part(rows)
    engine = engine.lasting
    margin = request.second_opinion
    scores = None if margin else row_scores(engine.plausibility, x, targets.y, with_margin=False)
    return engine.task(x, targets, frame=frame, locked=locked, scores=scores)


@torch.no_grad()
def assign_rows(
    engine: Engine, encoder: Encoder, request: SearchRequest, actions: Actions, rows: Tensor
) -> Assigned:
    """Assign rows of a request to actions; other rows have none and no reason."""
    action = np.full(len(request.frame), -1, dtype=np.int64)
    reason = np.full(len(request.frame), "", dtype=object)
    parts: list[Answers] = []
    roles: list[ChangeRoles] = []
    blocks = rows.split(ROWS_AT_ONCE) if len(rows) else ()
    for some, found in zip(blocks, _assign_blocks(engine, encoder, request, actions, blocks), strict=True):
        action[some.numpy()], reason[some.numpy()] = found.action.numpy(), found.reasons()
        parts.append(found.answers)
        roles.append(found.roles)
    answers = Answers.concat(encoder, request.frame, parts)
    joined = ChangeRoles.concat([_no_roles(), *roles], [0, *(len(part.of) for part in parts)])
    return Assigned(answers=answers, roles=joined, action=action, reason=reason)


def _assign_blocks(
    engine: Engine, encoder: Encoder, request: SearchRequest, actions: Actions, blocks: Sequence[Tensor]
) -> Iterator[_RowBlock]:
    """Assign blocks of rows in as many threads as there are cores; a model without gradients in one."""

    def assign(rows: Tensor) -> _RowBlock:
        with torch.no_grad():
            return _RowBlock.assign(engine, encoder, request, actions, rows)

    threads = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, MOST_THREADS)
    if len(blocks) < 2 or threads < 2 or engine.true_model is not None:
        yield from map(assign, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(blocks), threads):
            some = blocks[start : start + threads]
            futures = [pool.submit(copy_context().run, assign, rows) for rows in some]
            yield from (future.result() for future in futures)


def _no_roles() -> ChangeRoles:
    empty = np.empty(0, dtype=object)
    return ChangeRoles(np.empty(0, dtype=np.int64), empty, empty, np.empty(0, dtype=bool))


@dataclass(eq=False)
class _RowBlock:
    """Rows that are assigned at once; ``cost`` and ``action`` are those of the best verified answer."""

    engine: Engine
    encoder: Encoder
    request: SearchRequest
    actions: Actions
    rows: Tensor
    task: SearchTask
    trials: Trials
    near: Tensor
    cost: Tensor
    action: Tensor
    answers: Answers
    roles: ChangeRoles

    @classmethod
    def assign(
        cls, engine: Engine, encoder: Encoder, request: SearchRequest, actions: Actions, rows: Tensor
    ) -> _RowBlock:
        task = search_task(engine, request, rows)
        trials = try_actions(task, actions, *pairs_of(actions, task.y_target))
        n = len(rows)
        empty = Answers.concat(encoder, request.frame, [])
        block = cls(
            engine, encoder, request, actions, rows, task, trials, nearest_real(task, engine.bank),
            torch.full((n,), torch.inf, dtype=torch.float64), torch.full((n,), -1), empty,
            _no_roles(),
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
        for places in self._one_of_each_row(self._in_order(self.trials.possible & ~self.trials.enough)):
            own = self.trials.rows[places]
            helped = self.action[own] >= 0
            tried = torch.where(helped, cheaper[own] < MOST_CHEAPER, solved[own] < MOST_SOLVED)
            if bool(tried.any()):
                yield places[tried]
                solved[own[tried]] += 1
                cheaper[own[tried & helped]] += 1

    def _in_order(self, mask: Tensor) -> Tensor:
        """Return the positions of some trials, ordered by row and cost."""
        places = mask.nonzero()[:, 0]
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
            solved = solve_others(self.task, self.actions, trials[open_], self.near, extra)
            x, cost = found.x.index_copy(0, open_, solved.x), found.cost.index_copy(0, open_, solved.cost)
            found = replace(found, x=x, cost=cost)
        better = (found.cost < self.cost[found.rows]).nonzero()[:, 0]
        if len(better):
            self._verify(found[better], trials.which[better])

    def _verify(self, found: Candidates, which: Tensor) -> None:
        verified = verify_candidates(self.engine, self.encoder, self.request, found, self.rows)
        own = found.rows[verified.candidate]
        holds = (verified.answers.score >= self.task.scores.margin[own]).nonzero()[:, 0]
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
            self.engine.rules, self.encoder, frame, self.task.x, self.trials, self.action
        )
