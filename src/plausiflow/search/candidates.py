r"""Candidates: encoded rows that might be counterfactuals, and what they cost.

A candidate is a whole encoded row for one of the rows of a task. Its cost is

.. math:: \sqrt{\textstyle\sum_j w_j \Delta_j^2} + \sum_c w_c [\text{category } c \text{ changes}],

with numbers in units of their training range and ordered categories in steps from end to end; a category
without an order costs its weight whenever it changes. So does a number that enters or leaves a special value
outside its range, or moves from one to another: then its distance does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.tables import Layout


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Rows that might be counterfactuals.

    Attributes:
        rows: The row of the task that each belongs to, shape ``(p,)``.
        x: Encoded candidates, shape ``(p, width)``.
        cost: Cost of each, infinite if it is not feasible or not checked, shape ``(p,)``.
    """

    rows: Tensor
    x: Tensor
    cost: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Tensor) -> Candidates:
        return Candidates(rows=self.rows[which], x=self.x[which], cost=self.cost[which])

    def to(self, device: torch.device) -> Candidates:
        """Move to a device."""
        return Candidates(rows=self.rows.to(device), x=self.x.to(device), cost=self.cost.to(device))

    @property
    def feasible(self) -> Candidates:
        """The candidates with a finite cost."""
        return self[torch.isfinite(self.cost)]

    @classmethod
    def concat(cls, *parts: Candidates) -> Candidates:
        """Concatenate candidates of one task."""
        return cls(
            rows=torch.cat([part.rows for part in parts]),
            x=torch.cat([part.x for part in parts]),
            cost=torch.cat([part.cost for part in parts]),
        )

    def cheapest(self, count: int) -> Candidates:
        """Return the cheapest ``count`` of every row, cheapest first; the earlier one of equal costs."""
        return self[cheapest(self.rows, self.cost, count)]

    def unique(self) -> Candidates:
        """Drop repeated candidates of a row, and keep the first."""
        return self[self.first_occurrences()]

    def first_occurrences(self) -> Tensor:
        """Return the position of each candidate that is not equal to an earlier one, in order."""
        keyed = torch.cat([self.rows[:, None].to(self.x), self.x], dim=1)
        _, inverse = torch.unique(keyed, dim=0, return_inverse=True)
        first = torch.full((int(inverse.max()) + 1 if len(inverse) else 0,), len(self), device=self.x.device)
        first.scatter_reduce_(0, inverse, torch.arange(len(self), device=self.x.device), "amin")
        return first.sort().values


def cheapest(rows: Tensor, cost: Tensor, count: int) -> Tensor:
    """Return the positions of the ``count`` lowest costs of each row, ordered by row, then by cost."""
    order = torch.argsort(cost, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    sorted_rows = rows[order]
    begins = torch.searchsorted(sorted_rows, sorted_rows)
    place = torch.arange(len(order), device=order.device) - begins
    return order[place < count]


def change_costs(
    layout: Layout, weights: Tensor, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]
) -> Tensor:
    """Return the cost of changing rows ``(p, width)`` into others, shape ``(p,)``.

    Args:
        layout: Layout of encoded rows.
        weights: Cost of each feature, in the order of the layout's blocks.
        before: Factual rows, shape ``(p, width)``, and their levels (``layout.codes``).
        after: Changed rows and their levels.
    """
    (x, codes), (x_cf, codes_cf) = before, after
    weight_of = {block.name: weight for block, weight in zip(layout.blocks, weights.tolist(), strict=True)}
    numbers = {b.number: weight_of[b.name] for b in layout.blocks if b.number is not None}
    gap = x_cf[:, list(numbers)] - x[:, list(numbers)]
    entered, prices = state_changes(layout, codes, codes_cf), x.new_tensor(list(numbers.values()))
    gap = gap.masked_fill(entered, 0.0)
    steps = (codes_cf - codes).to(x)
    flat, graded = torch.zeros_like(steps[:1]), torch.zeros_like(steps[:1])
    for j, block in enumerate(layout.with_levels):
        if block.nominal:
            flat[:, j] = weight_of[block.name]
        elif block.number is None:
            graded[:, j] = weight_of[block.name] / max(1, len(block.levels) - 1) ** 2
    squared = (gap * gap * prices).sum(dim=1)
    squared = squared + (steps * steps * graded).sum(dim=1)
    return squared.sqrt() + ((steps != 0) * flat).sum(dim=1) + (entered * prices).sum(dim=1)


def state_changes(layout: Layout, codes: Tensor, codes_cf: Tensor) -> Tensor:
    """Return which numbers enter or leave a value that is not on their scale, shape ``(p, numbers)``.

    ``codes`` and ``codes_cf`` are the levels before and after, ``(p, blocks with levels)``.
    """
    changes = torch.zeros(len(codes), len(layout.numbers), dtype=torch.bool, device=codes.device)
    for j, block in enumerate(layout.with_levels):
        if block.number is not None and any(block.apart):
            apart = torch.tensor(block.apart, device=codes.device)
            before, after = codes[:, j], codes_cf[:, j]
            changes[:, layout.numbers.index(block.number)] = (before != after) & (
                apart[before] | apart[after]
            )
    return changes
