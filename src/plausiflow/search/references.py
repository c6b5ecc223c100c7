"""What sets a row apart from training rows that the model decides as wanted: what the decision needs of it.

The references of a row are the nearest training rows that the model decides as wanted, moved onto what the
row may not change. In each of them, every difference from the row is undone that the decision does not need:
what is left are the fewest differences, by what each adds to the decision, that are enough. Only the model
and the training rows matter. No density takes part, so its seed does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from plausiflow.search.bank import Bank
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.search.task import SearchTask
from plausiflow.tables import Block, Encoder, FloatArray, IntArray, ObjectArray

REFERENCES, AMONG = 50, 200
"""References of a row, and the nearest training rows that are moved and checked for it."""
MOST_ROWS = 2_000
"""Training rows of each outcome that references are chosen from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NeededDifferences:
    """The features in which references differ from a row as the decision needs it.

    Attributes:
        feature: Their names, objects, shape ``(f,)``.
        share: Share of the references in which the decision needs the difference, shape ``(f,)``.
        weight: Its mean share of what all needed differences add to the decision, shape ``(f,)``.
        after: A typical value in these references, objects, shape ``(f,)``.
        way: 1 if that is more, -1 if it is less, 0 without a direction, shape ``(f,)``.
    """

    feature: ObjectArray
    share: FloatArray
    weight: FloatArray
    after: ObjectArray
    way: IntArray


def reference_rows(valid: dict[int, Tensor], typical: dict[int, float]) -> Bank:
    """Return up to 2,000 training rows of each outcome that the model decides for; the seed is fixed.

    Args:
        valid: The rows that the model decides for, by class.
        typical: As that of a :class:`Bank`.
    """
    kept = {}
    for k, rows in valid.items():
        generator = torch.Generator().manual_seed(k)
        some = torch.randperm(len(rows), generator=generator)[:MOST_ROWS].sort().values
        kept[k] = rows[some.to(rows.device)]
    return Bank(kept, typical)


@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """Finds what sets the rows of a request apart from rows that the model decides as wanted.

    Attributes:
        engine: What was fitted.
        encoder: Encoder of the table.
        request: The request, with the targets that were chosen.
    """

    engine: Engine
    encoder: Encoder
    request: SearchRequest

    @torch.no_grad()
    def of(self, row: int) -> NeededDifferences | None:
        """Return the needed differences of the row at a position; None if it has no reference."""
        x, targets, frame, locked = self.request.part(torch.tensor([row]))
        bank = self.engine.reference_bank or self.engine.wider_bank or self.engine.bank
        task = self.engine.task(x, targets, frame=frame, locked=locked)
        _, near = bank.moved(task, torch.tensor([0]), AMONG)
        near = near[self._value(task, near) >= 0][:REFERENCES]
        if len(near) == 0:
            return None
        changed = task.layout.changed(near, x.expand_as(near))
        gains = self._gains(task, near, changed)
        needed = self._fewest(task, near, changed, gains)
        added = torch.where(needed, gains.clamp_min(0), 0.0)
        # Where only all of them together add anything, they count the same.
        added = torch.where((added.sum(dim=1) > 0)[:, None], added, needed.double())
        weight = (added / added.sum(dim=1, keepdim=True).clamp_min(1e-12)).mean(dim=0)
        share = needed.double().mean(dim=0)
        places = [j for j in weight.argsort(descending=True, stable=True).tolist() if share[j] > 0]
        typical = [_typical(task, near[needed[:, j]], j) for j in places]
        names = [task.layout.blocks[j].name for j in places]
        after = self.encoder.decode(torch.stack(typical)) if typical else frame.iloc[:0]
        return NeededDifferences(
            feature=np.array(names, dtype=object),
            share=share[places].numpy(),
            weight=weight[places].numpy(),
            after=np.array([after[name].iloc[i] for i, name in enumerate(names)] + [None], dtype=object)[:-1],
            way=np.array(
                [_way(task, typical[i], task.layout.blocks[j]) for i, j in enumerate(places)], dtype=np.int64
            ),
        )

    def _value(self, task: SearchTask, x: Tensor) -> Tensor:
        """Return how far inside the target of a task's only row the user's model puts points, ``(p,)``."""
        criterion, model = replace(self.engine.validity.criterion, margin=0.0), self.engine.model
        frame = None
        if model is not None and not model.labels:
            frame = self.encoder.decode(x)
        outputs = self.engine.validity.outputs(x) if model is None else model.predict_outputs(x, frame)
        return criterion.value(outputs, task.targets[torch.zeros(len(x), dtype=torch.long)])

    def _gains(self, task: SearchTask, near: Tensor, changed: Tensor) -> Tensor:
        """Return what each difference adds to how far inside the target a reference is, ``(m, blocks)``."""
        reference, block = changed.nonzero(as_tuple=True)
        undone = torch.where(task.block_columns[block], task.x, near[reference])
        gains = torch.zeros(changed.shape, dtype=torch.float64)
        value = self._value(task, torch.cat([near, undone]))
        gains[reference, block] = value[: len(near)][reference] - value[len(near) :]
        return gains

    def _fewest(self, task: SearchTask, near: Tensor, changed: Tensor, gains: Tensor) -> Tensor:
        """Return the fewest differences, by their gains, with which the row is decided as wanted."""
        first = torch.where(changed, gains, -torch.inf)
        rank = first.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        most = int(changed.sum(dim=1).max())
        kept = torch.stack([changed & (rank < count) for count in range(1, most + 1)])
        columns = (kept.double() @ task.block_columns.double()) > 0
        partly = torch.where(columns, near, task.x)
        enough = (self._value(task, partly.flatten(0, 1)) >= 0).reshape(most, len(near))
        return kept[enough.double().argmax(dim=0), torch.arange(len(near))]


def _typical(task: SearchTask, near: Tensor, j: int) -> Tensor:
    """Return the row with the median of a feature in some references, at its most common level."""
    block = task.layout.blocks[j]
    if len(block.levels):
        codes = near[:, block.levels.start : block.levels.stop].argmax(dim=1)
        near = near[codes == codes.mode().values]
    if block.number is not None:
        order = near[:, block.number].argsort(stable=True)
        near = near[order[(len(order) - 1) // 2 :]]
    typical: Tensor = torch.where(task.block_columns[j], near[0], task.x[0])
    return typical


def _way(task: SearchTask, typical: Tensor, block: Block) -> int:
    """Return whether a feature is more (1) or less (-1) than in the only row of a task; 0 if neither."""
    own = task.x[0]
    if len(block.levels):
        levels = slice(block.levels.start, block.levels.stop)
        steps = int(typical[levels].argmax()) - int(own[levels].argmax())
        if steps or block.number is None:
            return int(np.sign(steps)) if block.ordered else 0
    return int(torch.sign(typical[block.number] - own[block.number]))
