"""Put the numbers of answers on the grids of their columns, and check them there.

Plain rounding loses many answers, because they are on the boundary of what is plausible. So the numbers that
matter most to the broken constraints, by their gradients at the rounded point, also go to the grid point on
the other side. Of all combinations the linearised constraints choose a few: the cheapest ones that satisfy
them, then the ones that miss least. If no such point is feasible, the answer is solved again with several
extra amounts of plausibility at once, and rounded again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from plausiflow.constraints import repair_numbers
from plausiflow.core import Evaluation
from plausiflow.search.candidates import Candidates
from plausiflow.search.numbers import number_problem
from plausiflow.search.reweighted import RESTORING
from plausiflow.search.row_random import row_keys, uniforms
from plausiflow.search.task import SearchTask

FLIPPED = 5
"""How many numbers of an answer also go to the grid point on their other side."""
CHECKED = 10
"""Combinations of such numbers that are checked first. Of 31 the linearised constraints rank a feasible one
among these in 19 of 20 cases; a row that has no answer then gets all of them checked."""
EXTRA_PLAUSIBILITY = (0.1, 0.3, 0.8)
ITERATIONS = 10
SLACK = 1e-9
TRIES, KEPT = 16, 3


def put_on_grid(task: SearchTask, candidates: Candidates, *, any_answer: bool = False) -> Candidates:
    """Return every candidate on the grid with its cost there, infinite if no neighbour is feasible.

    With ``any_answer``, a row that has an answer needs no cheaper one.
    """
    done = _best_neighbours(task, candidates)
    # A row that has an answer needs no more expensive one.
    best = task.x.new_full((len(task),), torch.inf).scatter_reduce(0, done.rows, done.cost, "amin")
    needed = torch.isinf(best) if any_answer else torch.ones_like(best, dtype=torch.bool)
    missing = torch.isinf(done.cost) & needed[done.rows]
    again = (missing & (candidates.cost <= best[done.rows])).nonzero()[:, 0]
    if len(again) == 0 or not EXTRA_PLAUSIBILITY:
        return done
    count = len(EXTRA_PLAUSIBILITY)
    several = candidates[again.repeat_interleave(count)]
    extra = several.x.new_tensor(EXTRA_PLAUSIBILITY).repeat(len(again))
    frozen = task.layout.changed(several.x, task.x[several.rows]).logical_not()
    solved = task.solve(
        several,
        frozen=frozen,
        extra_plausibility=extra,
        iterations=ITERATIONS,
        curvature=RESTORING,
        max_without_answer=ITERATIONS,
        paced=True,
    )
    found = torch.isfinite(solved.cost).nonzero()[:, 0]
    better = _best_neighbours(task, solved[found])
    cost = solved.cost.new_full((len(several),), torch.inf).index_copy(0, found, better.cost)
    x = several.x.index_copy(0, found, better.x)
    nowhere = torch.isinf(best).index_fill(0, several.rows[torch.isfinite(cost)], False)
    last = found[nowhere[several.rows[found]]]
    if len(last):
        better = _best_neighbours(task, solved[last], 2**FLIPPED)
        cost, x = cost.index_copy(0, last, better.cost), x.index_copy(0, last, better.x)
    # The least extra plausibility that is enough.
    first = torch.isfinite(cost).view(-1, count).long().argmax(dim=1)
    chosen = torch.arange(len(again), device=first.device) * count + first
    return Candidates(
        rows=done.rows,
        x=done.x.index_copy(0, again, x[chosen]),
        cost=done.cost.index_copy(0, again, cost[chosen]),
    )


def _best_neighbours(task: SearchTask, candidates: Candidates, checked: int = CHECKED) -> Candidates:
    """Return the nearest point on the grid if it is feasible, else the cheapest feasible one beside it."""
    own = task.check(task.candidates(candidates.rows, on_grid(task, candidates)))
    lost = (~torch.isfinite(own.cost)).nonzero()[:, 0]
    if len(lost) == 0 or not any(column in task.movable for column in task.layout.gridded):
        return own
    base, near = candidates[lost], own[lost]
    down = near.x > base.x
    other = on_grid(task, base, torch.where(down, 0, 1))
    there = _promising(task, near, other, checked)
    most = there.shape[1]
    columns = torch.tensor(task.numbers, device=there.device)
    several = near[torch.arange(len(near), device=there.device).repeat_interleave(most)]
    trial = several.x.index_copy(1, columns, there.flatten(0, 1))
    if task.allowance.clauses:
        trial = repair_numbers(task.allowance, trial, several.rows)
    points = task.check(task.candidates(several.rows, task.layout.settle(trial)))
    cost, first = points.cost.view(len(base), most).min(dim=1)
    x = points.x.view(len(base), most, -1)[torch.arange(len(base), device=there.device), first]
    found = torch.isfinite(cost)
    all_x, all_cost = own.x.clone(), own.cost.clone()
    all_x[lost[found]], all_cost[lost[found]] = x[found], cost[found]
    return Candidates(rows=own.rows, x=all_x, cost=all_cost)


def _promising(task: SearchTask, near: Candidates, other: Tensor, most: int) -> Tensor:
    """Return numbers of which some are at their ``other`` grid point, shape ``(p, at most most, numbers)``.

    Numbers count by what they change of the broken constraints, linearised, each as a share of what is
    missing.
    """
    problem, x = number_problem(task, near, None)
    at = Evaluation(problem)(x, torch.arange(len(x), device=x.device))
    values = at.values.nan_to_num(neginf=-1.0)
    missing = (-values).clamp_min(0)[..., None]
    effect = at.jacobian * (other[:, task.numbers] - x)[:, None]
    change = torch.where(missing > 0, effect / missing, 0.0).clamp_max(1.0).sum(dim=1).abs()
    # Single precision: of numbers that matter equally, rounding in a batch must not choose.
    rank = change.float().argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    width = min(FLIPPED, rank.shape[1])
    combinations = torch.tensor(list(product((False, True), repeat=width)), device=rank.device)[1:]
    flips = combinations[:, rank.clamp_max(width - 1)].permute(1, 0, 2) & (rank < width)[:, None]
    there = torch.where(flips, other[:, None, task.numbers], near.x[:, None, task.numbers])
    missed = -(values[:, None] + flips.to(effect) @ effect.mT).clamp_max(0).sum(dim=2)
    broken = missed > SLACK
    assert problem.weights is not None
    cost = ((there - problem.x[:, None]) ** 2 * problem.weights.expand(x.shape)[:, None]).sum(dim=2)
    # First the ones that satisfy the constraints, the cheapest first.
    order = torch.argsort(torch.where(broken, missed, cost).float(), dim=1, stable=True)
    order = order.gather(1, torch.argsort(broken.gather(1, order).long(), dim=1, stable=True))
    chosen = order[:, :most, None]
    return there.gather(1, chosen.expand(-1, -1, there.shape[2]))


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
        solved = task.solve(
            again, frozen=frozen, extra_plausibility=extra, iterations=ITERATIONS, curvature=RESTORING
        ).feasible
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
