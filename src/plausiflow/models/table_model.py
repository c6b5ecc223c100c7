"""Models of a table: the interface that searches use, and models that are differentiable on encoded rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Classifier, HasValueAndGrad, Pullback, Regressor
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.models.decision import Decision, deciding_classifier
from plausiflow.models.model_rows import decode_probe, with_training_dtypes
from plausiflow.models.networks import NetworkClassifier
from plausiflow.models.predictor import PROBE_FAILED
from plausiflow.tables import Encoder

_BATCH = 65_536


class TableModel(Protocol):
    """A user's model of a table, ready for a search.

    :class:`EncodedModel` is exact and differentiable.
    :class:`~plausiflow.models.black_box.BlackBox` calls the user's model and has a differentiable surrogate.
    """

    @property
    def labels(self) -> tuple[Any, ...]:
        """Class labels in the model's order; empty for a regressor."""
        ...

    @property
    def description(self) -> str:
        """What the model is and how it is used, in words."""
        ...

    @property
    def classifier(self) -> Classifier | None:
        """The model as a classifier of encoded rows, for metrics; None for a regressor."""
        ...

    @property
    def value_and_grad(self) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Outputs with their pullback, if the model computes them without autograd; else None."""
        ...

    @property
    def true_outputs(self) -> Callable[[pd.DataFrame], Tensor] | None:
        """Outputs of the user's own model on rows of the table; None if ``outputs_at`` is exact."""
        ...

    @property
    def tree_outputs(self) -> Callable[[Tensor], Tensor] | None:
        """The same outputs of encoded rows, by the model's own trees; None if these were not read."""
        ...

    def outputs_at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Return a differentiable function from encoded rows to logits ``(n, k)`` or values ``(n,)``.

        Args:
            temperature: How soft the splits of a surrogate are, in ranges of a number; ignored by an exact
                model.
        """
        ...

    def value_and_grad_at(self, temperature: float) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Return :meth:`outputs_at` with its pullback; None if only autograd has it."""
        ...

    @property
    def decision(self) -> Decision:
        """How the model decides between outcomes."""
        ...

    def predict_outputs(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return what a search follows, double: log-probabilities that decide, or predicted numbers.

        Args:
            x: Encoded rows, shape ``(n, width)``.
            frame: The same rows of the table. They are decoded from ``x`` if None.

        Returns:
            Log-probabilities ``(n, k)`` or values ``(n,)``; NaN where the model has no prediction.

        Raises:
            ModelError: The model fails, also for the row of :meth:`set_probe`.
        """
        ...

    def set_probe(self, x: Tensor) -> None:
        """Keep an encoded row ``(1, width)`` that the model predicts, to tell its failures from bad rows."""
        ...

    def decide(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the classes that the user's own model decides for, -1 for none, shape ``(n,)``.

        Args:
            outputs: What :meth:`predict_outputs` returned for the rows.
            x: Encoded rows, shape ``(n, width)``.
            frame: The same rows of the table, for a model that has ``predict``.
        """
        ...

    def shown_outputs(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the log-probabilities that the user's model reports, also if they do not decide.

        The arguments are those of :meth:`decide`.
        """
        ...


@dataclass(eq=False)
class EncodedModel:
    """A model that is evaluated exactly, with gradients, on encoded rows; see :class:`TableModel`.

    The ``predict`` of the user's own model, if it has one, is asked for the last word only.
    """

    model: Classifier | Regressor  # A classifier or a regressor of encoded rows.
    labels: tuple[Any, ...]  # Class labels in the model's order; empty for a regressor.
    description: str = ""  # What the user's model is, in words.
    decision: Decision = field(default_factory=Decision)  # How the model decides, or predicts a number.
    encoder: Encoder | None = None  # Encoder of the table, for rows that ``predict`` is asked about.
    probe: Tensor | None = None  # An encoded row that the model predicted before, shape ``(1, width)``.

    true_outputs = None
    tree_outputs = None

    @property
    def classifier(self) -> Classifier | None:
        """The model itself, with its largest logit as the decision; None for a regressor."""
        own = self.model if self.labels and isinstance(self.model, Classifier) else None
        return deciding_classifier(own, self.decision)

    @property
    def value_and_grad(self) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Outputs with their pullback, if the model computes them without autograd; else None."""
        return partial(self._call, "value_and_grad") if isinstance(self.model, HasValueAndGrad) else None

    def outputs(self, x: Tensor) -> Tensor:
        """Return logits ``(n, k)`` of a classifier or values ``(n,)`` of a regressor; differentiable."""
        outputs: Tensor = self._call("logits" if self.labels else "values", x)
        return outputs

    def outputs_at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Return :meth:`outputs`, which is exact at any temperature."""
        return self.outputs

    def value_and_grad_at(self, temperature: float) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Return ``value_and_grad``, which is exact at any temperature."""
        return self.value_and_grad

    @torch.no_grad()
    def predict_outputs(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return log-probabilities ``(n, k)`` or values ``(n,)``, double.

        The values of a regressor are those of its own ``predict`` for the rows ``frame``, if it has one.
        """
        if not self.labels and self.decision.predict is not None and frame is not None:
            return self.decision.predict.outputs(self._rows(frame))
        outputs = torch.cat([self._predict_batch(batch) for batch in x.double().split(_BATCH)])
        if self.probe is not None and bool(outputs.isnan().any()):
            self._check_probe(self.probe)
        return outputs

    def set_probe(self, x: Tensor) -> None:
        """Keep an encoded row ``(1, width)`` that the model predicts, to tell its failures from bad rows."""
        self.probe = x.clone()
        frame = None if self.encoder is None else decode_probe(self.encoder, x, None)
        for predictor in self.decision.predictors:
            predictor.probe = frame

    def _check_probe(self, probe: Tensor) -> None:
        """Raise if the model fails for a row that it predicted before."""
        try:
            outputs = self.outputs(probe)
        except ModelError as error:
            raise ModelError(f"{PROBE_FAILED} {error}") from error
        if not bool(outputs.isfinite().all()):
            raise ModelError(f"{PROBE_FAILED} Its outputs must be finite; got {outputs[0].tolist()}.")

    def decide(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the classes that the user's model decides for, -1 for none, shape ``(n,)``."""
        return self.decision.classes(outputs, None if frame is None else self._rows(frame))

    def shown_outputs(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the outputs: they are the model's own log-probabilities."""
        return outputs

    def _rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame if self.encoder is None else with_training_dtypes(self.encoder, frame)

    def _predict_batch(self, x: Tensor) -> Tensor:
        try:
            outputs = self.outputs(x).double()
            return outputs if outputs.ndim == 1 else outputs.log_softmax(dim=1)
        except ModelError:  # find the rows that the model cannot handle, and keep the others
            if len(x) <= 1:
                return x.new_full((len(x), len(self.labels)) if self.labels else (len(x),), torch.nan)
            return torch.cat([self._predict_batch(half) for half in x.tensor_split(2)])

    def _call(self, method: str, x: Tensor) -> Any:  # noqa: ANN401
        """Call a method of the user's model; turn its exceptions into a :class:`ModelError`."""
        try:
            return getattr(self.model, method)(x)
        except PlausiflowError:
            raise
        except Exception as error:
            raise ModelError(
                f"`model.{method}` raised {type(error).__name__} for encoded rows of shape {tuple(x.shape)}: "
                f"{error}. It must accept any number of encoded rows in double precision."
            ) from error


def encoded_classifier(
    model: object,
    x: Tensor,
    y: Tensor,
    labels: tuple[Any, ...],
    description: str = "",
    decision: Decision | None = None,
    encoder: Encoder | None = None,
) -> EncodedModel:
    """Return a classifier of encoded rows as a model of the table, after checks on training rows.

    A :class:`NetworkClassifier` without weights is copied and trained first, on the rows ``x`` and their
    class numbers ``y``, shape ``(n,)``. An empty ``description`` is replaced by the type of the model.
    """
    if isinstance(model, NetworkClassifier):
        description = description or f"a network of plausiflow, {type(model).__name__}"
        if not model.n_classes:
            model = copy.deepcopy(model).fit(x.float(), y, n_classes=len(labels))
            description += ", trained on the table"
    if not isinstance(model, Classifier):
        raise InvalidInputError(
            "`model` must be a classifier of encoded rows, with `n_classes`, `differentiable` and "
            f"`logits(x)`; got {type(model).__name__}. Use a network of plausiflow, such as "
            "`MLPClassifier()`, which is trained on the table."
        )
    if model.n_classes != len(labels):
        raise InvalidInputError(
            f"`model` must decide between the {len(labels)} outcomes of `y`, "
            f"{', '.join(map(repr, labels))}; it has {model.n_classes} classes."
        )
    n_features = getattr(model, "n_features", 0)
    if n_features and n_features != x.shape[1]:
        raise ModelError(
            f"`model` must take the {x.shape[1]} columns of an encoded row; it was trained on {n_features}. "
            "Pass it untrained: `fit` then trains it on the table."
        )
    description = description or f"a classifier of encoded rows, {type(model).__name__}"
    decision = decision or Decision()
    description += f"; {decision.description}" if decision.description else ""
    return _checked(EncodedModel(model, labels, description, decision, encoder), x)


def encoded_regressor(
    model: object,
    x: Tensor,
    description: str = "",
    decision: Decision | None = None,
    encoder: Encoder | None = None,
) -> EncodedModel:
    """Return a regressor of encoded rows as a model of the table; see :func:`encoded_classifier`."""
    if not isinstance(model, Regressor):
        raise InvalidInputError(
            f"`model` must predict a number for encoded rows, with `values(x)`; got {type(model).__name__}."
        )
    description = description or f"a regressor of encoded rows, {type(model).__name__}"
    return _checked(EncodedModel(model, (), description, decision or Decision(), encoder), x)


@torch.no_grad()
def _checked(model: EncodedModel, x: Tensor) -> EncodedModel:
    """Return the model; raise unless it has finite outputs of the right shape for the training rows."""
    rows = x[:_BATCH].double()
    outputs = model.outputs(rows)
    expected = (len(rows), len(model.labels)) if model.labels else (len(rows),)
    method = "logits" if model.labels else "values"
    content = "one logit for each row and outcome" if model.labels else "one value per row"
    if not isinstance(outputs, Tensor) or outputs.shape != expected or not outputs.is_floating_point():
        shape = f" of shape {tuple(outputs.shape)}, {outputs.dtype}" if isinstance(outputs, Tensor) else ""
        raise ModelError(
            f"`model.{method}` must return a float tensor of shape {expected}, {content}; got "
            f"{type(outputs).__name__}{shape}."
        )
    finite = torch.isfinite(outputs) if outputs.ndim == 1 else ~outputs.softmax(dim=1).isnan().any(dim=1)
    if n_wrong := int((~finite).sum()):
        raise ModelError(
            f"`model.{method}` must be finite; {n_wrong} of {len(rows)} training rows have {method} that are "
            "not. Check the logarithms and divisions of the model."
        )
    return model
