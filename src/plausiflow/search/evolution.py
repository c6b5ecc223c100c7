"""A short evolution: points a little closer to the row, checked with the user's own model.

Each round makes a few proposals for each row: the answer so far, shrunk towards the row by a random share,
with a little noise on some numbers; some proposals reset one changed number. Cheaper ones that are allowed
and plausible are checked with the model; the cheapest that it accepts must be stable at corners, and replaces
the answer. Steps grow after a success and shrink after a failure. All random numbers depend on the row only
(:mod:`plausiflow.search.row_random`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates
from plausiflow.search.rounding import on_grid
from plausiflow.search.row_random import normals, row_keys, uniforms
from plausiflow.search.task import SearchTask

CORNERS, REACH = 8, 2e-3
LEAST_GAIN = 1e-4
BACK, STEPPED, STEP = 2, 5, 0.1
"""Proposals of each round that reset one changed number, those that bring some numbers a step closer, and the
smallest step as a share of a change."""


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """Settings of the evolution.

    Attributes:
        rounds: Number of rounds.
        proposals: Proposals for each row in each round.
        size: First size of a step, as a share of the change so far.
        checked: Proposals that the model is asked about, the cheapest first.
    """

    rounds: int = 18
    proposals: int = 20
    size: float = 0.2
    checked: int = 5

    def run(self, task: SearchTask, best: Candidates, *, sparse: bool) -> Candidates:
        """Return a better answer for each; ``sparse`` changes no further features."""
        assert task.oracle is not None
        if len(best) == 0 or not task.numbers:
            return best
        keys, size = row_keys(task.x[best.rows]), best.x.new_full((len(best),), self.size)
        for turn in range(self.rounds):
            x = self._proposals(task, best, keys, size, sparse, salt=16 * (turn + 1))
            of = torch.arange(len(best)).repeat_interleave(self.proposals)
            points = task.candidates(best.rows[of], x)
            points = replace(points, x=on_grid(task, points))
            cost = task.costs(points.x, points.rows)
            cheaper = cost < (1 - LEAST_GAIN) * best.cost[of]
            found = self._check(task, points[cheaper], of[cheaper])
            took = torch.zeros(len(best), dtype=torch.bool)
            if len(found[0]):
                place, better = found
                took[place] = True
                x, cost = best.x.clone(), best.cost.clone()
                x[place], cost[place] = better.x, better.cost
                best = Candidates(rows=best.rows, x=x, cost=cost)
            size = torch.where(took, 1.3 * size, 0.75 * size).clamp(0.01, 0.6)
        return best

    def _check(self, task: SearchTask, points: Candidates, of: Tensor) -> tuple[Tensor, Candidates]:
        """Return the answers that have a stable cheaper proposal, and the cheapest such proposal of each."""
        oracle = task.oracle
        assert oracle is not None
        fine = task.without_oracle.check(points)
        own = replace(fine, rows=of).cheapest(self.checked)
        own = own[torch.isfinite(own.cost)]
        valid = oracle.valid(own.x, self._rows(points, of, own))
        first = own[valid].cheapest(1)
        rows = self._rows(points, of, first)
        holds = oracle.stability(first.x, rows, corners=CORNERS, reach=REACH, salt=1) == 1
        kept = first[holds]
        return kept.rows, replace(kept, rows=rows[holds])

    @staticmethod
    def _steps(task: SearchTask) -> Tensor:
        """Return the grid step of each number that may move, zero without a grid, shape ``(numbers,)``."""
        scales = {block.number: block.scale for block in task.mutable if block.scale is not None}
        return torch.tensor([scales[column].encoded_step for column in task.numbers], dtype=torch.float64)

    @staticmethod
    def _rows(points: Candidates, of: Tensor, own: Candidates) -> Tensor:
        """Return the rows of the task that some answers belong to."""
        row_of = torch.zeros(int(of.max()) + 1 if len(of) else 0, dtype=torch.long)
        row_of[of] = points.rows
        return row_of[own.rows]

    def _proposals(
        self, task: SearchTask, best: Candidates, keys: Tensor, size: Tensor, sparse: bool, salt: int
    ) -> Tensor:
        """Return proposals for each answer, shape ``(answers * proposals, width)``."""
        n, count, columns = len(best), self.proposals, torch.tensor(task.numbers)
        own, k = task.x[best.rows][:, columns], len(columns)
        current = best.x[:, columns]
        free = task.layout.free(task.layout.codes(best.x))[:, columns]
        delta = current - own
        changed = delta != 0
        moves = (free & changed if sparse else free)[:, None]
        shape = (n, count, 1)
        shrink = size[:, None, None] * uniforms(keys, count, salt).view(shape)
        noise = normals(keys, count * k, salt + 1).view(n, count, k)
        some = uniforms(keys, count * k, salt + 2).view(n, count, k) < uniforms(keys, count, salt + 3).view(
            shape
        )
        strength = (size * delta.norm(dim=1) / k**0.5)[:, None, None] * uniforms(keys, count, salt + 4).view(
            shape
        )
        numbers = own[:, None] + (1 - shrink) * delta[:, None] + strength * noise * (some & moves)
        # The first few proposals reset one changed number.
        which = (
            uniforms(keys, BACK * k, salt + 5).view(n, BACK, k).masked_fill(~(changed & free)[:, None], -1.0)
        )
        back = torch.nn.functional.one_hot(which.argmax(dim=2), k).bool() & (changed & free)[:, None]
        numbers[:, :BACK] = torch.where(back, own[:, None], current[:, None])
        # The next few bring some changed numbers one grid step closer, or a share of their change.
        step = torch.maximum(self._steps(task).to(delta), STEP * delta.abs()).minimum(delta.abs())
        nearer = current - delta.sign() * step
        drawn = uniforms(keys, STEPPED * k, salt + 6).view(n, STEPPED, k)
        chosen = drawn < uniforms(keys, STEPPED, salt + 7).view(n, STEPPED, 1) ** 2
        numbers[:, BACK : BACK + STEPPED] = torch.where(chosen, nearer[:, None], current[:, None])
        numbers = torch.where(free[:, None], numbers, current[:, None])
        x = best.x.repeat_interleave(count, dim=0)
        x[:, columns] = numbers.reshape(n * count, k)
        return x
