"""Several answers for a row that differ in what they change.

A wide search keeps many answers. A second one continues from them: it has each row several times, and each
time one of the features that the cheapest answer spends most on is forbidden. Bank rows near by are answers
of other regions. From all of them, the cheapest is kept first, then always the cheapest that is at least 0.6
of its own cost away from those kept, or else the one that is farthest from them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from plausiflow.core import DeadlineError
from plausiflow.search.bank import MORE, Bank
from plausiflow.search.candidates import Candidates
from plausiflow.search.sparsify import with_factual
from plausiflow.search.strategy import SearchStrategy
from plausiflow.search.task import SearchTask

APART = 0.6
"""How far an answer must be from those kept, in units of its own cost."""
POOL = 12
CONTINUED = 3
"""Answers of each row that searches without a feature continue from."""


def search_diverse(
    task: SearchTask, bank: Bank, strategy: SearchStrategy, k: int, count: int | None = None
) -> Candidates:
    """Return up to ``count`` answers for each row, cheapest first, to choose ``k`` from; default ``k``."""
    pool = strategy.wider(k).run(task, bank, keep=3 * k)
    everyone = torch.arange(len(task), device=task.x.device)
    # What was found before a deadline is enough to choose from.
    with suppress(DeadlineError):
        more = _without_features(task, bank, strategy, pool, k - 1)
        pool = Candidates.concat(pool, task.check(more).feasible).unique()
        real = task.check(bank.verified(task, everyone, POOL * k, among=MORE)).feasible
        pool = Candidates.concat(pool, real).unique()
    return _choose(task, pool, k if count is None else count)


def _without_features(
    task: SearchTask, bank: Bank, strategy: SearchStrategy, pool: Candidates, count: int
) -> Candidates:
    """Return answers that do without one of the ``count`` features that a row's cheapest spends most on."""
    spent = _spent(task, pool.cheapest(1))
    most = spent.argsort(dim=1, descending=True, stable=True)[:, :count]
    rows, place = (spent.gather(1, most) > 0).nonzero(as_tuple=True)
    if len(rows) == 0:
        return task.candidates(rows, task.x[rows])
    forbidden = one_hot(most[rows, place], spent.shape[1]).bool()
    restricted, near = _restrict(task.repeated(rows), forbidden), pool.cheapest(CONTINUED)
    owner, place = (rows[:, None] == near.rows).nonzero(as_tuple=True)
    known = replace(near[place], rows=owner)
    start = replace(known, x=with_factual(restricted, known, forbidden[owner]))
    found = strategy.continued(restricted, bank, restricted.repair(start), keep=2)
    return replace(found, rows=rows[found.rows])


def _spent(task: SearchTask, answers: Candidates) -> Tensor:
    """Return the cost that each row's answer spends on each feature, shape ``(n, blocks)``."""
    spent = task.x.new_zeros(len(task), len(task.layout.blocks))
    before = task.x[answers.rows], task.codes[answers.rows]
    spent[answers.rows] = task.cost_model.by_feature(before, (answers.x, task.codes_of(answers.x)))
    return spent


def _restrict(task: SearchTask, forbidden: Tensor) -> SearchTask:
    """Return the task with some features of each row frozen, ``(n, blocks)`` bool."""
    allowance, x, index = task.allowance, task.x, task.layout.index(task.x.device)
    kept = forbidden[:, index.column_block]
    lower = torch.where(kept & index.number_columns, x, allowance.lower)
    upper = torch.where(kept & index.number_columns, x, allowance.upper)
    levels = torch.where(kept & ~index.number_columns, x != 0, allowance.levels)
    return replace(task, allowance=replace(allowance, lower=lower, upper=upper, levels=levels))


def _choose(task: SearchTask, pool: Candidates, k: int) -> Candidates:
    """Choose answers greedily, for all rows at once."""
    pool = pool.cheapest(8 * POOL)
    distance = pool.x.new_full((len(pool),), torch.inf)
    taken = torch.zeros(len(pool), dtype=torch.bool, device=pool.x.device)
    free = replace(task, x=pool.x)  # costs between candidates, not from the rows
    for turn in range(k):
        ratio = distance / pool.cost.clamp_min(1e-12)
        # Answers that are far enough come first, by cost; then the others, by distance.
        rank = torch.where(ratio >= APART, pool.cost, 1e9 - ratio)
        rank = torch.where(taken | (distance <= 0), torch.inf, rank) if turn else pool.cost
        order = torch.argsort(rank, stable=True)
        order = order[torch.argsort(pool.rows[order], stable=True)]
        owners = pool.rows[order]
        first = torch.ones(len(order), dtype=torch.bool, device=pool.x.device)
        first[1:] = owners[1:] != owners[:-1]
        picked = order[first & torch.isfinite(rank[order])]
        taken[picked] = True
        last = torch.full((len(task),), -1, device=pool.x.device)
        last[pool.rows[picked]] = picked
        other = last[pool.rows]
        to_last = free.costs(pool.x, other.clamp_min(0))
        distance = torch.where(other >= 0, torch.minimum(distance, to_last), distance)
    return pool[taken.nonzero()[:, 0]].cheapest(k)
