"""Encoded rows as inputs of trees: columns over the basis, with NaN for missing values.

A cell in a discrete state, such as a level or a zero, has one of a few values. A soft split could be
undecided between them, so these cells are marked and split as the hard trees do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from plausiflow.core import Pullback
from plausiflow.models.sklearn.columns import ONE, Affine, Basis, ModelColumn, weight_matrix
from plausiflow.tables import Layout


class Cells(nn.Module):
    """Inputs of trees computed from encoded rows, ``(n, width) -> (n, d)``; keeps the graph.

    Columns that no split uses, whose numbers are not in ``used``, are zero. A used column that is not known
    from encoded rows, or is not numeric, raises an :class:`UnsupportedModelError`.
    """

    missing: Tensor | None

    def __init__(self, columns: Sequence[ModelColumn], basis: Basis, used: Collection[int]) -> None:
        super().__init__()
        self.columns = [
            column.require_known() if j in used else ModelColumn(name=column.name, dtype=column.dtype)
            for j, column in enumerate(columns)
        ]
        self.basis = basis
        missing = torch.zeros(basis.size, len(columns), dtype=torch.float64)
        present = []
        for j, column in enumerate(self.columns):
            absent = _missing_states(column)
            missing[absent, j] = 1.0
            kept = {element: cell for element, cell in column.states.items() if element not in absent}
            present.append(replace(column, states=kept))
        self.values = Affine(weight_matrix(present, basis.size))
        self.register_buffer("missing", missing if bool(missing.any()) else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs of the trees, shape ``(n, d)``."""
        basis = self.basis(x)
        cells: Tensor = self.values(basis)
        if self.missing is None:
            return cells
        return cells.masked_fill(basis.detach() @ self.missing > 0.5, torch.nan)

    @property
    def has_closed_form(self) -> bool:
        """Whether :meth:`value_and_grad` can be computed."""
        return len(self.basis.added) == 0

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the inputs of the trees and their pullback, without an autograd graph."""
        basis, pullback = self.basis.value_and_grad(x)
        cells: Tensor = self.values(basis)
        if self.missing is None:
            return cells, lambda gradient: pullback(gradient @ self.values.weight.mT)
        absent = basis @ self.missing > 0.5

        def pulled(gradient: Tensor) -> Tensor:
            return pullback(gradient.masked_fill(absent, 0.0) @ self.values.weight.mT)

        return cells.masked_fill(absent, torch.nan), pulled

    def state_matrix(self, width: int) -> Tensor | None:
        """Return which encoded columns, when they are one, put a cell in a state that is not missing.

        Shape ``(width, d)``, zeros and ones; None if no cell has such a state.
        """
        matrix = torch.zeros(1 + width, len(self.columns), dtype=torch.float64)
        for j, column in enumerate(self.columns):
            absent = _missing_states(column)
            matrix[[e for e in column.states if e not in absent and e != ONE], j] = 1.0
        return matrix[1:] if bool(matrix.any()) else None


def join_cells(parts: Sequence[Cells]) -> Callable[[Tensor], Tensor]:
    """Return the inputs of several forests side by side; their bases must have no added elements."""
    basis = parts[0].basis
    weight = torch.cat([cells.values.weight for cells in parts], dim=1)
    absent = [torch.zeros_like(c.values.weight) if c.missing is None else c.missing for c in parts]
    missing = torch.cat(absent, dim=1)

    def joined(x: Tensor) -> Tensor:
        elements = basis(x)
        cells: Tensor = elements[:, : len(weight)] @ weight
        return cells.masked_fill(elements @ missing > 0.5, torch.nan) if bool(missing.any()) else cells

    return joined


def _missing_states(column: ModelColumn) -> list[int]:
    """Return the basis elements that are one where a cell is missing."""
    return [element for element, cell in column.states.items() if np.isnan(column.to_number(cell))]


def level_state_matrix(layout: Layout) -> Tensor | None:
    """Return the state matrix of encoded rows themselves: levels, and numbers that a level pins.

    Shape ``(width, width)``; None if no feature has levels.
    """
    matrix = torch.zeros(layout.width, layout.width, dtype=torch.float64)
    for block in layout.with_levels:
        for at, pin in zip(block.levels, block.pinned or [None] * len(block.levels), strict=True):
            matrix[at, list(block.levels)] = 1.0
            if block.number is not None and pin is not None:
                matrix[at, block.number] = 1.0
    return matrix if bool(matrix.any()) else None
