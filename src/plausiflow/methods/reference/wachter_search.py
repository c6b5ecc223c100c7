r"""The loop behind Wachter's method: Adam on prediction loss plus :math:`\lambda` times distance.

Every row has a weight :math:`\lambda` and a clock of its own. It descends for one *turn*; then its weight is
raised if enough iterates were accepted, else lowered, by bisection between a weight that worked and one that
did not, and the next turn begins, at the factual again. The closest accepted iterate of all turns is the
answer.

The published runs first *sweep* ten weights, each a tenth of the one before, to find the two bounds. Without
the sweep the upper bound is known: where :math:`\lambda` is the loss's steepest slope at the factual, in the
norm dual to the distance, the factual is a stationary point, and no row leaves it.
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
"""Weights that the published sweep tries; it gives each so many times fewer steps than a turn has."""
FIRST_WEIGHT = 0.1
"""The largest of them."""
ENOUGH = 5
"""Accepted iterates in a turn that warrant a larger weight."""


class RowAdam:
    """Adam with one clock per row, its constant outside the bias correction: shape ``(n, ...)``."""

    def __init__(self, x: Tensor) -> None:
        self.mean, self.square, self.clock = torch.zeros_like(x), torch.zeros_like(x), x.new_zeros(len(x))

    def move(self, slope: Tensor, rate: Tensor) -> Tensor:
        """What to subtract from every row, at its learning rate ``(n,)``."""
        self.clock += 1
        self.mean.mul_(0.9).add_(slope, alpha=0.1)
        self.square.mul_(0.999).addcmul_(slope, slope, value=0.001)
        size = rate * (1 - 0.999**self.clock).sqrt() / (1 - 0.9**self.clock)
        return size.view(-1, *[1] * (slope.ndim - 1)) * self.mean / (self.square.sqrt() + 1e-8)

    def restart(self, rows: Tensor) -> None:
        """Forget everything about the rows where the mask is true."""
        for memory in (self.mean, self.square, self.clock):
            memory[rows] = 0

    def __getitem__(self, rows: Tensor) -> RowAdam:
        """The memory of the rows where the mask is true."""
        kept = RowAdam(self.mean[:0])
        kept.mean, kept.square, kept.clock = self.mean[rows], self.square[rows], self.clock[rows]
        return kept


def settled(change: Tensor, moved: Tensor, slope: Tensor) -> Tensor:
    """The next change of each feature where a distance pulls all of them to the factual.

    Momentum moves no feature that is at its factual's value and has no slope there, nor any across it.
    """
    return moved.masked_fill(((change == 0) & (slope == 0)) | (moved * change < 0), 0.0)


@dataclass
class State:
    """What each row in the batch knows.

    Attributes:
        rows: Its number, shape ``(n,)``.
        x0: The factual, shape ``(n, d)``.
        x: Where it is, shape ``(n, d)``.
        lower: Smallest values allowed, shape ``(n, d)``.
        upper: Largest values allowed, shape ``(n, d)``.
        pull: The prediction loss's gradient at ``x``, shape ``(n, d)``.
        first_pull: The same at ``x0``.
        weight: The weight of this turn, shape ``(n,)``.
        low: The largest weight that worked so far, zero before; shape ``(n,)``.
        high: The smallest weight that did not, shape ``(n,)``.
        turn: The turn's number, shape ``(n,)``; negative in the sweep.
        worked: Turns that worked, shape ``(n,)``.
        hits: Accepted iterates of this turn, shape ``(n,)``.
        run: Latest accepted iterates in a row, or rejected ones with a minus sign, shape ``(n,)``.
        carries_on: Whether its next turn starts where this one ends, shape ``(n,)``.
        adam: Adam's memory of this turn.
    """

    rows: Tensor
    x0: Tensor
    x: Tensor
    lower: Tensor
    upper: Tensor
    pull: Tensor
    first_pull: Tensor
    weight: Tensor
    low: Tensor
    high: Tensor
    turn: Tensor
    worked: Tensor
    hits: Tensor
    run: Tensor
    carries_on: Tensor
    adam: RowAdam

    def only(self, mask: Tensor) -> State:
        """The rows where the mask is true."""
        return State(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightSearch:
    """Descent with a weight per row.

    Attributes:
        distance: The norm of a change.
        cost: Cost per feature, shape ``(d,)``, of the norm ``l1``.
        steps: Most steps of a turn; the learning rate falls to zero over them.
        patience: Accepted, or rejected, iterates in a row that end a turn.
        turns: Turns of the bisection.
        learning_rate: Adam's, at first.
        published: As the published runs: sweep first; a turn starts where the last one ended; a feature may
            jitter around the factual's value.
        stored: The precision that the answer is kept in; iterates are rounded to it, so that what was
            accepted is what is returned.
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
        """The closest accepted iterate of every row; NaN where there is none.

        Args:
            goal: What is wanted of a point.
            x: Factuals, shape ``(n, d)``; a factual that is accepted is its own answer.
            lower: Smallest values allowed, shape ``(n, d)``.
            upper: Largest values allowed, likewise.
        """
        every = torch.arange(len(x), device=x.device)
        pull, accepted = goal(x, every)
        best, gradients = torch.where(accepted[:, None], x, torch.nan), torch.ones_like(every)
        closest = torch.where(accepted, 0.0, x.new_full((len(x),), math.inf))
        # Without any slope a row stays at its factual, whatever the weight.
        state = self._begin(x, lower, upper, pull).only(~accepted & (pull != 0).any(dim=1))
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

    def _begin(self, x: Tensor, lower: Tensor, upper: Tensor, pull: Tensor) -> State:
        steepest = pull.norm(dim=1) if self.distance == "l2" else (pull.abs() / self.cost).amax(dim=1)
        whole = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return State(
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
            turn=whole - SWEEP if self.published else whole.clone(),
            worked=whole.clone(),
            hits=whole.clone(),
            run=whole.clone(),
            carries_on=torch.full_like(whole, self.published, dtype=torch.bool),
            adam=RowAdam(x),
        )

    def _norm(self, change: Tensor) -> Tensor:
        return change.norm(dim=1) if self.distance == "l2" else (change.abs() * self.cost).sum(dim=1)

    def _slope(self, pull: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        """The objective's gradient; where the distance has a kink, its shortest subgradient."""
        if self.distance == "l2":
            length = change.norm(dim=1, keepdim=True)
            shrunk = pull * (1 - weight / pull.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_min(0)
            return torch.where(length > 0, pull + weight * change / length.clamp_min(1e-30), shrunk)
        weight = weight * self.cost
        slope = pull + weight * change.sign()
        if self.published:
            return slope
        return torch.where(change == 0, pull.sign() * (pull.abs() - weight).clamp_min(0), slope)

    def _step(self, state: State) -> None:
        change = state.x - state.x0
        slope = self._slope(state.pull, change, state.weight[:, None])
        rate = self.learning_rate * (1 - state.adam.clock / self.steps)
        moved = change - state.adam.move(slope, rate)
        if not self.published and self.distance == "l1":
            moved = settled(change, moved, slope)
        state.x = (state.x0 + moved).clamp(state.lower, state.upper).to(self.stored).to(moved)

    def _count(self, state: State, accepted: Tensor) -> Tensor:
        """Take note of which iterates were accepted; returns which turns have ended."""
        state.hits += accepted
        state.run = torch.where(accepted, state.run.clamp_min(0) + 1, state.run.clamp_max(0) - 1)
        bisecting = state.turn >= 0
        tired = bisecting & (state.run.abs() >= self.patience)
        return tired | (state.adam.clock >= torch.where(bisecting, self.steps, self.steps // SWEEP))

    def _next_turn(self, state: State, ended: Tensor) -> State:
        """Give the rows whose turn has ended their next weight; drop those that have had all turns."""
        sweeping = state.turn < 0
        works = state.hits >= torch.where(sweeping, 1, ENOUGH)
        state.worked += ended & works
        # In the sweep the second weight that works is the lower bound, as published.
        raised = ended & works & (~sweeping | (state.worked == 2))
        state.low = torch.where(raised, torch.maximum(state.low, state.weight), state.low)
        state.high = torch.where(ended & ~works, torch.minimum(state.high, state.weight), state.high)
        # The published sweep goes on to the end. A row that two weights have moved, and that was accepted
        # last, need not: smaller weights pull it back less (no exception in 4,669 rows of published models).
        enough = (state.worked >= 2) & (state.run > 0)
        swept = ended & sweeping & (enough | (state.turn == -1))
        state.turn = torch.where(swept, 0, state.turn + ended)
        bisect = (state.turn >= 0) & (state.low > 0)
        weight = torch.where(bisect, (state.low + state.high) / 2, state.weight / 10)
        state.weight = torch.where(ended, weight, state.weight)
        # Half of the turns from the factual have failed: there is no way from there.
        state.carries_on |= ended & (state.low == 0) & (2 * state.turn >= self.turns)
        back = (swept | (ended & ~state.carries_on))[:, None]
        state.x = torch.where(back, state.x0, state.x)
        state.pull = torch.where(back, state.first_pull, state.pull)
        state.hits, state.run = state.hits.masked_fill(ended, 0), state.run.masked_fill(ended, 0)
        state.adam.restart(ended)
        leaving = (state.turn >= self.turns) | (swept & (state.worked < 2))
        return state.only(~leaving) if bool(leaving.any()) else state
