"""A short evolution: points a little nearer to the row, asked of the model itself.

Each round makes a few proposals for each row: the answer so far, shrunk towards the row by a random share,
with a little noise on some numbers; now and then one changed number is put back entirely. Cheaper ones that
are allowed and plausible are asked of the model, the cheapest it agrees with must hold at corners, and takes
the answer's place. Steps grow after a success and shrink after a failure. All random numbers are the row's
own (:mod:`plausiflow.search.row_random`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.search.rounding import on_grid
from plausiflow.search.row_random import normals, row_keys, uniforms
from plausiflow.search.task import Candidates, Task

CORNERS, REACH = 8, 2e-3
LEAST_GAIN = 1e-4
BACK, STEPPED, STEP = 2, 5, 0.1
"""Proposals of each round that put one changed number back, those that bring some a step nearer, and how much
of its change a step is at least."""


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """How long it goes on.

    Attributes:
        rounds: How often proposals are made.
        proposals: For each row in each round.
        size: First size of a step, as a share of the change so far.
        asked: Of the proposals, how many the model is asked about at most, the cheapest first.
    """

    rounds: int = 18
    proposals: int = 20
    size: float = 0.2
    asked: int = 5

    def run(self, task: Task, best: Candidates, *, sparse: bool) -> Candidates:
        """Better answers, one for each; ``sparse`` changes nothing that is not changed already."""
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
            found = self._asked(task, points[cheaper], of[cheaper])
            took = torch.zeros(len(best), dtype=torch.bool)
            if len(found[0]):
                place, better = found
                took[place] = True
                x, cost = best.x.clone(), best.cost.clone()
                x[place], cost[place] = better.x, better.cost
                best = Candidates(rows=best.rows, x=x, cost=cost)
            size = torch.where(took, 1.3 * size, 0.75 * size).clamp(0.01, 0.6)
        return best

    def _asked(self, task: Task, points: Candidates, of: Tensor) -> tuple[Tensor, Candidates]:
        """The cheapest proposal of each answer that holds, also at corners; and which answers these are."""
        oracle = task.oracle
        assert oracle is not None
        fine = task.unasked.checked(points)
        own = replace(fine, rows=of).best(self.asked)
        own = own[torch.isfinite(own.cost)]
        valid = oracle.valid(own.x, self._rows(points, of, own))
        first = own[valid].best(1)
        rows = self._rows(points, of, first)
        holds = oracle.steady(first.x, rows, corners=CORNERS, reach=REACH, salt=1) == 1
        kept = first[holds]
        return kept.rows, replace(kept, rows=rows[holds])

    @staticmethod
    def _steps(task: Task) -> Tensor:
        """The grid's step of each number that may move, zero where there is none, shape ``(numbers,)``."""
        scales = {block.number: block.scale for block in task.mutable if block.scale is not None}
        return torch.tensor([scales[column].encoded_step for column in task.numbers], dtype=torch.float64)

    @staticmethod
    def _rows(points: Candidates, of: Tensor, own: Candidates) -> Tensor:
        """The rows of the task that belong to some answers."""
        row_of = torch.zeros(int(of.max()) + 1 if len(of) else 0, dtype=torch.long)
        row_of[of] = points.rows
        return row_of[own.rows]

    def _proposals(
        self, task: Task, best: Candidates, keys: Tensor, size: Tensor, sparse: bool, salt: int
    ) -> Tensor:
        """Points for each answer, shape ``(answers * proposals, width)``."""
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
        # One changed number of the first few proposals goes back to the row's own.
        which = (
            uniforms(keys, BACK * k, salt + 5).view(n, BACK, k).masked_fill(~(changed & free)[:, None], -1.0)
        )
        back = torch.nn.functional.one_hot(which.argmax(dim=2), k).bool() & (changed & free)[:, None]
        numbers[:, :BACK] = torch.where(back, own[:, None], current[:, None])
        # Some changed numbers of the next few go one step of their grid back, or a share of their change.
        step = torch.maximum(self._steps(task).to(delta), STEP * delta.abs()).minimum(delta.abs())
        nearer = current - delta.sign() * step
        drawn = uniforms(keys, STEPPED * k, salt + 6).view(n, STEPPED, k)
        chosen = drawn < uniforms(keys, STEPPED, salt + 7).view(n, STEPPED, 1) ** 2
        numbers[:, BACK : BACK + STEPPED] = torch.where(chosen, nearer[:, None], current[:, None])
        numbers = torch.where(free[:, None], numbers, current[:, None])
        x = best.x.repeat_interleave(count, dim=0)
        x[:, columns] = numbers.reshape(n * count, k)
        return x
