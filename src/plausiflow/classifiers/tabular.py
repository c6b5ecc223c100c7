"""A model of a table: what decides about encoded rows, and what its outcomes are called."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.classifiers.base import NetworkClassifier
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError, ShapeError
from plausiflow.losses import validity_value
from plausiflow.protocols import Classifier

_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class EncodedModel:
    """A classifier of encoded rows and the labels of its classes, in the model's order."""

    classifier: Classifier
    labels: tuple[Any, ...]

    @property
    def n_classes(self) -> int:
        """How many outcomes there are."""
        return len(self.labels)

    @torch.no_grad()
    def proba(self, x: Tensor) -> Tensor:
        """Probabilities of encoded rows ``(n, width)``, double, shape ``(n, k)``; NaN where it has none."""
        return torch.cat([self._tried(block) for block in x.double().split(_BLOCK)])

    def _tried(self, x: Tensor) -> Tensor:
        try:
            return _logits(self.classifier, x).double().softmax(dim=1)
        except ModelError:  # a row that the model cannot take must not take the others with it
            if len(x) <= 1:
                return x.new_full((len(x), self.n_classes), torch.nan)
            return torch.cat([self._tried(half) for half in x.tensor_split(2)])

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class, shape ``(n,)``."""
        return self.proba(x).argmax(dim=1)

    def named(self, classes: Tensor, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
        """The labels of classes ``(n,)``, ``None`` where they are not ``known``, objects, shape ``(n,)``."""
        labels = np.array([*self.labels, None], dtype=object)
        return cast(npt.NDArray[np.object_], labels[np.where(known, classes.numpy(), -1)])


@dataclass(frozen=True)
class Decides:
    """Whether a model decides as wanted: ``decides(x, y_target)`` is not negative where it does, ``(n,)``.

    Attributes:
        classifier: Of encoded rows.
        margin: By how much the wanted class must win.
    """

    classifier: Classifier
    margin: float

    def __call__(self, x: Tensor, y_target: Tensor) -> Tensor:
        """How far the wanted class is ahead, in logits; keeps the graph."""
        return validity_value(_logits(self.classifier, x), y_target, self.margin)


def labels_of(y: Sequence[Any] | pd.Series | np.ndarray, n_rows: int) -> tuple[tuple[Any, ...], Tensor]:
    """The outcomes in sorted order and the class of each row, numbered by it, long, shape ``(n,)``.

    Raises:
        ShapeError: There are more outcomes than rows, or fewer.
        InvalidInputError: These are no outcomes; the message lists everything.
    """
    values = _column(y)
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
    if pd.api.types.is_float_dtype(values.dtype) and len(labels) > max(20, n_rows // 10):
        problems.append(
            f"`y` looks like a number to be predicted, with {len(labels)} different values; outcomes are "
            "expected. Cut it into classes"
        )
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
    own = tuple(label.item() if isinstance(label, np.generic) else label for label in labels)
    return own, torch.from_numpy(codes.astype(np.int64))


def _column(y: object) -> pd.Series:
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


def as_model(model: object, x: Tensor, y: Tensor, labels: tuple[Any, ...]) -> EncodedModel:
    """The model with its labels; one of our networks that is not trained yet is trained, as a copy."""
    if isinstance(model, NetworkClassifier) and not model.n_classes:
        model = copy.deepcopy(model).fit(x.float(), y, n_classes=len(labels))
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
    made = EncodedModel(model, labels)
    _check_answers(made, x)
    return made


def _logits(classifier: Classifier, x: Tensor) -> Tensor:
    """What the user's model says, or an error of ours."""
    try:
        return classifier.logits(x)
    except PlausiflowError:
        raise
    except Exception as error:
        raise ModelError(
            f"`model.logits` raised {type(error).__name__} for encoded rows of shape {tuple(x.shape)}: "
            f"{error}. It must take any number of rows as they are encoded, in double precision."
        ) from error


@torch.no_grad()
def _check_answers(model: EncodedModel, x: Tensor) -> None:
    """Raise unless the model decides the rows that it is to be explained on."""
    some = x[:_BLOCK].double()
    logits = _logits(model.classifier, some)
    expected = (len(some), model.n_classes)
    if not isinstance(logits, Tensor) or logits.shape != expected or not logits.is_floating_point():
        shape = f" of shape {tuple(logits.shape)}, {logits.dtype}" if isinstance(logits, Tensor) else ""
        raise ModelError(
            f"`model.logits` must return a float tensor of shape {expected}, one logit for each row and "
            f"outcome; got {type(logits).__name__}{shape}."
        )
    wrong = int(logits.softmax(dim=1).isnan().any(dim=1).sum())
    if wrong:
        raise ModelError(
            f"`model.logits` must be finite; {wrong} of {len(some)} training rows have logits that are not. "
            "Look for logarithms and divisions in the model."
        )
