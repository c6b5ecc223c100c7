"""What a user's model is taken for.

In this order: a classifier or regressor of encoded rows; a torch module of the table's columns; a
scikit-learn model that can be converted exactly; and anything else that answers, with a likeness that has
gradients. Each can be asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import pandas as pd
import torch
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from torch import Tensor, nn

from plausiflow.core import Classifier, Regressor
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.base import NetworkClassifier
from plausiflow.models.black_box import BlackBox, black_box
from plausiflow.models.encoded import EncodedModel, as_model, as_regressor, column_of, is_measured, labels_of
from plausiflow.models.predictor import Predictor, asked
from plausiflow.models.sklearn.columns import Refused
from plausiflow.models.sklearn.conversion import SAMPLE, convert, convert_regressor
from plausiflow.models.torch_module import torch_classifier, torch_regressor
from plausiflow.tables import Encoder, plain

ModelType: TypeAlias = Literal["auto", "logits", "probabilities", "exact", "trees", "student"]
"""``auto``: the first that fits. ``logits`` or ``probabilities``: what a torch module returns. ``exact``: a
conversion. ``trees``: the model's own trees, relaxed. ``student``: trees that imitate it, relaxed."""


def predicts_numbers(model: object, y: object) -> bool:
    """Whether a model is a regressor; where it does not say, whether outcomes look like measured numbers."""
    if _of_encoded_rows(model):
        return isinstance(model, Regressor) and not isinstance(model, Classifier)
    if isinstance(model, BaseEstimator):
        if is_regressor(model):
            return True
        if is_classifier(model):
            return False
    if getattr(model, "_estimator_type", None) == "regressor":  # CatBoost has `classes_` all the same
        return True
    if hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        return False
    return y is not None and is_measured(y)


def _of_encoded_rows(model: object) -> bool:
    """Whether a model takes encoded rows; a torch module is one of the table unless it is a classifier."""
    if isinstance(model, Classifier | NetworkClassifier):
        return True
    return isinstance(model, Regressor) and not isinstance(model, nn.Module)


class ModelResolver:
    """A model on its way to be one that a search can use.

    Args:
        model: As it came.
        model_type: What it must be taken for.
        encoder: Of the table.
        frame: Training rows.
    """

    def __init__(self, model: object, model_type: ModelType, encoder: Encoder, frame: pd.DataFrame) -> None:
        if model_type not in get_args(ModelType):
            raise InvalidInputError(
                f"`model_type` must be one of {', '.join(get_args(ModelType))}; got {model_type!r}."
            )
        self.model, self.model_type, self.encoder, self.frame = model, model_type, encoder, frame
        self.reason = ""
        self._asked: Predictor | None = None
        self._exact: Any = None

    def own_labels(self) -> tuple[Any, ...]:
        """The outcomes that the model itself names, where none are given."""
        classes = getattr(self.model, "classes_", None)
        if classes is not None:
            return tuple(map(plain, classes))
        count = int(getattr(self.model, "n_classes", 0))
        if count:
            return tuple(range(count))
        raise InvalidInputError(
            f"`y` must tell the outcomes that {type(self.model).__name__} decides between; the model does "
            "not name them itself. Give the outcomes of some rows, and None for the others."
        )

    def outcomes(
        self, y: Sequence[Any] | pd.Series | None, n: int, *, needed: bool
    ) -> tuple[tuple[Any, ...], Tensor, Tensor]:
        """Labels, the class of each of n rows, and which have one; those without are of the first class.

        Args:
            y: Outcomes; where they are not ``needed``, some may be missing, or all.
            n: How many rows there are.
            needed: Every row must have one.
        """
        everyone = torch.ones(n, dtype=torch.bool)
        if needed:
            if y is None:
                raise InvalidInputError(
                    '`y` must hold the outcomes of the rows; it was left out. Give it, or set labels="model" '
                    'or "bayes"; the density then learns from what the model decides.'
                )
            return (*labels_of(y, n), everyone)
        if y is None:
            return self.own_labels(), torch.zeros(n, dtype=torch.long), everyone
        column = column_of(y)
        if len(column) != n:
            raise ShapeError(f"`y` must have {n} outcomes, one for each row; got {len(column)}.")
        known = torch.tensor(column.notna().to_numpy())
        classes = torch.zeros(n, dtype=torch.long)
        labels, classes[known] = labels_of(column[column.notna()], int(known.sum()))
        return labels, classes, known

    def labels(self, labels: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """The outcomes in the model's own order, where it has one; none for a regressor.

        Args:
            labels: Those of the training rows, sorted; nothing for a regressor.
        """
        if _of_encoded_rows(self.model) or isinstance(self.model, nn.Module):
            return labels
        if isinstance(self.model, BaseEstimator) and self.model_type in ("auto", "exact"):
            sample = self.frame.iloc[:SAMPLE]
            if labels is None:
                made = convert_regressor(self.model, self.encoder, sample)
                self._exact, self.reason = made.regressor, made.reason
            else:
                conversion = convert(self.model, self.encoder, sample)
                self._exact, self.reason = conversion.classifier, conversion.reason
        if self._exact is not None:
            return None if labels is None else cast(tuple[Any, ...], self._exact.classes)
        if self.model_type == "exact":
            raise InvalidInputError(
                f"`model` is to be converted exactly, and {type(self.model).__name__} cannot: "
                f"{self.reason or 'only scikit-learn models can'}. Leave `model_type` out: it is then "
                "explained without gradients."
            )
        self._asked = asked(self.model, self.frame, labels)
        return None if labels is None else self._asked.labels

    def classifier(
        self, x: Tensor, classes: Tensor, known: Tensor, labels: tuple[Any, ...], seed: int
    ) -> EncodedModel | BlackBox:
        """The model, which decides between labels.

        Args:
            x: Training rows, encoded.
            classes: Their labels, by number.
            known: Which rows have one, shape ``(n,)`` bool.
            labels: In the model's order.
            seed: Of what is learned.
        """
        if self._asked is not None:
            return self._black_box(x, seed)
        rows, own = x[known], classes[known]
        if self._exact is not None:
            return as_model(self._exact, rows, own, labels, f"{self._exact.kind}, converted exactly")
        if isinstance(self.model, nn.Module) and not _of_encoded_rows(self.model):
            output = self.model_type if self.model_type in ("logits", "probabilities") else "auto"
            made = torch_classifier(self.model, self.encoder, self.frame, len(labels), output)
            return as_model(made, rows, own, labels, made.description)
        return as_model(self.model, rows, own, labels)

    def regressor(self, x: Tensor, seed: int) -> EncodedModel | BlackBox:
        """The model, which predicts a number."""
        if self._asked is not None:
            return self._black_box(x, seed)
        if self._exact is not None:
            return as_regressor(self._exact, x, f"{self._exact.kind}, converted exactly")
        if isinstance(self.model, nn.Module) and not _of_encoded_rows(self.model):
            made = torch_regressor(self.model, self.encoder, self.frame)
            return as_regressor(made, x, made.description)
        return as_regressor(self.model, x)

    def _black_box(self, x: Tensor, seed: int) -> BlackBox:
        assert self._asked is not None
        outputs = self._asked.outputs(self.frame)
        # Segments of the student's rows lead to another class, or of a number to the other half.
        classes = outputs.argmax(dim=1) if outputs.ndim == 2 else (outputs > outputs.median()).long()
        student = {"trees": False, "student": True}.get(self.model_type)
        try:
            return black_box(
                self.model, self._asked, self.encoder, self.frame, x, classes, student=student, seed=seed
            )
        except Refused as refusal:
            raise InvalidInputError(
                f"`model` is to be taken for its trees, and {type(self.model).__name__} cannot: {refusal}. "
                "Leave `model_type` out: a student of trees then leads the search."
            ) from refusal
