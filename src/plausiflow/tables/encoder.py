"""Encode the rows of a table as tensors, and decode them exactly.

A number is scaled to [0, 1] over the training rows; a boolean or a category is one-hot. A number with special
values, or that may be missing, also has states: "number", one for each special value, "missing". Constants
and identifiers are not encoded and never change.

Decoding starts from the original rows. A cell whose encoded columns did not change keeps its bits and its
spelling, even off the grid or out of range. Other cells get a number on the grid, or a level in its most
common spelling.
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
from plausiflow.tables.codecs import LevelCodec, NumberCodec
from plausiflow.tables.features import CellValue
from plausiflow.tables.layout import Layout
from plausiflow.tables.number_codecs import NumberCodecs
from plausiflow.tables.schema import Schema, frame_problems


@dataclass(frozen=True, eq=False)
class Encoded:
    """Encoded rows."""

    x: Tensor  # finite values in double precision, shape (n, width); a filling for an unreadable cell
    problems: ObjectArray  # for each row, why it cannot be explained, or None

    @property
    def usable(self) -> Mask:
        """Which rows have no problem, shape ``(n,)``."""
        return np.array([problem is None for problem in self.problems], dtype=bool)


@dataclass(frozen=True)
class Encoder:
    """An encoder of the rows of a table.

    Attributes:
        schema: Schema of the table.
        missing: ``"keep"``: a missing value stays missing; a row has a problem if no training row has a
            missing value in that column. ``"impute"``: a missing value is replaced by the median of a number
            or by the most common level, also in the decoded row.

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
        """The layout of encoded rows."""
        return Layout(tuple(codec.block for codec in self._codecs.values()))

    @cached_property
    def _codecs(self) -> dict[str, NumberCodec | LevelCodec]:
        codecs: dict[str, NumberCodec | LevelCodec] = {}
        start = 0
        for feature in self.schema.features:
            if feature.is_number or feature.has_levels:
                codec_type = NumberCodec if feature.is_number else LevelCodec
                codecs[feature.name] = codec = codec_type(feature, start, self.missing == "keep")
                start += len(codec.block.columns)
        return codecs

    @cached_property
    def _number_codecs(self) -> NumberCodecs:
        codecs = self._codecs.values()
        return NumberCodecs(tuple(codec for codec in codecs if isinstance(codec, NumberCodec)))

    def level_names(self, name: str) -> tuple[CellValue, ...]:
        """Return the names of a feature's levels: the states of a number, or a category's levels.

        If the block has a level for missing values, it comes last and is called "missing".
        """
        return self._codecs[self.layout.block(name).name].level_names

    def encode(self, frame: pd.DataFrame) -> Encoded:
        """Encode rows. Columns may have any order, and any dtype that holds the same values.

        Wrong columns raise an error. A row that cannot be encoded has a problem in the result.
        """
        self._check_columns(frame)
        x = torch.zeros(len(frame), self.layout.width, dtype=torch.float64)
        problems = np.full(len(frame), None, dtype=object)
        columns = {str(name): column for name, column in frame.items()}
        faults = self._number_codecs.encode(columns, x)
        levels = []
        for name, codec in self._codecs.items():
            if isinstance(codec, LevelCodec):
                column, faults[name] = codec.encode(columns[name])
                levels.append(column)
        if levels:
            x.scatter_(1, torch.from_numpy(np.stack(levels, axis=1)), 1.0)
        for name in (name for name in self._codecs if name in faults):
            for where, why in faults[name]:
                if not where.any():
                    continue
                for row, cell in zip(np.flatnonzero(where), columns[name][where].tolist(), strict=True):
                    text = f"`{name}` is {cell!r}, {why}"
                    problems[row] = text if problems[row] is None else f"{problems[row]}; {text}"
        return Encoded(x, problems)

    def decode(
        self, x: Tensor, like: pd.DataFrame | None = None, *, encoded: Tensor | None = None
    ) -> pd.DataFrame:
        """Decode rows.

        Args:
            x: Finite encoded rows, shape ``(n, width)``, in any precision and on any device.
            like: The original rows. The result has their index, column order and dtypes, and their cells
                wherever ``x`` equals their encoding; a dtype that cannot hold a new value is widened. Without
                it, the result has the dtypes of the training table: levels and numbers on a grid are exact,
                other numbers within 1e-9 of their range (and to their dtype's precision), constants have
                their training value, identifiers are missing.
            encoded: The encoding of ``like``, if it is known.
        """
        x = self._check_rows(x.detach().cpu(), like)
        if like is None:
            return self._decode_new(x)
        before = (self.encode(like).x if encoded is None else encoded).to(x.dtype)
        result = like.copy()
        differ = self.layout.changed(x, before).numpy()
        for (name, codec), changed in zip(self._codecs.items(), differ.T, strict=True):
            if self.missing == "impute":
                changed = changed | is_missing(like[name])
            if changed.any():
                values = codec.decode(x[torch.from_numpy(changed), _columns(codec)])
                result[name] = replace_cells(like[name], changed, values, codec.feature.levels)
        return result

    def _decode_new(self, x: Tensor) -> pd.DataFrame:
        columns = {}
        for feature in self.schema.features:
            codec = self._codecs.get(feature.name)
            cell = feature.levels[0] if feature.kind == "constant" else np.nan
            values = np.full(len(x), cell, dtype=object)
            if codec is not None:
                values = codec.decode(x[:, _columns(codec)])
            columns[feature.name] = column_from_values(values, feature.dtype)
        return pd.DataFrame(columns, index=pd.RangeIndex(len(x)))

    def _check_columns(self, frame: object) -> None:
        problems = frame_problems(frame)
        if isinstance(frame, pd.DataFrame):
            names, given = self.schema.names, dict.fromkeys(frame.columns)
            absent = [repr(name) for name in names if name not in given]
            extra = [repr(name) for name in given if name not in names]
            if absent:
                problems.append(f"columns of the training table are missing: {', '.join(absent)}")
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
                f"`x` must be finite; {wrong} of {n} rows are not. Decode only rows that were found."
            )
        return x


def _columns(codec: NumberCodec | LevelCodec) -> slice:
    """Return the columns of a codec's feature, which are adjacent."""
    return slice(codec.start, codec.start + len(codec.block.columns))
