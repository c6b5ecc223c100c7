"""A beam search over changed categories.

The beam changes one category after another, and ranks by the cost of the changes plus how far validity and
plausibility are from being satisfied.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.task import SearchTask
from plausiflow.tables import Layout

VIOLATION = 2.0
"""Cost of one unit by which a constraint is violated, in the ranking of the beam."""
WIDTH, DEPTH, KEEP, FIRST = 4, 4, 5, 12


def beam(task: SearchTask, rows: Tensor, typical: dict[int, float]) -> Candidates:
    """Return the most promising settings of categories, up to ``DEPTH`` changes from each of some rows."""
    layout = task.layout
    columns = [column for block in layout.with_levels for column in block.levels]
    if not columns:
        return task.candidates(rows[:0], task.x[:0])
    sizes = torch.tensor([len(block.levels) for block in layout.with_levels], device=task.x.device)
    allowed, own = task.allowance.levels.clone(), task.codes
    states, codes, kept = task.candidates(rows, task.x[rows]), own[rows], []
    for depth in range(min(DEPTH, task.allowance.max_changes or DEPTH)):
        # A category changes at most once.
        unchanged = (codes == own[states.rows]).repeat_interleave(sizes, dim=1)
        options = allowed[states.rows][:, columns] & unchanged & (states.x[:, columns] == 0)
        which, flip = options.nonzero(as_tuple=True)
        if len(which) == 0:
            break
        flipped = task.candidates(
            states.rows[which], _flip(layout, states.x[which], flip, columns, typical)
        ).unique()
        flipped_codes = task.codes_of(flipped.x)
        merit = task.costs(flipped.x, flipped.rows, flipped_codes)
        violation = (-task.constraint_values(flipped.x, flipped.rows)).clamp_min(0).sum(dim=1)
        merit = merit + VIOLATION * violation
        if depth == 0:  # later changes combine the best of the first ones
            best = cheapest(flipped.rows, merit, FIRST)
            first = torch.zeros_like(allowed)
            changed = (flipped.x[best] != task.x[flipped.rows[best]]) & (flipped.x[best] != 0)
            first.index_put_((flipped.rows[best],), changed, accumulate=True)
            allowed &= first
        kept.append(flipped[cheapest(flipped.rows, merit, KEEP)])
        best = cheapest(flipped.rows, merit, WIDTH)
        states, codes = flipped[best], flipped_codes[best]
    return Candidates.concat(*kept) if kept else task.candidates(rows[:0], task.x[:0])


def _flip(layout: Layout, x: Tensor, flip: Tensor, columns: list[int], typical: dict[int, float]) -> Tensor:
    """Return rows ``(p, width)``, each with one level switched on; ``flip`` counts the level columns."""
    block_of = torch.zeros(len(columns), layout.width, dtype=torch.bool, device=x.device)
    pins = torch.full((len(columns),), torch.nan, dtype=x.dtype, device=x.device)
    number_of = torch.full((len(columns),), -1, device=x.device)
    place = 0
    for block in layout.with_levels:
        for i in range(len(block.levels)):
            block_of[place, block.levels.start : block.levels.stop] = True
            if block.number is not None:
                pin = block.pinned[i]
                number_of[place] = block.number
                pins[place] = typical[block.number] if pin is None else pin
            place += 1
    switched_on = torch.tensor(columns, device=x.device)[flip]
    everyone = torch.arange(len(x), device=x.device)
    x = x.masked_fill(block_of[flip], 0.0)
    x[everyone, switched_on] = 1.0
    with_number = number_of[flip] >= 0
    x[everyone[with_number], number_of[flip][with_number]] = pins[flip][with_number]
    return x
