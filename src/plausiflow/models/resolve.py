"""Resolve a user's model: find out what it is, and make it a model that a search can use.

In this order: a classifier or regressor of encoded rows; a torch module of the table's columns; a
scikit-learn model that can be converted exactly; and any other model, with a differentiable surrogate.
``model_type`` requires one of them. :mod:`plausiflow.models.decision` finds out how it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import pandas as pd
import torch
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from torch import Tensor, nn

from plausiflow.core import Classifier, Regressor
from plausiflow.errors import InvalidInputError
from plausiflow.models.black_box import BlackBox, make_black_box
from plausiflow.models.decision import (
    Decision,
    DecisionThreshold,
    compared_rows,
    describe_cutoffs,
    find_decision,
    find_exact_decision,
    parse_cutoffs,
)
from plausiflow.models.networks import NetworkClassifier
from plausiflow.models.outcomes import (
    encode_known_labels,
    encode_labels,
    is_continuous,
    parse_values,
    reorder_classes,
)
from plausiflow.models.predictor import Predictor, make_predictor, restore_predictor
from plausiflow.models.sklearn.columns import InputFormat, UnsupportedModelError
from plausiflow.models.sklearn.conversion import (
    SAMPLE_ROWS,
    ConvertedClassifier,
    convert_classifier,
    convert_regressor,
)
from plausiflow.models.table_model import TableModel, encoded_classifier, encoded_regressor
from plausiflow.models.torch_module import torch_classifier, torch_regressor
from plausiflow.tables import PANDAS, Encoder, TableFormat, to_python

ModelType: TypeAlias = Literal["auto", "logits", "probabilities", "exact", "trees", "surrogate"]
"""``auto``: the first that fits. ``logits`` or ``probabilities``: what a torch module returns. ``exact``: an
exact conversion. ``trees``: the model's own trees with soft splits. ``surrogate``: trees that are trained to
imitate the model, with soft splits."""

LabelSource: TypeAlias = Literal["given", "model", "bayes"]
"""Where the outcomes of training rows come from: ``y``, or the model's predictions."""


def resolve_model(
    model: object,
    model_type: ModelType,
    encoder: Encoder,
    frame: pd.DataFrame,
    x: Tensor,
    y: Sequence[Any] | pd.Series | None,
    labels: LabelSource,
    random_state: int,
    decision_threshold: DecisionThreshold | None = None,
    table: TableFormat = PANDAS,
) -> tuple[TableModel, Tensor]:
    """Return a user's model as a model of the table, and the outcomes of the training rows.

    ``x`` is ``frame``, encoded. ``y`` has their outcomes; if ``labels`` is not ``"given"``, the model tells
    the outcomes, and ``y`` may miss some or all. The outcomes are class numbers (long) or, for a regressor,
    values (double), shape ``(n,)``. ``decision_threshold`` states the cut-off of a model without ``predict``;
    ``table`` is the library of the training table.
    """
    if model_type not in get_args(ModelType):
        raise InvalidInputError(
            f"`model_type` must be one of {', '.join(get_args(ModelType))}; got {model_type!r}."
        )
    resolver = _Resolver(model, model_type, encoder, frame, x, random_state, decision_threshold, table)
    if _is_regressor(model, y):
        if decision_threshold is not None:
            raise InvalidInputError(
                "`decision_threshold` must be None for a model that predicts a number; got "
                f"{decision_threshold!r}. Ask for an interval: `explain(rows, target=(low, high))`."
            )
        regressor = resolver.regressor()
        values = y if labels == "given" else regressor.predict_outputs(x, frame).numpy()
        return regressor, parse_values(values, len(x))
    classifier, classes = resolver.classifier(*_read_classes(model, y, len(x), required=labels == "given"))
    if labels != "given":
        classes = classifier.decide(classifier.predict_outputs(x, frame), x, frame)
    return classifier, classes


def resolve_refit(
    refit: object,
    like: TableModel,
    model_type: ModelType,
    encoder: Encoder,
    frame: pd.DataFrame,
    x: Tensor,
    y: Sequence[Any] | pd.Series | None,
    decision_threshold: DecisionThreshold | None = None,
) -> TableModel:
    """Return a retrained model as a model of the table, as ``like``, the model itself, was resolved.

    A model without gradients needs no surrogate of its own: its trees are read, or it is called.

    Raises:
        InvalidInputError: It does not know the outcomes of the model itself.
    """
    if not isinstance(like, BlackBox):
        resolved, _ = resolve_model(refit, model_type, encoder, frame, x, y, "given", 0, decision_threshold)
    else:
        resolver = _Resolver(refit, "trees", encoder, frame, x, 0, decision_threshold)
        try:
            if like.surrogate.own_trees is None:
                raise UnsupportedModelError("the trees of the model itself were not read")
            resolved = (
                resolver.regressor()
                if not like.labels
                else resolver._black_box(like.labels, UnsupportedModelError("it is a refit"))
            )
        except (UnsupportedModelError, InvalidInputError):
            taken = like.predictor.input_format
            table = PANDAS if taken is None else taken.table
            predictor = make_predictor(refit, frame, like.labels or None, table)
            predictor, decision = find_decision(refit, predictor, frame)
            surrogate = replace(like.surrogate, own_trees=None)
            resolved = BlackBox(predictor, surrogate, encoder, frame.iloc[:1], decision=decision)
    if resolved.labels != like.labels:
        raise InvalidInputError(
            f"A retrained model must know the outcomes {like.labels} in this order; got {resolved.labels}."
        )
    return resolved


def _is_regressor(model: object, y: object) -> bool:
    """Return whether a model is a regressor; if it does not say so, whether ``y`` is continuous."""
    if _takes_encoded_rows(model):
        return isinstance(model, Regressor) and not isinstance(model, Classifier)
    if isinstance(model, BaseEstimator):
        if is_regressor(model):
            return True
        if is_classifier(model):
            return False
    if getattr(model, "_estimator_type", None) == "regressor":  # CatBoost regressors also have `classes_`
        return True
    if hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        return False
    return y is not None and is_continuous(y)


def _takes_encoded_rows(model: object) -> bool:
    """Return whether a model takes encoded rows; a torch module only if it is a classifier."""
    if isinstance(model, Classifier | NetworkClassifier):
        return True
    return isinstance(model, Regressor) and not isinstance(model, nn.Module)


def _read_classes(
    model: object, y: Sequence[Any] | pd.Series | None, n_rows: int, *, required: bool
) -> tuple[tuple[Any, ...], Tensor, Tensor]:
    """Return the labels, the class of each row, and which rows have one; the others get class 0."""
    if y is not None:
        if not required:
            return encode_known_labels(y, n_rows)
        return (*encode_labels(y, n_rows), torch.ones(n_rows, dtype=torch.bool))
    if required:
        raise InvalidInputError(
            '`y` must hold the outcomes of the rows; it is None. Pass it, or set labels="model" or "bayes" '
            "to use the model's predictions."
        )
    classes = getattr(model, "classes_", None)
    if classes is None:
        classes = range(int(getattr(model, "n_classes", 0)))
    if not len(classes):
        raise InvalidInputError(
            f"`y` must name the outcomes that {type(model).__name__} decides between; the model does not. "
            "Pass the outcomes of some rows, and None for the others."
        )
    names, no_classes = tuple(map(to_python, classes)), torch.zeros(n_rows, dtype=torch.long)
    return names, no_classes, torch.ones(n_rows, dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class _Resolver:
    """The arguments of :func:`resolve_model` that classifiers and regressors share."""

    model: object
    model_type: ModelType
    encoder: Encoder
    frame: pd.DataFrame
    x: Tensor
    random_state: int
    decision_threshold: DecisionThreshold | None
    table: TableFormat = PANDAS

    def classifier(
        self, labels: tuple[Any, ...], classes: Tensor, known: Tensor
    ) -> tuple[TableModel, Tensor]:
        """Return the classifier, and the classes ``(n,)`` in its order of the labels."""
        x, model, description = self.x[known], self.model, ""
        decision = None
        if isinstance(model, nn.Module) and not _takes_encoded_rows(model):
            output: Any = self.model_type if self.model_type in ("logits", "probabilities") else "auto"
            model = torch_classifier(model, self.encoder, self.frame, len(labels), output)
            description = model.description
        elif not _takes_encoded_rows(model):
            try:
                model = convert_classifier(self._convertible(), self.encoder, self.frame.iloc[:SAMPLE_ROWS])
                decision = self._exact_decision(model)
            except UnsupportedModelError as error:
                black_box = self._black_box(labels, error)
                return black_box, reorder_classes(labels, classes, black_box.labels)[1]
            labels, classes = reorder_classes(labels, classes, model.classes)
            description = f"{model.kind}, converted exactly"
        decision = self._with_stated_cutoffs(decision or Decision(), labels)
        resolved = encoded_classifier(model, x, classes[known], labels, description, decision, self.encoder)
        return resolved, classes

    def regressor(self) -> TableModel:
        """Return the regressor."""
        model, description = self.model, ""
        if isinstance(model, nn.Module) and not _takes_encoded_rows(model):
            model = torch_regressor(model, self.encoder, self.frame)
            description = model.description
        elif not _takes_encoded_rows(model):
            try:
                model = convert_regressor(self._convertible(), self.encoder, self.frame.iloc[:SAMPLE_ROWS])
            except UnsupportedModelError as error:
                return self._black_box(None, error)
            description = f"{model.kind}, converted exactly"
            return encoded_regressor(
                model, self.x, description, Decision(predict=self._predict(())), self.encoder
            )
        return encoded_regressor(model, self.x, description)

    def _convertible(self) -> object:
        if not isinstance(self.model, BaseEstimator) or self.model_type not in ("auto", "exact"):
            raise UnsupportedModelError("only scikit-learn models can")
        return self.model

    def _predict(self, labels: tuple[Any, ...]) -> Predictor:
        """Return ``predict`` of a scikit-learn model that is converted."""
        inputs = InputFormat.from_model(self.model, self.encoder.schema.names)
        return restore_predictor(self.model, "predict", inputs, "labels" if labels else "values", labels)

    @torch.no_grad()
    def _exact_decision(self, model: ConvertedClassifier) -> Decision:
        """Return how a converted classifier decides."""
        rows = compared_rows(self.frame)
        proba = model.logits(self.encoder.encode(rows).x).softmax(dim=1)
        return find_exact_decision(self.model, self._predict(model.classes), proba, rows)

    def _with_stated_cutoffs(self, decision: Decision, labels: tuple[Any, ...]) -> Decision:
        """Return the decision with the user's cut-offs, which only a model without ``predict`` may have."""
        if self.decision_threshold is None:
            return decision
        cutoffs = parse_cutoffs(self.decision_threshold, labels)
        if decision.description:
            raise InvalidInputError(
                f"`decision_threshold` must be None for a model that decides itself: {decision.description}. "
                f"Use FixedThresholdClassifier(FrozenEstimator(model), threshold={cutoffs[-1]:g}) of "
                "scikit-learn, or pass a function: `lambda frame: model.predict_proba(frame)`."
            )
        text = f"`decision_threshold` decides: {describe_cutoffs(cutoffs, labels)}"
        return replace(decision, cutoffs=cutoffs, description=text)

    def _black_box(self, labels: tuple[Any, ...] | None, error: UnsupportedModelError) -> BlackBox:
        """Return the model with a surrogate; ``error`` says why it cannot be converted exactly."""
        name = type(self.model).__name__
        if self.model_type == "exact":
            raise InvalidInputError(
                f"`model_type` 'exact' needs a model that can be converted exactly; {name} cannot: {error}. "
                "Leave `model_type` out to explain it without gradients."
            ) from error
        predictor = make_predictor(self.model, self.frame, labels, self.table)
        predictor, decision = find_decision(self.model, predictor, self.frame)
        if predictor.output_kind == "labels" and not decision.description:
            decision = replace(decision, description="it returns labels, which are the decision")
        decision = self._with_stated_cutoffs(decision, predictor.labels) if labels else decision
        trained = {"trees": False, "surrogate": True}.get(self.model_type)
        if self.model_type == "auto" and decision.probabilities is not None:
            trained = True  # its own trees are those of its probabilities, which do not decide
        try:
            return make_black_box(
                self.model, predictor, self.encoder, self.frame, self.x, trained, self.random_state, decision
            )
        except UnsupportedModelError as reason:
            raise InvalidInputError(
                f"`model_type` 'trees' needs a model whose trees can be read; {name} cannot: {reason}. Leave "
                "`model_type` out to train a surrogate of trees."
            ) from reason
