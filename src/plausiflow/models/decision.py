r"""How a model decides between outcomes: by its own ``predict``, by cut-offs, or by the largest probability.

Where a model has ``predict``, that is the decision. A search needs more than labels, so the decisions for
training rows are compared with the model's probabilities, and then with its scores (``decision_function``).
The first of them that explains every decision guides the search: by its largest value, by the cut-off that
the model states (:class:`FixedThresholdClassifier`, :class:`TunedThresholdClassifierCV`), or by a single
cut-off that separates the decisions. If none does, the search follows the labels. In each case ``predict``
itself is asked in the end. Cut-offs :math:`t_k` decide for the class with the largest :math:`p_k / t_k`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from torch import Tensor

from plausiflow.core import Classifier, HasValueAndGrad, Pullback, TargetCriterion
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.predictor import OutputKind, Predictor, check_predictor, restore_predictor
from plausiflow.models.sklearn.columns import Fitted, UnsupportedModelError
from plausiflow.validation import to_float

DecisionThreshold: TypeAlias = float | Mapping[Any, float]
"""The cut-off on the probability of the second of two outcomes, or a cut-off for each outcome."""

COMPARED_ROWS = 10_000
"""Training rows, spread over the table, on which decisions and probabilities are compared."""
TIE = 1e-6
"""Log-odds within which a decision may contradict the probabilities: rounding of single precision."""
_SMALLEST = 1e-300


class DecisionWarning(UserWarning):
    """The decisions of a model do not follow its probabilities."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """How a model decides.

    Attributes:
        cutoffs: A cut-off for each class; empty if the largest probability decides.
        predict: The model's own ``predict``, the last word; None if it has none that returns outcomes, or if
            its outputs are already those of ``predict``.
        probabilities: The model's probabilities, if the search follows something else; they are only shown.
        stated: Whether the model states its cut-off, which a model given to ``load`` must have, too.
        description: How it decides, in words.
    """

    cutoffs: tuple[float, ...] = ()
    predict: Predictor | None = None
    probabilities: Predictor | None = None
    stated: bool = False
    description: str = ""

    @property
    def predictors(self) -> tuple[Predictor, ...]:
        """The methods of the user's model that are called besides the one that is searched."""
        return tuple(own for own in (self.predict, self.probabilities) if own is not None)

    @cached_property
    def _criterion(self) -> TargetCriterion:
        return TargetCriterion(cutoffs=self.cutoffs)

    def classes(self, outputs: Tensor, frame: pd.DataFrame | None) -> Tensor:
        """Return the classes that the model decides for, -1 where it does not decide, shape ``(n,)``.

        Args:
            outputs: Its log-probabilities, shape ``(n, k)``.
            frame: The rows of the table, in training dtypes; None if they are not known.
        """
        if self.predict is None or frame is None:
            classes = self._criterion.classes(outputs)
            return torch.where(outputs.isnan().any(dim=1), -1, classes)
        return decided_classes(self.predict, frame)


def decided_classes(predict: Predictor, frame: pd.DataFrame) -> Tensor:
    """Return the class of each label that ``predict`` returns, -1 for none, shape ``(n,)``."""
    labels = predict.outputs(frame)
    return torch.where(labels.isnan().any(dim=1), -1, labels.argmax(dim=1))


@dataclass(eq=False)
class CutoffClassifier:
    """A classifier whose largest logit is the decision by cut-offs, for methods and metrics."""

    classifier: Classifier
    criterion: TargetCriterion
    n_classes: int
    differentiable: bool

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits minus the log cut-offs, ``(n, d) -> (n, k)``; keeps the graph."""
        return self.criterion.decision_logits(self.classifier.logits(x))


@dataclass(eq=False)
class FastCutoffClassifier(CutoffClassifier):
    """A :class:`CutoffClassifier` that computes its gradient without a graph."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the logits and their pullback."""
        assert isinstance(self.classifier, HasValueAndGrad)
        outputs, pullback = self.classifier.value_and_grad(x)
        return self.criterion.decision_logits(outputs), pullback


def deciding_classifier(classifier: Classifier | None, decision: Decision) -> Classifier | None:
    """Return a classifier whose largest logit is the decision."""
    if classifier is None or not decision.cutoffs:
        return classifier
    kind = FastCutoffClassifier if isinstance(classifier, HasValueAndGrad) else CutoffClassifier
    criterion = TargetCriterion(cutoffs=decision.cutoffs)
    return kind(classifier, criterion, classifier.n_classes, classifier.differentiable)


def parse_cutoffs(threshold: DecisionThreshold, labels: tuple[Any, ...]) -> tuple[float, ...]:
    """Return the cut-off of each label.

    Example:
        >>> parse_cutoffs(0.25, ("no", "yes"))
        (0.75, 0.25)
        >>> parse_cutoffs({"no": 0.25}, ("no", "yes"))
        (0.25, 0.75)
    """
    listed = ", ".join(map(repr, labels))
    if not isinstance(threshold, Mapping):
        if len(labels) != 2:
            raise InvalidInputError(
                f"`decision_threshold` must have a cut-off for each of the {len(labels)} outcomes {listed}, "
                f"such as {{{labels[0]!r}: 0.3, ...}}; got {threshold!r}, which fits two outcomes only."
            )
        return 1 - float(threshold), float(threshold)
    unknown = [label for label in threshold if label not in labels]
    absent = [label for label in labels if label not in threshold]
    if unknown or len(absent) > (len(labels) == 2):
        raise InvalidInputError(
            f"`decision_threshold` must have a cut-off for each of the outcomes {listed}; got "
            f"{dict(threshold)!r}. With two outcomes one is enough."
        )
    if absent:
        (other,) = threshold.values()
        return tuple(float(threshold.get(label, 1 - other)) for label in labels)
    return tuple(float(threshold[label]) for label in labels)


def is_decision_threshold(threshold: object) -> bool:
    """Return whether this is a cut-off between 0 and 1, or such a cut-off for labels."""
    if isinstance(threshold, Mapping):
        return bool(threshold) and all(0 < to_float(cutoff) < 1 for cutoff in threshold.values())
    return 0 < to_float(threshold) < 1


def describe_cutoffs(cutoffs: tuple[float, ...], labels: tuple[Any, ...]) -> str:
    """Return cut-offs in words."""
    if len(cutoffs) == 2 and math.isclose(sum(cutoffs), 1):
        return f"a cut-off of {cutoffs[1]:.6g} on the probability of {labels[1]!r}"
    listed = ", ".join(f"{label!r} {cutoff:.6g}" for label, cutoff in zip(labels, cutoffs, strict=True))
    return f"the largest probability divided by its cut-off ({listed})"


def find_decision(model: Fitted, guide: Predictor, frame: pd.DataFrame) -> tuple[Predictor, Decision]:
    """Return what guides the search of a model that is called on rows of the table, and how it decides.

    ``guide`` is its most informative output; training rows ``frame`` tell whether that explains ``predict``.
    """
    rows = compared_rows(frame)
    predict = predict_method(model, guide, rows)
    if predict is None:
        return guide, Decision()
    decided, labels = decided_classes(predict, rows), guide.labels
    shown = guide if guide.output_kind == "probabilities" else None
    for own in _possible_guides(model, guide):
        with suppress(ModelError):  # scores of another shape, or only for some rows
            proba = own._outputs(rows, strict=True)
            found = explain_decisions(proba, decided, stated_cutoffs(model, own.output_kind))
            if found is None:
                continue
            cutoffs, stated = found
            if own is guide:
                text = _describe(guide.output_kind, cutoffs, labels, len(rows))
                return guide, Decision(cutoffs=cutoffs, predict=predict, stated=stated, description=text)
            check_predictor(own, rows)
            text = "it decides by `predict`, which follows its scores" + _aside(model, shown, rows, decided)
            return own, Decision(
                cutoffs=cutoffs, predict=predict, probabilities=shown, stated=stated, description=text
            )
    if guide.output_kind != "labels":
        check_predictor(predict, rows)
    text = "it decides by `predict`" + _aside(model, shown, rows, decided)
    return predict, Decision(probabilities=shown, description=text)


def find_exact_decision(model: Fitted, predict: Predictor, proba: Tensor, frame: pd.DataFrame) -> Decision:
    """Return how a model decides whose probabilities ``(n, k)`` of training rows are computed exactly.

    Raises:
        UnsupportedModelError: The probabilities do not explain its decisions.
    """
    try:
        predict._outputs(frame, strict=True)
    except ModelError as error:
        raise UnsupportedModelError(f"its `predict` fails: {error}") from error
    kind: OutputKind = "probabilities" if hasattr(model, "predict_proba") else "scores"
    found = explain_decisions(proba, decided_classes(predict, frame), stated_cutoffs(model, kind))
    if found is None:
        raise UnsupportedModelError("its `predict` does not follow its probabilities")
    text = _describe(kind, found[0], predict.labels, len(frame))
    return Decision(cutoffs=found[0], predict=predict, stated=found[1], description=text)


def compared_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return up to 10,000 rows, spread over a table."""
    return frame.iloc[np.linspace(0, len(frame) - 1, min(len(frame), COMPARED_ROWS)).astype(np.int64)]


def predict_method(model: Fitted, guide: Predictor, rows: pd.DataFrame) -> Predictor | None:
    """Return the ``predict`` of a model if it returns outcomes for all rows, else None."""
    if guide.output_kind == "values" or not guide.method or not hasattr(model, "predict"):
        return None
    if guide.output_kind == "labels":
        return guide
    assert guide.input_format is not None
    predict = restore_predictor(model, "predict", guide.input_format, "labels", guide.labels)
    try:
        predict._outputs(rows, strict=True)
    except ModelError:
        return None
    return predict


def _possible_guides(model: Fitted, guide: Predictor) -> list[Predictor]:
    guides = [] if guide.output_kind == "labels" else [guide]
    if guide.method != "decision_function" and hasattr(model, "decision_function"):
        assert guide.input_format is not None
        guides.append(
            restore_predictor(model, "decision_function", guide.input_format, "scores", guide.labels)
        )
    return guides


def explain_decisions(
    proba: Tensor, decided: Tensor, stated: list[tuple[float, ...]]
) -> tuple[tuple[float, ...], bool] | None:
    """Return the cut-offs by which probabilities ``(n, k)`` explain decisions, and whether they are stated.

    The stated ones are tried first, then none, then any cut-off between two classes: of all numbers that
    separate the decisions, the one with the fewest digits. None if the probabilities do not explain them.
    """
    log_proba = proba.clamp_min(_SMALLEST).log()

    def follow(cutoffs: tuple[float, ...]) -> bool:
        return bool((TargetCriterion(cutoffs=cutoffs).value(log_proba, decided) >= -TIE).all())

    for cutoffs in stated:
        if follow(cutoffs):
            return cutoffs, True
    if follow(()):
        return (), False
    if proba.shape[1] == 2:
        cutoff = _separate(proba[:, 1], decided)
        if cutoff is not None and follow((1 - cutoff, cutoff)):
            return (1 - cutoff, cutoff), False
    return None


def _separate(share: Tensor, decided: Tensor) -> float | None:
    """Return the cut-off with the fewest digits between the shares of both classes; None if they overlap."""
    low = float(share[decided == 0].max()) if bool((decided == 0).any()) else 0.0
    high = float(share[decided == 1].min()) if bool((decided == 1).any()) else 1.0
    middle = (low + high) / 2
    if not 0 < middle < 1 or low >= high:
        return None
    rounded = (round(middle, digits) for digits in range(1, 17))
    return next((cutoff for cutoff in rounded if max(low, 0.0) < cutoff < min(high, 1.0)), middle)


def stated_cutoffs(model: Fitted, output_kind: OutputKind) -> list[tuple[float, ...]]:
    """Return the cut-offs that a threshold classifier of scikit-learn states, for either positive class.

    Also at the end of a pipeline or inside a search of parameters. Scores become probabilities by the
    logistic function, so a cut-off on scores does, too.
    """
    last = _last_estimator(model)
    if isinstance(last, TunedThresholdClassifierCV):
        threshold: Any = getattr(last, "best_threshold_", None)
    elif isinstance(last, FixedThresholdClassifier):
        threshold = last.threshold
    else:
        return []
    inner = getattr(last, "estimator_", last.estimator)
    on_scores = last.response_method == "decision_function" or not hasattr(inner, "predict_proba")
    if output_kind == "scores" and not on_scores:
        return []
    if threshold == "auto":
        threshold = 0.0 if on_scores else 0.5
    cutoff = to_float(threshold)
    both = [1 / (1 + math.exp(-sign * cutoff)) for sign in (1, -1)] if on_scores else [cutoff, 1 - cutoff]
    if not all(0 < own < 1 for own in both):
        return []
    second_first: list[tuple[float, ...]] = [(both[1], both[0]), (both[0], both[1])]
    positive, classes = getattr(last, "pos_label", None), list(last.classes_)
    return second_first[::-1] if positive is not None and classes[0] == positive else second_first


def _last_estimator(model: Fitted) -> Fitted:
    """Return the estimator at the end of pipelines, searches and frozen estimators."""
    while type(model).__module__.partition(".")[0] == "sklearn":
        if hasattr(model, "steps"):
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif type(model).__name__ == "FrozenEstimator":
            model = model.estimator
        else:
            break
    return model


def _describe(kind: OutputKind, cutoffs: tuple[float, ...], labels: tuple[Any, ...], n: int) -> str:
    if not cutoffs:
        return f"it decides by `predict`, which follows the largest of its {kind} on {n:,} training rows"
    if kind == "scores" and len(cutoffs) == 2:
        score = math.log(cutoffs[1] / cutoffs[0])
        return f"it decides by `predict`: a cut-off of {score:.6g} on the score of {labels[1]!r}"
    return f"it decides by `predict`: {describe_cutoffs(cutoffs, labels)}"


def _aside(model: Fitted, shown: Predictor | None, rows: pd.DataFrame, decided: Tensor) -> str:
    """Return a remark on probabilities that are only shown, and warn of them."""
    if shown is None:
        return ""
    wrong = int((shown.outputs(rows).argmax(dim=1) != decided).sum())
    warnings.warn(
        f"`predict` of {type(model).__name__} contradicts its largest probability for {wrong:,} of "
        f"{len(rows):,} training rows, and no cut-off explains it. Counterfactuals follow `predict`; "
        "probabilities are only shown. Calibrate the model, or pass a function that returns probabilities, "
        "if these should decide.",
        DecisionWarning,
        stacklevel=2,
    )
    return "; its probabilities contradict that, and are only shown"
