"""Conversion of a fitted scikit-learn model to an equivalent model of encoded rows that has gradients.

The model may take the table's columns by name, or an array of all of them. Every conversion is verified:
the original predicts rows of the table and perturbed rows, and a difference is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import is_regressor
from torch import Tensor, nn

from plausiflow.core import Frozen, Pullback
from plausiflow.models.networks import check_columns
from plausiflow.models.sklearn.columns import Basis, Fitted, InputFormat, UnsupportedModelError, table_columns
from plausiflow.models.sklearn.comparison import check_predictions
from plausiflow.models.sklearn.estimators import convert_estimator
from plausiflow.models.sklearn.gradients import Step, closed_form
from plausiflow.models.sklearn.preprocessing import sklearn_class_name
from plausiflow.tables import Encoder, to_python

SAMPLE_ROWS = 256
"""Number of rows that are enough to compare predictions on."""


@dataclass(eq=False, repr=False, kw_only=True)
class _ConvertedModel:
    module: nn.Module  # From ``(n, width)`` to ``(n, k)``; frozen copies of it are evaluated.
    kind: str  # Class name of the model.
    n_features: int  # Width of an encoded row.
    _frozen: Frozen[nn.Module] = field(init=False)
    _closed: dict[nn.Module, Step | None] = field(init=False, default_factory=dict)

    differentiable = True

    def __post_init__(self) -> None:
        self._frozen = Frozen(self.module)

    def __getstate__(self) -> dict[str, object]:
        # Closed forms are functions of frozen copies, which are made again.
        return vars(self) | {"_closed": {}}

    def _outputs(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.evaluated(x)(x)
        return outputs

    def evaluated(self, x: Tensor) -> nn.Module:
        """Check the rows and return the frozen module in their dtype and on their device."""
        check_encoded(x, self.n_features)
        known = self._frozen.copies.get((x.dtype, x.device))
        return self._frozen(x) if known is None else known

    def has_closed_form(self, x: Tensor) -> bool:
        """Whether gradients at rows like these need no autograd graph."""
        return self._closed_form(self.evaluated(x)) is not None

    def _closed_form(self, module: nn.Module) -> Step | None:
        if module not in self._closed:
            self._closed[module] = closed_form(module)
        return self._closed[module]

    def _value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the outputs ``(n, k)`` and their pullback, in closed form where that is known."""
        module = self.evaluated(x)
        known = self._closed_form(module)
        if known is not None:
            return known(x)
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            outputs = module(leaf)
        return outputs.detach(), lambda gradient: torch.autograd.grad(
            outputs, leaf, gradient, retain_graph=True
        )[0]


@dataclass(eq=False, repr=False, kw_only=True)
class ConvertedClassifier(_ConvertedModel):
    """A scikit-learn model as a classifier of encoded rows; see :func:`convert_classifier`.

    If ``probabilities`` is False, the model has no probabilities, and only the largest logit agrees with its
    decision.
    """

    classes: tuple[Any, ...]  # Labels, in the model's order.
    probabilities: bool  # Whether the softmax of the logits gives the model's probabilities.

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def logits(self, x: Tensor) -> Tensor:
        """Return log-probabilities, or margins, ``(n, width) -> (n, k)``, in x's dtype; keeps the graph."""
        return self._outputs(x)

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the logits ``(n, k)`` and the function that maps their gradients to those of the rows."""
        return self._value_and_grad(x)

    def __repr__(self) -> str:
        answers = "probabilities" if self.probabilities else "decisions"
        return f"ConvertedClassifier({self.kind}, {self.n_classes} classes; {answers})"


@dataclass(eq=False, repr=False, kw_only=True)
class ConvertedRegressor(_ConvertedModel):
    """A scikit-learn model as a regressor of encoded rows; see :func:`convert_regressor`."""

    def values(self, x: Tensor) -> Tensor:
        """Return predictions, ``(n, width) -> (n,)``; in x's dtype and on its device; keeps the graph."""
        return self._outputs(x)[:, 0]

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the predictions ``(n,)`` and the function that maps their gradients to those of the rows."""
        outputs, pullback = self._value_and_grad(x)
        return outputs[:, 0], lambda gradient: pullback(gradient[:, None])

    def __repr__(self) -> str:
        return f"ConvertedRegressor({self.kind})"


def convert_classifier(
    model: Fitted, encoder: Encoder, sample: pd.DataFrame, *, verify: bool = True
) -> ConvertedClassifier:
    """Convert a fitted scikit-learn classifier, or a pipeline, exactly.

    ``sample`` has rows of the table in the dtypes that the model receives. If ``verify``, predictions for it
    and for perturbed rows may differ by at most 1e-6. Raises an :class:`UnsupportedModelError` if the model
    cannot be converted exactly.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from plausiflow.tables import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> model = LogisticRegression().fit(frame, ["no", "yes", "yes", "no"])
        >>> convert_classifier(model, Encoder(Schema.infer(frame)), frame)
        ConvertedClassifier(LogisticRegression, 2 classes; probabilities)
    """
    encoder.encode(sample)  # raises unless these are rows of the table
    kind, classes = sklearn_class_name(model), getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or len(classes) < 2:
        raise UnsupportedModelError(f"{kind} is not a classifier with one outcome of two classes or more")
    inputs = InputFormat.from_model(model, encoder.schema.names)
    classifier = ConvertedClassifier(
        module=_build_module(model, inputs, encoder, sample),
        kind=kind,
        n_features=encoder.layout.width,
        classes=tuple(map(to_python, classes)),
        probabilities=hasattr(model, "predict_proba"),
    )
    if verify:
        check_predictions(classifier.logits, model, inputs, encoder, sample)
    return classifier


def convert_regressor(
    model: Fitted, encoder: Encoder, sample: pd.DataFrame, *, verify: bool = True
) -> ConvertedRegressor:
    """Convert a fitted scikit-learn regressor exactly, as :func:`convert_classifier` does.

    The model must predict one number. Differences are relative to predictions that exceed one.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from plausiflow.tables import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> model = Ridge().fit(frame, [1200.0, 900.0, 1500.0, 400.0])
        >>> convert_regressor(model, Encoder(Schema.infer(frame)), frame)
        ConvertedRegressor(Ridge)
    """
    encoder.encode(sample)  # raises unless these are rows of the table
    kind = sklearn_class_name(model)
    if not is_regressor(model):
        raise UnsupportedModelError(f"{kind} is not a regressor")
    inputs = InputFormat.from_model(model, encoder.schema.names)
    module = _build_module(model, inputs, encoder, sample)
    regressor = ConvertedRegressor(module=module, kind=kind, n_features=encoder.layout.width)
    if verify:
        check_predictions(regressor.values, model, inputs, encoder, sample)
    return regressor


def check_encoded(x: Tensor, n_features: int) -> None:
    """Raise unless these are encoded rows with ``n_features`` columns."""
    check_columns(x, n_features, "rows as encoded by the encoder that the model was converted with")


def _build_module(model: Fitted, inputs: InputFormat, encoder: Encoder, sample: pd.DataFrame) -> nn.Module:
    basis = Basis(encoder.layout)
    dtype = inputs.select(sample).dtype if inputs.as_array else None
    columns = table_columns(encoder, sample, inputs.names, dtype, basis)
    return nn.Sequential(basis, convert_estimator(model, columns, basis))
