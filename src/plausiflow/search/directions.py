"""Sensible directions: answers without changes that alone take their row farther from its target.

A solver cannot see such *adverse* changes: they make a row more plausible, and the rest of the answer more
than makes up for them. So a row whose answer has some is solved once more and may not go these ways, from
that answer and from bank rows near by. What is found competes with the other answers
(:func:`~plausiflow.search.sparsify.preferred`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates
from plausiflow.search.rounding import put_on_grid
from plausiflow.search.sparsify import adverse_changes, with_factual
from plausiflow.search.task import SearchTask

ROUNDS = 3
"""How often a row is solved again: without one adverse change, another may appear."""
MAX_WITHOUT_ANSWER = 15
"""Iterations without an answer."""
FINALISTS = 2
"""Answers of each row that are put on the grid."""


def without_adverse(
    task: SearchTask,
    answers: Candidates,
    limits: Tensor,
    starts: Callable[[SearchTask, Tensor], Candidates],
) -> Candidates:
    """Return answers on the grid that do without the adverse changes of the ones given, where there are any.

    Args:
        task: The task.
        answers: One answer for each row that has some.
        limits: The highest cost of an answer of each row, shape ``(n,)``.
        starts: Returns more candidates to solve, for a task and its limits.
    """
    found = [answers[answers.rows[:0]]]
    part, best, of = task, answers, answers.rows
    for _ in range(ROUNDS):
        adverse = adverse_changes(part, best, part.layout.changed(best.x, part.x[best.rows]))
        which = adverse.any(dim=1).nonzero()[:, 0]
        if len(which) == 0:
            break
        own, of = best[which], of[which]
        part = closed(part.at(own.rows), own.x, adverse[which])
        own = replace(own, rows=torch.arange(len(own), device=own.rows.device))
        begin = part.repair(replace(own, x=with_factual(part, own, adverse[which])))
        start = part.candidates(own.rows, part.x)
        begin = Candidates.concat(start, begin, starts(part, limits[of])).unique()
        solved = part.solve(
            begin,
            limits=limits[of[begin.rows]],
            max_without_answer=MAX_WITHOUT_ANSWER,
            answers=1,
            paced=True,
        )
        best = put_on_grid(part, solved.feasible.cheapest(FINALISTS)).feasible.cheapest(1)
        of = of[best.rows]
        found.append(replace(best, rows=of))
    return Candidates.concat(*found)


def closed(task: SearchTask, x_cf: Tensor, changes: Tensor) -> SearchTask:
    """Return the task whose rows do not go the way of some changes ``(n, blocks)`` of points ``(n, width)``.

    A number may go the other way, and a category to other levels.
    """
    allowance, x, index = task.allowance, task.x, task.layout.index(task.x.device)
    changed = changes[:, index.column_block]
    levels = allowance.levels & (~changed | (x_cf == 0) | (x != 0))
    moved = changed & index.number_columns
    lower = torch.where(moved & (x_cf < x), x, allowance.lower)
    upper = torch.where(moved & (x_cf > x), x, allowance.upper)
    return replace(task, allowance=replace(allowance, lower=lower, upper=upper, levels=levels))
