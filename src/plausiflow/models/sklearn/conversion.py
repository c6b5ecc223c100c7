"""From a fitted scikit-learn model to one of encoded rows with the same answers, and gradients.

The model may take the table's columns by name, or an array of all of them. A conversion is never believed:
the model itself is asked about rows of the table and about changed ones, and where the answers differ there
is no conversion, but a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import is_regressor
from torch import Tensor, nn

from plausiflow.core import Frozen
from plausiflow.models.base import check_columns
from plausiflow.models.sklearn.columns import Basis, Fitted, Refused, table_columns
from plausiflow.models.sklearn.comparison import Intake, require_same
from plausiflow.models.sklearn.estimators import estimator
from plausiflow.models.sklearn.preprocessing import kind_of
from plausiflow.tables import Encoder, plain

SAMPLE = 256
"""How many rows of a table are enough of a sample to compare answers on."""


@dataclass(eq=False, repr=False, kw_only=True)
class _Converted:
    module: nn.Module
    kind: str
    n_features: int
    _frozen: Frozen[nn.Module] = field(init=False)

    differentiable = True

    def __post_init__(self) -> None:
        self._frozen = Frozen(self.module)

    def _answers(self, x: Tensor) -> Tensor:
        check_encoded(x, self.n_features)
        answers: Tensor = self._frozen(x)(x)
        return answers


@dataclass(eq=False, repr=False, kw_only=True)
class ConvertedClassifier(_Converted):
    """A scikit-learn model as a classifier of encoded rows; made by :func:`convert`.

    Attributes:
        module: The model, ``(n, width) -> (n, k)``. It is never evaluated itself: ``logits`` uses frozen
            copies.
        kind: The model's class.
        n_features: Width of an encoded row.
        classes: Its labels, in its order.
        probabilities: The softmax of the logits is what the model predicts; else the model predicts no
            probabilities, and only the decision agrees, the largest logit.
    """

    classes: tuple[Any, ...]
    probabilities: bool

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def logits(self, x: Tensor) -> Tensor:
        """Log-probabilities, or margins, ``(n, width) -> (n, k)``.

        In x's dtype and on its device; keeps the graph.
        """
        return self._answers(x)

    def __repr__(self) -> str:
        answers = "probabilities" if self.probabilities else "decisions"
        return f"ConvertedClassifier({self.kind}, {self.n_classes} classes; {answers})"


@dataclass(eq=False, repr=False, kw_only=True)
class ConvertedRegressor(_Converted):
    """A scikit-learn model as a regressor of encoded rows; made by :func:`convert_regressor`.

    Attributes:
        module: The model, ``(n, width) -> (n, 1)``. It is never evaluated itself: ``values`` uses frozen
            copies.
        kind: The model's class.
        n_features: Width of an encoded row.
    """

    def values(self, x: Tensor) -> Tensor:
        """Predictions, ``(n, width) -> (n,)``; in x's dtype and on its device; keeps the graph."""
        return self._answers(x)[:, 0]

    def __repr__(self) -> str:
        return f"ConvertedRegressor({self.kind})"


@dataclass(frozen=True)
class Conversion:
    """A converted model, or the reason why there is none.

    Attributes:
        classifier: With the model's answers.
        reason: What could not be converted, and why; empty where there is a classifier.
    """

    classifier: ConvertedClassifier | None
    reason: str = ""


@dataclass(frozen=True)
class RegressorConversion:
    """A converted regressor, or the reason why there is none.

    Attributes:
        regressor: With the model's answers.
        reason: What could not be converted, and why; empty where there is a regressor.
    """

    regressor: ConvertedRegressor | None
    reason: str = ""


def convert(model: Fitted, encoder: Encoder, sample: pd.DataFrame, *, compared: bool = True) -> Conversion:
    """Convert a fitted scikit-learn classifier, exactly, or say why not.

    Args:
        model: An estimator or a pipeline. It is not changed.
        encoder: Of the table whose columns the model takes.
        sample: Some rows of the table, in the dtypes that the model is given, to compare answers on.
        compared: Whether to compare; a conversion that was believed before is made again without.

    Returns:
        A classifier whose answers for these rows, and for changed ones, differ from the model's by at most
        1e-6; or the reason why there is none.

    Raises:
        InvalidInputError: The sample has not the columns of the table.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> model = LogisticRegression().fit(frame, ["no", "yes", "yes", "no"])
        >>> encoder = Encoder(Schema.infer(frame))
        >>> convert(model, encoder, frame).classifier
        ConvertedClassifier(LogisticRegression, 2 classes; probabilities)
    """
    return Conversion(*_tried(_classifier, model, encoder, sample, compared))


def convert_regressor(
    model: Fitted, encoder: Encoder, sample: pd.DataFrame, *, compared: bool = True
) -> RegressorConversion:
    """Convert a fitted scikit-learn regressor, exactly, or say why not.

    Args:
        model: An estimator or a pipeline that predicts one number. It is not changed.
        encoder: Of the table whose columns the model takes.
        sample: Some rows of the table, in the dtypes that the model is given, to compare answers on.
        compared: Whether to compare; a conversion that was believed before is made again without.

    Returns:
        A regressor whose answers for these rows, and for changed ones, differ from the model's by at most
        1e-6, of their size where that is above one; or the reason why there is none.

    Raises:
        InvalidInputError: The sample has not the columns of the table.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> model = Ridge().fit(frame, [1200.0, 900.0, 1500.0, 400.0])
        >>> convert_regressor(model, Encoder(Schema.infer(frame)), frame).regressor
        ConvertedRegressor(Ridge)
    """
    return RegressorConversion(*_tried(_regressor, model, encoder, sample, compared))


def check_encoded(x: Tensor, n_features: int) -> None:
    """Raise unless these are encoded rows of this width."""
    check_columns(x, n_features, "rows as encoded by the encoder that the model was converted with")


C = TypeVar("C", bound=_Converted)


def _tried(
    make: Callable[[Fitted, Encoder, pd.DataFrame, bool], C],
    model: Fitted,
    encoder: Encoder,
    sample: pd.DataFrame,
    compared: bool,
) -> tuple[C | None, str]:
    """What is made of a model, or why nothing is."""
    encoder.encode(sample)  # raises where these are not rows of the table
    try:
        return make(model, encoder, sample, compared), ""
    except Refused as refusal:
        return None, str(refusal)


def _classifier(model: Fitted, encoder: Encoder, sample: pd.DataFrame, compared: bool) -> ConvertedClassifier:
    kind, classes = kind_of(model), getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) < 2:
        raise Refused(f"{kind} is not a classifier with one outcome of two classes or more")
    intake = Intake.of(model, encoder.schema.names)
    made = ConvertedClassifier(
        module=_module(model, intake, encoder, sample),
        kind=kind,
        n_features=encoder.layout.width,
        classes=tuple(map(plain, classes)),
        probabilities=hasattr(model, "predict_proba"),
    )
    if compared:
        require_same(made.logits, model, intake, encoder, sample)
    return made


def _regressor(model: Fitted, encoder: Encoder, sample: pd.DataFrame, compared: bool) -> ConvertedRegressor:
    kind = kind_of(model)
    if not is_regressor(model):
        raise Refused(f"{kind} is not a regressor")
    intake = Intake.of(model, encoder.schema.names)
    made = ConvertedRegressor(
        module=_module(model, intake, encoder, sample), kind=kind, n_features=encoder.layout.width
    )
    if compared:
        require_same(made.values, model, intake, encoder, sample)
    return made


def _module(model: Fitted, intake: Intake, encoder: Encoder, sample: pd.DataFrame) -> nn.Module:
    """The model as a module of encoded rows."""
    basis = Basis(encoder.layout)
    dtype = intake.rows(sample).dtype if intake.as_array else None
    columns = table_columns(encoder, sample, intake.names, dtype, basis)
    return nn.Sequential(basis, estimator(model, columns, basis))
