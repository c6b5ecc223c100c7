r"""The solver of Wachter's method: Adam on prediction loss plus :math:`\lambda` times distance.

Every row has its own weight :math:`\lambda` and step counter. It descends for one *turn*. Then its weight is
raised if enough iterates were accepted, else lowered, by bisection between a weight that worked and one that
did not, and the next turn starts at the factual. The closest accepted iterate of all turns is the result.

The published runs first *sweep* ten weights, each a tenth of the one before, to find the two bounds. Without
the sweep the upper bound is known: if :math:`\lambda` is the loss's steepest slope at the factual, in the
norm dual to the distance, the factual is a stationary point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from plausiflow.core import Solution

Goal = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""``(x_cf, rows) -> (m, d), (m,)``: gradients of the prediction loss, and which points are accepted."""

SWEEP = 10
"""Number of weights in the published sweep; each gets a tenth of the steps of a turn."""
FIRST_WEIGHT = 0.1
"""The largest of them."""
ENOUGH = 5
"""Accepted iterates in a turn that lead to a larger weight."""


class RowAdam:
    """Adam with one step counter per row, its epsilon outside the bias correction: shape ``(n, ...)``."""

    def __init__(self, x: Tensor) -> None:
        self.mean, self.square, self.clock = torch.zeros_like(x), torch.zeros_like(x), x.new_zeros(len(x))

    def step(self, slope: Tensor, rate: Tensor) -> Tensor:
        """Return what to subtract from every row, at its learning rate ``(n,)``."""
        self.clock += 1
        self.mean.mul_(0.9).add_(slope, alpha=0.1)
        self.square.mul_(0.999).addcmul_(slope, slope, value=0.001)
        size = rate * (1 - 0.999**self.clock).sqrt() / (1 - 0.9**self.clock)
        return size.view(-1, *[1] * (slope.ndim - 1)) * self.mean / (self.square.sqrt() + 1e-8)

    def restart(self, rows: Tensor) -> None:
        """Reset the rows where the mask is true."""
        for memory in (self.mean, self.square, self.clock):
            memory[rows] = 0

    def __getitem__(self, rows: Tensor) -> RowAdam:
        """Return the memory of the rows where the mask is true."""
        kept = RowAdam(self.mean[:0])
        kept.mean, kept.square, kept.clock = self.mean[rows], self.square[rows], self.clock[rows]
        return kept


def settle(change: Tensor, moved: Tensor, slope: Tensor) -> Tensor:
    """Return the next change of each feature, without moves that only momentum causes.

    A feature at its factual's value without a slope stays there, and no feature crosses that value.
    """
    return moved.masked_fill(((change == 0) & (slope == 0)) | (moved * change < 0), 0.0)


@dataclass
class WeightSearchState:
    """The rows that are still searched, n of them."""

    rows: Tensor  # Row numbers, (n,).
    x0: Tensor  # Factuals, (n, d).
    x: Tensor  # Iterates, (n, d).
    lower: Tensor  # Smallest allowed values, (n, d).
    upper: Tensor  # Largest allowed values, (n, d).
    pull: Tensor  # Gradient of the prediction loss at x, (n, d).
    first_pull: Tensor  # Gradient of the prediction loss at x0, (n, d).
    weight: Tensor  # Weight of this turn, (n,).
    low: Tensor  # Largest weight that worked so far, zero before, (n,).
    high: Tensor  # Smallest weight that did not work, (n,).
    turn: Tensor  # Number of the turn, negative in the sweep, (n,).
    worked: Tensor  # Turns that worked, (n,).
    hits: Tensor  # Accepted iterates of this turn, (n,).
    run: Tensor  # Latest consecutive accepted iterates, or rejected ones with a minus sign, (n,).
    carries_on: Tensor  # Whether the next turn starts where this one ends, (n,).
    adam: RowAdam  # Adam's memory of this turn.

    def select(self, mask: Tensor) -> WeightSearchState:
        """Return the rows where the mask is true."""
        return WeightSearchState(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightSearch:
    """Descent with one weight per row.

    Attributes:
        distance: Norm of a change.
        cost: Cost per feature of the norm ``l1``, shape ``(d,)``.
        steps: Maximum number of steps of a turn; the learning rate falls to zero over them.
        patience: Consecutive accepted, or rejected, iterates that end a turn.
        turns: Turns of the bisection.
        learning_rate: Initial learning rate of Adam.
        published: Repeat the published runs: sweep first; start a turn where the last one ended; let a
            feature jitter around the factual's value.
        stored: Precision of the results; iterates are rounded to it, so accepted points are returned exactly.
    """

    distance: Literal["l1", "l2"]
    cost: Tensor
    steps: int
    patience: int
    turns: int
    learning_rate: float
    published: bool
    stored: torch.dtype

    def solve(self, goal: Goal, x: Tensor, lower: Tensor, upper: Tensor) -> Solution:
        """Return the closest accepted iterate of every row; NaN if there is none.

        Args:
            goal: Gradient and acceptance of points.
            x: Factuals, shape ``(n, d)``; an accepted factual is its own result.
            lower: Smallest allowed values, shape ``(n, d)``.
            upper: Largest allowed values, shape ``(n, d)``.
        """
        every = torch.arange(len(x), device=x.device)
        pull, accepted = goal(x, every)
        best, gradients = torch.where(accepted[:, None], x, torch.nan), torch.ones_like(every)
        closest = torch.where(accepted, 0.0, x.new_full((len(x),), math.inf))
        # Without a slope a row stays at its factual for every weight.
        state = self._begin(x, lower, upper, pull).select(~accepted & (pull != 0).any(dim=1))
        while len(state.rows):
            self._step(state)
            state.pull, accepted = goal(state.x, state.rows)
            gradients[state.rows] += 1
            distance = self._norm(state.x - state.x0)
            better = accepted & (distance < closest[state.rows]) & (state.turn >= 0)
            rows = state.rows[better]
            best[rows], closest[rows] = state.x[better], distance[better]
            ended = self._count(state, accepted)
            if bool(ended.any()):
                state = self._next_turn(state, ended)
        return Solution(x=best, gradients=gradients)

    def _begin(self, x: Tensor, lower: Tensor, upper: Tensor, pull: Tensor) -> WeightSearchState:
        steepest = pull.norm(dim=1) if self.distance == "l2" else (pull.abs() / self.cost).amax(dim=1)
        zeros = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return WeightSearchState(
            rows=torch.arange(len(x), device=x.device),
            x0=x,
            x=x,
            lower=lower,
            upper=upper,
            pull=pull,
            first_pull=pull,
            weight=torch.full_like(steepest, FIRST_WEIGHT) if self.published else steepest / 2,
            low=torch.zeros_like(steepest),
            high=torch.full_like(steepest, FIRST_WEIGHT) if self.published else steepest,
            turn=zeros - SWEEP if self.published else zeros.clone(),
            worked=zeros.clone(),
            hits=zeros.clone(),
            run=zeros.clone(),
            carries_on=torch.full_like(zeros, self.published, dtype=torch.bool),
            adam=RowAdam(x),
        )

    def _norm(self, change: Tensor) -> Tensor:
        return change.norm(dim=1) if self.distance == "l2" else (change.abs() * self.cost).sum(dim=1)

    def _slope(self, pull: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        """Return the objective's gradient; where the distance has a kink, the shortest subgradient."""
        if self.distance == "l2":
            length = change.norm(dim=1, keepdim=True)
            shrunk = pull * (1 - weight / pull.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_min(0)
            return torch.where(length > 0, pull + weight * change / length.clamp_min(1e-30), shrunk)
        weight = weight * self.cost
        slope = pull + weight * change.sign()
        if self.published:
            return slope
        return torch.where(change == 0, pull.sign() * (pull.abs() - weight).clamp_min(0), slope)

    def _step(self, state: WeightSearchState) -> None:
        change = state.x - state.x0
        slope = self._slope(state.pull, change, state.weight[:, None])
        rate = self.learning_rate * (1 - state.adam.clock / self.steps)
        moved = change - state.adam.step(slope, rate)
        if not self.published and self.distance == "l1":
            moved = settle(change, moved, slope)
        state.x = (state.x0 + moved).clamp(state.lower, state.upper).to(self.stored).to(moved)

    def _count(self, state: WeightSearchState, accepted: Tensor) -> Tensor:
        """Count accepted iterates; return which turns have ended."""
        state.hits += accepted
        state.run = torch.where(accepted, state.run.clamp_min(0) + 1, state.run.clamp_max(0) - 1)
        bisecting = state.turn >= 0
        settled = bisecting & (state.run.abs() >= self.patience)
        return settled | (state.adam.clock >= torch.where(bisecting, self.steps, self.steps // SWEEP))

    def _next_turn(self, state: WeightSearchState, ended: Tensor) -> WeightSearchState:
        """Set the next weight of rows whose turn has ended; drop rows that have had all turns."""
        sweeping = state.turn < 0
        works = state.hits >= torch.where(sweeping, 1, ENOUGH)
        state.worked += ended & works
        # In the sweep the second weight that works is the lower bound, as published.
        raised = ended & works & (~sweeping | (state.worked == 2))
        state.low = torch.where(raised, torch.maximum(state.low, state.weight), state.low)
        state.high = torch.where(ended & ~works, torch.minimum(state.high, state.weight), state.high)
        # The published sweep always tries all weights. Here a row stops after two weights that work, if its
        # last iterate was accepted: smaller weights pull it back less (true for all 4,669 published rows).
        enough = (state.worked >= 2) & (state.run > 0)
        swept = ended & sweeping & (enough | (state.turn == -1))
        state.turn = torch.where(swept, 0, state.turn + ended)
        bisect = (state.turn >= 0) & (state.low > 0)
        weight = torch.where(bisect, (state.low + state.high) / 2, state.weight / 10)
        state.weight = torch.where(ended, weight, state.weight)
        # If half of the turns from the factual have failed, the next ones start at the last iterate.
        state.carries_on |= ended & (state.low == 0) & (2 * state.turn >= self.turns)
        back = (swept | (ended & ~state.carries_on))[:, None]
        state.x = torch.where(back, state.x0, state.x)
        state.pull = torch.where(back, state.first_pull, state.pull)
        state.hits, state.run = state.hits.masked_fill(ended, 0), state.run.masked_fill(ended, 0)
        state.adam.restart(ended)
        leaving = (state.turn >= self.turns) | (swept & (state.worked < 2))
        return state.select(~leaving) if bool(leaving.any()) else state
