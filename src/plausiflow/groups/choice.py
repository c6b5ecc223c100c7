"""Choose the actions on a sample of the rows.

For every proposal and row it is known what the action alone does. Whether other features can make up for a
lack of plausibility has to be solved, which takes longer. So pairs are solved only for the few proposals that
promise to cover most of the rows that are left, where a promise is the share of such pairs that were solved
so far. The greedy cover and the swaps then use what is known for certain. The rows that no chosen action
helps then propose actions of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from plausiflow.groups.actions import Actions
from plausiflow.groups.cover import greedy_cover, swap_actions
from plausiflow.groups.pairs import Trials, nearest_real, solve_others, try_actions
from plausiflow.groups.proposals import pairs_of
from plausiflow.search import Bank, SearchTask

SHORTLIST, FIRST_ROWS = 900, 150
"""Proposals that are tried on all sampled rows, and rows that they are chosen on; fewer take less time."""
FIRST_RATES = ((2.0,) * 6, (0.1, 0.3, 0.6, 1.0, 1.4, 1.6))
"""Pairs of each class, and how many of them have an answer, before any was solved."""
ROUNDS, MOST_DONORS = 3, 100
"""How often rows without an action propose more, and how many of them at once."""
PROMISING = 6
"""Proposals that are solved before one is chosen."""
MOST_SOLVED = 400
"""Rows of a proposal that are solved at once."""
LACKS = torch.tensor([-8.0, -4.0, -2.0, -1.0, -0.3], dtype=torch.float64)
"""Edges, in nats, of the classes of pairs that lack plausibility."""


@dataclass(kw_only=True, eq=False)
class ActionTable:
    """What is known about pairs of sampled rows and proposals.

    Attributes:
        task: The sampled rows.
        actions: The proposals.
        trials: Pairs after the action alone.
        near: A real row with the wanted outcome for each row, ``(n, width)``.
        cost: Cost of each row with each proposal, infinite if it does not help or is not known, ``(n, c)``.
        open: Pairs that may be solved: class of their lack plus one, zero for none, ``(n, c)``.
        place: Position of each pair among the trials, ``(n, c)``.
        tried: How many pairs of each class were solved, and how many of them had an answer.
    """

    task: SearchTask
    actions: Actions
    trials: Trials
    near: Tensor
    cost: Tensor
    open: Tensor
    place: Tensor
    tried: Tensor = field(default_factory=lambda: torch.tensor(FIRST_RATES, dtype=torch.float64))

    @classmethod
    def of(cls, task: SearchTask, actions: Actions, near: Tensor) -> ActionTable:
        """Try all actions alone on all rows of a task."""
        rows, which = pairs_of(actions, task.y_target)
        trials = try_actions(task, actions, rows, which)
        shape = (len(task), len(actions))
        cost = torch.full(shape, torch.inf, dtype=torch.float64)
        cost[rows, which] = torch.where(trials.enough, trials.cost, torch.inf)
        opened = torch.zeros(shape, dtype=torch.long)
        lack = torch.bucketize(trials.score.nan_to_num(-torch.inf), LACKS) + 1
        opened[rows, which] = torch.where(trials.possible & ~trials.enough, lack, 0)
        place = torch.full(shape, -1)
        place[rows, which] = torch.arange(len(rows))
        return cls(task=task, actions=actions, trials=trials, near=near, cost=cost, open=opened, place=place)

    def promise(self, left: Tensor) -> Tensor:
        """Return how many of the rows that are left each proposal is expected to cover, shape ``(c,)``."""
        rate = torch.cat([self.tried.new_zeros(1), self.tried[1] / self.tried[0]])
        expected = torch.where(torch.isfinite(self.cost[left]), 1.0, rate[self.open[left]])
        return expected.sum(dim=0)

    def shortlist(self, count: int) -> Tensor:
        """Return the proposals that promise most: together, for ``count`` actions, and each for itself."""
        rate = torch.cat([self.tried.new_zeros(1), self.tried[1] / self.tried[0]])
        expected = torch.where(torch.isfinite(self.cost), 1.0, rate[self.open])
        left = torch.ones(len(self.task), dtype=torch.float64)
        chosen: list[int] = []
        for _ in range(min(2 * count, SHORTLIST // 2, len(self.actions))):
            best = (left[:, None] * expected).sum(dim=0)
            best[chosen] = -1.0
            chosen.append(int(best.argmax()))
            left = left * (1 - expected[:, chosen[-1]])
        alone = expected.sum(dim=0).argsort(descending=True, stable=True).tolist()
        return torch.tensor(list(dict.fromkeys([*chosen, *alone]))[:SHORTLIST]).sort().values

    def solve(self, rows: Tensor, which: Tensor) -> None:
        """Solve open pairs, and write what was found."""
        lack = self.open[rows, which] - 1
        found = solve_others(self.task, self.actions, self.trials[self.place[rows, which]], self.near)
        self.tried[0].index_add_(0, lack, torch.ones(len(lack), dtype=torch.float64))
        self.tried[1].index_add_(0, lack, torch.isfinite(found.cost).double())
        self.cost[rows, which] = found.cost
        self.open[rows, which] = 0

    def settle(self, left: Tensor) -> int | None:
        """Solve the open pairs of promising proposals; return the one that covers most rows that are left."""
        for _ in range(3):
            promising = self.promise(left).topk(min(PROMISING, len(self.actions))).indices
            mask = torch.zeros_like(self.open, dtype=torch.bool)
            mask[:, promising] = (self.open[:, promising] > 0) & left[:, None]
            rows, which = mask.nonzero(as_tuple=True)
            if len(rows):
                keep = _first_of_each(which, MOST_SOLVED)
                self.solve(rows[keep], which[keep])
            gain = torch.isfinite(self.cost[left]).sum(dim=0)
            best = int(gain.argmax())
            if gain[best] >= self.promise(left).max() or not len(rows):
                break
        return best if int(gain[best]) else None


def _first_of_each(which: Tensor, most: int) -> Tensor:
    """Return the positions of the first ``most`` pairs of each action, in order."""
    order = torch.argsort(which, stable=True)
    ordered = which[order]
    rank = torch.arange(len(order)) - torch.searchsorted(ordered, ordered)
    return order[rank < most].sort().values


@torch.no_grad()
def choose_actions(
    task: SearchTask, bank: Bank, propose: Callable[[Tensor], Actions], donors: Tensor, count: int
) -> Actions:
    """Return up to ``count`` actions, which together cover most rows of the task.

    Args:
        task: Rows that the actions are chosen on.
        bank: Real rows with known outcomes.
        propose: Returns actions that helped some rows of the task, given by position.
        donors: The rows that propose first.
        count: The largest number of actions.
    """
    near = nearest_real(task, bank)
    left = torch.ones(len(task), dtype=torch.bool)
    cost, actions = torch.zeros(len(task), 0, dtype=torch.float64), propose(donors[:0])
    for _ in range(ROUNDS):
        own = left if actions else torch.ones_like(left)
        table = _solved_table(task, near, propose(donors), own, count)
        cost, actions = torch.cat([cost, table.cost], dim=1), Actions.concat([actions, table.actions])
        chosen = greedy_cover(cost, count)
        left = ~torch.isfinite(cost[:, chosen]).any(dim=1)
        donors = left.nonzero()[:, 0]
        donors = donors[:: 1 + len(donors) // MOST_DONORS]
        if len(donors) == 0:
            break
    return actions[swap_actions(cost, chosen)]


def _solved_table(
    task: SearchTask, near: Tensor, proposals: Actions, left: Tensor, count: int
) -> ActionTable:
    """Return what proposals do, solved where they promise to cover rows that are ``left`` ``(n,)``."""
    if len(proposals) > SHORTLIST:
        few = left.nonzero()[:, 0]
        few = few[:: max(1, len(few) // FIRST_ROWS)]
        proposals = proposals[ActionTable.of(task.at(few), proposals, near[few]).shortlist(count)]
    table = ActionTable.of(task, proposals, near)
    left = left.clone()
    for _ in range(count):
        best = table.settle(left) if len(proposals) and bool(left.any()) else None
        if best is None:
            break
        left &= ~torch.isfinite(table.cost[:, best])
    return table
