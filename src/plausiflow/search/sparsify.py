"""Fewer changes for a little more cost: put features back, freeze them, and solve the rest again.

Where many numbers have changed, the search is first repeated with weights that make small changes dear and
large ones cheap, more so each time, which gathers the change in few features; each time's small ones are then
put back. After that, each round tries, for every candidate at once, to put back each changed category and
some of the changed numbers: every one where few have changed, else the smallest third, sixth and one. Of the
attempts that stay within the slack, the one that puts most features back is taken. (Putting back without
solving again does nothing: a plausible answer has few features to spare.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.search.task import Candidates, Task

FEW = 4
"""Up to so many changed numbers, each is tried alone."""
ROUNDS, ITERATIONS = 10, 15
STRENGTHS = ((0.02, 1.0), (0.02, 1.5), (0.02, 2.0), (0.02, 2.0), (0.005, 2.0), (0.005, 2.0))
"""Size of a small change, in units of the range, and how much dearer it becomes than a large one."""
SMALL = 0.01
ROUNDING = 0.15
"""What many changed numbers on grids cost more once they are rounded, as a share: putting them back saves it.
Measured on heloc, where answers that keep all changes end about a tenth dearer."""


def sparsified(task: Task, candidates: Candidates, slack: float) -> Candidates:
    """SearchResult with fewer changes that cost at most ``1 + slack`` of the ones given.

    Where a rule limits the number of changes, features are put back at any cost until it is met.
    """
    state = _State(candidates, task.layout.changed(candidates.x, task.x[candidates.rows]).logical_not())
    gridded = [b.number is not None and b.scale is not None and b.scale.step > 0 for b in task.layout.blocks]
    many = (~state.keep & torch.tensor(gridded, device=state.keep.device)).sum(dim=1) > FEW
    limit = candidates.cost * (1 + slack) * torch.where(many, 1 + ROUNDING, 1.0)
    most = task.allowance.max_changes
    _gather(task, state, limit)
    active = torch.arange(len(candidates), device=candidates.x.device)
    for _ in range(ROUNDS if most is None else max(ROUNDS, len(task.layout.blocks))):
        attempts = _attempts(task, state, active)
        if len(attempts.of) == 0:
            break
        tried = task.solved(attempts.candidates, keep=attempts.keep, iterations=ITERATIONS, curvature=8.0)
        active = state.take(attempts, tried, limit, most)
        if len(active) == 0:
            break
    return state.candidates


def _gather(task: Task, state: _State, limit: Tensor) -> None:
    """Gather the change in few numbers; the state takes what has fewest changes and is within limits."""
    blocks, most = task.layout.blocks, task.allowance.max_changes
    places = [j for j, block in enumerate(blocks) if block.number in set(task.numbers)]
    many = ((~state.keep[:, places]).sum(dim=1) > FEW).nonzero()[:, 0]
    if most is not None:
        many = ((~state.keep).sum(dim=1) > most).nonzero()[:, 0]
    if len(many) == 0 or not places:
        return
    own, points = state.candidates[many], []
    factual = task.x[own.rows][:, task.numbers]
    for small, power in STRENGTHS:
        size = (own.x[:, task.numbers] - factual).abs()
        weights = (1 + size.amax(dim=1, keepdim=True) / small) ** power / (1 + size / small) ** power
        solved = task.solved(own, weights=weights.clamp_max(1e4), iterations=ITERATIONS, curvature=8.0)
        found = torch.isfinite(solved.cost)
        own = replace(own, x=torch.where(found[:, None], solved.x, own.x))
        points.append(own)
    # Small changes are put back for all strengths at once: one long search costs less than many short ones.
    attempts = _small_ones_back(task, state, many.repeat(len(points)), Candidates.joined(*points), places)
    tried = task.solved(attempts.candidates, keep=attempts.keep, iterations=ITERATIONS, curvature=8.0)
    state.take(attempts, tried, limit, most)


def _small_ones_back(task: Task, state: _State, of: Tensor, own: Candidates, places: list[int]) -> _Attempts:
    """Candidates with small changes of numbers put back; where changes are limited, all but the largest."""
    factual, most = task.x[own.rows][:, task.numbers], task.allowance.max_changes
    size = (own.x[:, task.numbers] - factual).abs()
    keep = task.layout.changed(own.x, task.x[own.rows]).logical_not()
    back = size < SMALL
    if most is not None:
        others = (~keep).sum(dim=1) - (~keep[:, places]).sum(dim=1)
        rank = size.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        back |= rank >= (most - others)[:, None]
    keep[:, places] |= back
    columns = torch.tensor(task.numbers, device=own.x.device)
    x = own.x.index_copy(1, columns, torch.where(back, factual, own.x[:, task.numbers]))
    fewer = (keep.sum(dim=1) > state.keep[of].sum(dim=1)).nonzero()[:, 0]
    return _Attempts(of=of[fewer], keep=keep[fewer], candidates=task.candidates(own.rows[fewer], x[fewer]))


@dataclass
class _State:
    """Candidates, and which features each of them keeps as in its row, shape ``(p, blocks)``."""

    candidates: Candidates
    keep: Tensor

    def put(self, where: Tensor, found: Candidates, keep: Tensor) -> None:
        x, cost = self.candidates.x.clone(), self.candidates.cost.clone()
        x[where], cost[where] = found.x, found.cost
        self.candidates = replace(self.candidates, x=x, cost=cost)
        self.keep = self.keep.index_copy(0, where, keep)

    def take(self, attempts: _Attempts, tried: Candidates, limit: Tensor, most: int | None) -> Tensor:
        """Take the best attempt for each candidate that has one within its limit; returns which these are."""
        back = attempts.keep.sum(dim=1) - self.keep[attempts.of].sum(dim=1)
        bound = limit[attempts.of]
        if most is not None:
            over = (~self.keep[attempts.of]).sum(dim=1) > most
            bound = torch.where(over, torch.inf, bound)
        fine = torch.isfinite(tried.cost) & (tried.cost <= bound)
        # Most features back first, then the cheapest: a batch never decides.
        rank = torch.where(fine, tried.cost - 1e6 * back, torch.inf)
        order = _first(attempts.of, rank, len(self.keep))
        taken = order[torch.isfinite(rank[order])]
        self.put(attempts.of[taken], tried[taken], attempts.keep[taken])
        return attempts.of[taken]


@dataclass(frozen=True)
class _Attempts:
    """What is tried: for which candidate, with which features kept, and from where."""

    of: Tensor
    keep: Tensor
    candidates: Candidates


def _attempts(task: Task, state: _State, active: Tensor) -> _Attempts:
    own = state.candidates[active]
    factual, keep = task.x[own.rows], state.keep[active]
    drops, which = [], []
    everyone = torch.arange(len(active), device=active.device)
    blocks = task.layout.blocks
    numeric = torch.tensor([block.number is not None for block in blocks], device=active.device)
    size = factual.new_zeros(len(active), len(blocks))
    for j, block in enumerate(blocks):
        if block.number is not None:
            delta = (own.x[:, block.number] - factual[:, block.number]).abs()
            size[:, j] = delta * task.weight_of[block.name] ** 0.5
    changed_numbers = ~keep & numeric
    count = changed_numbers.sum(dim=1)
    ranked = size.masked_fill(~changed_numbers, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    for j in range(len(blocks)):
        single = ~keep[:, j] & (~numeric[j] | (count <= FEW))
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
    candidates = task.candidates(own.rows[index], x)
    return _Attempts(of=active[index], keep=keep[index] | dropped, candidates=candidates)


def _first(of: Tensor, rank: Tensor, n: int) -> Tensor:
    """Position of the lowest rank for each candidate that was tried; the earlier of two equal ones."""
    order = torch.argsort(rank, stable=True)
    order = order[torch.argsort(of[order], stable=True)]
    owners = of[order]
    first = torch.ones(len(order), dtype=torch.bool, device=of.device)
    first[1:] = owners[1:] != owners[:-1]
    return order[first]
