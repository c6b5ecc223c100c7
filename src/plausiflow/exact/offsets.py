r"""Where in its range a number is: a whole number beside the choice of a range.

A number on a linear scale is :math:`z = z_0 + h v` with a whole number v. On a grid, h is its step, so that v
is exact. Other numbers are counted in fractions of a unit of cost, and what that rounds is added to the error
of the sums that use it. Its distance :math:`d = w |z - z_0|` is at least that of the nearest number of the
range.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Expression, Program, SolverResult

Array = npt.NDArray[np.float64]

_FINE = 2.0**20
FRACTIONS = 16
"""Steps of a number without a grid in a unit of cost."""


class Offset:
    """The variable of one number.

    Attributes:
        choice: The ranges.
        step: What one step changes of the encoded number.
        start: The encoded number at zero.
        exact: Whether every number of the table is at a whole step.
        weight: What one unit of the encoded number costs; zero if the cost does not depend on it.
        largest: Largest absolute value.
    """

    def __init__(self, program: Program, choice: Choice, own: float, unit: float, limit: float) -> None:
        self.choice, atoms, scale = choice, choice.atoms, choice.atoms.block.scale
        assert scale is not None
        free = (atoms.codes == 0) & ~atoms.kept
        away, graded = np.abs(atoms.numbers - own), free & ~atoms.flat
        far = int(np.argmax(np.where(graded, away, -1.0)))
        self.weight = float(atoms.costs[far] / away[far]) if graded.any() and away[far] > 0 else 0.0
        self.exact = scale.step > 0
        if self.exact:
            self.step = scale.encoded_step
            self.start = float(scale.snap(torch.tensor([own], dtype=torch.float64))[0])
        else:
            fine = unit / (FRACTIONS * self.weight) if self.weight else 1 / _FINE
            self.step, self.start = max(fine, 1e-9), own
        low, high = ((ends - self.start) / self.step for ends in (atoms.first, atoms.last))
        round_low, round_high = (np.rint, np.rint) if self.exact else (np.floor, np.ceil)
        low, high = (np.where(free, ends, 0.0) for ends in (round_low(low), round_high(high)))
        if self.weight and not atoms.flat[free].any():
            most = math.ceil((limit / self.weight + abs(own - self.start)) / self.step) + 1
            low, high = np.clip(low, -most, most), np.clip(high, -most, most)
        self.largest = int(max(np.abs(low).max(), np.abs(high).max()))
        self.variable = program.integer(int(low.min()), int(high.max()))
        program.at_least(self.variable, choice.weighted(low.astype(np.int64).tolist()))
        program.at_least(choice.weighted(high.astype(np.int64).tolist()), self.variable)
        self._program, self._unit, self._shift = program, unit, abs(own - self.start)

    def distance(self, units: npt.NDArray[np.int64], largest: int) -> Expression:
        """Return the variable of the distance in units of cost, at least that of the chosen range."""
        program, per_step = self._program, self.weight * self.step / self._unit
        distance = program.integer(0, largest)
        program.at_least(distance, self.choice.weighted(units.tolist()))
        if per_step > 0:
            factor = 2 ** int(np.clip(math.ceil(20 - math.log2(per_step)), 0, 34))
            rounded = 0.0 if self.exact else per_step
            missed = math.ceil(factor * (self.weight * self._shift / self._unit + rounded))
            for sign in (1, -1):
                slope = sign * math.floor(per_step * factor * (1 - 1e-12))
                program.at_least(factor * distance + missed, slope * self.variable)
        return distance

    def number(self, result: SolverResult) -> float:
        """Return the encoded number of the solution."""
        i = self.choice.chosen(result)
        atoms = self.choice.atoms
        number = self.start + self.step * result.value(self.variable)
        return float(np.clip(number, atoms.first[i], atoms.last[i]))
