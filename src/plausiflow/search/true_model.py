"""A model without gradients, as a search asks it: on decoded rows, in batches, within a budget for each row.

An answer must also hold a little around itself: at *corners*, where every number that is free is moved by a
small share of its range, up or down at random, and put on its grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import Tensor

from plausiflow.search.criterion import TargetCriterion, Targets
from plausiflow.search.row_random import row_keys, signs
from plausiflow.tables import Encoder

Answer = Callable[[pd.DataFrame], Tensor]
"""What a model answers for rows of a table: logits ``(n, k)``, or values ``(n,)``; NaN where it has none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueModel:
    """A model without gradients, as it was fitted.

    Attributes:
        answer: Of the model.
        aim: How answers are held against what is wanted.
        encoder: Of the table.
        budget: How many rows the model may be asked about for each row of a search.
    """

    answer: Answer
    aim: TargetCriterion
    encoder: Encoder
    budget: int

    def oracle(self, frame: pd.DataFrame, x: Tensor, wanted: Targets) -> Oracle:
        """The same, for the rows of a task."""
        return Oracle(itself=self, frame=frame, x=x, wanted=wanted)


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle:
    """The model itself, for the rows of a task.

    Attributes:
        itself: The model.
        frame: The rows of the task.
        x: The same, encoded.
        wanted: What is wanted of them.
        spent: How many rows the model was asked about for each of them, shape ``(n,)``; counts on.
    """

    itself: TrueModel
    frame: pd.DataFrame
    x: Tensor
    wanted: Targets
    spent: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def __post_init__(self) -> None:
        if len(self.spent) != len(self.x):
            object.__setattr__(self, "spent", torch.zeros(len(self.x), dtype=torch.long))

    def sparing(self, share: float) -> Oracle:
        """The same for a part of a search, which may spend no more than a share of the budget."""
        return replace(self, itself=replace(self.itself, budget=round(share * self.itself.budget)))

    def valid(self, x_cf: Tensor, rows: Tensor, *, narrowly: Tensor | None = None) -> Tensor:
        """Whether the model answers as wanted, shape ``(m,)``; false where the budget of a row is spent.

        ``narrowly`` is enough without the margin, where it is true, shape ``(m,)``.
        """
        valid = torch.zeros(len(x_cf), dtype=torch.bool)
        asked = self._within_budget(rows).nonzero()[:, 0]
        if len(asked):
            own = rows[asked]
            like = self.frame.iloc[own.numpy()]
            decoded = self.itself.encoder.decode(x_cf[asked], like=like, encoded=self.x[own])
            outputs = self.itself.answer(decoded)
            wanted = self.wanted[own]
            valid[asked] = self.itself.aim.value(outputs, wanted) >= 0
            if narrowly is not None:
                barely = replace(self.itself.aim, margin=0.0).met(outputs, wanted)
                valid[asked] = torch.where(narrowly[asked], barely, valid[asked])
        return valid

    def holds(self, x_cf: Tensor, rows: Tensor, *, corners: int, reach: float, salt: int) -> Tensor:
        """Whether the model decides points and all their corners as wanted, in one call, shape ``(m,)``."""
        moved = at_corners(self.itself.encoder, x_cf, corners=corners, reach=reach, salt=salt)
        owners = torch.cat([rows, rows.repeat_interleave(corners)])
        narrowly = torch.arange(len(owners)) >= len(rows)
        valid = self.valid(torch.cat([x_cf, moved]), owners, narrowly=narrowly)
        return valid[: len(rows)] & valid[len(rows) :].view(-1, corners).all(dim=1)

    def steady(self, x_cf: Tensor, rows: Tensor, *, corners: int, reach: float, salt: int) -> Tensor:
        """The share of the corners of points ``(m, width)`` that the model decides as wanted, ``(m,)``.

        What a point itself has to spare, the margin, is there for its corners.
        """
        if len(x_cf) == 0:
            return x_cf.new_zeros(0)
        moved = at_corners(self.itself.encoder, x_cf, corners=corners, reach=reach, salt=salt)
        owners = rows.repeat_interleave(corners)
        narrowly = torch.ones(len(moved), dtype=torch.bool)
        return self.valid(moved, owners, narrowly=narrowly).double().view(len(x_cf), corners).mean(dim=1)

    def _within_budget(self, rows: Tensor) -> Tensor:
        """Which of the questions about some rows can be afforded, in order; these are counted."""
        order = torch.argsort(rows, stable=True)
        ordered = rows[order]
        place = torch.empty_like(rows)
        place[order] = torch.arange(len(rows)) - torch.searchsorted(ordered, ordered)
        affordable = self.spent[rows] + place < self.itself.budget
        self.spent.index_add_(0, rows[affordable], torch.ones(int(affordable.sum()), dtype=torch.long))
        return affordable


def at_corners(
    encoder: Encoder, x: Tensor, *, corners: int, reach: float, salt: int, grid: bool = True
) -> Tensor:
    """Corners of points ``(m, width)``, those of each one after the other, shape ``(m * corners, width)``.

    Numbers that may be zero or missing stay where they are so; the others go to their grids, unless told.
    """
    layout = encoder.layout
    free = layout.free(layout.codes(x))
    move = signs(row_keys(x), corners * layout.width, salt).view(len(x), corners, layout.width)
    moved = x[:, None] + reach * move * free[:, None]
    moved = moved.reshape(-1, layout.width)
    return layout.snap(moved) if grid else moved
