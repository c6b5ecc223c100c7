r"""What changes cost, in whole numbers that are rounded down.

With d the distances of the numbers and F the sum of other costs, the cost ``l2`` is
:math:`\sqrt{\sum_j d_j^2} + F`. Where nothing in the radius has another cost, the objective is the square
:math:`\sum_j d_j^2`, which is linear in the choices and gives the solver good bounds. Otherwise the distance
is the integer

.. math:: S^2 \ge \sum_j q_j, \qquad S \ge d_j, \qquad \sqrt{n}\, S \ge \sum_j d_j,

with squares q rounded down, of which the last two are implied and help the solver; the objective is
:math:`S + F`, as it is for a sum of distances.
"""

from __future__ import annotations

import math

import numpy as np

from plausiflow.exact.cp_sat import Expression
from plausiflow.exact.model_program import ModelProgram

UNITS = 20_000
"""Units of cost in a radius."""
SQUARES = 2**28
"""Units of squared cost in a squared radius."""


class Objective:
    """The objective of a program.

    Attributes:
        model: The choices.
        euclidean: Whether the distance is ``l2``.
        unit: The unit of cost.
        squared: Whether the objective is the square of the cost.
    """

    def __init__(self, model: ModelProgram, *, euclidean: bool) -> None:
        self.model, self.euclidean = model, euclidean
        self.unit = model.radius / UNITS
        flat = any(bool((c.atoms.flat & (c.atoms.costs > 0)).any()) for c in model.choices)
        self.squared = euclidean and not flat and not model.offsets
        total, most = self._squares() if self.squared else self._sum()
        model.program.at_least(most, total)
        model.program.minimise(total)

    def cost(self, value: float) -> float:
        """Return the lower bound of the cost for one of the objective."""
        if self.squared:
            return self.model.radius * math.sqrt(max(0.0, value) / SQUARES)
        # The integer root may be one unit above the distance.
        return max(0.0, (value - 1) * self.unit)

    def _squares(self) -> tuple[Expression, int]:
        """Return the square of the cost, and its largest value."""
        parts = []
        for choice in self.model.choices:
            units = SQUARES * (choice.atoms.costs / self.model.radius) ** 2
            if units.any():
                parts.append(choice.weighted(np.floor(units).astype(np.int64).tolist()))
        return sum(parts) if parts else 0, SQUARES + 1

    def _sum(self) -> tuple[Expression, int]:
        """Return the distance plus other costs, and its largest value."""
        program, flat, distance, squares = self.model.program, [], [], []
        for choice in self.model.choices:
            atoms, units = choice.atoms, choice.atoms.costs / self.unit
            if (atoms.flat & (units > 0)).any():
                flat.append(choice.weighted(np.where(atoms.flat, np.floor(units), 0).astype(int).tolist()))
            near = np.where(atoms.flat, 0.0, units)
            offset = self.model.offsets.get(atoms.block.name)
            if offset is not None and offset.weight:
                whole = np.floor(near).astype(np.int64)
                distance.append(offset.distance(whole, UNITS + 2))
                squares.append(program.square(distance[-1], UNITS + 2))
            elif near.any():
                distance.append(choice.weighted(np.floor(near).astype(int).tolist()))
                squares.append(choice.weighted(np.floor(near * near).astype(int).tolist()))
        total: Expression = sum(flat) if flat else 0
        if self.euclidean and distance:
            return total + self._root(distance, squares), UNITS + 1
        return total + sum(distance) if distance else total, UNITS + 1

    def _root(self, distance: list[Expression], squares: list[Expression]) -> Expression:
        """Return the length of a vector, at least its largest part."""
        program = self.model.program
        root = program.integer(0, UNITS + 2)
        program.at_least(program.square(root, UNITS + 2), sum(squares))
        for part in distance:
            program.at_least(root, part)
        program.at_least(math.ceil(1000 * math.sqrt(len(distance))) * root, 1000 * sum(distance))
        return root
