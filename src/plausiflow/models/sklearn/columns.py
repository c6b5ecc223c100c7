"""The columns that a scikit-learn model receives, written over the columns of encoded rows.

A cell is either in one of finitely many states (a level, a zero, missing) or a number. Encoded rows indicate
which, with columns that are one or zero. Most preprocessing is therefore linear in a *basis*: the constant
one, the columns of an encoded row, and its numbers in original units, each multiplied by the column that
indicates that the number is present. Nonlinear steps add elements to the basis.
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

from plausiflow.core import Pullback
from plausiflow.tables import (
    PANDAS,
    Block,
    Dtype,
    Encoder,
    Feature,
    Layout,
    Scale,
    TableFormat,
    decode_log,
    is_missing,
)

ONE = 0
"""Element of the basis that is always one."""

Array: TypeAlias = npt.NDArray[np.float64]
Fitted: TypeAlias = Any
"""A fitted object of scikit-learn, which has no types."""


class UnsupportedModelError(Exception):
    """The conversion would not be exact; the message gives the reason."""


def call_model(model: Fitted, method: str, rows: pd.DataFrame | npt.NDArray[Any]) -> Any:  # noqa: ANN401
    """Call a method of a user's model without its warnings; an exception makes the model unsupported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(model, method)(rows)
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UnsupportedModelError(f"{type(model).__name__}.{method} raised {text}") from error


@dataclass(frozen=True)
class InputFormat:
    """The columns that a fitted model takes, as a table or as an array."""

    names: tuple[str, ...]  # Names of the columns, in the model's order.
    as_array: bool  # Whether the model was fitted on an array, without names.
    table: TableFormat = PANDAS  # The library of the table that it takes.

    @classmethod
    def from_model(cls, model: Fitted, names: Sequence[str]) -> InputFormat:
        """Return the input format of a model, given the column names of the table, which must suffice."""
        if hasattr(model, "feature_names_in_"):
            expected = tuple(map(str, model.feature_names_in_))
            absent = [name for name in expected if name not in names]
            if absent:
                raise UnsupportedModelError(
                    f"the model takes columns that the table does not have: {', '.join(absent)}"
                )
            return cls(expected, as_array=False)
        n_expected = getattr(model, "n_features_in_", len(names))
        if n_expected != len(names):
            raise UnsupportedModelError(
                f"the model takes an array of {n_expected} columns without names; the table has "
                f"{len(names)}. Fit it on a DataFrame"
            )
        return cls(tuple(names), as_array=True)

    def select(self, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        """Return the rows of a table as the model takes them."""
        chosen = frame[list(self.names)]
        return chosen.to_numpy() if self.as_array else self.table.write(chosen)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelColumn:
    """A column of the table between two steps of a model.

    Each state has its value by the element of the basis that is one there. A number is linear in the basis,
    and zero when the cell is in a state.
    """

    name: str  # Name of the column of the table that it comes from.
    dtype: Dtype  # Dtype in which the model receives it.
    states: Mapping[int, Any] = field(default_factory=dict)
    number: Mapping[int, float] | None = None
    gate: int = ONE  # Element of the basis that is one when the cell is a number.
    unknown: str | None = None  # Why encoded rows do not contain the cell; None if they do.

    def affine(self, scale: float, shift: float) -> ModelColumn:
        """Return the column times ``scale``, plus ``shift``."""
        number = self.number
        if number is not None:
            number = {element: scale * weight for element, weight in number.items()}
            number[self.gate] = number.get(self.gate, 0.0) + shift
        states = {element: scale * self.to_number(cell) + shift for element, cell in self.states.items()}
        return replace(self, states=states, number=number, dtype=np.dtype(np.float64))

    def map_states(self, function: Callable[[Any], Any], at_number: float | None = None) -> ModelColumn:
        """Apply a function to every state; replace all numbers by ``at_number``, if given."""
        states = {element: function(cell) for element, cell in self.states.items()}
        if at_number is None or self.number is None:
            return replace(self, states=states)
        return replace(self, states={**states, self.gate: at_number}, number=None)

    def weights(self, size: int) -> Array:
        """Return the weights over the first ``size`` elements of the basis; every state must be a number."""
        weights = np.zeros(size)
        for element, weight in (self.number or {}).items():
            weights[element] += weight
        for element, cell in self.require_known().states.items():
            value = self.to_number(cell)
            if np.isnan(value):
                raise UnsupportedModelError(f"`{self.name}` may be missing, and no imputer fills it")
            weights[element] += value
        return weights

    def require_known(self) -> ModelColumn:
        """Return the column itself; raise if encoded rows do not contain the cell."""
        if self.unknown is not None:
            raise UnsupportedModelError(f"the model uses `{self.name}`, {self.unknown}")
        return self

    def to_number(self, cell: Any) -> float:  # noqa: ANN401
        """Return a state as a number, NaN if it is missing."""
        if isinstance(cell, bool | int | float | np.number | np.bool_):
            return float(cell)
        if pd.isna(cell):
            return float("nan")
        raise UnsupportedModelError(
            f"`{self.name}` is text, such as {cell!r}, where the model computes with numbers"
        )


def weight_matrix(columns: Sequence[ModelColumn], size: int) -> Array:
    """Return the weights of columns over the basis, shape ``(size, number of columns)``."""
    vectors = [column.weights(size) for column in columns]
    return np.stack(vectors, axis=1) if vectors else np.zeros((size, 0))


class Affine(nn.Module):
    """The map ``x W``, or ``x W + b``; columns of x beyond the rows of W are ignored."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Array, bias: Array | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(np.array(weight, dtype=np.float64)))
        self.register_buffer("bias", None if bias is None else torch.tensor(bias, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return shape ``(n, columns of W)``."""
        product = x[:, : len(self.weight)] @ self.weight
        return product if self.bias is None else product + self.bias


class Basis(nn.Module):
    """The basis at encoded rows, ``(n, width) -> (n, size)``: one, the row, its numbers, added elements.

    ``elements`` has the element of each number of the table, by name.
    """

    columns: Tensor
    gates: Tensor
    start: Tensor
    span: Tensor
    log_start: Tensor
    log_span: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        blocks = [block for block in layout.blocks if block.number is not None]
        blocks.sort(key=lambda block: _scale(block).log)
        linear = [_scale(block) for block in blocks if not _scale(block).log]
        self.curved = [_scale(block) for block in blocks[len(linear) :]]
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        decoded = torch.stack([scale.decode(ends) for scale in linear]) if linear else ends.new_zeros(0, 2)
        self.register_buffer("columns", torch.tensor([b.number for b in blocks], dtype=torch.long))
        self.register_buffer("gates", torch.tensor([_gate(b) for b in blocks], dtype=torch.long))
        self.register_buffer("start", decoded[:, 0].clone())
        self.register_buffer("span", decoded[:, 1] - decoded[:, 0])
        logs = torch.tensor([scale.ends for scale in self.curved], dtype=torch.float64).reshape(-1, 2)
        self.register_buffer("log_start", logs[:, 0].clone())
        self.register_buffer("log_span", logs[:, 1].clone())
        self.elements = {block.name: 1 + layout.width + i for i, block in enumerate(blocks)}
        self.size = 1 + layout.width + len(blocks)
        self.added = nn.ModuleList()

    def extend(self, module: nn.Module, n: int) -> range:
        """Add the ``n`` columns that a module computes from the basis so far; return their elements."""
        self.added.append(module)
        self.size += n
        return range(self.size - n, self.size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the basis, shape ``(n, size)``; keeps the graph."""
        row, encoded = torch.cat([x.new_ones(len(x), 1), x], dim=1), x[:, self.columns]
        n = len(self.start)
        numbers = [encoded[:, :n] * self.span + self.start]
        numbers += [scale.decode(encoded[:, n + i, None]) for i, scale in enumerate(self.curved)]
        basis = torch.cat([row, torch.cat(numbers, dim=1) * row[:, self.gates]], dim=1)
        for module in self.added:
            basis = torch.cat([basis, module(basis)], dim=1)
        return basis

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the basis and its pullback in closed form; without added elements."""
        row, encoded, n = torch.cat([x.new_ones(len(x), 1), x], dim=1), x[:, self.columns], len(self.start)
        numbers, slope = encoded[:, :n] * self.span + self.start, self.span.expand(len(x), -1)
        if self.curved:
            logs = encoded[:, n:] * self.log_span + self.log_start
            numbers = torch.cat([numbers, decode_log(logs)], dim=1)
            slope = torch.cat([slope, logs.abs().exp() * self.log_span], dim=1)
        gate, width = row[:, self.gates], row.shape[1]

        def pullback(gradient: Tensor) -> Tensor:
            of_numbers = gradient[:, width:]
            pulled = gradient[:, :width].index_add(1, self.columns + 1, of_numbers * gate * slope)
            return pulled.index_add(1, self.gates, of_numbers * numbers)[:, 1:]

        return torch.cat([row, numbers * gate], dim=1), pullback


def _scale(block: Block) -> Scale:
    assert block.scale is not None
    return block.scale


def _gate(block: Block) -> int:
    """Return the element of the basis that is one when the number of a block is free."""
    free = [column for column, pin in zip(block.levels, block.pinned, strict=True) if pin is None]
    return 1 + free[0] if free else ONE


def table_columns(
    encoder: Encoder, sample: pd.DataFrame, names: Sequence[str], dtype: Dtype | None, basis: Basis
) -> list[ModelColumn]:
    """Return columns of the table as a model receives them, in the order of ``names``.

    The rows of ``sample``, as the model receives them, show dtypes and the marker of missing cells. ``dtype``
    is that of the array that the model takes; None if it takes a table.
    """
    return [
        _table_column(encoder, encoder.schema.feature(name), sample[name], dtype or sample[name].dtype, basis)
        for name in names
    ]


def _table_column(
    encoder: Encoder, feature: Feature, cells: pd.Series, dtype: Dtype, basis: Basis
) -> ModelColumn:
    column = ModelColumn(name=feature.name, dtype=dtype)
    if feature.kind == "identifier":
        return replace(column, unknown="an identifier, which encoded rows do not hold")
    if feature.kind == "constant":
        if feature.can_miss:
            return replace(column, unknown="a constant that some rows miss, which encoded rows do not hold")
        return replace(column, states={ONE: feature.levels[0]})
    block = encoder.layout.block(feature.name)
    if feature.is_number:
        special = list(zip(block.levels, block.special, strict=True))[1:]
        states = {1 + at: np.nan if value is None else value for at, value in special}
        number = {basis.elements[feature.name]: 1.0}
        return replace(column, states=states, number=number, gate=_gate(block))
    absent = cells[is_missing(cells)]
    values = [*feature.levels, absent.iloc[0] if len(absent) else np.nan]
    return replace(column, states={1 + at: value for at, value in zip(block.levels, values, strict=False)})
