"""The outcomes ``y`` of training rows, read as class numbers or as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import to_python

T = TypeVar("T")


def pair_outcomes(index: pd.Index, y: T) -> T | pd.Series:
    """Return outcomes in the order of the rows: a Series with the labels of the rows is paired by its index.

    Anything else, and a Series without labels of its own (numbered 0, 1, ... while the rows are not, or the
    other way round), keeps its order.

    Example:
        >>> pair_outcomes(pd.Index(["b", "a"]), pd.Series([1, 2], index=["a", "b"])).tolist()
        [2, 1]
    """
    if not isinstance(y, pd.Series) or len(y) != len(index) or y.index.equals(index):
        return y
    known = y.index.isin(index)
    if known.all() and index.is_unique and y.index.is_unique:
        return y.loc[index]
    numbered = pd.RangeIndex(len(index))
    if not known.any() and (index.equals(numbered) or y.index.equals(numbered)):
        return y
    raise InvalidInputError(
        "`y` must have the index of `x`, in any order, so that each row gets its own outcome; "
        f"{int((~known).sum())} of {len(y)} labels of `y` are not labels of `x`, or some are repeated. "
        "Select the same rows of both, or pass `y.to_numpy()` if they are in the same order."
    )


def encode_labels(y: Sequence[Any] | pd.Series | np.ndarray, n_rows: int) -> tuple[tuple[Any, ...], Tensor]:
    """Return the sorted labels and the class number of each row, long, shape ``(n,)``."""
    values = _as_series(y, n_rows)
    try:
        codes, labels = pd.factorize(values, sort=True)
    except TypeError:
        types = ", ".join(sorted({type(value).__name__ for value in values}))
        raise InvalidInputError(
            f"`y` must hold outcomes that can be sorted, such as text, numbers or booleans; got {types}. "
            "Convert them to text: `y.map(str)`."
        ) from None
    problems = []
    if missing := int((codes < 0).sum()):
        problems.append(f"`y` must have an outcome for every row; {missing} are missing. Drop these rows")
    if len(labels) < 2:
        problems.append(f"`y` must hold at least two outcomes; got {len(labels)}. Add rows of each outcome")
    if is_continuous(values):
        problems.append(
            f"`y` must hold class labels for a classifier; it looks like a number, with {len(labels)} "
            "different values. Use a regressor, or cut `y` into classes"
        )
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
    return tuple(map(to_python, labels)), torch.from_numpy(codes.astype(np.int64))


def encode_known_labels(
    y: Sequence[Any] | pd.Series | np.ndarray, n_rows: int
) -> tuple[tuple[Any, ...], Tensor, Tensor]:
    """Return labels and classes as :func:`encode_labels`, and which rows have an outcome, bool ``(n,)``.

    Rows without an outcome get class 0.
    """
    values = _as_series(y, n_rows)
    known = torch.tensor(values.notna().to_numpy())
    classes = torch.zeros(n_rows, dtype=torch.long)
    labels, classes[known] = encode_labels(values[values.notna()], int(known.sum()))
    return labels, classes, known


def is_continuous(y: object) -> bool:
    """Return whether outcomes look like a regression target: floats with many different values."""
    values = _as_series(y)
    return bool(pd.api.types.is_float_dtype(values.dtype) and values.nunique() > max(20, len(values) // 10))


def parse_values(y: object, n_rows: int) -> Tensor:
    """Return the values of a regression target, finite and not all equal; double, shape ``(n,)``."""
    values = pd.to_numeric(_as_series(y, n_rows), errors="coerce").to_numpy(np.float64, copy=True)
    wrong = int((~np.isfinite(values)).sum())
    if wrong or len(np.unique(values)) < 2:
        raise InvalidInputError(
            f"`y` must hold finite numbers that differ, for a regressor; {wrong} of {n_rows} are not finite, "
            f"with {len(np.unique(values))} different values. Drop rows without a number."
        )
    return torch.tensor(values)


def reorder_classes(
    labels: tuple[Any, ...], classes: Tensor, order: tuple[Any, ...] | None
) -> tuple[tuple[Any, ...], Tensor]:
    """Return labels and class numbers in the order of the model; ``order`` is None if it has none."""
    if order is None:
        return labels, classes
    unknown = [repr(label) for label in labels if label not in order]
    if unknown:
        raise InvalidInputError(
            f"`y` must hold outcomes that the model knows, {', '.join(map(repr, order))}; got "
            f"{', '.join(unknown[:10])}. Use the outcomes that the model was trained on."
        )
    position = torch.tensor([order.index(label) for label in labels])
    return tuple(order), position[classes]


def _as_series(y: object, n_rows: int | None = None) -> pd.Series:
    """Return outcomes as a Series with a range index; check their number if ``n_rows`` is given."""
    try:
        if isinstance(y, Mapping):
            raise TypeError
        values: pd.Series = pd.Series(y).reset_index(drop=True)
    except (TypeError, ValueError, NotImplementedError):
        raise InvalidInputError(
            f"`y` must be one column of outcomes, one for each row; got {type(y).__name__}. Use a Series or "
            'a list, such as `frame["outcome"]`.'
        ) from None
    if n_rows is not None and len(values) != n_rows:
        raise ShapeError(f"`y` must have {n_rows} outcomes, one for each row; got {len(values)}.")
    return values
