"""Fewer changes for a little more cost: changed features are reset, and the rest is solved again.

Resetting without solving again does nothing: a plausible answer has few features to spare. So each round asks
what every reset alone would violate, tries the least harmful ones, alone and together, and solves the numbers
that may still change. Of the attempts within the limit it takes the one with the lowest cost plus price per
change; the price is what is left of the limit, divided among the features that are still changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.task import SearchTask

ITERATIONS = 15
SINGLES, SHARES = 4, (1 / 2, 1 / 3, 1 / 6)
"""How many features a round resets: each of the least harmful few alone, and shares of all changed ones."""


def sparsify(
    task: SearchTask, candidates: Candidates, limits: Tensor, solved: Candidates | None = None
) -> Candidates:
    """Return answers with fewer changes for the ones given, each at most as expensive as its limit ``(p,)``.

    If a rule limits the number of changes, features are reset at any cost until it is satisfied. The sets of
    changed features of the candidates ``solved`` have been solved already, and are not tried again.
    """
    state = _SparseState(candidates, task.layout.changed(candidates.x, task.x[candidates.rows]))
    active = torch.arange(len(candidates), device=candidates.x.device)
    for _ in task.layout.blocks:
        attempts = _attempts(task, state, active)
        if solved is not None:
            attempts = attempts.without(task, solved)
        if len(attempts.of) == 0:
            break
        tried = task.solve(
            attempts.candidates, frozen=~attempts.changed, iterations=ITERATIONS, curvature=8.0
        )
        active = state.take(attempts, tried, limits, task.allowance.max_changes)
    return state.candidates


def preferred(task: SearchTask, answers: Candidates, max_extra_cost: float, count: int) -> Candidates:
    """Return up to ``count`` answers of each row, cheapest first.

    The first is the one with the fewest changes among those that cost at most ``1 + max_extra_cost`` times
    the cheapest one; of equally many changes the cheapest. More expensive answers follow, and cheaper ones
    with more changes are left out.
    """
    rows, cost = answers.rows, answers.cost
    least = cost.new_full((len(task),), torch.inf).scatter_reduce(0, rows, cost, "amin")
    within = cost <= (1 + max_extra_cost) * least[rows]
    changes = task.layout.changed(answers.x, task.x[rows]).sum(dim=1)
    rank = torch.where(within, changes, len(task.layout.blocks) + 1)
    order = torch.argsort(cost, stable=True)
    order = order[torch.argsort(rank[order], stable=True)]
    first = order[cheapest(rows[order], torch.zeros_like(cost), 1)]
    chosen = cost.new_full((len(task),), torch.inf).index_copy(0, rows[first], cost[first])
    others = torch.ones_like(within).index_fill(0, first, False) & (cost >= chosen[rows])
    return Candidates.concat(answers[first], answers[others.nonzero()[:, 0]]).cheapest(count)


@dataclass
class _SparseState:
    """Candidates, and which features of each are changed, shape ``(p, blocks)``."""

    candidates: Candidates
    changed: Tensor

    def take(self, attempts: _Attempts, tried: Candidates, limits: Tensor, most: int | None) -> Tensor:
        """Take the best attempt of each candidate that has one within its limit; return these candidates."""
        of, count = attempts.of, self.changed.sum(dim=1)
        bound = limits if most is None else torch.where(count > most, torch.inf, limits)
        price = ((limits - self.candidates.cost) / count).clamp_min(0)
        merit = tried.cost + price[of] * attempts.changed.sum(dim=1)
        merit = torch.where(tried.cost <= bound[of], merit, torch.inf)
        best = cheapest(of, merit, 1)
        best = best[torch.isfinite(merit[best])]
        x, cost = self.candidates.x.clone(), self.candidates.cost.clone()
        x[of[best]], cost[of[best]] = tried.x[best], tried.cost[best]
        self.candidates = replace(self.candidates, x=x, cost=cost)
        self.changed = self.changed.index_copy(0, of[best], attempts.changed[best])
        return of[best]


@dataclass(frozen=True)
class _Attempts:
    """Attempts: the candidate of each, the features that may still change, and its starting point."""

    of: Tensor
    changed: Tensor
    candidates: Candidates

    def without(self, task: SearchTask, solved: Candidates) -> _Attempts:
        """Return the attempts whose row, levels and changed features differ from those of all candidates."""
        own = (self.candidates.rows, self.changed, task.codes_of(self.candidates.x))
        others = (solved.rows, task.layout.changed(solved.x, task.x[solved.rows]), task.codes_of(solved.x))
        keys = torch.cat(
            [torch.cat([rows[:, None], changed.long(), codes], 1) for rows, changed, codes in (others, own)]
        )
        _, group = torch.unique(keys, dim=0, return_inverse=True)
        left = (~torch.isin(group[len(solved) :], group[: len(solved)])).nonzero()[:, 0]
        return _Attempts(of=self.of[left], changed=self.changed[left], candidates=self.candidates[left])


def _attempts(task: SearchTask, state: _SparseState, active: Tensor) -> _Attempts:
    """Return what a round tries: the candidates with some of their changed features reset."""
    own, changed = state.candidates[active], state.changed[active]
    count = changed.sum(dim=1)
    harm = _harm(task, own, changed) if bool((count > SINGLES).any()) else (~changed).to(own.x)
    rank = harm.argsort(dim=1, stable=True).argsort(dim=1)
    several = [torch.where(count > SINGLES, (count * share).long(), 0) for share in SHARES]
    resets = [(rank == j) & changed for j in range(min(SINGLES, changed.shape[1]))]
    resets += [(rank < number[:, None]) & changed for number in several]
    reset = torch.stack(resets)
    # The row itself is no answer.
    tried = reset.any(dim=2) & (changed & ~reset).any(dim=2)
    _, of = tried.nonzero(as_tuple=True)
    x = with_factual(task, own[of], reset[tried])
    left = changed[of] & ~reset[tried]
    candidates = task.repair(task.candidates(own.rows[of], x), ~left)
    return _Attempts(of=active[of], changed=left, candidates=candidates)


def _harm(task: SearchTask, own: Candidates, changed: Tensor) -> Tensor:
    """Return by how much resetting each changed feature alone violates the constraints, ``(p, blocks)``."""
    which, feature = changed.nonzero(as_tuple=True)
    reset = torch.nn.functional.one_hot(feature, changed.shape[1]).bool()
    values = task.constraint_values(with_factual(task, own[which], reset), own.rows[which])
    harm = own.x.new_full(changed.shape, torch.inf)
    harm[which, feature] = (-values).clamp_min(0).sum(dim=1)
    return harm


def with_factual(task: SearchTask, own: Candidates, reset: Tensor) -> Tensor:
    """Return encoded candidates with some features, ``(p, blocks)`` bool, at the values of their rows."""
    columns = torch.zeros(reset.shape[1], task.layout.width, dtype=torch.bool, device=own.x.device)
    for j, block in enumerate(task.layout.blocks):
        columns[j, block.columns] = True
    back = (reset.to(own.x) @ columns.to(own.x)) > 0
    return torch.where(back, task.x[own.rows], own.x)
