"""The layout of encoded rows: which columns belong to which feature.

An encoded row is a vector of floats. Each feature has a :class:`Block` of columns: a *number* in one column,
scaled to [0, 1] over the training rows; or *levels*, one-hot; or both, for a number with states. The first
state leaves the number free. The others pin it: one state for each special value, such as -1 for "never", and
one for missing values. Pins are within [0, 1], so that a special value such as 999 does not stretch the
scale: a special value inside the range is pinned at its place, another one at the nearer end of the range.

Searches, densities and rules use the layout; only the encoder knows the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.tables.level_index import LevelIndex


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The scale of a number over the training range, and its grid."""

    minimum: float
    maximum: float
    step: float = 0.0  # values are multiples of it; zero allows any value
    offset: float = 0.0  # what is added to multiples of the step
    log: bool = False  # whether values are scaled by log1p, odd about zero
    known: tuple[float, ...] = ()  # the values of (nearly) all rows, ascending, if these are known

    def encode(self, values: Tensor) -> Tensor:
        """Map original units to [0, 1]; values outside the training range are mapped outside."""
        start, span = self.ends
        return ((log1p_odd(values) if self.log else values) - start) / span

    def decode(self, encoded: Tensor) -> Tensor:
        """Map back to original units, without rounding to the grid."""
        start, span = self.ends
        values = encoded * span + start
        return decode_log(values) if self.log else values

    def snap(self, encoded: Tensor, shift: int = 0) -> Tensor:
        """Return the nearest encoded value on the grid, or the ``shift``-th one above or below it."""
        if not self.step:
            return encoded
        places = torch.round((self.decode(encoded) - self.offset) / self.step)
        return self.encode((places + shift) * self.step + self.offset)

    @cached_property
    def encoded_step(self) -> float:
        """The step on the encoded scale; zero without a grid, or if the step varies."""
        return 0.0 if self.log else self.step / self.ends[1]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Start and length of the scale; the length is one if there is only one value."""
        ends = torch.tensor([self.minimum, self.maximum], dtype=torch.float64)
        start, end = (log1p_odd(ends) if self.log else ends).tolist()
        return start, (end - start) or 1.0


def log1p_odd(values: Tensor) -> Tensor:
    """Return ``log1p``, odd about zero; its gradient at zero is one, not ``sign(0)``."""
    return torch.where(values >= 0, torch.log1p(values.clamp_min(0)), -torch.log1p((-values).clamp_min(0)))


def decode_log(values: Tensor) -> Tensor:
    """Return the inverse of :func:`log1p_odd`."""
    if not values.requires_grad:
        return torch.copysign(values.abs().expm1_(), values)
    return torch.where(values >= 0, torch.expm1(values.clamp_min(0)), -torch.expm1((-values).clamp_min(0)))


@dataclass(frozen=True, kw_only=True)
class Block:
    """The columns of one feature in an encoded row."""

    name: str
    number: int | None = None  # column of its number; None for a category
    scale: Scale | None = None  # scale of its number
    levels: range = range(0)  # columns of its levels; empty for a number without states
    ordered: bool = False  # whether the levels have an order; the cost of a change then counts steps
    pinned: tuple[float | None, ...] = ()  # the encoded number at each level; None if it is free
    special: tuple[float | None, ...] = ()  # the special value of each level; None if it is free or missing
    closed: tuple[bool, ...] = ()  # whether rows can neither enter nor leave a level, such as "missing"

    @cached_property
    def columns(self) -> list[int]:
        """All columns, in order."""
        return sorted([*([] if self.number is None else [self.number]), *self.levels])

    @cached_property
    def level_slice(self) -> slice:
        """The columns of its levels."""
        return slice(self.levels.start, self.levels.stop)

    @cached_property
    def nominal(self) -> bool:
        """Whether it is a category without an order: every change costs the same."""
        return self.number is None and not self.ordered

    @cached_property
    def apart(self) -> tuple[bool, ...]:
        """Which levels of a number have a value that is not on its scale: outside its range, or missing."""
        if self.scale is None:
            return ()
        low, high = self.scale.minimum, self.scale.maximum
        values = zip(self.pinned, self.special or self.pinned, strict=True)
        return tuple(pin is not None and (v is None or not low <= v <= high) for pin, v in values)

    @cached_property
    def inside(self) -> tuple[tuple[int, float], ...]:
        """The levels of special values inside the range of a number, and the encoded values."""
        levels = zip(self.pinned, self.special, self.apart, strict=True) if self.special else ()
        return tuple((i, pin) for i, (pin, _, apart) in enumerate(levels) if pin is not None and not apart)


@dataclass(frozen=True)
class Layout:
    """The blocks of an encoded row, in the order of the table's columns."""

    blocks: tuple[Block, ...]

    @cached_property
    def width(self) -> int:
        """Number of columns of an encoded row."""
        return sum(len(block.columns) for block in self.blocks)

    @cached_property
    def numbers(self) -> list[int]:
        """Columns that hold numbers."""
        return [block.number for block in self.blocks if block.number is not None]

    @cached_property
    def with_levels(self) -> tuple[Block, ...]:
        """Blocks with levels: categories, and numbers with states."""
        return tuple(block for block in self.blocks if len(block.levels))

    def block(self, name: str) -> Block:
        """Return the block of a feature; constants and identifiers have none."""
        for block in self.blocks:
            if block.name == name:
                return block
        known = ", ".join(repr(block.name) for block in self.blocks) or "none"
        raise InvalidInputError(
            f"`name` must be a feature with columns in an encoded row: {known}; got {name!r}. "
            "Constants and identifiers have no columns."
        )

    def index(self, device: torch.device) -> LevelIndex:
        """Return the index tensors of all levels on a device; built once."""
        if device not in self._indexes:
            self._indexes[device] = LevelIndex(self.blocks, self.width, device)
        return self._indexes[device]

    @cached_property
    def _indexes(self) -> dict[torch.device, LevelIndex]:
        return {}

    def codes(self, x: Tensor) -> Tensor:
        """Return the level of each block with levels, shape ``(n, blocks with levels)``."""
        return self.index(x.device).codes(x)

    def with_codes(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return a copy of ``x`` at these levels, with the numbers that they pin."""
        return self.index(x.device).with_codes(x, codes)

    def free(self, codes: Tensor) -> Tensor:
        """Return which numbers are free at these levels, shape ``(n, width)``; false for level columns."""
        return self.index(codes.device).free_numbers(codes)

    def settle(self, x: Tensor) -> Tensor:
        """Return a copy in which a free number that equals a special value is in the state of that value."""
        x = x.clone()
        for block in self.with_levels:
            for level, pin in block.inside:
                there = (x[:, block.number] == pin) & (x[:, block.levels.start] == 1)
                x[there, block.levels.start] = 0.0
                x[there, block.levels.start + level] = 1.0
        return x

    def snap(self, x: Tensor, shift: int = 0) -> Tensor:
        """Return a copy with every free number at its nearest grid point, or ``shift`` points above or below.

        Pinned numbers stay.
        """
        return self._snapped(x, (shift,))[0]

    def _snapped(self, x: Tensor, shifts: Sequence[int]) -> list[Tensor]:
        """Return a copy for each shift; see :meth:`snap`."""
        copies = [x.clone() for _ in shifts]
        for log, columns, *grid in self._grids:
            columns = columns.to(x.device)
            start, span, step, offset = (part.to(x) for part in grid)
            values = x[:, columns] * span + start
            places = torch.round(((decode_log(values) if log else values) - offset) / step)
            for copy, shift in zip(copies, shifts, strict=True):
                values = (places + shift) * step + offset
                copy[:, columns] = ((log1p_odd(values) if log else values) - start) / span
        index = self.index(x.device)
        if len(index.states):
            own, pinned = x[:, index.numbers], index.codes(x)[:, index.states] > 0
            for copy in copies:
                copy[:, index.numbers] = torch.where(pinned, own, copy[:, index.numbers])
        return copies

    def grid_neighbours(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return copies with every number at its nearest grid point, one point below, and one above.

        The points of a number with known values are these values.
        """
        near, below, above = self._snapped(x, (0, -1, 1))
        columns, values, last = self._known_values
        if columns:
            values, last = values.to(x), last.to(x.device)
            own = x[:, columns].T.contiguous()
            up = torch.searchsorted(values, own).minimum(last)
            down = (up - 1).clamp_min(0)
            place = torch.where(own - values.gather(1, down) <= values.gather(1, up) - own, down, up)
            free = self.free(self.codes(x))[:, columns]
            for points, shift in ((near, 0), (below, -1), (above, 1)):
                there = values.gather(1, (place + shift).clamp_min(0).minimum(last)).T
                points[:, columns] = torch.where(free, there, points[:, columns])
        return near, below, above

    @cached_property
    def _known_values(self) -> tuple[list[int], Tensor, Tensor]:
        """Columns of numbers with known values, these encoded and padded, and the place of the last one."""
        scales = [(b.number, b.scale) for b in self.blocks if b.number is not None and b.scale is not None]
        own = [
            (number, s.encode(torch.tensor(s.known, dtype=torch.float64))) for number, s in scales if s.known
        ]
        values = [encoded for _, encoded in own]
        padded = torch.nn.utils.rnn.pad_sequence(values, True, torch.inf) if values else torch.zeros(0, 0)
        last = torch.tensor([len(encoded) - 1 for encoded in values], dtype=torch.long)
        return [number for number, _ in own], padded, last[:, None]

    @cached_property
    def always_free(self) -> Tensor | None:
        """The columns of numbers, shape ``(width,)``, if none has special states; else None, see ``free``."""
        if any(block.number is not None for block in self.with_levels):
            return None
        mask = torch.zeros(self.width, dtype=torch.bool)
        mask[self.numbers] = True
        return mask

    @cached_property
    def gridded(self) -> list[int]:
        """Columns of numbers with a grid or known values."""
        scales = [(b.number, b.scale) for b in self.blocks if b.number is not None and b.scale is not None]
        return [number for number, scale in scales if scale.step or scale.known]

    @cached_property
    def _grids(self) -> list[tuple[bool, Tensor, Tensor, Tensor, Tensor, Tensor]]:
        """Numbers with a grid, those on linear and on logarithmic scales, and whether these are the latter.

        Each with their columns, and start, length, step and offset of their scales.
        """
        grids = []
        for log in (False, True):
            own = [b for b in self.blocks if b.scale is not None and b.scale.step and b.scale.log == log]
            if own:
                scales = [block.scale for block in own if block.scale is not None]
                parts = [[*scale.ends, scale.step, scale.offset] for scale in scales]
                columns = torch.tensor([block.number for block in own], dtype=torch.long)
                start, span, step, offset = torch.tensor(parts, dtype=torch.float64).unbind(dim=1)
                grids.append((log, columns, start, span, step, offset))
        return grids

    def changed(self, x_cf: Tensor, x: Tensor) -> Tensor:
        """Return which features differ, shape ``(n, blocks)``."""
        return self.index(x.device).changed(x_cf, x)
