"""A linear model or a network with ReLU over the features of a table.

Such a model has no cuts: every position of a number counts. Numbers with few positions have an atom for each
of them; those of other numbers are ranges that grow with the distance from the row's own number, and a whole
number says where in the range it is (:mod:`plausiflow.exact.offsets`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from plausiflow.exact.atoms import Atoms, rows_at
from plausiflow.exact.cuts import Axis
from plausiflow.exact.tree_space import BlockSplits
from plausiflow.models import Layers
from plausiflow.tables import Layout, Scale

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

TOLERANCE = 1e-6
"""By how much a converted regressor may differ from the model itself."""
MOST_POINTS = 600
"""Positions up to which each one of a number is an atom."""
STRAIGHT_RATIO, CURVED_RATIO = 1.0, 1 / 128
"""Length of ranges as a share of their distance from the row's own number, on linear and other scales."""
NEAREST, FARTHEST = 1e-4, 10.0
"""Distances between which ranges grow, as shares of the training range."""


@dataclass(frozen=True, eq=False)
class LayerSpace:
    """Layers over the features of a table.

    Attributes:
        layers: The maps.
        layout: Layout of encoded rows, with the grids that numbers may move on.
    """

    layers: Layers
    layout: Layout

    averaged = False

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return int(self.layers.maps[-1][0].shape[1])

    @property
    def probability_error(self) -> float:
        """What rounding may add to a probability that is computed from the outputs."""
        return TOLERANCE if self.layers.converted else 1e-12

    def rounding(self, weights: Array) -> float:
        """Return the largest error of a weighted sum of outputs; see :meth:`magnitudes`."""
        size = float(self.magnitudes @ np.abs(weights))
        return size * 1e-13 + (TOLERANCE if self.layers.converted else 0.0)

    @cached_property
    def magnitudes(self) -> Array:
        """The largest sum of absolute terms of each output, for numbers up to ten training ranges away."""
        weight, bias = self.layers.maps[0]
        if self.layers.basis is None:
            sizes = 10 * np.abs(weight).sum(axis=0) + np.abs(bias)
        else:
            basis = self.layers.basis
            straight = (basis.start.abs() + 10 * basis.span.abs()).numpy()
            curved = 10 * np.expm1((basis.log_start.abs() + basis.log_span.abs()).numpy())
            inputs = 10 * np.ones(len(weight) - len(straight) - len(curved))
            ends = np.concatenate([inputs, straight, curved])
            sizes = ends @ np.abs(weight) + np.abs(bias)
        for later, shift in self.layers.maps[1:]:
            sizes = sizes @ np.abs(later) + np.abs(shift)
        return np.asarray(sizes)

    @cached_property
    def splits(self) -> tuple[BlockSplits, ...]:
        """One entry for each feature, without splits."""
        none = np.zeros(0, dtype=np.int64)
        return tuple(
            BlockSplits(
                block=block,
                axis=None if block.scale is None else Axis(block.scale),
                cuts=none,
                low_left=none.astype(bool),
                levels_left=np.zeros((0, len(block.levels)), dtype=bool),
                example=none,
            )
            for block in self.layout.blocks
        )

    def own_left(self, row: pd.DataFrame) -> Mask:
        """Return an empty array: there are no splits."""
        return np.zeros(0, dtype=bool)

    def outputs_of(self, x_cf: Tensor, row: pd.DataFrame, x: Tensor) -> Array:
        """Return the outputs for a changed row ``(1, width)``."""
        return np.asarray(self.layers.outputs(x_cf)[0])

    def straight(self, scale: Scale) -> bool:
        """Return whether what a number costs and what it adds to units are linear in one whole number."""
        return not scale.log or (scale.step == 0 and self.layers.basis is None)

    def spread_cuts(self, axis: Axis, number: float, first: int, last: int) -> IntArray:
        """Return the positions where ranges of a number begin, for a row with this encoded number."""
        if axis.gridded and last - first <= MOST_POINTS:
            return np.arange(first, last + 2)
        ratio = STRAIGHT_RATIO if self.straight(axis.scale) else CURVED_RATIO
        count = int(np.log(FARTHEST / NEAREST) / np.log1p(ratio)) + 1
        steps = NEAREST * (1 + ratio) ** np.arange(count)
        cuts = axis.positions(np.concatenate([number - steps, [number], number + steps]))
        if axis.gridded:
            own = int(axis.positions(np.array([number]))[0])
            cuts = np.concatenate([cuts, own + np.arange(-8, 10)])
        return np.asarray(np.unique(cuts))

    def with_units(self, found: list[Atoms], x: Tensor) -> list[Atoms]:
        """Return atoms with what they add to the units of the first map, at both ends of their ranges."""
        from_ends = []
        for low in (True, False):
            points = rows_at(found, x, [_ends(atoms, low) for atoms in found])
            from_ends.append(self.layers.first(points) - self.layers.first(x))
        edges = np.cumsum([0, *(len(atoms) for atoms in found)])
        parts = []
        for atoms, start, end in zip(found, edges[:-1], edges[1:], strict=True):
            units = np.stack([from_end[start:end] for from_end in from_ends])
            units[:, atoms.kept] = 0.0
            parts.append(replace(atoms, units=units))
        return parts


def _ends(atoms: Atoms, low: bool) -> Array:
    """Return the encoded numbers at the lower or upper ends of atoms."""
    scale = atoms.block.scale
    if scale is None:
        return atoms.numbers
    free = (atoms.codes == 0) & (atoms.low < atoms.high)
    ends = atoms.numbers.copy()
    ends[free] = (atoms.first if low else atoms.last)[free]
    return ends


def has_hidden_layers(space: object) -> bool:
    """Return whether a model is a network, so that its programs are large."""
    return isinstance(space, LayerSpace) and len(space.layers.maps) > 1
