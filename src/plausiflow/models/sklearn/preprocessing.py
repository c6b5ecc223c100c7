"""Fitted preprocessing of scikit-learn, exactly: from columns over the basis to columns over the basis.

Here is how steps are chained and put side by side; what a single step does is in
:mod:`plausiflow.models.sklearn.transformers`. Nothing is guessed: a step that is not known is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from plausiflow.models.sklearn.columns import Basis, Column, Fitted, Refused
from plausiflow.models.sklearn.transformers import MAPS


def transform(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    """The columns that a fitted transformer makes of columns.

    Args:
        step: The transformer, or "passthrough".
        columns: As many as it takes, in its order.
        basis: What columns are written over; it grows where the transformer is not linear.

    Raises:
        Refused: It cannot be converted exactly.
    """
    if step is None or isinstance(step, str):
        return columns
    kind = kind_of(step)
    expected = getattr(step, "n_features_in_", len(columns))
    if expected != len(columns):
        raise Refused(f"{kind} takes {expected} columns, and {len(columns)} lead to it")
    if kind in _ROUTES:
        return _ROUTES[kind](step, columns, basis)
    if kind in MAPS:
        return MAPS[kind](step, [column.known() for column in columns], basis)
    if isinstance(step, SelectorMixin):
        return [columns[i] for i in step.get_support(indices=True)]
    raise Refused(f"{kind} is a transformer that cannot be converted exactly")


def kind_of(model: Fitted) -> str:
    """The name of the class of a fitted object of scikit-learn.

    Raises:
        Refused: It is another's, or not fitted.
    """
    kind = type(model)
    if kind.__module__.partition(".")[0] != "sklearn":
        raise Refused(f"{kind.__name__} is not a class of scikit-learn")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise Refused(f"{kind.__name__} is not fitted") from None
    return kind.__name__


def _pipeline(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    for _, inner in step.steps:
        columns = transform(inner, columns, basis)
    return columns


def _column_transformer(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    weights, names = step.transformer_weights or {}, getattr(step, "feature_names_in_", ())
    result: list[Column] = []
    for name, inner, chosen in step.transformers_:
        given = [columns[i] for i in positions(chosen, names, len(columns))]
        if given and not _is_dropped(inner):
            result += _weighted(transform(inner, given, basis), weights.get(name))
    return result


def positions(chosen: Any, names: Iterable[str], n: int) -> list[int]:  # noqa: ANN401
    """Which of ``n`` columns are chosen by labels, numbers, a slice of either, or a mask.

    Example:
        >>> positions(slice("b", "c"), ["a", "b", "c"], 3), positions([0, -1], (), 3)
        ([1, 2], [0, 2])
    """
    at = {name: i for i, name in enumerate(names)}
    if isinstance(chosen, slice):
        last = at[chosen.stop] + 1 if chosen.stop in at else chosen.stop  # a label's slice includes it
        return list(range(n))[at.get(chosen.start, chosen.start) : last : chosen.step]
    listed: list[Any] = [chosen] if isinstance(chosen, str | int | np.integer) else list(chosen)
    if listed and all(isinstance(item, bool | np.bool_) for item in listed):
        return [i for i, item in enumerate(listed) if item]
    return [at[item] if item in at else range(n)[item] for item in listed]


def _feature_union(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    weights = step.transformer_weights or {}
    result: list[Column] = []
    for name, inner in step.transformer_list:
        if not _is_dropped(inner):
            result += _weighted(transform(inner, columns, basis), weights.get(name))
    return result


def _is_dropped(step: Fitted) -> bool:
    return isinstance(step, str) and step == "drop"


def _weighted(columns: list[Column], weight: float | None) -> list[Column]:
    return columns if weight is None else [column.known().affine(weight, 0.0) for column in columns]


def _function(step: Fitted, columns: list[Column], basis: Basis) -> list[Column]:
    if step.func is not None:
        raise Refused(f"FunctionTransformer calls {step.func!r}, of which nothing is known")
    return columns


_ROUTES: dict[str, Callable[[Fitted, list[Column], Basis], list[Column]]] = {
    "Pipeline": _pipeline,
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "FunctionTransformer": _function,
}
