"""Actions: changes that many rows share, on encoded rows.

An action fixes the values of a few features and leaves the others to each row. It has one of three forms. A
*shift* adds the same amount to numbers. A *reach* moves a number to at least, or at most, a value; rows that
are there already do not move. A *direction* moves numbers in the same proportions, each row by its own size.
Categories and states of numbers are set to a level in every form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from plausiflow.search import ChangeRoles
from plausiflow.tables import Layout

Form = Literal["shift", "reach", "direction"]
"""How an action moves numbers."""
FORMS: tuple[Form, ...] = get_args(Form)
SIZES = (0.1, 0.22, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.75, 2.1)
"""Sizes that a row may take along a direction."""
MOST_FEATURES = 4
"""Features that an action changes if it does not change all that a decision needs."""


_TENSORS = ("form", "features", "moves", "values", "codes", "rises", "y")


@dataclass(frozen=True, kw_only=True, eq=False)
class Actions:
    """Actions, each for one target class.

    Attributes:
        layout: Layout of encoded rows.
        form: Position of the form of each action in ``FORMS``, shape ``(c,)``.
        features: Which features an action fixes, shape ``(c, blocks)`` bool.
        moves: How far numbers move, shape ``(c, width)``; the sign of a reach.
        values: Where numbers of a reach, or that leave a special state, end, shape ``(c, width)``.
        codes: The level of each block with levels, -1 if it stays, shape ``(c, blocks with levels)``.
        rises: For ordered levels 1 for "at least", -1 for "at most" the level, 0 for others; same shape.
        y: Target class, shape ``(c,)``.
    """

    layout: Layout
    form: Tensor
    features: Tensor
    moves: Tensor
    values: Tensor
    codes: Tensor
    rises: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.form)

    def __getitem__(self, which: Tensor) -> Actions:
        return replace(self, **{name: getattr(self, name)[which] for name in _TENSORS})

    @classmethod
    def concat(cls, parts: Sequence[Actions]) -> Actions:
        """Concatenate actions of one layout."""
        tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in _TENSORS}
        return cls(layout=parts[0].layout, **tensors)

    def with_form(self, form: Form, scale: Tensor) -> Actions:
        """Return the actions in another form, with numbers that move by a multiple, shape ``(c,)``."""
        moves = _whole_steps(self.layout, scale[:, None] * self.moves)
        moved = (self.values + moves - self.moves).clamp(0.0, 1.0)
        values = torch.where(self.moves != 0, moved, self.values)
        return replace(self, form=torch.full_like(self.form, FORMS.index(form)), moves=moves, values=values)

    def to_dict(self) -> dict[str, Any]:
        """Return the actions as JSON values, without the layout."""
        return {name: getattr(self, name).tolist() for name in _TENSORS}

    @classmethod
    def from_dict(cls, layout: Layout, values: Mapping[str, Any]) -> Actions:
        """Return the actions that :meth:`to_dict` wrote.

        Raises:
            ValueError: The values do not fit the layout.
        """
        count, blocks, levels = len(values["form"]), len(layout.blocks), len(layout.with_levels)
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "form": ((count,), torch.long),
            "features": ((count, blocks), torch.bool),
            "moves": ((count, layout.width), torch.float64),
            "values": ((count, layout.width), torch.float64),
            "codes": ((count, levels), torch.long),
            "rises": ((count, levels), torch.long),
            "y": ((count,), torch.long),
        }
        tensors = {}
        for name, (shape, dtype) in shapes.items():
            tensor = torch.tensor(values[name], dtype=dtype)
            if tensor.numel() != math.prod(shape) or (count and tuple(tensor.shape) != shape):
                raise ValueError(f"`{name}` must have the shape {shape}")
            tensors[name] = tensor.reshape(shape)
        states = torch.tensor([len(block.levels) for block in layout.with_levels])
        if not ((tensors["form"] >= 0) & (tensors["form"] < len(FORMS))).all():
            raise ValueError("`form` must be the number of a form")
        if not ((tensors["codes"] >= -1) & (tensors["codes"] < states)).all():
            raise ValueError("`codes` must be numbers of levels")
        return cls(layout=layout, **tensors)

    @property
    def is_direction(self) -> Tensor:
        """Whether each row has its own size, shape ``(c,)``."""
        return self.form == FORMS.index("direction")

    def unique(self) -> Actions:
        """Drop repeated actions, and keep the first."""
        key = torch.cat(
            [part.double() for part in (self.form[:, None], self.y[:, None], self.moves, self.codes)], dim=1
        )
        reach = (self.form == FORMS.index("reach"))[:, None]
        key = torch.cat(
            [key.round(decimals=9), torch.where(reach, self.values, 0.0).round(decimals=9)], dim=1
        )
        _, inverse = torch.unique(key, dim=0, return_inverse=True)
        first = torch.full((int(inverse.max()) + 1 if len(inverse) else 0,), len(self))
        first.scatter_reduce_(0, inverse, torch.arange(len(self)), "amin")
        return self[first.sort().values]

    def apply(self, which: Tensor, x: Tensor, size: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return rows after their actions, and whether each action can be applied at all.

        A number in a special state cannot be shifted. Features that an action does not fix keep their values.

        Args:
            which: The action of each row, shape ``(p,)``.
            x: Encoded rows, shape ``(p, width)``.
            size: Size along a direction.
        """
        layout, moves, values = self.layout, self.moves[which], self.values[which]
        own = layout.codes(x)
        level, rises = self.codes[which], self.rises[which]
        codes = torch.where(level >= 0, level, own)
        beyond = ((rises > 0) & (own > level)) | ((rises < 0) & (own < level))
        codes = torch.where(beyond, own, codes)
        free, free_after = layout.free(own), layout.free(codes)
        step = torch.where(self.is_direction[which][:, None], size * moves, moves)
        reached = torch.where(moves > 0, torch.maximum(x, values), torch.minimum(x, values))
        is_reach = (self.form[which] == FORMS.index("reach"))[:, None]
        moved = torch.where(moves != 0, torch.where(is_reach, reached, x + step), x)
        moved = torch.where(free_after & ~free, values, moved)
        moved = layout.with_codes(moved, codes)
        on_grid = layout.settle(torch.where(moved != x, layout.snap(moved), moved))
        return on_grid, ((moves == 0) | (free & free_after)).all(dim=1)


def actions_of(
    layout: Layout, x: Tensor, x_cf: Tensor, y: Tensor, features: Tensor, form: Form = "shift"
) -> Actions:
    """Return the changes of some features from rows to counterfactuals, as actions.

    Args:
        layout: Layout of encoded rows.
        x: Factual rows, shape ``(c, width)``.
        x_cf: Their counterfactuals, shape ``(c, width)``.
        y: Their target classes, shape ``(c,)``.
        features: Which features the actions fix, shape ``(c, blocks)``.
        form: Form of the actions.
    """
    columns = torch.zeros(len(layout.blocks), layout.width, dtype=torch.bool)
    for j, block in enumerate(layout.blocks):
        columns[j, block.columns] = True
    fixed = (features.double() @ columns.double()) > 0
    before, after = layout.codes(x), layout.codes(x_cf)
    with_levels = [layout.blocks.index(block) for block in layout.with_levels]
    changed = (before != after) & features[:, with_levels]
    free = layout.free(before) & layout.free(after)
    ordered = torch.tensor([block.ordered for block in layout.with_levels], dtype=torch.bool)
    return Actions(
        layout=layout,
        form=torch.full((len(x),), FORMS.index(form)),
        features=features,
        moves=torch.where(fixed & free, x_cf - x, 0.0),
        values=torch.where(fixed, x_cf, 0.0),
        codes=torch.where(changed, after, -1),
        rises=torch.where(changed & ordered, (after - before).sign(), 0),
        y=y,
    )


def _whole_steps(layout: Layout, moves: Tensor) -> Tensor:
    """Return moves that are multiples of the steps of their columns, away from zero."""
    moves = moves.clone()
    for block in layout.blocks:
        if block.number is not None and block.scale is not None and block.scale.encoded_step:
            step, own = block.scale.encoded_step, moves[:, block.number]
            moves[:, block.number] = own.sign() * torch.ceil((own.abs() / step).round(decimals=6)) * step
    return moves


def needed_features(layout: Layout, roles: ChangeRoles, count: int) -> Tensor:
    """Return the features that the decision needs in each of ``count`` answers, shape ``(m, blocks)``."""
    place = {block.name: j for j, block in enumerate(layout.blocks)}
    needed = torch.zeros(count, len(layout.blocks), dtype=torch.bool)
    for answer, feature in zip(roles.answer[roles.needed].tolist(), roles.feature[roles.needed], strict=True):
        needed[answer, place[feature]] = True
    return needed
