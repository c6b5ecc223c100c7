"""Where a search may start, and why no row comes back empty: a bank of training rows that satisfy everything.

A bank row of the wanted class is itself a feasible answer. Moved onto the row's own frozen values and bounds
it may lose that, so candidates are checked again where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.core import Problem

Feasible = Callable[[Tensor, Tensor], Tensor]
"""``(x, y_target) -> (n,)`` bool: whether a row would do as a counterfactual for that class."""

_BLOCK, _POINTS = 2048, 131_072
_CANDIDATES = 64


@dataclass(frozen=True, eq=False)
class Bank:
    """Training rows that satisfy every constraint, by class; evaluated once."""

    rows: dict[int, Tensor]

    @classmethod
    def of(cls, x: Tensor, n_classes: int, feasible: Feasible) -> Bank:
        """Keep the distinct rows of ``x`` that are feasible for each class, checked in double precision."""
        exact = torch.unique(x, dim=0).double()
        rows = {}
        for y in range(n_classes):
            wanted = torch.full((len(exact),), y, device=x.device)
            kept = torch.cat(
                [feasible(*block) for block in zip(exact.split(_BLOCK), wanted.split(_BLOCK), strict=True)]
            )
            rows[y] = exact[kept]
        return cls(rows)

    def nearest(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        count: int,
        lower: Tensor | None = None,
        upper: Tensor | None = None,
        feasible: Feasible | None = None,
    ) -> Tensor:
        """The ``count`` nearest bank rows of each wanted class, ``(n, count, d)``; NaN where there are fewer.

        With bounds, rows are moved into them first; if that changes a row, only those that ``feasible`` still
        accepts are taken.
        """
        found = x.new_full((len(x), count, x.shape[1]), float("nan"))
        for y in y_target.unique().tolist():
            bank = self.rows.get(y, x[:0]).to(x)
            members = (y_target == y).nonzero()[:, 0]
            for rows in members.split(_BLOCK):
                if len(bank) == 0:
                    continue
                bounds = None if lower is None or upper is None else (lower[rows], upper[rows])
                near = _nearest(x[rows], bank, count, bounds, feasible, y)
                found[rows, : near.shape[1]] = near
        return found


def _distances(x: Tensor, bank: Tensor) -> Tensor:
    """Euclidean distances, pair by pair: the quicker matrix product rounds by the size of the batch."""
    return torch.cdist(x, bank, compute_mode="donot_use_mm_for_euclid_dist")


def _nearest(
    x: Tensor,
    bank: Tensor,
    count: int,
    bounds: tuple[Tensor, Tensor] | None,
    feasible: Feasible | None,
    y: int,
) -> Tensor:
    """Shape ``(n, at most count, d)``."""
    inside = bounds is None or bool(((bank.amin(0) >= bounds[0]) & (bank.amax(0) <= bounds[1])).all())
    if inside or bounds is None:
        return bank[_distances(x, bank).topk(min(count, len(bank)), largest=False).indices]
    lower, upper = bounds
    free = (upper > lower).to(x)
    # Distance in the features that may move; the frozen ones decide only through the check below.
    squared = free @ (bank * bank).mT - 2 * (free * x) @ bank.mT
    candidates = bank[squared.topk(min(_CANDIDATES, len(bank)), largest=False).indices]
    moved = torch.minimum(torch.maximum(candidates, lower[:, None]), upper[:, None])
    distance = torch.linalg.vector_norm(moved - x[:, None], dim=2)
    if feasible is not None:
        flat = moved.reshape(-1, moved.shape[-1])
        ok = feasible(flat, torch.full((len(flat),), y, device=x.device)).reshape(distance.shape)
        distance = distance.masked_fill(~ok, float("inf"))
    order = distance.topk(min(count, distance.shape[1]), dim=1, largest=False)
    chosen = moved.gather(1, order.indices[..., None].expand(-1, -1, moved.shape[-1]))
    return chosen.masked_fill(~torch.isfinite(order.values)[..., None], float("nan"))


def bisect(problem: Problem, x: Tensor, feasible: Tensor, rows: Tensor, *, rounds: int = 4) -> Tensor:
    """Move each feasible point towards its factual as far as it stays feasible on the way.

    Each round looks at seven points of the way that is left at once, which is worth three halvings.

    Args:
        problem: Whose constraints count.
        x: Factuals, shape ``(n, d)``.
        feasible: Feasible points, shape ``(n, d)``; points that are not are returned as they came.
        rows: The problem's row numbers, shape ``(n,)``.
        rounds: How often.
    """
    low, high = x.new_zeros(len(x), 1), x.new_ones(len(x), 1)
    eighths = torch.arange(1, 8, dtype=x.dtype, device=x.device) / 8
    for _ in range(rounds):
        shares = low + (high - low) * eighths
        # So many points are looked at in parts: at once they would need more memory than the search itself.
        points = (x[:, None] + shares[..., None] * (feasible - x)[:, None]).flatten(0, 1).split(_POINTS)
        owners = rows.repeat_interleave(7).split(_POINTS)
        parts = [problem.satisfied(*some) for some in zip(points, owners, strict=True)]
        ok = torch.cat(parts).view(-1, 7)
        # How many of them are feasible without a gap, seen from the feasible end.
        steps = ok.flip(1).long().cumprod(dim=1).sum(dim=1, keepdim=True)
        high, low = high - (high - low) * steps / 8, high - (high - low) * (steps + 1) / 8
    return torch.where(high == 1, feasible, x + high * (feasible - x))
