"""Encoded rows as trees take them: columns over the basis, with NaN where a cell is missing.

A cell that is in a state, such as a level or a zero, is one of a few values, and a soft split could be
undecided between these. So it is kept apart which encoded columns put a cell in a state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from plausiflow.models.sklearn.columns import ONE, Affine, Basis, Column, matrix
from plausiflow.tables import Layout


class Cells(nn.Module):
    """Columns over the basis at encoded rows, ``(n, width) -> (n, d)``; keeps the graph.

    Args:
        columns: As many as the trees take, in their order.
        basis: What these are written over.
        used: Which of them are split at all; any other is zero, whatever it holds.

    Raises:
        Refused: A column that is used is not known, or not made of numbers.
    """

    missing: Tensor | None

    def __init__(self, columns: Sequence[Column], basis: Basis, used: Collection[int]) -> None:
        super().__init__()
        self.columns = [
            column.known() if j in used else Column(name=column.name, dtype=column.dtype)
            for j, column in enumerate(columns)
        ]
        self.basis = basis
        absent = [_missing_states(column) for column in self.columns]
        present = [
            replace(column, states={e: cell for e, cell in column.states.items() if e not in gone})
            for column, gone in zip(self.columns, absent, strict=True)
        ]
        self.values = Affine(matrix(present, basis.size))
        missing = torch.zeros(basis.size, len(columns), dtype=torch.float64)
        for j, gone in enumerate(absent):
            missing[gone, j] = 1.0
        self.register_buffer("missing", missing if bool(missing.any()) else None)

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, d)``."""
        basis = self.basis(x)
        cells: Tensor = self.values(basis)
        if self.missing is None:
            return cells
        return cells.masked_fill(basis.detach() @ self.missing > 0.5, torch.nan)

    def decided(self, width: int) -> Tensor | None:
        """Which encoded columns, where they are one, put a cell in a state that is not missing.

        Shape ``(width, d)``, one there; nothing where no cell has states.
        """
        decided = torch.zeros(1 + width, len(self.columns), dtype=torch.float64)
        for j, column in enumerate(self.columns):
            gone = _missing_states(column)
            decided[[e for e in column.states if e not in gone and e != ONE], j] = 1.0
        return decided[1:] if bool(decided.any()) else None


def _missing_states(column: Column) -> list[int]:
    """The elements of the basis that are one where a cell is missing."""
    return [e for e, cell in column.states.items() if np.isnan(column.as_number(cell))]


def decided_by_levels(layout: Layout) -> Tensor | None:
    """The same for encoded rows themselves: levels, and numbers that a level pins.

    Shape ``(width, width)``; nothing where no feature has levels.
    """
    decided = torch.zeros(layout.width, layout.width, dtype=torch.float64)
    for block in layout.with_levels:
        for at, pin in zip(block.levels, block.pinned or [None] * len(block.levels), strict=True):
            decided[at, list(block.levels)] = 1.0
            if block.number is not None and pin is not None:
                decided[at, block.number] = 1.0
    return decided if bool(decided.any()) else None
