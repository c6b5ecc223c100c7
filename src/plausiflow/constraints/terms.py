"""Values of features in original units, read from encoded rows, times a coefficient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.tables import Block, Feature


@dataclass(frozen=True, eq=False)
class Term:
    """A feature's value times a coefficient in original units, read from an encoded row."""

    coefficient: float
    block: Block
    level_values: Tensor | None = None  # the number of each level, shape (levels,); None for a plain number

    @classmethod
    def of(cls, coefficient: float, block: Block, feature: Feature, *, rank: bool = False) -> Term:
        """Return the term of a numeric feature; a missing level counts as zero.

        With ``rank``, the value of a level is its position in the order.
        """
        if block.number is not None:
            if not feature.special:
                return cls(coefficient, block)
            numbers = [0.0 if value is None else value for value in block.special]
        elif rank:
            numbers = [float(code) for code in range(len(block.levels))]
        else:
            numbers = feature.level_numbers + [0.0] * (len(block.levels) - len(feature.levels))
        return cls(coefficient, block, torch.tensor(numbers, dtype=torch.float64))

    def value(self, x: Tensor) -> Tensor:
        """Return the term in original units, shape ``(n,)``; keeps the graph."""
        if self.level_values is None:
            return self.coefficient * self._number(x)
        special = x[:, self.block.level_slice] @ self.level_values.to(x)
        if self.block.number is not None:
            special = special + x[:, self.block.levels.start] * self._number(x)
        return self.coefficient * special

    def maximum(self, lower: Tensor, upper: Tensor, levels: Tensor) -> Tensor:
        """Return the largest value that bounds ``(n, width)`` and levels allow, shape ``(n,)``."""
        most = torch.full_like(lower[:, 0], -torch.inf)
        if self.block.number is not None:
            ends = torch.stack([self._number(lower), self._number(upper)]) * self.coefficient
            most = ends.amax(dim=0)
        if self.level_values is None:
            return most
        allowed = levels[:, self.block.level_slice]
        values = (self.coefficient * self.level_values).to(lower).expand(len(lower), -1).clone()
        if self.block.number is not None:
            values[:, 0] = most
        return values.masked_fill(~allowed, -torch.inf).amax(dim=1)

    def _number(self, x: Tensor) -> Tensor:
        assert self.block.scale is not None
        return self.block.scale.decode(x[:, self.block.number])
