"""Between tables and encoded rows, exactly and both ways.

A number is scaled to [0, 1] over the training rows; a boolean or a category is one-hot. A number that is
often zero, or that may be missing, has states as well: "positive" (or "present"), "zero", "missing".
Constants and identifiers are not encoded: a row keeps what it holds there.

Decoding starts from the rows that were encoded. A cell whose encoded columns are what they were is kept bit
for bit, with its spelling, off the grid or out of range as it may be; only the others are written anew,
numbers on their grid and levels in their most common spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables.cells import Mask, ObjectArray, column_from_values, is_missing, replace_cells
from plausiflow.tables.codecs import Fault, LevelCodec, NumberCodec
from plausiflow.tables.features import CellValue
from plausiflow.tables.layout import Layout
from plausiflow.tables.schema import Schema, frame_problems


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded rows.

    Attributes:
        x: Double precision, shape ``(n, width)``. A cell that cannot be read has a stand-in: all is finite.
        problems: For each row why it cannot be explained, or ``None``; objects, shape ``(n,)``.
    """

    x: Tensor
    problems: ObjectArray

    @property
    def usable(self) -> Mask:
        """Which rows have no problem."""
        return np.array([problem is None for problem in self.problems], dtype=bool)


@dataclass(frozen=True)
class Encoder:
    """Encodes the rows of a table, and decodes them.

    Attributes:
        schema: Of the table.
        missing: ``"keep"``: a missing value stays missing, and a row that misses what no training row misses
            has a problem. ``"impute"``: it is filled with the median of a number, or the most common level,
            and the decoded row shows it.

    Example:
        >>> frame = pd.DataFrame({"age": [31, 54, 47], "owns": [True, False, True]})
        >>> encoder = Encoder(Schema.infer(frame))
        >>> x = encoder.encode(frame).x
        >>> x[0, 0] = 0.7
        >>> encoder.decode(x, like=frame)
           age   owns
        0   47   True
        1   54  False
        2   47   True
    """

    schema: Schema
    missing: Literal["keep", "impute"] = "keep"

    def __post_init__(self) -> None:
        if self.missing not in ("keep", "impute"):
            raise InvalidInputError(f"`missing` must be 'keep' or 'impute'; got {self.missing!r}.")

    @cached_property
    def layout(self) -> Layout:
        """Where each feature lies in an encoded row."""
        return Layout(tuple(codec.block for codec in self._codecs.values()))

    @cached_property
    def _codecs(self) -> dict[str, NumberCodec | LevelCodec]:
        codecs: dict[str, NumberCodec | LevelCodec] = {}
        start = 0
        for feature in self.schema.features:
            if feature.is_number or feature.has_levels:
                made = NumberCodec if feature.is_number else LevelCodec
                codecs[feature.name] = codec = made(feature, start, self.missing == "keep")
                start += len(codec.block.columns)
        return codecs

    def level_names(self, name: str) -> tuple[CellValue, ...]:
        """What the levels of a feature's block are called: the states of a number, or a category's levels.

        Where the block has a level for missing values it is the last, and called "missing".
        """
        return self._codecs[self.layout.block(name).name].level_names

    def encode(self, frame: pd.DataFrame) -> Encoded:
        """Encode rows; columns may come in any order, and in any dtype that holds the same values.

        Raises:
            InvalidInputError: This is no table with the columns of the schema; the message lists everything.
                A row that cannot be encoded raises nothing: it has a problem.
        """
        self._check_columns(frame)
        x = torch.zeros(len(frame), self.layout.width, dtype=torch.float64)
        problems = np.full(len(frame), None, dtype=object)
        for name, codec in self._codecs.items():
            x[:, _span(codec)], faults = codec.encode(frame[name])
            for fault in faults:
                if fault[0].any():
                    _note(problems, frame[name], fault)
        return Encoded(x, problems)

    def decode(
        self, x: Tensor, like: pd.DataFrame | None = None, *, encoded: Tensor | None = None
    ) -> pd.DataFrame:
        """Decode rows.

        Args:
            x: Shape ``(n, width)``, finite, in any precision and on any device.
            like: The rows that these came from. The answer has their index, column order and dtypes, and
                their cells wherever ``x`` is what they are encoded to; a dtype that cannot hold a new value
                is widened. Without it, the answer has the dtypes of the training table: levels and numbers on
                a grid are exact, other numbers within 1e-9 of their range (and to their dtype's precision),
                constants are the training rows', identifiers are missing.
            encoded: What ``like`` is encoded to, where that is known already.

        Raises:
            ShapeError: ``x`` has another width, or another number of rows than ``like``.
            InvalidInputError: ``x`` is not finite, or ``like`` cannot be encoded.
        """
        x = self._check_rows(x.detach().cpu(), like)
        if like is None:
            return self._decode_new(x)
        before = (self.encode(like).x if encoded is None else encoded).to(x.dtype)
        result = like.copy()
        for name, codec in self._codecs.items():
            own = x[:, _span(codec)]
            changed = (own != before[:, _span(codec)]).any(dim=1).numpy()
            if self.missing == "impute":
                changed |= is_missing(like[name])
            if changed.any():
                values = codec.decode(own[torch.from_numpy(changed)])
                result[name] = replace_cells(like[name], changed, values, codec.feature.levels)
        return result

    def _decode_new(self, x: Tensor) -> pd.DataFrame:
        columns = {}
        for feature in self.schema.features:
            codec = self._codecs.get(feature.name)
            cell = feature.levels[0] if feature.kind == "constant" else np.nan
            values = (
                np.full(len(x), cell, dtype=object) if codec is None else codec.decode(x[:, _span(codec)])
            )
            columns[feature.name] = column_from_values(values, feature.dtype)
        return pd.DataFrame(columns, index=pd.RangeIndex(len(x)))

    def _check_columns(self, frame: object) -> None:
        problems = frame_problems(frame)
        if isinstance(frame, pd.DataFrame):
            names = self.schema.names
            absent = [repr(name) for name in names if name not in frame.columns]
            extra = [repr(name) for name in frame.columns.unique() if name not in names]
            if absent:
                problems.append(f"columns of the training table are not there: {', '.join(absent)}")
            if extra:
                problems.append(f"the training table did not have the columns {', '.join(extra)}; drop them")
        if problems:
            raise InvalidInputError("The rows cannot be encoded:\n- " + "\n- ".join(problems))

    def _check_rows(self, x: Tensor, like: pd.DataFrame | None) -> Tensor:
        n = len(x) if like is None else len(like)
        if x.shape != (n, self.layout.width):
            raise ShapeError(
                f"`x` must have shape ({n}, {self.layout.width}), rows as encoded by this encoder; "
                f"got {tuple(x.shape)}."
            )
        wrong = int((~torch.isfinite(x)).any(dim=1).sum())
        if wrong:
            raise InvalidInputError(
                f"`x` must be finite; {wrong} of {n} rows are not. Decode found rows only."
            )
        return x


def _span(codec: NumberCodec | LevelCodec) -> slice:
    """The columns of a codec's feature, which lie side by side."""
    return slice(codec.start, codec.start + len(codec.block.columns))


def _note(problems: ObjectArray, column: pd.Series, fault: Fault) -> None:
    """Add a fault to the problems of the rows that have it."""
    where, why = fault
    for row, cell in zip(np.flatnonzero(where), column[where].tolist(), strict=True):
        text = f"`{column.name}` is {cell!r}, {why}"
        problems[row] = text if problems[row] is None else f"{problems[row]}; {text}"
