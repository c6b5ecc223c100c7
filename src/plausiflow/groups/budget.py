r"""What the members of all actions may cost, and the choice of actions within it.

Without a limit, actions are chosen to help most rows, at any cost. With a limit on the mean cost of the
members, the cheapest members are taken as long as their mean keeps it. Which actions help most rows like
that? Helping :math:`i` at the cost :math:`c_i` uses :math:`c_i - c` of what the others leave of the mean
:math:`c`. With a price :math:`\mu` of that, the Lagrangian is the sum of :math:`1 - \mu (c_i - c)` over the
members, which is, up to a factor, the sum of :math:`\max(0, 1 - c_i / L)` with :math:`L = c + 1 / \mu`. So
the worth of helping a row falls from one, for nothing, to zero at the cost :math:`L`. The sum is a monotone
submodular function of the actions, so the greedy choice has the usual guarantee for each :math:`L`, and what
is left is to try several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.groups.cover import greedy_cover, greedy_worth, swap_actions, swap_worth

ROUNDING = 1e-9
PRICES = 12
"""Costs :math:`L` that are tried."""
ROOM = 1.5
"""Most that a row may cost while actions are chosen, as a multiple of the most that a local counterfactual
may cost within the same mean; and while rows are assigned, as one of the limit that the choice found."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What members may cost.

    Attributes:
        most: The most that a member may cost.
        mean: The most that the members may cost on average; None for no limit.
    """

    most: float = math.inf
    mean: float | None = None

    def narrowed(self, local: Tensor) -> Budget:
        """Return the budget with the most that a member can cost within the mean, from local costs.

        Args:
            local: Costs of local counterfactuals, shape ``(m,)``. An action hardly helps a row for less.
        """
        if self.mean is None or len(local) == 0 or float(local.mean()) <= self.mean:
            return self
        limit = max(self.mean, mean_limit(local, self.mean))
        return replace(self, most=min(self.most, ROOM * limit))

    def worth(self, cost: Tensor) -> Tensor:
        """Return what it is worth to help rows at some costs: one, or less with a limit on the mean."""
        if self.mean is None or math.isinf(self.most):
            return (cost <= self.most).to(cost) * torch.isfinite(cost)
        return (1 - cost / self.most).clamp_min(0.0)

    def choose(self, cost: Tensor, count: int) -> tuple[Tensor, float]:
        """Return up to ``count`` actions that help most rows within the budget, and the limit of each member.

        Args:
            cost: Cost of each row with each action, infinite if the action does not help it, ``(n, c)``.
            count: Number of actions.
        """
        cost = torch.where(cost <= self.most, cost, torch.inf)
        choices = [swap_actions(cost, greedy_cover(cost, count))]
        if self.mean is not None and _mean(_least(cost, choices[0])) > self.mean + ROUNDING:
            choices += self._priced(cost, count)
        limits = [self.limit(_least(cost, chosen)) for chosen in choices]
        best = max(range(len(choices)), key=lambda i: _helped(_least(cost, choices[i]), limits[i]))
        return _useful(cost, choices[best], limits[best]), limits[best]

    def _priced(self, cost: Tensor, count: int) -> list[Tensor]:
        """Return the choice for several prices of the cost."""
        assert self.mean is not None
        low, high = math.log10(self.mean), math.log10(float(cost[torch.isfinite(cost)].max()))
        found = []
        for largest in torch.logspace(low, high, PRICES + 1, dtype=cost.dtype)[1:]:
            worth = (1 - cost / largest).clamp_min(0.0)
            found.append(swap_worth(worth, greedy_worth(worth, count)))
        return found

    def limit(self, cost: Tensor) -> float:
        """Return the most that a member may cost, so that the mean is kept, from the costs of members."""
        if self.mean is None or not _mean(cost) > self.mean + ROUNDING:
            return self.most
        return mean_limit(cost[torch.isfinite(cost)], self.mean)


def mean_limit(cost: Tensor, mean: float) -> float:
    """Return the largest of some costs so that those up to it have at most this mean; else zero.

    Example:
        >>> mean_limit(torch.tensor([3.0, 1.0, 2.0, 2.0, 9.0]), 1.8)
        2.0
    """
    ordered = cost.sort().values
    kept = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1) <= mean + ROUNDING
    # Equal costs are all within the limit, or none of them is.
    last = torch.cat([ordered[1:] > ordered[:-1] + ROUNDING, torch.ones(1, dtype=torch.bool)])
    places = (kept & last).nonzero()[:, 0]
    return float(ordered[places[-1]]) if len(places) else 0.0


def _least(cost: Tensor, chosen: Tensor) -> Tensor:
    """Return the cost of each row with the cheapest of the chosen actions, infinite without one."""
    nobody = torch.full((len(cost), 1), torch.inf, dtype=cost.dtype)
    return torch.cat([cost[:, chosen], nobody], dim=1).amin(dim=1)


def _useful(cost: Tensor, chosen: Tensor, limit: float) -> Tensor:
    """Return the chosen actions that some row takes within a limit."""
    if len(chosen) == 0:
        return chosen
    least, place = cost[:, chosen].min(dim=1)
    return chosen[torch.isin(torch.arange(len(chosen)), place[torch.isfinite(least) & (least <= limit)])]


def _mean(cost: Tensor) -> float:
    """Return the mean of the finite costs; NaN if there is none."""
    return float(cost[torch.isfinite(cost)].mean())


def _helped(least: Tensor, limit: float) -> tuple[int, float]:
    """Return how many rows are helped within a limit, and the negative of what that costs."""
    least = least[torch.isfinite(least) & (least <= limit)]
    return len(least), -float(least.sum())
