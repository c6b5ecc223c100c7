"""Single transformers of scikit-learn, exactly: from columns over the basis to columns over the basis.

Scalers and projections are linear. Of a transformer that looks at every column by itself, such as an encoder
of categories, only the answers for each state are needed: the transformer itself is asked for these, once.
Products and clipped numbers add to the basis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.models.sklearn.columns import ONE, Affine, Array, Basis, Column, Fitted, Refused, ask, matrix
from plausiflow.tables import build

_FLOAT = np.dtype(np.float64)


class Clip(nn.Module):
    """Numbers over the basis, clipped; zero where they are not there."""

    gates: Tensor

    def __init__(self, columns: Sequence[Column], size: int, low: float, high: float) -> None:
        super().__init__()
        numbers = [replace(column, states={}) for column in columns]
        self.values, self.low, self.high = Affine(matrix(numbers, size)), low, high
        self.register_buffer("gates", torch.tensor([column.gate for column in columns], dtype=torch.long))

    def forward(self, basis: Tensor) -> Tensor:
        """Shape ``(n, number of columns)``."""
        clipped: Tensor = self.values(basis).clamp(self.low, self.high) * basis[:, self.gates]
        return clipped


class Products(nn.Module):
    """Products of columns over the basis.

    Attributes:
        factors: For each product the numbers of its columns; as many as there are columns stands for one.
    """

    factors: Tensor

    def __init__(self, columns: Sequence[Column], size: int, factors: npt.NDArray[np.int64]) -> None:
        super().__init__()
        one = Column(name="one", dtype=_FLOAT, states={ONE: 1.0})
        self.values = Affine(matrix([*columns, one], size))
        self.register_buffer("factors", torch.from_numpy(factors))

    def forward(self, basis: Tensor) -> Tensor:
        """Shape ``(n, number of products)``."""
        values: Tensor = self.values(basis)
        product = values[:, self.factors[:, 0]]
        for i in range(1, self.factors.shape[1]):
            product = product * values[:, self.factors[:, i]]
        return product


def _standard(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    return _scaled(columns, step.mean_ if step.with_mean else None, step.scale_)


def _robust(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    return _scaled(columns, step.center_, step.scale_)


def _max_abs(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    result = _scaled(columns, None, step.scale_)
    return _clip(result, -1.0, 1.0, basis) if getattr(step, "clip", False) else result


def _scaled(columns: list[Column], centre: Array | None, scale: Array | None) -> list[Column]:
    centre = np.zeros(len(columns)) if centre is None else np.asarray(centre, dtype=_FLOAT)
    scale = np.ones(len(columns)) if scale is None else np.asarray(scale, dtype=_FLOAT)
    return [_centred(c, m, s) for c, m, s in zip(columns, centre, scale, strict=True)]


def _centred(column: Column, centre: float, scale: float) -> Column:
    """The column minus ``centre``, divided by ``scale``; at its states rounded as scikit-learn rounds."""
    states = {element: (column.as_number(cell) - centre) / scale for element, cell in column.states.items()}
    return replace(column.affine(1 / scale, -centre / scale), states=states)


def _min_max(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    result = [c.affine(s, m) for c, s, m in zip(columns, step.scale_, step.min_, strict=True)]
    low, high = step.feature_range
    return _clip(result, low, high, basis) if step.clip else result


def _clip(columns: list[Column], low: float, high: float, basis: Basis) -> list[Column]:
    numbers = [column for column in columns if column.number is not None]
    added = iter(basis.extend(Clip(numbers, basis.size, low, high), len(numbers)) if numbers else ())
    clipped = [column.mapped(lambda cell: float(np.clip(cell, low, high))) for column in columns]
    return [c if c.number is None else replace(c, number={next(added): 1.0}) for c in clipped]


def _imputer(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    numbers = [column.name for column in columns if column.number is not None]
    marker = step.missing_values
    if not numbers:
        return _by_state(step, columns, basis)
    if marker is None or not pd.isna(marker):
        raise Refused(f"SimpleImputer fills the number `{numbers[0]}` where it is {marker!r}")
    filled = [
        column.mapped(_Filling(fill))
        for column, fill in zip(columns, step.statistics_, strict=True)
        if step.keep_empty_features or not pd.isna(fill)
    ]
    flagged = step.indicator_.features_ if step.add_indicator else ()
    return filled + [
        columns[i].mapped(lambda cell: float(bool(pd.isna(cell))), at_number=0.0) for i in flagged
    ]


class _Filling:
    """Fills a missing cell."""

    def __init__(self, filling: Any) -> None:  # noqa: ANN401
        self.filling = filling

    def __call__(self, cell: Any) -> Any:  # noqa: ANN401
        return self.filling if pd.isna(cell) else cell


def _polynomial(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    n, powers = len(columns), np.asarray(step.powers_)
    factors = np.full((len(powers), max(1, int(powers.sum(axis=1).max()))), n, dtype=np.int64)
    for row, power in zip(factors, powers, strict=True):
        row[: power.sum()] = np.repeat(np.arange(n), power)
    return _computed(Products(columns, basis.size, factors), len(factors), basis)


def _projection(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    weight = np.asarray(step.components_, dtype=_FLOAT).T
    if getattr(step, "whiten", False):
        weight = weight / np.maximum(np.sqrt(step.explained_variance_), np.finfo(_FLOAT).eps)
    forms = matrix(columns, basis.size) @ weight
    if hasattr(step, "mean_"):
        forms[ONE] -= step.mean_ @ weight
    return _computed(Affine(forms), weight.shape[1], basis)


def _computed(module: nn.Module, n: int, basis: Basis) -> list[Column]:
    """The columns that a module makes of the basis."""
    elements = basis.extend(module, n)
    return [Column(name="a computed column", dtype=_FLOAT, number={element: 1.0}) for element in elements]


def _by_state(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    """What a transformer makes of every state, asked by changing one column at a time."""
    kind, numbers = type(step).__name__, [column.name for column in columns if column.number is not None]
    if numbers:
        raise Refused(
            f"{kind} of the number `{numbers[0]}` cannot be converted exactly. Where its values are "
            f"categories, say so: kinds={{{numbers[0]!r}: 'category'}}"
        )
    starts = np.cumsum([1, *(len(column.states) for column in columns)]).tolist()
    table = _answers(step, columns, starts)
    result = []
    for j in range(table.shape[1]):
        cells = table.iloc[:, j]
        codes = pd.factorize(cells)[0]
        moved = [i for i in range(len(columns)) if (codes[starts[i] : starts[i + 1]] != codes[0]).any()]
        if len(moved) > 1:
            raise Refused(f"{kind} mixes the columns {', '.join(columns[i].name for i in moved)}")
        source = columns[moved[0]] if moved else replace(columns[0], states={ONE: None})
        values = cells.tolist()[starts[moved[0]] if moved else 0 :]
        states = dict(zip(source.states, values, strict=False))
        result.append(replace(source, states=states, dtype=cells.dtype))
    return result


def _answers(step: Fitted, columns: list[Column], starts: list[int]) -> pd.DataFrame:
    """The transformer's answer where all columns are in their first state; then for each state of each."""
    probes = {}
    for i, column in enumerate(columns):
        states = np.empty(len(column.states), dtype=object)
        states[:] = list(column.states.values())
        rows = np.zeros(starts[-1], dtype=np.int64)
        rows[starts[i] : starts[i + 1]] = np.arange(len(states))
        probes[i] = build(states[rows], column.dtype)
    frame, names = pd.DataFrame(probes), getattr(step, "feature_names_in_", None)
    answer = ask(step, "transform", frame.to_numpy() if names is None else frame.set_axis(names, axis=1))
    if isinstance(answer, pd.DataFrame):
        return answer
    answer = answer.toarray() if hasattr(answer, "toarray") else answer
    return pd.DataFrame(answer, dtype=answer.dtype)


MAPS: dict[str, Callable[[Fitted, list[Column], Basis], list[Column]]] = {
    "StandardScaler": _standard,
    "RobustScaler": _robust,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "SimpleImputer": _imputer,
    "PolynomialFeatures": _polynomial,
    "PCA": _projection,
    "TruncatedSVD": _projection,
    "OneHotEncoder": _by_state,
    "OrdinalEncoder": _by_state,
    "TargetEncoder": _by_state,
    "KBinsDiscretizer": _by_state,
    "Binarizer": _by_state,
    "PowerTransformer": _by_state,
    "QuantileTransformer": _by_state,
}
