"""Encode all numbers of a table at once.

Cells that cannot be read are encoded as the feature's filling and reported as faults. A number on the grid is
encoded to the bits that ``Layout.snap`` returns, also in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.tables.cells import IntArray, Mask, read_numbers
from plausiflow.tables.codecs import Fault, NumberCodec, missing_text
from plausiflow.tables.grids import FloatArray, float_dtype, round_to_grid
from plausiflow.tables.layout import log1p_odd

_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class NumberCodecs:
    """Codecs of numbers."""

    codecs: tuple[NumberCodec, ...]

    def encode(self, columns: Mapping[str, pd.Series], x: Tensor) -> dict[str, list[Fault]]:
        """Encode columns of a table into rows ``x`` ``(n, width)``; return the faults by feature."""
        if not self.codecs:
            return {}
        with np.errstate(all="ignore"):
            return self._encode(x, *self._read(columns))

    def _encode(
        self, x: Tensor, values: FloatArray, unreadable: Mask, dtypes: Sequence[np.dtype[np.floating]]
    ) -> dict[str, list[Fault]]:
        missing, infinite = np.isnan(values) & ~unreadable, np.isinf(values)
        values = np.where(unreadable | missing | infinite, self._filling, values)
        codes = self._special_codes(values, dtypes)
        number = self._scaled(self._on_grid(values, dtypes))
        far = ~np.isfinite(number) & (codes == 0)
        number, codes = np.where(far, self._filled[0], number), np.where(far, self._filled[1], codes)
        codes = np.where(missing & (self._missing_code >= 0), self._missing_code, codes)
        pins = np.take_along_axis(self._pins, codes, axis=1)
        x[:, self._columns] = torch.from_numpy(np.where(np.isnan(pins), number, pins).T)
        levels = (self._first_level + codes)[self._has_levels].T
        x.scatter_(1, torch.from_numpy(np.ascontiguousarray(levels)), 1.0)
        return self._faults(unreadable, infinite, far, missing)

    def _faults(self, unreadable: Mask, infinite: Mask, far: Mask, missing: Mask) -> dict[str, list[Fault]]:
        faults: dict[str, list[Fault]] = {}
        wrong = (unreadable | infinite | far | missing).any(axis=1)
        for j in np.flatnonzero(wrong):
            codec = self.codecs[j]
            low, high = codec.feature.minimum, codec.feature.maximum
            own = faults[codec.feature.name] = [
                (unreadable[j], "which is not a number"),
                (infinite[j], "which is infinite"),
                (far[j], f"too far from the training range, {low:g} to {high:g}"),
            ]
            if codec.keep_missing and not codec.feature.can_miss:
                own.append((missing[j], missing_text(codec.feature)))
        return faults

    def _read(self, columns: Mapping[str, pd.Series]) -> tuple[FloatArray, Mask, list[np.dtype[np.floating]]]:
        """Return the numbers and which cells are none, both ``(numbers, n)``, and the columns' precision."""
        own = [columns[codec.feature.name] for codec in self.codecs]
        read = [read_numbers(column) for column in own]
        dtypes = [float_dtype(column.dtype) for column in own]
        return np.stack([values for values, _ in read]), np.stack([bad for _, bad in read]), dtypes

    def _special_codes(self, values: FloatArray, dtypes: Sequence[np.dtype[np.floating]]) -> IntArray:
        special = self._special
        for j in (j for j, dtype in enumerate(dtypes) if dtype != _DOUBLE):
            special = special.copy()
            special[j] = special[j].astype(dtypes[j]).astype(np.float64)
        codes = np.zeros(values.shape, dtype=np.int64)
        for code in range(special.shape[1]):
            codes[values == special[:, code, None]] = code + 1
        return codes

    def _on_grid(self, values: FloatArray, dtypes: Sequence[np.dtype[np.floating]]) -> FloatArray:
        """Return numbers on their grids as exact multiples of the step, other numbers unchanged; never -0."""
        exact = values + 0.0
        for decimals, rows in self._grids:
            own, step = values[rows], self._steps[rows]
            rounded = round_to_grid(own, step, decimals)
            for i, j in enumerate(rows.tolist()):
                if dtypes[j] != _DOUBLE:
                    rounded[i] = rounded[i].astype(dtypes[j])
            exact[rows] = np.where(rounded == own, np.rint(own / step) * step, own) + 0.0
        return exact

    def _scaled(self, values: FloatArray) -> FloatArray:
        logs, (starts, spans) = self._logs, self._ends
        if len(logs):
            values[logs] = log1p_odd(torch.from_numpy(values[logs])).numpy()
        return np.asarray((values - starts) / spans)

    @cached_property
    def _columns(self) -> Tensor:
        return torch.tensor([codec.start for codec in self.codecs])

    @cached_property
    def _has_levels(self) -> Mask:
        return np.array([bool(codec.level_names) for codec in self.codecs], dtype=bool)

    @cached_property
    def _first_level(self) -> IntArray:
        return np.array([codec.start + 1 for codec in self.codecs], dtype=np.int64)[:, None]

    @cached_property
    def _missing_code(self) -> IntArray:
        """The state of a missing value; -1 if it is filled."""
        names = [codec.level_names for codec in self.codecs]
        codes = [len(own) - 1 if own[-1:] == ("missing",) else -1 for own in names]
        return np.array(codes, dtype=np.int64)[:, None]

    @cached_property
    def _filling(self) -> FloatArray:
        return np.array([codec.filling for codec in self.codecs], dtype=np.float64)[:, None]

    @cached_property
    def _filled(self) -> tuple[FloatArray, IntArray]:
        """The encoded fillings and their states."""
        numbers, codes = zip(*(codec.filled for codec in self.codecs), strict=True)
        return np.array(numbers, dtype=np.float64)[:, None], np.array(codes, dtype=np.int64)[:, None]

    @cached_property
    def _special(self) -> FloatArray:
        return _padded([codec.feature.special for codec in self.codecs])

    @cached_property
    def _pins(self) -> FloatArray:
        """The encoded number of each state; NaN for a number that is not special."""
        pinned = [codec.block.pinned[1:] if codec.level_names else () for codec in self.codecs]
        return _padded([(np.nan, *(np.nan if pin is None else pin for pin in own)) for own in pinned])

    @cached_property
    def _steps(self) -> FloatArray:
        return np.array([codec.feature.step for codec in self.codecs], dtype=np.float64)[:, None]

    @cached_property
    def _grids(self) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """The numbers on a grid, by their decimals."""
        decimals = np.array([c.feature.decimals if c.feature.step else -1 for c in self.codecs])
        return [(d, np.flatnonzero(decimals == d)) for d in np.unique(decimals).tolist() if d >= 0]

    @cached_property
    def _logs(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero([codec.feature.scale.log for codec in self.codecs])

    @cached_property
    def _ends(self) -> tuple[FloatArray, FloatArray]:
        ends = np.array([codec.feature.scale.ends for codec in self.codecs], dtype=np.float64)
        return ends[:, :1], ends[:, 1:]


def _padded(rows: Sequence[Sequence[float]]) -> FloatArray:
    """Return rows of different lengths as one table, filled up with NaN."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for j, row in enumerate(rows):
        table[j, : len(row)] = row
    return table
