"""Linear relations between features, such as ``rent <= 0.4 * income``: their scale and their tolerance.

:mod:`plausiflow.constraints.grammar` parses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plausiflow.tables import Feature

ROUNDING = 1e-12
"""Relative difference up to which two results of floating-point arithmetic count as equal."""
EQUALITY = 1e-9
"""How closely an equality without a grid must hold, relative to the relation's reach."""


@dataclass(frozen=True)
class Relation:
    r"""A linear relation in the form :math:`\sum_j a_j x_j + b \ge 0` (or :math:`= 0`)."""

    coefficients: Mapping[str, float]  # the nonzero coefficients a, by feature name
    constant: float  # b
    equal: bool  # whether the two sides must be equal

    def reach(self, features: Mapping[str, Feature]) -> float:
        """Return by how much the left side varies over the training ranges; one if it is constant."""
        ends = {name: features[name].extent for name in self.coefficients}
        return sum(abs(a) * (ends[name][1] - ends[name][0]) for name, a in self.coefficients.items()) or 1.0

    def slack(self, features: Mapping[str, Feature]) -> float:
        """Return by how much an equality may be missed; zero for an inequality.

        Half of the finest step, which is as close as numbers on a grid can come.
        """
        return self.half_step(features) if self.equal else 0.0

    def half_step(self, features: Mapping[str, Feature]) -> float:
        """Return half of the finest step of the left side, or a billionth of its reach without a grid."""
        movable = {n: a for n, a in self.coefficients.items() if features[n].kind != "constant"}
        finest = min((abs(a) * _step(features[name]) for name, a in movable.items()), default=0.0)
        return max(finest / 2, EQUALITY * self.reach(features))


def _step(feature: Feature) -> float:
    """Return the smallest difference of two values."""
    return feature.step if feature.is_number else float(np.diff(sorted(feature.level_numbers)).min())
