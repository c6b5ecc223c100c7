"""Fewer changes for a little more cost: reset features, freeze them, and solve the rest again.

If many numbers have changed, the search is first repeated with weights that make small changes expensive and
large ones cheap, more so each time, which concentrates the change in few features; the small changes of each
time are then reset. After that, each round tries, for every candidate at once, to reset each changed category
and some of the changed numbers: every one if few have changed, else the smallest third, sixth and one. Of the
attempts within the limit, the one that resets most features is taken. Resetting without solving again does
nothing: a plausible answer has few features to spare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.task import SearchTask

FEW = 4
"""Up to this number of changed numbers, each is tried alone."""
ROUNDS, ITERATIONS = 10, 15
STRENGTHS = ((0.02, 1.0), (0.02, 1.5), (0.02, 2.0), (0.02, 2.0), (0.005, 2.0), (0.005, 2.0))
"""Size of a small change, in units of the range, and how much more expensive it becomes than a large one."""
SMALL = 0.01


def sparsify(
    task: SearchTask, candidates: Candidates, limits: Tensor, solved: Candidates | None = None
) -> Candidates:
    """Return answers with fewer changes for the ones given, each at most as expensive as its limit ``(p,)``.

    If a rule limits the number of changes, features are reset at any cost until it is satisfied. The sets of
    changed features of the candidates ``solved`` have been solved already, and are not tried again.
    """
    state = _SparseState(candidates, task.layout.changed(candidates.x, task.x[candidates.rows]).logical_not())
    most = task.allowance.max_changes
    _concentrate(task, state, limits)
    active = torch.arange(len(candidates), device=candidates.x.device)
    for _ in range(ROUNDS if most is None else max(ROUNDS, len(task.layout.blocks))):
        attempts = _attempts(task, state, active)
        if solved is not None:
            attempts = attempts.without(task, solved)
        if len(attempts.of) == 0:
            break
        tried = task.solve(attempts.candidates, frozen=attempts.frozen, iterations=ITERATIONS, curvature=8.0)
        active = state.take(attempts, tried, limits, most)
        if len(active) == 0:
            break
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


def _concentrate(task: SearchTask, state: _SparseState, limits: Tensor) -> None:
    """Concentrate the change in few numbers; the state takes the fewest changes within the limits."""
    blocks, most = task.layout.blocks, task.allowance.max_changes
    places = [j for j, block in enumerate(blocks) if block.number in set(task.numbers)]
    many = ((~state.frozen[:, places]).sum(dim=1) > FEW).nonzero()[:, 0]
    if most is not None:
        many = ((~state.frozen).sum(dim=1) > most).nonzero()[:, 0]
    if len(many) == 0 or not places:
        return
    own, points = state.candidates[many], []
    factual = task.x[own.rows][:, task.numbers]
    for small, power in STRENGTHS:
        size = (own.x[:, task.numbers] - factual).abs()
        weights = (1 + size.amax(dim=1, keepdim=True) / small) ** power / (1 + size / small) ** power
        solved = task.solve(own, weights=weights.clamp_max(1e4), iterations=ITERATIONS, curvature=8.0)
        found = torch.isfinite(solved.cost)
        own = replace(own, x=torch.where(found[:, None], solved.x, own.x))
        points.append(own)
    # Small changes are reset for all strengths at once: one long search costs less than many short ones.
    attempts = _reset_small_changes(task, state, many.repeat(len(points)), Candidates.concat(*points), places)
    tried = task.solve(attempts.candidates, frozen=attempts.frozen, iterations=ITERATIONS, curvature=8.0)
    state.take(attempts, tried, limits, most)


def _reset_small_changes(
    task: SearchTask, state: _SparseState, of: Tensor, own: Candidates, places: list[int]
) -> _Attempts:
    """Return attempts that reset small changes of numbers; if changes are limited, all but the largest."""
    factual, most = task.x[own.rows][:, task.numbers], task.allowance.max_changes
    size = (own.x[:, task.numbers] - factual).abs()
    frozen = task.layout.changed(own.x, task.x[own.rows]).logical_not()
    back = size < SMALL
    if most is not None:
        others = (~frozen).sum(dim=1) - (~frozen[:, places]).sum(dim=1)
        rank = size.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        back |= rank >= (most - others)[:, None]
    frozen[:, places] |= back
    columns = torch.tensor(task.numbers, device=own.x.device)
    x = own.x.index_copy(1, columns, torch.where(back, factual, own.x[:, task.numbers]))
    fewer = (frozen.sum(dim=1) > state.frozen[of].sum(dim=1)).nonzero()[:, 0]
    return _Attempts(
        of=of[fewer], frozen=frozen[fewer], candidates=task.candidates(own.rows[fewer], x[fewer])
    )


@dataclass
class _SparseState:
    """Candidates, and which features of each have the factual's value, shape ``(p, blocks)``."""

    candidates: Candidates
    frozen: Tensor

    def put(self, where: Tensor, found: Candidates, frozen: Tensor) -> None:
        x, cost = self.candidates.x.clone(), self.candidates.cost.clone()
        x[where], cost[where] = found.x, found.cost
        self.candidates = replace(self.candidates, x=x, cost=cost)
        self.frozen = self.frozen.index_copy(0, where, frozen)

    def take(self, attempts: _Attempts, tried: Candidates, limit: Tensor, most: int | None) -> Tensor:
        """Take the best attempt of each candidate that has one within its limit; return these candidates."""
        back = attempts.frozen.sum(dim=1) - self.frozen[attempts.of].sum(dim=1)
        bound = limit[attempts.of]
        if most is not None:
            over = (~self.frozen[attempts.of]).sum(dim=1) > most
            bound = torch.where(over, torch.inf, bound)
        fine = torch.isfinite(tried.cost) & (tried.cost <= bound)
        # Most features reset first, then the cheapest: the batch never decides.
        rank = torch.where(fine, tried.cost - 1e6 * back, torch.inf)
        order = _first(attempts.of, rank)
        taken = order[torch.isfinite(rank[order])]
        self.put(attempts.of[taken], tried[taken], attempts.frozen[taken])
        return attempts.of[taken]


@dataclass(frozen=True)
class _Attempts:
    """Attempts: the candidate of each, its frozen features, and its starting point."""

    of: Tensor
    frozen: Tensor
    candidates: Candidates

    def without(self, task: SearchTask, solved: Candidates) -> _Attempts:
        """Return the attempts whose row, levels and frozen features differ from those of all candidates."""
        unchanged = ~task.layout.changed(solved.x, task.x[solved.rows])
        own = (self.candidates.rows, self.frozen, task.codes_of(self.candidates.x))
        others = (solved.rows, unchanged, task.codes_of(solved.x))
        keys = torch.cat(
            [torch.cat([rows[:, None], kept.long(), codes], 1) for rows, kept, codes in (others, own)]
        )
        _, group = torch.unique(keys, dim=0, return_inverse=True)
        left = (~torch.isin(group[len(solved) :], group[: len(solved)])).nonzero()[:, 0]
        return _Attempts(of=self.of[left], frozen=self.frozen[left], candidates=self.candidates[left])


def _attempts(task: SearchTask, state: _SparseState, active: Tensor) -> _Attempts:
    own = state.candidates[active]
    factual, frozen = task.x[own.rows], state.frozen[active]
    drops, which = [], []
    everyone = torch.arange(len(active), device=active.device)
    blocks = task.layout.blocks
    numeric = torch.tensor([block.number is not None for block in blocks], device=active.device)
    size = factual.new_zeros(len(active), len(blocks))
    for j, block in enumerate(blocks):
        if block.number is not None:
            delta = (own.x[:, block.number] - factual[:, block.number]).abs()
            size[:, j] = delta * task.weight_of[block.name]
    changed_numbers = ~frozen & numeric
    count = changed_numbers.sum(dim=1)
    ranked = size.masked_fill(~changed_numbers, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    for j in range(len(blocks)):
        single = ~frozen[:, j] & (~numeric[j] | (count <= FEW))
        which.append(everyone[single])
        drops.append(torch.nn.functional.one_hot(torch.full((int(single.sum()),), j), len(blocks)).bool())
    for share in (1 / 3, 1 / 6, 0.0):
        many = count > FEW
        how_many = (count * share).long().clamp_min(1)
        which.append(everyone[many])
        drops.append(((ranked < how_many[:, None]) & changed_numbers)[many].cpu())
    index, dropped = torch.cat(which), torch.cat(drops).to(active.device)
    x = own.x[index].clone()
    for j, block in enumerate(blocks):
        back = dropped[:, j]
        for column in block.columns:
            x[back, column] = factual[index[back], column]
    kept = frozen[index] | dropped
    candidates = task.repair(task.candidates(own.rows[index], x), kept)
    changing = (~kept).any(dim=1).nonzero()[:, 0]  # the row itself is no answer
    return _Attempts(of=active[index[changing]], frozen=kept[changing], candidates=candidates[changing])


def _first(of: Tensor, rank: Tensor) -> Tensor:
    """Return the position of the lowest rank of each candidate; the earlier one of equal ranks."""
    order = torch.argsort(rank, stable=True)
    order = order[torch.argsort(of[order], stable=True)]
    owners = of[order]
    first = torch.ones(len(order), dtype=torch.bool, device=of.device)
    first[1:] = owners[1:] != owners[:-1]
    return order[first]
