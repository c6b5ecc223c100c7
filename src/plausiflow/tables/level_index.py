"""Index tensors of all levels of a layout, so that one operation serves all features.

Encoded rows hold the levels of every feature in columns of their own. A loop over the features costs one
small operation each, which is most of the time of a search with few rows. These tensors are built once for
each layout and device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from plausiflow.tables.layout import Block

FEW_VALUES = 4096
"""Values of levels up to which one operation on padded features takes less time than one for each size."""


class LevelIndex:
    """Where the levels of features are, on one device.

    Args:
        blocks: All blocks of a layout.
        width: Number of columns of an encoded row.
        device: Where the rows are.

    Attributes:
        columns: Column of each level, feature by feature, shape ``(levels,)``.
        block_of: The feature of each level, counted among those with levels, shape ``(levels,)``.
        level_of: The place of each level within its feature, shape ``(levels,)``.
        first_column: Column of the first level of each feature, shape ``(features with levels,)``.
        starts: Place of the first level of each feature in ``columns``, of the same shape.
        states: Features with levels that have a number, too, shape ``(s,)``.
        numbers: The columns of their numbers, shape ``(s,)``.
        state_starts: Their part of ``starts``, shape ``(s,)``.
        free: Levels that leave the number of their feature free, shape ``(levels,)`` bool.
        pins: The number at each level, zero if it is free or there is none, shape ``(levels,)``.
        apart: Levels whose value is not on the scale of the feature's number, shape ``(levels,)`` bool.
        closed: Levels that rows can neither enter nor leave, shape ``(levels,)`` bool.
        with_levels: The place of each feature with levels among all blocks, of the shape of ``starts``.
        column_block: The block of each column, shape ``(width,)``.
        number_columns: Which columns hold numbers, shape ``(width,)`` bool.
        block_columns: Which columns belong to each block, shape ``(width, blocks)``, in single precision.
        number_of: The column of the number of each level's feature, -1 without one, shape ``(levels,)``.
    """

    def __init__(self, blocks: Sequence[Block], width: int, device: torch.device) -> None:
        with_levels = [block for block in blocks if len(block.levels)]
        sizes = [len(block.levels) for block in with_levels]
        states = [j for j, block in enumerate(with_levels) if block.number is not None]

        def whole(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        self.columns = whole([column for block in with_levels for column in block.levels])
        self.number_of = whole([-1 if b.number is None else b.number for b in with_levels for _ in b.levels])
        self.block_of = whole([j for j, size in enumerate(sizes) for _ in range(size)])
        self.level_of = whole([i for size in sizes for i in range(size)])
        self.first_column = whole([block.levels.start for block in with_levels])
        self.starts = whole([sum(sizes[:j]) for j in range(len(sizes))])
        self.states = whole(states)
        self.numbers = whole([with_levels[j].number or 0 for j in states])
        self.state_starts = self.starts[self.states]
        pinned = [pin for block in with_levels for pin in (block.pinned or [None] * len(block.levels))]
        apart = [flag for block in with_levels for flag in (block.apart or [False] * len(block.levels))]
        self.free = torch.tensor([pin is None for pin in pinned], dtype=torch.bool, device=device)
        self.pins = torch.tensor([pin or 0.0 for pin in pinned], dtype=torch.float64, device=device)
        self.apart = torch.tensor(apart, dtype=torch.bool, device=device)
        closed = [flag for block in with_levels for flag in (block.closed or [False] * len(block.levels))]
        self.closed = torch.tensor(closed, dtype=torch.bool, device=device)
        self.with_levels = whole([j for j, block in enumerate(blocks) if len(block.levels)])
        number_columns = torch.zeros(width, dtype=torch.bool)
        number_columns[[block.number for block in blocks if block.number is not None]] = True
        self.number_columns = number_columns.to(device)
        block_columns = torch.zeros(width, len(blocks), dtype=torch.float32)
        for j, block in enumerate(blocks):
            block_columns[block.columns, j] = 1.0
        self.block_columns = block_columns.to(device)
        self.column_block = whole(
            [j for _, j in sorted((c, j) for j, b in enumerate(blocks) for c in b.columns)]
        )
        self._groups = _groups(with_levels, sizes, device)
        self._together = _padded(with_levels, range(len(with_levels)), device)

    def codes(self, x: Tensor) -> Tensor:
        """Return the level of each feature, shape ``(n, features with levels)``."""
        if len(self._groups) == 1 or len(x) * self._together.numel() < FEW_VALUES:
            return x[:, self._together].argmax(dim=2)
        codes = torch.zeros(len(x), len(self.starts), dtype=torch.long, device=x.device)
        for features, columns in self._groups:
            codes[:, features] = x[:, columns].argmax(dim=2)
        return codes

    def switched(self, x: Tensor, level: Tensor, typical: Mapping[int, float]) -> Tensor:
        """Return a copy of rows, each at another level of one feature, with the number that it pins.

        Args:
            x: Rows, shape ``(n, width)``.
            level: The place of each new level in ``columns``, shape ``(n,)``.
            typical: The number where a level leaves it free, by column.
        """
        at_level = self.number_of.tolist()
        free = x.new_tensor([typical.get(column, math.nan) for column in at_level])
        number, everyone = self.number_of[level], torch.arange(len(x), device=x.device)
        feature = self.with_levels[self.block_of[level]]
        others = (self.column_block == feature[:, None]) & ~self.number_columns
        x = x.masked_fill(others, 0.0)
        x[everyone, self.columns[level]] = 1.0
        some = (number >= 0).nonzero()[:, 0]
        pins = torch.where(self.free, free, self.pins.to(x))[level]
        x[some, number[some]] = pins[some]
        return x

    def with_codes(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return a copy of rows at these levels, with the numbers that they pin."""
        x = x.clone()
        x[:, self.columns] = (codes[:, self.block_of] == self.level_of).to(x)
        if len(self.states):
            at = self.state_levels(codes)
            x[:, self.numbers] = torch.where(self.free[at], x[:, self.numbers], self.pins.to(x)[at])
        return x

    def free_numbers(self, codes: Tensor) -> Tensor:
        """Return which numbers are free at these levels, shape ``(n, width)``."""
        free = self.number_columns.repeat(len(codes), 1)
        if len(self.states):
            free[:, self.numbers] = self.free[self.state_levels(codes)]
        return free

    def state_levels(self, codes: Tensor) -> Tensor:
        """Return the places in ``columns`` of the levels of numbers, shape ``(n, s)``."""
        return codes[:, self.states] + self.state_starts

    def leaves_scale(self, codes: Tensor, codes_cf: Tensor) -> Tensor:
        """Return which numbers with levels enter or leave a value that is not on their scale, ``(n, s)``."""
        before, after = self.state_levels(codes), self.state_levels(codes_cf)
        return (before != after) & (self.apart[before] | self.apart[after])

    def changed(self, x_cf: Tensor, x: Tensor) -> Tensor:
        """Return which blocks differ, shape ``(n, blocks)``."""
        return (x_cf != x).float() @ self.block_columns > 0


def _groups(
    blocks: Sequence[Block], sizes: Sequence[int], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Return features of similar size together, with their columns ``(features, levels)``.

    A feature with fewer levels repeats its first one, and the first of equal ones counts. Sizes in a group
    differ by a factor of two at most.
    """
    members: dict[int, list[int]] = {}
    for j, size in enumerate(sizes):
        members.setdefault((size - 1).bit_length(), []).append(j)
    return [
        (torch.tensor(features, dtype=torch.long, device=device), _padded(blocks, features, device))
        for features in members.values()
    ]


def _padded(blocks: Sequence[Block], features: Sequence[int], device: torch.device) -> Tensor:
    """Return the columns of some features, ``(features, levels)``, padded with the first one of each."""
    most = max((len(blocks[j].levels) for j in features), default=1)
    columns = [
        [*blocks[j].levels, *[blocks[j].levels.start] * (most - len(blocks[j].levels))] for j in features
    ]
    return torch.tensor(columns, dtype=torch.long, device=device).view(len(columns), most)
