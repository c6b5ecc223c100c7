"""Where splits cut the numbers of a table, by the comparison that the trees' own library makes.

A split of a number is a *cut*: the smallest number that goes to the other side. It is found by asking the
fitted preprocessing about rows of the table on both sides, because a copy of it may round differently, and
because XGBoost compares in single precision. Numbers on a grid are counted by their position; other numbers
by the position of their encoded double among all doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from plausiflow.tables import Scale

IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]

LOWEST, HIGHEST = -(2**52), 2**52
"""Positions on a grid beyond which no number of a table is."""
_ROUNDS = 160


@dataclass(frozen=True)
class Axis:
    """The positions of a number: its grid, or the doubles of its encoded value."""

    scale: Scale

    @property
    def gridded(self) -> bool:
        """Whether the number has a grid."""
        return self.scale.step > 0

    @property
    def ends(self) -> tuple[int, int]:
        """Positions that no number is outside of."""
        if self.gridded:
            return LOWEST, HIGHEST
        lowest, highest = self.positions(np.array([-1e6, 1e6])).tolist()
        return lowest, highest

    def encoded(self, positions: IntArray) -> Array:
        """Return the encoded numbers at positions."""
        if self.gridded:
            values = torch.from_numpy(positions.astype(np.float64)) * self.scale.step + self.scale.offset
            return self.scale.encode(values).numpy()
        bits = np.where(positions >= 0, positions, -positions)
        sizes = bits.astype(np.int64).view(np.float64)
        return np.where(positions >= 0, sizes, -sizes)

    def positions(self, encoded: Array) -> IntArray:
        """Return the positions of encoded numbers; on a grid the nearest ones."""
        if self.gridded:
            values = self.scale.decode(torch.from_numpy(np.asarray(encoded, dtype=np.float64))).numpy()
            places = np.rint((values - self.scale.offset) / self.scale.step)
            return np.clip(places, LOWEST, HIGHEST).astype(np.int64)
        sizes = np.abs(np.asarray(encoded, dtype=np.float64) + 0.0).view(np.int64)
        return np.where(np.asarray(encoded) < 0, -sizes, sizes)

    def range(self, lower: float, upper: float) -> tuple[int, int]:
        """Return the first and the last position whose encoded number is within bounds."""
        if not self.gridded:
            low, high = self.positions(np.array([lower, upper])).tolist()
            return low, high
        low, high = self.positions(np.array([lower, upper])).tolist()
        near = np.arange(low - 2, low + 3)
        low = int(near[self.encoded(near) >= lower][0])
        near = np.arange(high - 2, high + 3)
        return low, int(near[self.encoded(near) <= upper][-1])


def find_cuts(
    axis: Axis, guess: Array, is_low: Callable[[IntArray, IntArray], npt.NDArray[np.bool_]]
) -> IntArray:
    """Return the first position on the upper side of each cut.

    Args:
        axis: Positions of the number.
        guess: The encoded number near each cut, not finite if it is unknown, shape ``(cuts,)``.
        is_low: Whether positions ``(m,)`` are on the lower side of cuts ``(m,)``; true, then false.

    Returns:
        Shape ``(cuts,)``; one beyond the highest position if every number is on the lower side.
    """
    lowest, highest = axis.ends
    low = np.full(len(guess), lowest - 1, dtype=np.int64)  # known to be on the lower side, or no number
    high = np.full(len(guess), highest + 1, dtype=np.int64)
    start = np.nan_to_num(guess, nan=0.0, posinf=1e6, neginf=-1e6).clip(-1e6, 1e6)
    probe, width = axis.positions(start).clip(lowest, highest), np.ones(len(guess), dtype=np.int64)
    everyone = np.arange(len(guess))
    for _ in range(_ROUNDS):
        open_ = everyone[high - low > 1]
        if not len(open_):
            return high
        at = probe[open_].clip(low[open_] + 1, high[open_] - 1)
        below = is_low(at, open_)
        low[open_[below]], high[open_[~below]] = at[below], at[~below]
        known = (low[open_] >= lowest) & (high[open_] <= highest)
        step = np.where(below, width[open_], -width[open_])
        middle = low[open_] + (high[open_] - low[open_]) // 2
        probe[open_] = np.where(known, middle, at + step)
        width[open_] = np.minimum(width[open_] * 4, 2**60)
    return high
