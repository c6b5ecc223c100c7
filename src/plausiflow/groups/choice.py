"""Choose the actions on a sample of the rows.

For every proposal and row it is known what the action alone does. Whether other features can make up for a
lack of plausibility has to be solved, which takes longer. So pairs are solved only for the few proposals that
promise to cover most of the rows that are left, where a promise is the share of such pairs that were solved
so far. The greedy cover and the swaps then use what is known for certain. The rows that no chosen action
helps then propose actions of their own.

With a budget, pairs that cost too much do not count, only counterfactuals that are cheap enough propose
actions, and a row counts for more the less it costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from plausiflow.groups.actions import Actions, Form
from plausiflow.groups.budget import ROOM, Budget
from plausiflow.groups.pairs import Trials, nearest_real, solve_others, try_actions
from plausiflow.groups.proposals import LocalAnswers, pairs_of, propose_actions
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
        alone: Cost of the action alone where the pair may be solved, else infinite, ``(n, c)``.
        open: Pairs that may be solved: class of their lack plus one, zero for none, ``(n, c)``.
        place: Position of each pair among the trials, ``(n, c)``.
        budget: What a row may cost.
        tried: How many pairs of each class were solved, and how many of them had an answer.
    """

    task: SearchTask
    actions: Actions
    trials: Trials
    near: Tensor
    cost: Tensor
    alone: Tensor
    open: Tensor
    place: Tensor
    budget: Budget
    tried: Tensor = field(default_factory=lambda: torch.tensor(FIRST_RATES, dtype=torch.float64))

    @classmethod
    def of(cls, task: SearchTask, actions: Actions, near: Tensor, budget: Budget) -> ActionTable:
        """Try all actions alone on all rows of a task."""
        rows, which = pairs_of(actions, task.y_target)
        trials = try_actions(task, actions, rows, which)
        shape = (len(task), len(actions))
        cost = torch.full(shape, torch.inf, dtype=torch.float64)
        alone, opened = cost.clone(), torch.zeros(shape, dtype=torch.long)
        affordable = trials.possible & (trials.cost <= budget.most)
        cost[rows, which] = torch.where(trials.enough & affordable, trials.cost, torch.inf)
        alone[rows, which] = torch.where(~trials.enough & affordable, trials.cost, torch.inf)
        lack = torch.bucketize(trials.score.nan_to_num(-torch.inf), LACKS) + 1
        opened[rows, which] = torch.where(~trials.enough & affordable, lack, 0)
        place = torch.full(shape, -1)
        place[rows, which] = torch.arange(len(rows))
        return cls(
            task=task, actions=actions, trials=trials, near=near, cost=cost, alone=alone, open=opened,
            place=place, budget=budget,
        )  # fmt: skip

    @property
    def rates(self) -> Tensor:
        """The share of the pairs of each class that have an answer, zero for those that are not open."""
        return torch.cat([self.tried.new_zeros(1), self.tried[1] / self.tried[0]])

    @property
    def worth(self) -> Tensor:
        """What it is worth to help a row by an action, if that is known or possible, ``(n, c)``."""
        return self.budget.worth(torch.minimum(self.cost, self.alone))

    def promise(self, reached: Tensor) -> Tensor:
        """Return what each proposal is expected to add, shape ``(c,)``.

        Args:
            reached: What the chosen actions are worth for each row, shape ``(n,)``.
        """
        sure = torch.where(self.open > 0, self.rates[self.open], 1.0)
        return (sure * (self.worth - reached[:, None]).clamp_min(0)).sum(dim=0)

    def shortlist(self, count: int) -> Tensor:
        """Return the proposals that promise most: together, for ``count`` actions, and each for itself."""
        expected = torch.where(self.open > 0, self.rates[self.open], 1.0) * self.worth
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
        self.cost[rows, which] = torch.where(found.cost <= self.budget.most, found.cost, torch.inf)
        self.alone[rows, which] = torch.inf
        self.open[rows, which] = 0

    def settle(self, reached: Tensor) -> int | None:
        """Solve the open pairs of promising proposals; return the one that adds most to what is reached."""
        for _ in range(3):
            promise = self.promise(reached)
            promising = promise.topk(min(PROMISING, len(self.actions))).indices
            mask = torch.zeros_like(self.open, dtype=torch.bool)
            better = self.worth[:, promising] > reached[:, None]
            mask[:, promising] = (self.open[:, promising] > 0) & better
            rows, which = mask.nonzero(as_tuple=True)
            if len(rows):
                keep = _first_of_each(which, MOST_SOLVED)
                self.solve(rows[keep], which[keep])
            gain = (self.budget.worth(self.cost) - reached[:, None]).clamp_min(0).sum(dim=0)
            best = int(gain.argmax())
            if gain[best] >= self.promise(reached).max() or not len(rows):
                break
        return best if float(gain[best]) > 0 else None


def _first_of_each(which: Tensor, most: int) -> Tensor:
    """Return the positions of the first ``most`` pairs of each action, in order."""
    order = torch.argsort(which, stable=True)
    ordered = which[order]
    rank = torch.arange(len(order)) - torch.searchsorted(ordered, ordered)
    return order[rank < most].sort().values


@torch.no_grad()
def choose_actions(
    task: SearchTask,
    bank: Bank,
    answer: Callable[[Tensor], LocalAnswers],
    donors: Tensor,
    forms: Sequence[Form],
    count: int,
    budget: Budget,
    seed: int,
) -> tuple[Actions, float]:
    """Return up to ``count`` actions, which together help most rows of the task, and what a row may cost.

    Args:
        task: Rows that the actions are chosen on.
        bank: Real rows with known outcomes.
        answer: Returns local counterfactuals of some rows of the task, given by position.
        donors: The rows whose counterfactuals propose actions first.
        forms: Forms of the actions.
        count: The largest number of actions.
        budget: What members may cost.
        seed: Seed of the choice among too many proposals.
    """
    near, asked = nearest_real(task, bank), torch.zeros(len(task), dtype=torch.bool)
    reached, limit = torch.zeros(len(task), dtype=torch.float64), budget.most
    costs: list[Tensor] = []
    parts: list[Actions] = []
    chosen = torch.zeros(0, dtype=torch.long)
    for number in range(ROUNDS):
        local = answer(donors)
        budget = budget if number else budget.narrowed(local.cost)
        proposals = propose_actions(task, local.select(local.cost <= budget.most), forms, seed)
        table = _solved_table(task, near, proposals, reached, count, budget)
        costs, parts = [*costs, table.cost], [*parts, table.actions]
        cost, asked = torch.cat(costs, dim=1), asked.index_fill(0, donors, True)
        chosen, limit = budget.choose(cost, count)
        least = cost[:, chosen].amin(dim=1) if len(chosen) else torch.full_like(reached, torch.inf)
        reached = budget.worth(torch.where(least <= limit, least, torch.inf))
        left = torch.isinf(least) | (least > limit)
        # What a row's own counterfactual costs is known: asking again does not make it cheaper.
        donors = (left & ~asked if math.isfinite(limit) else left).nonzero()[:, 0]
        donors = donors[:: 1 + len(donors) // MOST_DONORS]
        if len(donors) == 0:
            break
    return Actions.concat(parts)[chosen], min(budget.most, ROOM * limit)


def _solved_table(
    task: SearchTask, near: Tensor, proposals: Actions, reached: Tensor, count: int, budget: Budget
) -> ActionTable:
    """Return what proposals do, solved where they promise to add to what is ``reached`` for rows ``(n,)``."""
    if len(proposals) > SHORTLIST:
        few = (reached == 0).nonzero()[:, 0]
        few = few[:: max(1, len(few) // FIRST_ROWS)]
        first = ActionTable.of(task.at(few), proposals, near[few], budget)
        proposals = proposals[first.shortlist(count)]
    table = ActionTable.of(task, proposals, near, budget)
    for _ in range(count):
        best = table.settle(reached) if len(proposals) else None
        if best is None:
            break
        reached = torch.maximum(reached, budget.worth(table.cost[:, best]))
    return table
