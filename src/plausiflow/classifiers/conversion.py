"""From a fitted scikit-learn model to a classifier of encoded rows with the same answers, and gradients.

The model may take the table's columns by name, or an array of all of them. A conversion is never believed:
the model itself is asked about rows of the table and about changed ones, and where the answers differ there
is no conversion, but a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from plausiflow.classifiers.columns import Basis, Fitted, Refused, table_columns
from plausiflow.classifiers.comparison import Intake, largest_difference
from plausiflow.classifiers.estimators import estimator
from plausiflow.classifiers.preprocessing import kind_of
from plausiflow.data.encoding import Encoder
from plausiflow.data.features import plain
from plausiflow.data.grids import precision
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.frozen import Frozen

TOLERANCE = 1e-6
"""How far probabilities of a conversion may be from the model's own."""
SAMPLE = 256


@dataclass(eq=False, repr=False, kw_only=True)
class ConvertedClassifier:
    """A scikit-learn model as a classifier of encoded rows; made by :func:`convert`.

    Attributes:
        module: The model, ``(n, width) -> (n, k)``. It is never evaluated itself: ``logits`` uses frozen
            copies.
        kind: The model's class.
        classes: Its labels, in its order.
        n_features: Width of an encoded row.
        probabilities: The softmax of the logits is what the model predicts; else the model predicts no
            probabilities, and only the decision agrees, the largest logit.
    """

    module: nn.Module
    kind: str
    classes: tuple[Any, ...]
    n_features: int
    probabilities: bool
    _frozen: Frozen[nn.Module] = field(init=False)

    differentiable = True

    def __post_init__(self) -> None:
        self._frozen = Frozen(self.module)

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def logits(self, x: Tensor) -> Tensor:
        """Log-probabilities, or margins, ``(n, width) -> (n, k)``.

        In x's dtype and on its device; keeps the graph.
        """
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise ShapeError(
                f"`x` must have shape (n, {self.n_features}), rows as encoded by the encoder that the model "
                f"was converted with; got {tuple(x.shape)}. A single row needs `x[None]`."
            )
        if not x.is_floating_point():
            raise InvalidInputError(
                f"`x` must be a float tensor; got {x.dtype}. Convert it with `x.double()`."
            )
        logits: Tensor = self._frozen(x)(x)
        return logits

    def __repr__(self) -> str:
        answers = "probabilities" if self.probabilities else "decisions"
        return f"ConvertedClassifier({self.kind}, {self.n_classes} classes; {answers})"


@dataclass(frozen=True)
class Conversion:
    """A converted model, or the reason why there is none.

    Attributes:
        classifier: With the model's answers.
        reason: What could not be converted, and why; empty where there is a classifier.
    """

    classifier: ConvertedClassifier | None
    reason: str = ""


def convert(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> Conversion:
    """Convert a fitted scikit-learn classifier, exactly, or say why not.

    Args:
        model: An estimator or a pipeline. It is not changed.
        encoder: Of the table whose columns the model takes.
        sample: Some rows of the table, in the dtypes that the model is given, to compare answers on.

    Returns:
        A classifier whose answers for these rows, and for changed ones, differ from the model's by at most
        1e-6; or the reason why there is none.

    Raises:
        InvalidInputError: The sample has not the columns of the table.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from plausiflow.data.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> model = LogisticRegression().fit(frame, ["no", "yes", "yes", "no"])
        >>> encoder = Encoder(Schema.infer(frame))
        >>> convert(model, encoder, frame).classifier
        ConvertedClassifier(LogisticRegression, 2 classes; probabilities)
    """
    encoder.encode(sample)  # raises where these are not rows of the table
    try:
        return Conversion(_convert(model, encoder, sample))
    except Refused as refusal:
        return Conversion(None, str(refusal))


def differentiable(model: object, encoder: Encoder, frame: pd.DataFrame) -> object:
    """A scikit-learn model as a classifier of encoded rows; anything else as it came.

    Raises:
        InvalidInputError: The model cannot be converted; the message says what hinders.
    """
    if not isinstance(model, BaseEstimator):
        return model
    conversion = convert(model, encoder, frame.iloc[:SAMPLE])
    if conversion.classifier is None:
        raise InvalidInputError(
            "`model` must be one that can be converted exactly, so that it has gradients; "
            f"{type(model).__name__} cannot: {conversion.reason}. Linear models, discriminant analysis, "
            "naive Bayes and perceptrons can, also in pipelines of scalers, imputers and encoders."
        )
    return conversion.classifier


def _convert(model: Fitted, encoder: Encoder, sample: pd.DataFrame) -> ConvertedClassifier:
    kind = kind_of(model)
    classes = getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) < 2:
        raise Refused(f"{kind} is not a classifier with one outcome of two classes or more")
    intake, basis = Intake.of(model, encoder.schema.names), Basis(encoder.layout)
    dtype = intake.rows(sample).dtype if intake.as_array else None
    columns = table_columns(encoder, sample, intake.names, dtype, basis)
    made = ConvertedClassifier(
        module=nn.Sequential(basis, estimator(model, columns, basis)),
        kind=kind,
        classes=tuple(map(plain, classes)),
        n_features=encoder.layout.width,
        probabilities=hasattr(model, "predict_proba"),
    )
    difference = largest_difference(made.logits, model, intake, encoder, sample)
    if not difference <= TOLERANCE:
        single = "; it is given single precision, double may do" if _is_single(intake.rows(sample)) else ""
        raise Refused(f"{kind} and its conversion differ by up to {difference:.1e} in their answers{single}")
    return made


def _is_single(rows: Any) -> bool:  # noqa: ANN401
    dtypes = rows.dtypes if isinstance(rows, pd.DataFrame) else [rows.dtype]
    return all(precision(dtype).itemsize < 8 for dtype in dtypes)
