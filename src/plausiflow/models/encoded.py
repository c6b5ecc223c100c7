"""A model of a table: what decides about encoded rows, and what its outcomes are called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Classifier, HasValueAndGrad, Pullback, Regressor
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError, ShapeError
from plausiflow.models.base import NetworkClassifier

_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class EncodedModel:
    """A model of encoded rows that has gradients.

    Attributes:
        model: A classifier or a regressor.
        labels: Of a classifier's classes, in the model's order; none for a regressor.
        description: What the user's model was taken for.
    """

    model: Classifier | Regressor
    labels: tuple[Any, ...]
    description: str = ""

    def outputs(self, x: Tensor) -> Tensor:
        """Logits ``(n, k)`` of a classifier, predictions ``(n,)`` of a regressor; keeps the graph."""
        outputs: Tensor = self._called("logits" if self.labels else "values", x)
        return outputs

    @property
    def value_and_grad(self) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Outputs of rows with their gradients, where the model knows these without a graph."""
        return partial(self._called, "value_and_grad") if isinstance(self.model, HasValueAndGrad) else None

    def _called(self, method: str, x: Tensor) -> Any:  # noqa: ANN401
        """What the user's model description, or an error of ours."""
        try:
            return getattr(self.model, method)(x)
        except PlausiflowError:
            raise
        except Exception as error:
            raise ModelError(
                f"`model.{method}` raised {type(error).__name__} for encoded rows of shape {tuple(x.shape)}: "
                f"{error}. It must take any number of rows as they are encoded, in double precision."
            ) from error

    @torch.no_grad()
    def answers(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Log-probabilities ``(n, k)``, or predictions ``(n,)``, double; NaN where there are none.

        Args:
            x: Encoded rows, shape ``(n, width)``.
            frame: The rows themselves, which only a model without gradients asks for.
        """
        return torch.cat([self._tried(block) for block in x.double().split(_BLOCK)])

    def _tried(self, x: Tensor) -> Tensor:
        try:
            outputs = self.outputs(x).double()
            return outputs if outputs.ndim == 1 else outputs.log_softmax(dim=1)
        except ModelError:  # a row that the model cannot take must not take the others with it
            if len(x) <= 1:
                return x.new_full((len(x), len(self.labels)) if self.labels else (len(x),), torch.nan)
            return torch.cat([self._tried(half) for half in x.tensor_split(2)])


def labels_of(y: Sequence[Any] | pd.Series | np.ndarray, n_rows: int) -> tuple[tuple[Any, ...], Tensor]:
    """The outcomes in sorted order and the class of each row, numbered by it, long, shape ``(n,)``.

    Raises:
        ShapeError: There are more outcomes than rows, or fewer.
        InvalidInputError: These are no outcomes; the message lists everything.
    """
    values = column_of(y)
    if len(values) != n_rows:
        raise ShapeError(f"`y` must have {n_rows} outcomes, one for each row; got {len(values)}.")
    try:
        codes, labels = pd.factorize(values, sort=True)
    except TypeError:
        types = ", ".join(sorted({type(value).__name__ for value in values}))
        raise InvalidInputError(
            f"`y` must hold outcomes that can be sorted, such as text, numbers or booleans; got {types}. "
            "Name them: y.map(str)."
        ) from None
    problems = []
    missing = int((codes < 0).sum())
    if missing:
        problems.append(f"`y` must have an outcome for every row; {missing} are missing. Drop these rows")
    if len(labels) < 2:
        problems.append(
            f"`y` must hold at least two outcomes to choose between; got {len(labels)}. Give rows of each"
        )
    if is_measured(values):
        problems.append(
            f"`y` looks like a number to be predicted, with {len(labels)} different values; outcomes are "
            "expected. Give a regressor, or cut it into classes"
        )
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
    own = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    return own, torch.from_numpy(codes.astype(np.int64))


def is_measured(y: object) -> bool:
    """Whether outcomes look like a number to be predicted: many different ones, not all whole."""
    values = column_of(y)
    if not pd.api.types.is_float_dtype(values.dtype):
        return False
    return bool(values.nunique() > max(20, len(values) // 10))


def numbers_of(y: object, n_rows: int) -> Tensor:
    """Outcomes that are numbers, double, shape ``(n,)``.

    Raises:
        ShapeError: There are more outcomes than rows, or fewer.
        InvalidInputError: They are not numbers, or not finite, or all the same.
    """
    values = pd.to_numeric(column_of(y), errors="coerce").to_numpy(np.float64, copy=True)
    if len(values) != n_rows:
        raise ShapeError(f"`y` must have {n_rows} outcomes, one for each row; got {len(values)}.")
    wrong = int((~np.isfinite(values)).sum())
    if wrong or len(np.unique(values)) < 2:
        raise InvalidInputError(
            f"`y` must hold finite numbers that differ, for a model that predicts a number; {wrong} of "
            f"{n_rows} are not, and {len(np.unique(values))} different ones are there. Drop rows without one."
        )
    return torch.tensor(values)


def column_of(y: object) -> pd.Series:
    """Outcomes as a column, numbered anew."""
    try:
        if not isinstance(y, Mapping):
            values: pd.Series = pd.Series(y)
            return values.reset_index(drop=True)
    except (TypeError, ValueError, NotImplementedError):
        pass
    raise InvalidInputError(
        f"`y` must be one column of outcomes, one for each row; got {type(y).__name__}. Give a Series or a "
        'list, such as frame["outcome"].'
    )


def in_order(
    labels: tuple[Any, ...], classes: Tensor, order: tuple[Any, ...] | None
) -> tuple[tuple[Any, ...], Tensor]:
    """Outcomes and classes in the order of a model that has its own, as :func:`labels_of` gives them."""
    if order is None:
        return labels, classes
    unknown = [repr(label) for label in labels if label not in order]
    if unknown:
        raise InvalidInputError(
            f"`y` must hold outcomes that the model knows, {', '.join(map(repr, order))}; got "
            f"{', '.join(unknown[:10])}. Give the outcomes as the model was trained on them."
        )
    place = torch.tensor([order.index(label) for label in labels])
    return tuple(order), place[classes]


def as_model(
    model: object, x: Tensor, y: Tensor, labels: tuple[Any, ...], description: str = ""
) -> EncodedModel:
    """The model with its labels; one of our networks that is not trained yet is trained, as a copy."""
    if isinstance(model, NetworkClassifier):
        description = description or f"a network of plausiflow, {type(model).__name__}"
        if not model.n_classes:
            model = copy.deepcopy(model).fit(x.float(), y, n_classes=len(labels))
            description += ", trained on the table"
    if not isinstance(model, Classifier):
        raise InvalidInputError(
            "`model` must be a classifier of encoded rows, with `n_classes`, `differentiable` and "
            f"`logits(x)`; got {type(model).__name__}. Give one of plausiflow's own, such as "
            "`MLPClassifier()`, which is trained on the table."
        )
    if model.n_classes != len(labels):
        raise InvalidInputError(
            f"`model` must decide between the {len(labels)} outcomes of `y`, "
            f"{', '.join(map(repr, labels))}; it has {model.n_classes} classes."
        )
    known = getattr(model, "n_features", 0)
    if known and known != x.shape[1]:
        raise ModelError(
            f"`model` must take the {x.shape[1]} columns of an encoded row; it was trained on {known}. Give "
            "it untrained: it is then trained on the table."
        )
    made = EncodedModel(model, labels, description or f"a classifier of encoded rows, {type(model).__name__}")
    _check_answers(made, x)
    return made


def as_regressor(model: object, x: Tensor, description: str = "") -> EncodedModel:
    """A regressor of encoded rows."""
    if not isinstance(model, Regressor):
        raise InvalidInputError(
            f"`model` must predict a number for encoded rows, with `values(x)`; got {type(model).__name__}."
        )
    made = EncodedModel(model, (), description or f"a regressor of encoded rows, {type(model).__name__}")
    _check_answers(made, x)
    return made


@torch.no_grad()
def _check_answers(model: EncodedModel, x: Tensor) -> None:
    """Raise unless the model decides the rows that it is to be explained on."""
    some = x[:_BLOCK].double()
    outputs = model.outputs(some)
    expected = (len(some), len(model.labels)) if model.labels else (len(some),)
    method, what = (
        ("logits", "one logit for each row and outcome") if model.labels else ("values", "one a row")
    )
    if not isinstance(outputs, Tensor) or outputs.shape != expected or not outputs.is_floating_point():
        shape = f" of shape {tuple(outputs.shape)}, {outputs.dtype}" if isinstance(outputs, Tensor) else ""
        raise ModelError(
            f"`model.{method}` must return a float tensor of shape {expected}, {what}; got "
            f"{type(outputs).__name__}{shape}."
        )
    fine = torch.isfinite(outputs) if outputs.ndim == 1 else ~outputs.softmax(dim=1).isnan().any(dim=1)
    wrong = int((~fine).sum())
    if wrong:
        raise ModelError(
            f"`model.{method}` must be finite; {wrong} of {len(some)} training rows have {method} that are "
            "not. Look for logarithms and divisions in the model."
        )
