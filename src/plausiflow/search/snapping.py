"""Answers as they will be written: numbers on their grids, checked there.

Plain rounding loses many answers, which lie on the boundary of what is plausible. So the neighbours on the
grid are tried, all combinations of the coarsest few; and where none of them will do, the search is repeated a
little deeper inside, and rounded again.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from plausiflow.search.task import Candidates, Task

COARSEST = 6
DEEPER = (0.1, 0.3, 0.8)
SLACK = 1e-9


def snapped(task: Task, candidates: Candidates) -> Candidates:
    """Every candidate on the grid, with its cost there; infinite where no neighbour is an answer."""
    done = _best_neighbours(task, candidates)
    for deeper in DEEPER:
        lost = ~torch.isfinite(done.cost)
        # A row that has an answer already needs no dearer one.
        best = task.x.new_full((len(task),), torch.inf).scatter_reduce(0, done.rows, done.cost, "amin")
        again = (lost & (candidates.cost <= best[done.rows])).nonzero()[:, 0]
        if len(again) == 0:
            break
        keep = task.layout.changed(candidates.x[again], task.x[candidates.rows[again]]).logical_not()
        solved = task.solved(candidates[again], keep=keep, deeper=deeper, iterations=40)
        found = torch.isfinite(solved.cost)
        better = _best_neighbours(task, solved[found])
        x, cost = done.x.clone(), done.cost.clone()
        x[again[found]], cost[again[found]] = better.x, better.cost
        done = Candidates(rows=done.rows, x=x, cost=cost)
    return done


def _best_neighbours(task: Task, candidates: Candidates) -> Candidates:
    """The nearest point on the grid where it is an answer, else the cheapest of its neighbours that is."""
    own = task.checked(task.candidates(candidates.rows, _on_grid(task, candidates)))
    lost = (~torch.isfinite(own.cost)).nonzero()[:, 0]
    gridded = [b for b in task.mutable if b.number is not None and b.scale is not None and b.scale.step]
    if len(lost) == 0 or not gridded:
        return own
    base, rows = candidates[lost], candidates.rows[lost]
    moving = _coarsest(task, base, [block.number for block in gridded if block.number is not None])
    x, cost = own.x[lost].clone(), own.cost[lost].clone()
    most = int(moving.sum(dim=1).max())
    for shifts in product((0, 1), repeat=most):
        if most == 0:
            break
        trial = _on_grid(task, base, _directions(moving, shifts))
        checked = task.checked(task.candidates(rows, trial))
        better = checked.cost < cost
        x[better], cost[better] = checked.x[better], checked.cost[better]
    all_x, all_cost = own.x.clone(), own.cost.clone()
    all_x[lost], all_cost[lost] = x, cost
    return Candidates(rows=own.rows, x=all_x, cost=all_cost)


def _coarsest(task: Task, base: Candidates, columns: list[int]) -> Tensor:
    """The coarsest changed numbers of each candidate, ``(p, width)`` bool, at most ``COARSEST`` of them."""
    steps = task.x.new_zeros(task.layout.width)
    for block in task.mutable:
        if block.number in columns and block.scale is not None:
            steps[block.number] = block.scale.encoded_step or 1e-3
    changed = base.x != task.x[base.rows]
    size = torch.where(changed, steps, 0.0)
    few = size.topk(min(COARSEST, size.shape[1]), dim=1)
    chosen = torch.zeros_like(changed)
    return chosen.scatter(1, few.indices, few.values > 0)


def _directions(moving: Tensor, shifts: tuple[int, ...]) -> Tensor:
    """Which moving numbers go up to the next grid point instead of down, shape ``(p, width)`` long."""
    place = (moving.cumsum(dim=1) - 1).clamp_min(0)
    up = torch.tensor(shifts, device=moving.device)[place.clamp_max(len(shifts) - 1)]
    return torch.where(moving, up, -1)


def _on_grid(task: Task, candidates: Candidates, directions: Tensor | None = None) -> Tensor:
    """Numbers that differ from the row's on their grids, inside their bounds; up (1), down (0) or nearest."""
    x, factual = candidates.x.clone(), task.x[candidates.rows]
    lower, upper = task.allowance.lower[candidates.rows], task.allowance.upper[candidates.rows]
    free = task.layout.free(task.layout.codes(x))
    for block in task.mutable:
        if block.number is None or block.scale is None or not block.scale.step:
            continue
        j, scale = block.number, block.scale
        value = x[:, j]
        near = scale.snap(value)
        if directions is not None:
            floor = torch.where(near <= value + SLACK, near, scale.snap(value, -1))
            ceiling = torch.where(near >= value - SLACK, near, scale.snap(value, 1))
            near = torch.where(
                directions[:, j] == 1, ceiling, torch.where(directions[:, j] == 0, floor, near)
            )
        # Rounding may not leave the bounds: one step back inside.
        near = torch.where(near > upper[:, j] + SLACK, scale.snap(value, -1), near)
        near = torch.where(near < lower[:, j] - SLACK, scale.snap(value, 1), near)
        near = torch.minimum(torch.maximum(near, lower[:, j]), upper[:, j])
        x[:, j] = torch.where(free[:, j] & (value != factual[:, j]), near, value)
    return x
