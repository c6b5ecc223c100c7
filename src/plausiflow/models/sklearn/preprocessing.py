"""Exact conversion of fitted scikit-learn preprocessing, from columns over the basis to such columns.

This module chains steps and combines them side by side; single transformers are in
:mod:`plausiflow.models.sklearn.transformers`. Unknown steps are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from plausiflow.models.sklearn.columns import Basis, Fitted, ModelColumn, UnsupportedModelError
from plausiflow.models.sklearn.transformers import TRANSFORMERS


def transform_columns(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    """Return the columns that a fitted transformer computes; nonlinear ones extend the basis."""
    if step is None or isinstance(step, str):
        return columns
    kind = sklearn_class_name(step)
    check_column_count(step, columns)
    if kind in _COMBINATORS:
        return _COMBINATORS[kind](step, columns, basis)
    if kind in TRANSFORMERS:
        return TRANSFORMERS[kind](step, [column.require_known() for column in columns], basis)
    if isinstance(step, SelectorMixin):
        return [columns[i] for i in step.get_support(indices=True)]
    raise UnsupportedModelError(f"{kind} is a transformer that cannot be converted exactly")


def sklearn_class_name(model: Fitted) -> str:
    """Return the class name of an object; raise unless it is of scikit-learn and fitted."""
    kind = type(model)
    if kind.__module__.partition(".")[0] != "sklearn":
        raise UnsupportedModelError(f"{kind.__name__} is not a class of scikit-learn")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise UnsupportedModelError(f"{kind.__name__} is not fitted") from None
    return kind.__name__


def check_column_count(model: Fitted, columns: list[ModelColumn]) -> None:
    """Refuse columns that are not as many as a fitted object expects."""
    expected = getattr(model, "n_features_in_", len(columns))
    if expected != len(columns):
        raise UnsupportedModelError(
            f"{type(model).__name__} takes {expected} columns, and {len(columns)} lead to it"
        )


def _pipeline(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    for _, inner in step.steps:
        columns = transform_columns(inner, columns, basis)
    return columns


def _column_transformer(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    names = getattr(step, "feature_names_in_", ())
    parts = [
        (name, inner, [columns[i] for i in column_positions(chosen, names, len(columns))])
        for name, inner, chosen in step.transformers_
    ]
    return _side_by_side(step, [part for part in parts if part[2]], basis)


def column_positions(chosen: Any, names: Iterable[str], n: int) -> list[int]:  # noqa: ANN401
    """Return which of ``n`` columns are chosen by labels, numbers, a slice of either, or a mask.

    Example:
        >>> column_positions(slice("b", "c"), ["a", "b", "c"], 3), column_positions([0, -1], (), 3)
        ([1, 2], [0, 2])
    """
    at = {name: i for i, name in enumerate(names)}
    if isinstance(chosen, slice):
        last = at[chosen.stop] + 1 if chosen.stop in at else chosen.stop  # a slice of labels includes its end
        return list(range(n))[at.get(chosen.start, chosen.start) : last : chosen.step]
    listed: list[Any] = [chosen] if isinstance(chosen, str | int | np.integer) else list(chosen)
    if listed and all(isinstance(item, bool | np.bool_) for item in listed):
        return [i for i, item in enumerate(listed) if item]
    return [at[item] if item in at else range(n)[item] for item in listed]


def _feature_union(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    return _side_by_side(step, [(name, inner, columns) for name, inner in step.transformer_list], basis)


def _side_by_side(
    step: Fitted, parts: list[tuple[str, Fitted, list[ModelColumn]]], basis: Basis
) -> list[ModelColumn]:
    """Concatenate the outputs of named transformers, times the weights of the step."""
    weights, result = step.transformer_weights or {}, []
    for name, inner, given in parts:
        if isinstance(inner, str) and inner == "drop":
            continue
        made, weight = transform_columns(inner, given, basis), weights.get(name)
        result += made if weight is None else [column.require_known().affine(weight, 0.0) for column in made]
    return result


def _function(step: Fitted, columns: list[ModelColumn], basis: Basis) -> list[ModelColumn]:
    if step.func is not None:
        raise UnsupportedModelError(f"FunctionTransformer calls {step.func!r}, which cannot be converted")
    return columns


_COMBINATORS: dict[str, Callable[[Fitted, list[ModelColumn], Basis], list[ModelColumn]]] = {
    "Pipeline": _pipeline,
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "FunctionTransformer": _function,
}
