"""Candidates: encoded rows that might be counterfactuals, with their costs.

A candidate is a whole encoded row for one of the rows of a task; :mod:`plausiflow.search.costs` says what it
costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
        if not keyed.is_cuda:
            return _first_equal(keyed)
        _, inverse = torch.unique(keyed, dim=0, return_inverse=True)
        first = torch.full((int(inverse.max()) + 1 if len(inverse) else 0,), len(self), device=self.x.device)
        first.scatter_reduce_(0, inverse, torch.arange(len(self), device=self.x.device), "amin")
        return first.sort().values


def _first_equal(keyed: Tensor) -> Tensor:
    """Return the position of each row that is not equal to an earlier one, in order; by their bytes."""
    keys = (keyed + 0.0).numpy()  # -0 becomes 0
    first: dict[bytes, int] = {}
    for place, key in enumerate(keys.view(f"V{keys.itemsize * keys.shape[1]}").ravel().tolist()):
        first.setdefault(key, place)
    return torch.tensor(list(first.values()), dtype=torch.long)


def cheapest(rows: Tensor, cost: Tensor, count: int) -> Tensor:
    """Return the positions of the ``count`` lowest costs of each row, ordered by row, then by cost."""
    order = torch.argsort(cost, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    sorted_rows = rows[order]
    begins = torch.searchsorted(sorted_rows, sorted_rows)
    place = torch.arange(len(order), device=order.device) - begins
    return order[place < count]
