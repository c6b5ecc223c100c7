"""Local search over levels: changed categories go back to the row's own, one at a time.

A search that starts from a bank row takes over its categories, needed or not. Each changed one of the best
answers is reset, the numbers are solved again, and what became cheaper is tried further.
"""

from __future__ import annotations

import torch

from plausiflow.search.candidates import Candidates
from plausiflow.search.sparsify import with_factual
from plausiflow.search.task import SearchTask

MAX_WITHOUT_ANSWER = 15
"""Iterations without an answer of a search whose row has an answer already."""


def reset_levels(task: SearchTask, answers: Candidates, count: int, max_extra_cost: float) -> Candidates:
    """Return the answers, and the ones that the cheapest ``count`` of each row lead to with fewer levels.

    Combinations of levels that have an answer are not solved again, and a search that has to cost more than
    ``1 + max_extra_cost`` times the best answer of its row ends.
    """
    if not task.layout.with_levels:
        return answers
    known, active = answers, distinct_levels(task, answers).cheapest(count)
    tried = _levels(task, answers)
    for _ in range(len(task.layout.with_levels)):
        trial = _reset_each(task, active)
        both = Candidates.concat(tried, _levels(task, trial))
        first = both.first_occurrences()
        trial, tried = trial[first[first >= len(tried)] - len(tried)], both[first]
        if len(trial) == 0:
            break
        best = task.x.new_full((len(task),), torch.inf)
        best.scatter_reduce_(0, active.rows, active.cost, "amin")
        solved = task.solve(
            trial,
            max_without_answer=MAX_WITHOUT_ANSWER,
            limits=(1 + max_extra_cost) * best[trial.rows],
            answers=count,
            paced=True,
        ).feasible
        known = Candidates.concat(known, solved)
        active = solved[solved.cost < best[solved.rows]].cheapest(count)
    return known.unique()


def distinct_levels(task: SearchTask, answers: Candidates) -> Candidates:
    """Return the cheapest answer of each row and combination of levels, cheapest first."""
    ordered = answers.cheapest(len(answers))
    return ordered[_levels(task, ordered).first_occurrences()]


def _levels(task: SearchTask, answers: Candidates) -> Candidates:
    return task.candidates(answers.rows, task.codes_of(answers.x).to(answers.x))


def _reset_each(task: SearchTask, answers: Candidates) -> Candidates:
    """Return the answers with one changed category each at the row's own level, and what rules tie to it."""
    codes, own = task.codes_of(answers.x), task.codes[answers.rows]
    which, feature = (codes != own).nonzero(as_tuple=True)
    blocks = task.layout.blocks
    place = torch.tensor([j for j, block in enumerate(blocks) if len(block.levels)], device=which.device)
    reset = torch.nn.functional.one_hot(place[feature], len(blocks)).bool()
    x = with_factual(task, answers[which], reset)
    return task.repair(task.candidates(answers.rows[which], x), reset)
