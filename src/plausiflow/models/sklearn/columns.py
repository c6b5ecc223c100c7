"""The columns of a table, as a scikit-learn model is given them, written over the columns of encoded rows.

A cell is in one of finitely many states (a level, a zero, missing), or it is a number. Which of these is the
case, encoded rows say by columns that are one or zero. Most preprocessing is therefore linear in a *basis*:
the constant one, the columns of an encoded row, and its numbers in original units, each times the column that
says that the number is there. What is not linear adds elements to the basis.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.tables import Block, Dtype, Encoder, Feature, Layout, Scale, is_missing

ONE = 0
"""The element of the basis that is always one."""

Array: TypeAlias = npt.NDArray[np.float64]
Fitted: TypeAlias = Any
"""A fitted object of scikit-learn, which has no types."""


class Refused(Exception):
    """Something cannot be converted exactly; the message says what and why."""


def ask(model: Fitted, method: str, rows: pd.DataFrame | npt.NDArray[Any]) -> Any:  # noqa: ANN401
    """What a user's model answers for rows; its warnings are not ours to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(model, method)(rows)
        except Exception as error:
            text = " ".join(str(error).split())
            raise Refused(f"{type(model).__name__}.{method} raised {type(error).__name__}: {text}") from error


@dataclass(frozen=True, eq=False, kw_only=True)
class Column:
    """A column on its way through a model.

    Attributes:
        name: Of the column of the table that it comes from.
        dtype: In which the model is given it.
        states: The cell's value at each of its states, by the element of the basis that is one there.
        number: The cell as a number, linear in the basis, where it is in no state; zero where it is in one.
        gate: The element of the basis that is one where the cell is a number.
        unknown: Why an encoded row does not tell the cell, where it does not.
    """

    name: str
    dtype: Dtype
    states: Mapping[int, Any] = field(default_factory=dict)
    number: Mapping[int, float] | None = None
    gate: int = ONE
    unknown: str | None = None

    def affine(self, scale: float, shift: float) -> Column:
        """The column times ``scale``, plus ``shift``."""
        number = self.number
        if number is not None:
            number = {element: scale * weight for element, weight in number.items()}
            number[self.gate] = number.get(self.gate, 0.0) + shift
        states = {element: scale * self.as_number(cell) + shift for element, cell in self.states.items()}
        return replace(self, states=states, number=number, dtype=np.dtype(np.float64))

    def mapped(self, function: Callable[[Any], Any], at_number: float | None = None) -> Column:
        """The column with a function of every state; and of its numbers, where these all give the same."""
        states = {element: function(cell) for element, cell in self.states.items()}
        if at_number is None or self.number is None:
            return replace(self, states=states)
        return replace(self, states={**states, self.gate: at_number}, number=None)

    def vector(self, size: int) -> Array:
        """Its weights over the first ``size`` elements of the basis.

        Raises:
            Refused: Some state is not a number.
        """
        weights = np.zeros(size)
        for element, weight in (self.number or {}).items():
            weights[element] += weight
        for element, cell in self.known().states.items():
            value = self.as_number(cell)
            if np.isnan(value):
                raise Refused(f"`{self.name}` may be missing, and no imputer fills it")
            weights[element] += value
        return weights

    def known(self) -> Column:
        """TrueModel.

        Raises:
            Refused: The encoded row does not tell the cell.
        """
        if self.unknown is not None:
            raise Refused(f"the model uses `{self.name}`, {self.unknown}")
        return self

    def as_number(self, cell: Any) -> float:  # noqa: ANN401
        """A state as a number, NaN where it is missing."""
        if isinstance(cell, bool | int | float | np.number | np.bool_):
            return float(cell)
        if pd.isna(cell):
            return float("nan")
        raise Refused(f"`{self.name}` is text, such as {cell!r}, where the model computes with numbers")


def matrix(columns: Sequence[Column], size: int) -> Array:
    """The weights of columns over the basis, shape ``(size, number of columns)``."""
    vectors = [column.vector(size) for column in columns]
    return np.stack(vectors, axis=1) if vectors else np.zeros((size, 0))


class Affine(nn.Module):
    """``x W``, or ``x W + b``; W may have fewer rows than x has columns, which are then left out."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Array, bias: Array | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(np.array(weight, dtype=np.float64)))
        self.register_buffer(
            "bias", None if bias is None else torch.from_numpy(np.array(bias, dtype=np.float64))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, columns of W)``."""
        product = x[:, : len(self.weight)] @ self.weight
        return product if self.bias is None else product + self.bias


class Basis(nn.Module):
    """The basis at encoded rows, ``(n, width) -> (n, size)``: one, the row, its numbers, and what was added.

    Attributes:
        size: How many elements there are.
        elements: For each number of the table, its element.
    """

    columns: Tensor
    gates: Tensor
    start: Tensor
    span: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        blocks = [block for block in layout.blocks if block.number is not None]
        blocks.sort(key=lambda block: _scale(block).log)
        linear = [_scale(block) for block in blocks if not _scale(block).log]
        self.curved = [_scale(block) for block in blocks[len(linear) :]]
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        decoded = torch.stack([scale.decode(ends) for scale in linear]) if linear else ends.new_zeros(0, 2)
        self.register_buffer("columns", torch.tensor([b.number for b in blocks], dtype=torch.long))
        self.register_buffer("gates", torch.tensor([gate_of(b) for b in blocks], dtype=torch.long))
        self.register_buffer("start", decoded[:, 0].clone())
        self.register_buffer("span", decoded[:, 1] - decoded[:, 0])
        self.elements = {block.name: 1 + layout.width + i for i, block in enumerate(blocks)}
        self.size = 1 + layout.width + len(blocks)
        self.added = nn.ModuleList()

    def extend(self, module: nn.Module, n: int) -> range:
        """Add the ``n`` columns that a module makes of the basis so far; returns their elements."""
        self.added.append(module)
        self.size += n
        return range(self.size - n, self.size)

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(n, size)``; keeps the graph."""
        row, encoded = torch.cat([x.new_ones(len(x), 1), x], dim=1), x[:, self.columns]
        n = len(self.start)
        numbers = [encoded[:, :n] * self.span + self.start]
        numbers += [scale.decode(encoded[:, n + i, None]) for i, scale in enumerate(self.curved)]
        basis = torch.cat([row, torch.cat(numbers, dim=1) * row[:, self.gates]], dim=1)
        for module in self.added:
            basis = torch.cat([basis, module(basis)], dim=1)
        return basis


def _scale(block: Block) -> Scale:
    assert block.scale is not None
    return block.scale


def gate_of(block: Block) -> int:
    """The element of the basis that is one where a block's number is free."""
    free = [column for column, pin in zip(block.levels, block.pinned, strict=True) if pin is None]
    return 1 + free[0] if free else ONE


def table_columns(
    encoder: Encoder, sample: pd.DataFrame, names: Sequence[str], dtype: Dtype | None, basis: Basis
) -> list[Column]:
    """Columns of the table as a model is given them.

    Args:
        encoder: Of the table.
        sample: Rows as the model is given them: their dtypes, and how they write a missing cell.
        names: Which columns, in the model's order.
        dtype: Of the array that the model takes; nothing where it takes a table.
        basis: Of the encoder's layout.
    """
    return [
        _table_column(encoder, encoder.schema.feature(name), sample[name], dtype or sample[name].dtype, basis)
        for name in names
    ]


def _table_column(encoder: Encoder, feature: Feature, cells: pd.Series, dtype: Dtype, basis: Basis) -> Column:
    column = Column(name=feature.name, dtype=dtype)
    if feature.kind == "identifier":
        return replace(column, unknown="an identifier, which encoded rows do not hold")
    if feature.kind == "constant":
        if feature.can_miss:
            return replace(column, unknown="a constant that some rows miss, which encoded rows do not hold")
        return replace(column, states={ONE: feature.levels[0]})
    block = encoder.layout.block(feature.name)
    absent = cells[is_missing(cells)]
    missing = absent.iloc[0] if len(absent) else np.nan
    if feature.is_number:
        pinned = zip(block.levels, block.pinned, block.closed, strict=True)
        states = {1 + at: np.nan if closed else 0.0 for at, pin, closed in pinned if pin is not None}
        number = {basis.elements[feature.name]: 1.0}
        return replace(column, states=states, number=number, gate=gate_of(block))
    values = [*feature.levels, missing]
    return replace(column, states={1 + at: value for at, value in zip(block.levels, values, strict=False)})
