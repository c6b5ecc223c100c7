"""Exact conversion of single scikit-learn transformers, from columns over the basis to such columns.

Scalers and projections are linear. A transformer that treats every column by itself, such as a categorical
encoder, is fully described by its outputs for each state; it is called once to get them. Products and clipped
numbers extend the basis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.models.sklearn.columns import (
    ONE,
    Affine,
    Array,
    Basis,
    Fitted,
    ModelColumn,
    UnsupportedModelError,
    call_model,
    weight_matrix,
)
from plausiflow.tables import column_from_values

_FLOAT = np.dtype(np.float64)


class Clip(nn.Module):
    """Clipped numbers over the basis; zero where they are absent."""

    gates: Tensor

    def __init__(self, columns: Sequence[ModelColumn], size: int, low: float, high: float) -> None:
        super().__init__()
        numbers = [replace(column, states={}) for column in columns]
        self.values, self.low, self.high = Affine(weight_matrix(numbers, size)), low, high
        self.register_buffer("gates", torch.tensor([column.gate for column in columns], dtype=torch.long))

    def forward(self, basis: Tensor) -> Tensor:
        """Return shape ``(n, number of columns)``."""
        clipped: Tensor = self.values(basis).clamp(self.low, self.high) * basis[:, self.gates]
        return clipped


class Products(nn.Module):
    """Products of columns over the basis; in ``factors``, the number of columns itself stands for one."""

    factors: Tensor

    def __init__(self, columns: Sequence[ModelColumn], size: int, factors: npt.NDArray[np.int64]) -> None:
        super().__init__()
        one = ModelColumn(name="one", dtype=_FLOAT, states={ONE: 1.0})
        self.values = Affine(weight_matrix([*columns, one], size))
        self.register_buffer("factors", torch.from_numpy(factors))

    def forward(self, basis: Tensor) -> Tensor:
        """Return shape ``(n, number of products)``."""
        values: Tensor = self.values(basis)
        product = values[:, self.factors[:, 0]]
        for i in range(1, self.factors.shape[1]):
            product = product * values[:, self.factors[:, i]]
        return product


def _standard(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    return _scale(columns, step.mean_ if step.with_mean else None, step.scale_)


def _robust(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    return _scale(columns, step.center_, step.scale_)


def _max_abs(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    result = _scale(columns, None, step.scale_)
    return _clip(result, -1.0, 1.0, basis) if getattr(step, "clip", False) else result


def _scale(columns: list[ModelColumn], centre: Array | None, scale: Array | None) -> list[ModelColumn]:
    """Subtract the centre and divide by the scale; at states, round as scikit-learn does."""
    centre = np.zeros(len(columns)) if centre is None else np.asarray(centre, dtype=_FLOAT)
    scale = np.ones(len(columns)) if scale is None else np.asarray(scale, dtype=_FLOAT)
    result = []
    for column, m, s in zip(columns, centre, scale, strict=True):
        states = {element: (column.to_number(cell) - m) / s for element, cell in column.states.items()}
        result.append(replace(column.affine(1 / s, -m / s), states=states))
    return result


def _min_max(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    result = [c.affine(s, m) for c, s, m in zip(columns, step.scale_, step.min_, strict=True)]
    low, high = step.feature_range
    return _clip(result, low, high, basis) if step.clip else result


def _clip(columns: list[ModelColumn], low: float, high: float, basis: Basis) -> list[ModelColumn]:
    numbers = [column for column in columns if column.number is not None]
    added = iter(basis.extend(Clip(numbers, basis.size, low, high), len(numbers)) if numbers else ())
    clipped = [column.map_states(lambda cell: float(np.clip(cell, low, high))) for column in columns]
    return [c if c.number is None else replace(c, number={next(added): 1.0}) for c in clipped]


def _imputer(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    numbers = [column.name for column in columns if column.number is not None]
    marker = step.missing_values
    if not numbers:
        return _by_state(step, columns, basis)
    if marker is None or not pd.isna(marker):
        raise UnsupportedModelError(f"SimpleImputer fills the number `{numbers[0]}` where it is {marker!r}")
    filled = [
        replace(column, states={e: value if pd.isna(cell) else cell for e, cell in column.states.items()})
        for column, value in zip(columns, step.statistics_, strict=True)
        if step.keep_empty_features or not pd.isna(value)
    ]
    flagged = step.indicator_.features_ if step.add_indicator else ()
    return filled + [
        columns[i].map_states(lambda cell: float(bool(pd.isna(cell))), at_number=0.0) for i in flagged
    ]


def _polynomial(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    n, powers = len(columns), np.asarray(step.powers_)
    factors = np.full((len(powers), max(1, int(powers.sum(axis=1).max()))), n, dtype=np.int64)
    for row, power in zip(factors, powers, strict=True):
        row[: power.sum()] = np.repeat(np.arange(n), power)
    return _computed_columns(Products(columns, basis.size, factors), len(factors), basis)


def _projection(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    weight = np.asarray(step.components_, dtype=_FLOAT).T
    if getattr(step, "whiten", False):
        weight = weight / np.maximum(np.sqrt(step.explained_variance_), np.finfo(_FLOAT).eps)
    forms = weight_matrix(columns, basis.size) @ weight
    if hasattr(step, "mean_"):
        forms[ONE] -= step.mean_ @ weight
    return _computed_columns(Affine(forms), weight.shape[1], basis)


def _computed_columns(module: nn.Module, n: int, basis: Basis) -> list[ModelColumn]:
    """Extend the basis by the ``n`` outputs of a module, and return them as columns."""
    elements = basis.extend(module, n)
    return [ModelColumn(name="a computed column", dtype=_FLOAT, number={e: 1.0}) for e in elements]


def _by_state(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    """Transform every state by calling the transformer with one column changed at a time."""
    kind, numbers = type(step).__name__, [column.name for column in columns if column.number is not None]
    if numbers:
        raise UnsupportedModelError(
            f"{kind} of the number `{numbers[0]}` cannot be converted exactly. If its values are categories, "
            f"say so: kinds={{{numbers[0]!r}: 'category'}}"
        )
    starts = np.cumsum([1, *(len(column.states) for column in columns)]).tolist()
    table = _transform_states(step, columns, starts)
    result = []
    for j in range(table.shape[1]):
        cells = table.iloc[:, j]
        codes = pd.factorize(cells)[0]
        moved = [i for i in range(len(columns)) if (codes[starts[i] : starts[i + 1]] != codes[0]).any()]
        if len(moved) > 1:
            raise UnsupportedModelError(
                f"{kind} mixes the columns {', '.join(columns[i].name for i in moved)}"
            )
        source = columns[moved[0]] if moved else replace(columns[0], states={ONE: None})
        values = cells.tolist()[starts[moved[0]] if moved else 0 :]
        states = dict(zip(source.states, values, strict=False))
        result.append(replace(source, states=states, dtype=cells.dtype))
    return result


def _transform_states(step: Fitted, columns: list[ModelColumn], starts: list[int]) -> pd.DataFrame:
    """Return the outputs with all columns in their first state, then for each state of each column."""
    probes = {}
    for i, column in enumerate(columns):
        states = np.empty(len(column.states), dtype=object)
        states[:] = list(column.states.values())
        rows = np.zeros(starts[-1], dtype=np.int64)
        rows[starts[i] : starts[i + 1]] = np.arange(len(states))
        probes[i] = column_from_values(states[rows], column.dtype)
    frame, names = pd.DataFrame(probes), getattr(step, "feature_names_in_", None)
    named = frame.to_numpy() if names is None else frame.set_axis(names, axis=1)
    output = call_model(step, "transform", named)
    if isinstance(output, pd.DataFrame):
        return output
    output = output.toarray() if hasattr(output, "toarray") else output
    return pd.DataFrame(output, dtype=output.dtype)


TRANSFORMERS: dict[str, Callable[[Fitted, list[ModelColumn], Basis], list[ModelColumn]]] = {
    "StandardScaler": _standard,
    "RobustScaler": _robust,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "SimpleImputer": _imputer,
    "PolynomialFeatures": _polynomial,
    **dict.fromkeys(("PCA", "TruncatedSVD"), _projection),
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder", "TargetEncoder"), _by_state),
    **dict.fromkeys(("KBinsDiscretizer", "Binarizer", "PowerTransformer", "QuantileTransformer"), _by_state),
}
