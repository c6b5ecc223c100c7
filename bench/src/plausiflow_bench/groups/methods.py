"""Group methods of other papers, on encoded rows of numbers and categories.

Each returns one shared change per group and, for each row, the row after the change of its group. They do not
know the density, except for the group optimisation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from plausiflow.search import SearchTask

SAMPLED, SIZES = 300, torch.linspace(0.05, 1.5, 24, dtype=torch.float64)
STEPS, RATE, WEIGHT = 600, 0.02, 8.0


def _after(task: SearchTask, x: Tensor) -> Tensor:
    """Return rows whose levels are one-hot and whose changed numbers are on their grids."""
    moved = task.layout.with_codes(x, task.codes_of(x)) if task.layout.with_levels else x
    return torch.where(moved != x, moved, x)


def _fixed(task: SearchTask) -> Tensor:
    """Return the columns that may change, shape ``(width,)``."""
    columns = torch.zeros(task.layout.width, dtype=torch.bool)
    for block in task.mutable:
        columns[block.columns] = True
    return columns


def _valid_cost(task: SearchTask, x_cf: Tensor, rows: Tensor) -> Tensor:
    """Return the cost of rows that the model decides as wanted inside the box, else infinity."""
    inside = ((x_cf >= 0) & (x_cf <= 1)).all(dim=1)
    valid = inside & (task.model_value(x_cf, rows) >= 0)
    return torch.where(valid, task.costs(x_cf, rows), torch.inf)


def globe_ce(task: SearchTask, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """GLOBE-CE (Ley et al., 2023): random directions, each scaled for every row as little as possible.

    Directions that change the decision of most rows are chosen greedily. Returns the rows after their change
    ``(n, width)`` and the group of each, -1 for none ``(n,)``.
    """
    rng = np.random.default_rng(seed)
    width, n = task.layout.width, len(task)
    keep = torch.from_numpy(rng.random((SAMPLED, width)) < 0.3) & _fixed(task)
    directions = torch.from_numpy(rng.normal(size=(SAMPLED, width))) * keep
    directions /= directions.norm(dim=1, keepdim=True).clamp_min(1e-9)
    everyone = torch.arange(n)
    cost = torch.full((n, SAMPLED), torch.inf, dtype=torch.float64)
    size = torch.zeros(n, SAMPLED, dtype=torch.float64)
    for j, direction in enumerate(directions):
        for scale in SIZES.tolist():
            left = torch.isinf(cost[:, j]).nonzero()[:, 0]
            if len(left) == 0:
                break
            found = _valid_cost(task, _after(task, task.x[left] + scale * direction), left)
            cost[left, j], size[left, j] = found, scale
    chosen = _greedy(cost, count)
    best, place = cost[:, chosen].min(dim=1)
    group = torch.where(torch.isfinite(best), place, -1)
    which = torch.tensor(chosen)[place]
    return _after(task, task.x + size[everyone, which][:, None] * directions[which]), group


def _greedy(cost: Tensor, count: int) -> list[int]:
    chosen: list[int] = []
    least = torch.full((len(cost),), torch.inf, dtype=cost.dtype)
    for _ in range(count):
        together = torch.minimum(least[:, None], cost)
        covered = torch.isfinite(together)
        total = torch.where(covered, together, 0.0).sum(dim=0)
        best = int((covered.sum(dim=0) - total / (1 + total.max())).argmax())
        chosen.append(best)
        least = together[:, best]
    return chosen


def k_medoids(task: SearchTask, changes: Tensor, y: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Medoids of local changes ``(m, width)`` for targets ``y``: a row takes the cheapest that helps."""
    rng = np.random.default_rng(seed)
    medoids = []
    for k in y.unique().tolist():
        own = changes[y == k]
        share = max(1, round(count * len(own) / len(changes)))
        medoids.append((k, own[_medoids(own, min(share, len(own)), rng)]))
    best = torch.full((len(task),), torch.inf, dtype=torch.float64)
    x_cf, group, number = task.x.clone(), torch.full((len(task),), -1), 0
    for k, vectors in medoids:
        rows = (task.y_target == k).nonzero()[:, 0]
        for vector in vectors:
            after = _after(task, task.x[rows] + vector)
            cost = _valid_cost(task, after, rows)
            better = cost < best[rows]
            best[rows[better]], x_cf[rows[better]], group[rows[better]] = cost[better], after[better], number
            number += 1
    return x_cf, group


def _medoids(points: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """Return medoids by alternating assignment and update, from a random start."""
    distance = torch.cdist(points, points)
    chosen = torch.from_numpy(rng.choice(len(points), count, replace=False))
    for _ in range(30):
        nearest = distance[:, chosen].argmin(dim=1)
        new = chosen.clone()
        for j in range(count):
            own = (nearest == j).nonzero()[:, 0]
            if len(own):
                new[j] = own[distance[own][:, own].sum(dim=1).argmin()]
        if bool((new == chosen).all()):
            break
        chosen = new
    return chosen


def group_optimisation(task: SearchTask, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The published group optimisation (arXiv 2405.17642) with our density, by gradient descent.

    One shared vector per group, a soft assignment of rows that becomes hard, and a size of each row; the loss
    is the distance plus hinges of validity and plausibility. It needs a model with gradients.
    """
    generator = torch.Generator().manual_seed(seed)
    n, free = len(task), _fixed(task)
    vectors = 0.05 * torch.randn(count, task.layout.width, generator=generator, dtype=torch.float64)
    logits = 0.1 * torch.randn(n, count, generator=generator, dtype=torch.float64)
    sizes = torch.zeros(n, 1, dtype=torch.float64)
    parameters = [part.requires_grad_() for part in (vectors, logits, sizes)]
    optimiser, everyone = torch.optim.Adam(parameters, lr=RATE), torch.arange(n)
    for step in range(STEPS):
        sharp = 1.0 + 9.0 * step / STEPS
        with torch.enable_grad():
            shared = (sharp * logits).softmax(dim=1) @ (vectors * free)
            x_cf = task.x + sizes.exp() * shared
            lack = (-task.validity(x_cf, task.targets, everyone)).clamp_min(0)
            lack = lack + (-task.scores.score(x_cf, everyone)).clamp_min(0)
            outside = (x_cf - x_cf.clamp(0, 1)).abs().sum(dim=1)
            loss = ((x_cf - task.x).norm(dim=1) + WEIGHT * (lack + 10 * outside)).sum()
            optimiser.zero_grad()
            loss.backward()
        optimiser.step()
    with torch.no_grad():
        group = logits.argmax(dim=1)
        return (task.x + sizes.exp() * (vectors * free)[group]).clamp(0, 1), group
