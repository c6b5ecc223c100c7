"""Put the numbers of answers on the grids of their columns, and check them there.

Plain rounding loses many answers, because they are on the boundary of what is plausible. So the neighbours on
the grid are tried, all combinations of the coarsest few; if none is feasible, the search is repeated with
extra plausibility, and rounded again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from plausiflow.constraints import repair_numbers
from plausiflow.search.candidates import Candidates
from plausiflow.search.row_random import row_keys, uniforms
from plausiflow.search.task import SearchTask

COARSEST = 6
EXTRA_PLAUSIBILITY = (0.1, 0.3, 0.8)
SLACK = 1e-9
TRIES, KEPT = 16, 3


def put_on_grid(task: SearchTask, candidates: Candidates) -> Candidates:
    """Return every candidate on the grid with its cost there, infinite if no neighbour is feasible."""
    done = _best_neighbours(task, candidates)
    for extra in EXTRA_PLAUSIBILITY:
        lost = ~torch.isfinite(done.cost)
        # A row that has an answer needs no more expensive one.
        best = task.x.new_full((len(task),), torch.inf).scatter_reduce(0, done.rows, done.cost, "amin")
        again = (lost & (candidates.cost <= best[done.rows])).nonzero()[:, 0]
        if len(again) == 0:
            break
        frozen = task.layout.changed(candidates.x[again], task.x[candidates.rows[again]]).logical_not()
        solved = task.solve(candidates[again], frozen=frozen, extra_plausibility=extra, iterations=40)
        found = torch.isfinite(solved.cost)
        better = _best_neighbours(task, solved[found])
        x, cost = done.x.clone(), done.cost.clone()
        x[again[found]], cost[again[found]] = better.x, better.cost
        done = Candidates(rows=done.rows, x=x, cost=cost)
    return done


def _best_neighbours(task: SearchTask, candidates: Candidates) -> Candidates:
    """Return the nearest point on the grid if it is feasible, else its cheapest feasible neighbour."""
    own = task.check(task.candidates(candidates.rows, on_grid(task, candidates)))
    lost = (~torch.isfinite(own.cost)).nonzero()[:, 0]
    gridded = [b for b in task.mutable if b.number is not None and b.scale is not None and b.scale.step]
    if len(lost) == 0 or not gridded:
        return own
    base = candidates[lost]
    moving = _coarsest(task, base, [block.number for block in gridded if block.number is not None])
    most = int(moving.sum(dim=1).max())
    if most == 0:
        return own
    # All neighbours of all of them at once: one check of many points costs less than many of few.
    shifts = torch.tensor(list(product((0, 1), repeat=most)), device=moving.device)
    several = base[torch.arange(len(base), device=moving.device).repeat_interleave(len(shifts))]
    trial = on_grid(task, several, _directions(moving, shifts).flatten(0, 1))
    checked = task.check(task.candidates(several.rows, trial))
    cost, first = checked.cost.view(len(base), -1).min(dim=1)
    x = checked.x.view(len(base), -1, checked.x.shape[1])[
        torch.arange(len(base), device=moving.device), first
    ]
    found = torch.isfinite(cost)
    all_x, all_cost = own.x.clone(), own.cost.clone()
    all_x[lost[found]], all_cost[lost[found]] = x[found], cost[found]
    return Candidates(rows=own.rows, x=all_x, cost=all_cost)


def _coarsest(task: SearchTask, base: Candidates, columns: list[int]) -> Tensor:
    """Return the coarsest changed numbers of each candidate, at most ``COARSEST``, ``(p, width)`` bool."""
    steps = task.x.new_zeros(task.layout.width)
    for block in task.mutable:
        if block.number in columns and block.scale is not None:
            steps[block.number] = block.scale.encoded_step or 1e-3
    changed = base.x != task.x[base.rows]
    size = torch.where(changed, steps, 0.0)
    few = size.topk(min(COARSEST, size.shape[1]), dim=1)
    chosen = torch.zeros_like(changed)
    return chosen.scatter(1, few.indices, few.values > 0)


def _directions(moving: Tensor, shifts: Tensor) -> Tensor:
    """Return which moving numbers go up (1) to the next grid point or down (0), ``(p, shifts, width)``."""
    place = (moving.cumsum(dim=1) - 1).clamp(0, shifts.shape[1] - 1)
    return torch.where(moving[:, None], shifts.T[place].permute(0, 2, 1), -1)


def on_grid(task: SearchTask, candidates: Candidates, directions: Tensor | None = None) -> Tensor:
    """Return candidates with their changed numbers on the grid, in bounds: up (1), down (0) or nearest."""
    x, columns = candidates.x, [column for column in task.layout.gridded if column in task.movable]
    near, below, above = (part[:, columns] for part in task.layout.grid_neighbours(x))
    own, factual = x[:, columns], task.x[candidates.rows][:, columns]
    lower = task.allowance.lower[candidates.rows][:, columns]
    upper = task.allowance.upper[candidates.rows][:, columns]
    if directions is not None:
        floor = torch.where(near <= own + SLACK, near, below)
        ceiling = torch.where(near >= own - SLACK, near, above)
        direction = directions[:, columns]
        near = torch.where(direction == 1, ceiling, torch.where(direction == 0, floor, near))
    # A number that leaves its bounds goes one step back inside.
    near = torch.where(near > upper + SLACK, below, near)
    near = torch.where(near < lower - SLACK, above, near)
    near = torch.minimum(torch.maximum(near, lower), upper)
    free = task.layout.always_free
    free = task.free_numbers(task.codes_of(x))[:, columns] if free is None else free.to(x.device)[columns]
    placed = x.clone()
    placed[:, columns] = torch.where(free & (own != factual), near, own)
    if task.allowance.clauses:
        placed = repair_numbers(task.allowance, placed, candidates.rows)
    return task.layout.settle(placed)


def round_randomly(task: SearchTask, candidates: Candidates) -> Candidates:
    """Return feasible points on the grid near the candidates: the nearest ones and random neighbours.

    A row without any is solved again with extra plausibility. Random numbers depend on the candidate only.
    """
    found = _at_random(task, candidates)
    for extra in EXTRA_PLAUSIBILITY[1:]:
        again = candidates[~torch.isin(candidates.rows, found.rows)]
        if len(again) == 0:
            break
        frozen = task.layout.changed(again.x, task.x[again.rows]).logical_not()
        solved = task.solve(again, frozen=frozen, extra_plausibility=extra, iterations=25).feasible
        found = Candidates.concat(found, _at_random(task, solved))
    return found


def _at_random(task: SearchTask, candidates: Candidates) -> Candidates:
    """Return the cheapest three feasible ones of a candidate's nearest point and 15 random neighbours."""
    x, columns = candidates.x, task.layout.gridded
    places = x.repeat_interleave(TRIES, dim=0)
    floor, ceiling = (on_grid(task, candidates, torch.full_like(x, way, dtype=torch.long)) for way in (0, 1))
    part = ((x - floor) / (ceiling - floor)).nan_to_num(0.5)[:, columns]
    draw = uniforms(row_keys(x), TRIES * len(columns), salt=7).view(len(x), TRIES, len(columns))
    up = (draw < part[:, None]).long()
    up[:, 0] = -1
    directions = torch.full_like(places, -1, dtype=torch.long)
    directions[:, columns] = up.view(len(places), len(columns))
    own = task.candidates(candidates.rows.repeat_interleave(TRIES), places)
    own = replace(own, x=on_grid(task, own, directions)).unique()
    return task.check(own).feasible.cheapest(KEPT)
