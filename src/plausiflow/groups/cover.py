r"""Choose few actions that cover many rows.

The number of covered rows is a monotone submodular function of the chosen actions, so the greedy choice
covers at least :math:`1 - 1/e` of what the best choice of the same size covers. Afterwards single actions
are swapped as long as that covers more rows, or as many at a lower cost.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST_SWAPS = 50
ENOUGH = 1e-9


def greedy_cover(cost: Tensor, count: int) -> Tensor:
    """Return up to ``count`` actions, each the one that covers most of the rows that are left.

    Of actions that cover equally many, the one with the lowest total cost is chosen, then the first. If no
    action covers another row, the one that saves most of the cost is chosen, as long as one saves anything.

    Args:
        cost: Cost of each row with each action, infinite if the action does not help it, ``(n, c)``.
        count: Number of actions.

    Example:
        >>> inf = float("inf")
        >>> greedy_cover(torch.tensor([[1.0, 2.0, inf], [inf, 2.0, inf], [inf, inf, 1.0]]), 2).tolist()
        [1, 2]
    """
    helps = torch.isfinite(cost)
    least = torch.full((len(cost),), torch.inf, dtype=cost.dtype)
    chosen: list[int] = []
    for _ in range(min(count, cost.shape[1])):
        left = torch.isinf(least)
        gain = helps[left].sum(dim=0)
        if int(gain.max()):
            total = torch.where(helps[left], cost[left], 0.0).sum(dim=0)
            best = int(torch.where(gain == gain.max(), total, torch.inf).argmin())
        else:
            saved = (least[~left, None] - cost[~left]).clamp_min(0).sum(dim=0)
            best = int(saved.argmax())
            if float(saved[best]) <= ENOUGH:
                break
        chosen.append(best)
        least = torch.minimum(least, cost[:, best])
    return torch.tensor(chosen, dtype=torch.long)


def greedy_worth(worth: Tensor, count: int) -> Tensor:
    """Return up to ``count`` actions, each the one that adds most to the worth of the best ones of all rows.

    Args:
        worth: What each action is worth for each row, zero if it does not help it, ``(n, c)``.
        count: Number of actions.

    Example:
        >>> greedy_worth(torch.tensor([[0.9, 0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.3]]), 2).tolist()
        [1, 0]
    """
    best, chosen = torch.zeros(len(worth), dtype=worth.dtype), list[int]()
    for _ in range(min(count, worth.shape[1])):
        gain = (worth - best[:, None]).clamp_min(0).sum(dim=0)
        if float(gain.max()) <= ENOUGH:
            break
        chosen.append(int(gain.argmax()))
        best = torch.maximum(best, worth[:, chosen[-1]])
    return torch.tensor(chosen, dtype=torch.long)


def swap_worth(worth: Tensor, chosen: Tensor) -> Tensor:
    """Swap single actions while that adds to the worth; the arguments are those of :func:`greedy_worth`."""
    for _ in range(MOST_SWAPS):
        total, swap = float(worth[:, chosen].amax(dim=1).sum()) if len(chosen) else 0.0, None
        for place in range(len(chosen)):
            others = torch.cat([chosen[:place], chosen[place + 1 :]])
            rest = worth[:, others].amax(dim=1) if len(others) else torch.zeros(len(worth), dtype=worth.dtype)
            sums = torch.maximum(rest[:, None], worth).sum(dim=0)
            candidate = sums.argmax()
            if float(sums[candidate]) > total + ENOUGH:
                total, swap = float(sums[candidate]), (place, candidate)
        if swap is None:
            return chosen
        chosen = chosen.clone()
        chosen[swap[0]] = swap[1]
    return chosen


def coverage(cost: Tensor, chosen: Tensor) -> tuple[int, float]:
    """Return how many rows the chosen actions cover, and the total of their least costs."""
    if len(chosen) == 0:
        return 0, 0.0
    least = cost[:, chosen].amin(dim=1)
    covered = torch.isfinite(least)
    return int(covered.sum()), float(least[covered].sum())


def swap_actions(cost: Tensor, chosen: Tensor) -> Tensor:
    """Swap single actions while that covers more rows, or as many at a lower cost.

    Args:
        cost: As for :func:`greedy_cover`.
        chosen: The chosen actions.

    Returns:
        The actions, in the order in which they were chosen.
    """
    for _ in range(MOST_SWAPS):
        best, swap = coverage(cost, chosen), None
        for place in range(len(chosen)):
            others = torch.cat([chosen[:place], chosen[place + 1 :]])
            rest = cost[:, others].amin(dim=1) if len(others) else torch.full((len(cost),), torch.inf)
            least = torch.minimum(rest[:, None], cost)
            covered = torch.isfinite(least)
            count = covered.sum(dim=0)
            total = torch.where(covered, least, 0.0).sum(dim=0)
            candidate = torch.where(count == count.max(), total, torch.inf).argmin()
            found = int(count[candidate]), float(total[candidate])
            if found[0] > best[0] or (found[0] == best[0] and found[1] < best[1] - ENOUGH):
                best, swap = found, (place, candidate)
        if swap is None:
            return chosen
        chosen = chosen.clone()
        chosen[swap[0]] = swap[1]
    return chosen
