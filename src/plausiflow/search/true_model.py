"""The user's own model, as a search without gradients asks it: on decoded rows, in batches, within a budget.

An answer must also be stable: at *corners* around it, where every free number is moved by a small share of
its range, up or down at random, and put on its grid, the model must decide in the same way. If the trees of
the model were read, they are asked in its place, which takes less time; the model has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import TargetCriterion, Targets, check_deadline
from plausiflow.search.row_random import row_keys, signs
from plausiflow.tables import Encoder


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueModel:
    """The user's own model, which has no gradients.

    Attributes:
        outputs: Log-probabilities ``(n, k)`` or predictions ``(n,)`` of rows of the table; NaN for none.
        criterion: Compares outputs with targets.
        encoder: Encoder of the table.
        budget: How many rows the model may be asked about for each row that is searched.
        tree_outputs: The same outputs of encoded rows, by the model's own trees; None if it has none.
        bound: How far inside the bound of retrained models encoded rows and rows of the table are, for their
            targets; None if nobody asked for durability.
    """

    outputs: Callable[[pd.DataFrame], Tensor]
    criterion: TargetCriterion
    encoder: Encoder
    budget: int
    tree_outputs: Callable[[Tensor], Tensor] | None = None
    bound: Callable[[Tensor, pd.DataFrame | None, Targets], Tensor] | None = None

    def oracle(self, frame: pd.DataFrame, x: Tensor, targets: Targets) -> Oracle:
        """Return the oracle for the rows of a task."""
        return Oracle(true_model=self, frame=frame, x=x, targets=targets)


@dataclass(frozen=True, kw_only=True, eq=False)
class Oracle:
    """The user's own model for the rows of a task.

    Attributes:
        true_model: The model.
        frame: The rows of the task.
        x: The same rows, encoded.
        targets: Their targets.
        spent: How many rows the model was asked about for each of them, shape ``(n,)``; counts in place.
    """

    true_model: TrueModel
    frame: pd.DataFrame
    x: Tensor
    targets: Targets
    spent: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def __post_init__(self) -> None:
        if len(self.spent) != len(self.x):
            object.__setattr__(self, "spent", torch.zeros(len(self.x), dtype=torch.long))

    def with_budget_share(self, share: float) -> Oracle:
        """Return the oracle for a part of a search, which may spend only a share of the budget."""
        return replace(
            self, true_model=replace(self.true_model, budget=round(share * self.true_model.budget))
        )

    def repeated(self, rows: Tensor) -> Oracle:
        """Return the oracle for rows that may repeat; those of a row share what is left of its budget."""
        budget = self.true_model.budget
        left = (budget - self.spent[rows]) // torch.bincount(rows)[rows]
        frame, spent = self.frame.iloc[rows.numpy()], budget - left
        return replace(self, frame=frame, x=self.x[rows], targets=self.targets[rows], spent=spent)

    def valid(self, x_cf: Tensor, rows: Tensor, *, without_margin: Tensor | None = None) -> Tensor:
        """Return whether the model meets the target, shape ``(m,)``; False if a row's budget is spent.

        Args:
            x_cf: Encoded candidates, shape ``(m, width)``.
            rows: Their rows, shape ``(m,)``.
            without_margin: Candidates that need no margin, shape ``(m,)`` bool.
        """
        check_deadline()
        valid = torch.zeros(len(x_cf), dtype=torch.bool)
        asked = self._within_budget(rows).nonzero()[:, 0]
        if len(asked):
            own = rows[asked]
            outputs, criterion = self._outputs(x_cf[asked], own), self.true_model.criterion
            targets = self.targets[own]
            valid[asked] = criterion.value(outputs, targets) >= 0
            if self.true_model.bound is not None:
                points = valid if without_margin is None else valid & ~without_margin
                valid &= ~points | self._lasting(x_cf, rows, points)
            if without_margin is not None:
                met = replace(criterion, margin=0.0).met(outputs, targets)
                valid[asked] = torch.where(without_margin[asked], met, valid[asked])
        return valid

    def _lasting(self, x_cf: Tensor, rows: Tensor, points: Tensor) -> Tensor:
        """Return which of some points ``(m,)`` bool meet the bound of retrained models."""
        assert self.true_model.bound is not None
        held, some = torch.zeros_like(points), points.nonzero()[:, 0]
        own = rows[some]
        frame = None if self.true_model.tree_outputs is not None else self._decoded(x_cf[some], own)
        held[some] = self.true_model.bound(x_cf[some], frame, self.targets[own]) >= 0
        return held

    def _decoded(self, x_cf: Tensor, rows: Tensor) -> pd.DataFrame:
        like = self.frame.iloc[rows.numpy()]
        return self.true_model.encoder.decode(x_cf, like=like, encoded=self.x[rows])

    def _outputs(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the model's outputs for candidates of some rows."""
        if self.true_model.tree_outputs is not None:
            return self.true_model.tree_outputs(x_cf)
        return self.true_model.outputs(self._decoded(x_cf, rows))

    def valid_at_corners(
        self, x_cf: Tensor, rows: Tensor, *, corners: int, reach: float, salt: int
    ) -> Tensor:
        """Return whether the model meets the target at points and all their corners, shape ``(m,)``.

        One call of the model; arguments as for :meth:`stability`.
        """
        moved = corners_of(self.true_model.encoder, x_cf, corners=corners, reach=reach, salt=salt)
        owners = torch.cat([rows, rows.repeat_interleave(corners)])
        without_margin = torch.arange(len(owners)) >= len(rows)
        valid = self.valid(torch.cat([x_cf, moved]), owners, without_margin=without_margin)
        return valid[: len(rows)] & valid[len(rows) :].view(-1, corners).all(dim=1)

    def stability(self, x_cf: Tensor, rows: Tensor, *, corners: int, reach: float, salt: int) -> Tensor:
        """Return the share of the corners of points at which the model meets the target, shape ``(m,)``.

        The corners need no margin: that of the point is meant for them.

        Args:
            x_cf: Points, shape ``(m, width)``.
            rows: Their rows, shape ``(m,)``.
            corners: Number of corners of each point.
            reach: How far out corners are, as a share of a number's range.
            salt: Different salts give different corners.
        """
        if len(x_cf) == 0:
            return x_cf.new_zeros(0)
        moved = corners_of(self.true_model.encoder, x_cf, corners=corners, reach=reach, salt=salt)
        owners = rows.repeat_interleave(corners)
        without_margin = torch.ones(len(moved), dtype=torch.bool)
        valid = self.valid(moved, owners, without_margin=without_margin)
        return valid.double().view(len(x_cf), corners).mean(dim=1)

    def _within_budget(self, rows: Tensor) -> Tensor:
        """Return which requests about rows are within the budget, in order, and count them."""
        order = torch.argsort(rows, stable=True)
        ordered = rows[order]
        place = torch.empty_like(rows)
        place[order] = torch.arange(len(rows)) - torch.searchsorted(ordered, ordered)
        affordable = self.spent[rows] + place < self.true_model.budget
        self.spent.index_add_(0, rows[affordable], torch.ones(int(affordable.sum()), dtype=torch.long))
        return affordable


def corners_of(
    encoder: Encoder, x: Tensor, *, corners: int, reach: float, salt: int, grid: bool = True
) -> Tensor:
    """Return corners of points ``(m, width)``, point by point, shape ``(m * corners, width)``.

    A number in a special state stays; the others go to their grids, unless ``grid`` is False.
    """
    layout = encoder.layout
    free = layout.free(layout.codes(x))
    move = signs(row_keys(x), corners * layout.width, salt).view(len(x), corners, layout.width)
    moved = x[:, None] + reach * move * free[:, None]
    moved = moved.reshape(-1, layout.width)
    return layout.settle(layout.snap(moved)) if grid else moved
