"""Candidates whose features follow the ones that rules tie them to.

If one state implies another, a change of the first carries the second along; numbers that are computed from
others are computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plausiflow.constraints import repair_codes, repair_numbers

if TYPE_CHECKING:
    from plausiflow.search.task import SearchTask


def follow_rules(task: SearchTask, x: Tensor, rows: Tensor, keep: Tensor | None = None) -> Tensor:
    """Return encoded candidates ``(p, width)`` of some rows of a task as the rules tie their features.

    ``keep`` are features that stay as they are, shape ``(p, blocks)``; by default those that differ from the
    factual row.
    """
    pairs = task.allowance.pairs
    if pairs is not None and len(x):
        codes, own = task.codes_of(x), task.codes[rows]
        columns = task.layout.index(x.device).columns
        places = [j for j, block in enumerate(task.layout.blocks) if len(block.levels)]
        kept = codes != own if keep is None else keep[:, places]
        fixed = repair_codes(pairs, codes, own, task.allowance.levels[rows][:, columns], kept, task.partners)
        x = _at_states(task, x, rows, codes, fixed)
    return repair_numbers(task.allowance, x, rows) if task.allowance.clauses else x


def _at_states(task: SearchTask, x: Tensor, rows: Tensor, codes: Tensor, fixed: Tensor) -> Tensor:
    """Return candidates at new levels; a number that becomes free is the row's own, or a typical one."""
    freed = task.free_numbers(fixed) & ~task.free_numbers(codes)
    moved = task.with_codes(x, fixed)
    if task.typical:
        columns = torch.tensor(list(task.typical), device=x.device)
        typical = x.new_tensor(list(task.typical.values()))
        value = torch.where(task.free[rows][:, columns], task.x[rows][:, columns], typical)
        lower, upper = task.allowance.lower[rows][:, columns], task.allowance.upper[rows][:, columns]
        value = torch.minimum(torch.maximum(value, lower), upper)
        moved[:, columns] = torch.where(freed[:, columns], value, moved[:, columns])
    return torch.where((fixed != codes).any(dim=1)[:, None], moved, x)
