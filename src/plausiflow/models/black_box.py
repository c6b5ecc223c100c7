"""A model without gradients: the user's own model on rows of the table, and a differentiable surrogate.

The surrogate (:mod:`plausiflow.models.surrogate`) is the model's own boosted trees with soft splits, or trees
that are trained to imitate the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Classifier, Pullback
from plausiflow.models.decision import Decision, deciding_classifier
from plausiflow.models.model_rows import decode_probe, decode_rows, with_training_dtypes
from plausiflow.models.predictor import Predictor
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.surrogate import Surrogate, relax_trees, train_surrogate
from plausiflow.models.surrogate_rows import sample_surrogate_rows
from plausiflow.tables import Encoder

_SMALLEST_PROBABILITY = 1e-300
_BATCH = 65_536
_COMPARED_ROWS = 256
MIN_SURROGATE_ROWS, MAX_SURROGATE_ROWS = 10_000, 40_000
"""Rows that a surrogate is trained on: four times the training rows, within these bounds."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A model without gradients; see :class:`~plausiflow.models.table_model.TableModel`."""

    predictor: Predictor  # The user's own model.
    surrogate: Surrogate  # A differentiable surrogate of it.
    encoder: Encoder
    sample: pd.DataFrame  # A training row, for the columns that encoded rows do not hold.
    n_surrogate_rows: int = 0  # Rows that the surrogate was trained on; 0 for the model's own trees.
    reason: str = ""  # Why the trees of the model itself are not the surrogate, if it has any.
    decision: Decision = field(default_factory=Decision)  # How the model decides.

    differentiable = False
    value_and_grad = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """Class labels in the model's order; empty for a regressor."""
        return self.predictor.labels

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.labels)

    @property
    def classifier(self) -> Classifier | None:
        """The black box itself, with its largest logit as the decision; None for a regressor."""
        own = self if self.labels and isinstance(self, Classifier) else None
        return deciding_classifier(own, self.decision)

    @property
    def description(self) -> str:
        """What the model is and how it is used, in words."""
        reason = f" ({self.reason})" if self.reason else ""
        decides = f"; {self.decision.description}" if self.decision.description else ""
        return (
            f"{self.predictor.name}, which returns {self.predictor.output_kind}, without gradients; the "
            f"search follows {self.surrogate.description}{reason}, and every answer is verified on the model "
            f"itself{decides}"
        )

    def outputs_at(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Return the surrogate's logits or values as a differentiable function of encoded rows."""
        outputs = self.surrogate.at(temperature)
        return outputs if self.labels else lambda x: outputs(x)[:, 0]

    def value_and_grad_at(self, temperature: float) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
        """Return the surrogate's outputs with their pullback; None if only autograd has it."""
        known = self.surrogate.value_and_grad_at(temperature)
        if known is None or self.labels:
            return known

        def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
            outputs, pullback = known(x)
            return outputs[:, 0], lambda gradient: pullback(gradient[:, None])

        return value_and_grad

    def true_outputs(self, frame: pd.DataFrame) -> Tensor:
        """Return the user's model's log-probabilities ``(n, k)`` or values ``(n,)``; NaN for none."""
        outputs = self.predictor.outputs(with_training_dtypes(self.encoder, frame))
        return outputs.clamp_min(_SMALLEST_PROBABILITY).log() if self.labels else outputs

    @property
    def tree_outputs(self) -> Callable[[Tensor], Tensor] | None:
        """The same for encoded rows, by the model's own trees; None if these were not read.

        A search asks them instead of the model, which takes longer for few rows and has the last word.
        """
        if self.surrogate.own_trees is None:
            return None
        return self._tree_outputs

    def _tree_outputs(self, x: Tensor) -> Tensor:
        outputs = self.surrogate.exact(x)
        return outputs.log_softmax(dim=1) if self.labels else outputs[:, 0]

    def predict_outputs(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return :meth:`true_outputs` of encoded rows, which are decoded if ``frame`` is None."""
        return self.true_outputs(decode_rows(self.encoder, x, self.sample) if frame is None else frame)

    def set_probe(self, x: Tensor) -> None:
        """Keep an encoded row ``(1, width)`` that the model predicts, to tell its failures from bad rows."""
        frame = decode_probe(self.encoder, x, self.sample)
        for predictor in (self.predictor, *self.decision.predictors):
            predictor.probe = frame

    def decide(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the classes that the user's model decides for, -1 for none, shape ``(n,)``."""
        if self.decision.predict is None:
            return self.decision.classes(outputs, None)
        return self.decision.classes(outputs, self._rows(x, frame))

    def shown_outputs(self, outputs: Tensor, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """Return the model's own log-probabilities, also where they do not decide."""
        if self.decision.probabilities is None:
            return outputs
        proba = self.decision.probabilities.outputs(self._rows(x, frame))
        return proba.clamp_min(_SMALLEST_PROBABILITY).log()

    def _rows(self, x: Tensor, frame: pd.DataFrame | None) -> pd.DataFrame:
        rows = decode_rows(self.encoder, x, self.sample) if frame is None else frame
        return with_training_dtypes(self.encoder, rows)

    def logits(self, x: Tensor) -> Tensor:
        """Return the user's model's log-probabilities of encoded rows, ``(n, k)``, without gradients."""
        return self.predict_outputs(x.detach()).to(x)


def make_black_box(
    model: object,
    predictor: Predictor,
    encoder: Encoder,
    frame: pd.DataFrame,
    x: Tensor,
    trained: bool | None,
    random_state: int,
    decision: Decision | None = None,
) -> BlackBox:
    """Return a model without gradients together with its surrogate; ``x`` is ``frame``, encoded.

    The surrogate is trained (``trained`` is True), is the model's own trees (False), or is trained only if
    these cannot be read (None). If ``trained`` is False, trees that cannot be read raise an
    :class:`UnsupportedModelError`.
    """
    reason, decision = "", decision or Decision()
    if not trained:
        try:
            surrogate = relax_trees(model, encoder, frame.iloc[:_COMPARED_ROWS])
            return BlackBox(predictor, surrogate, encoder, frame.iloc[:1], decision=decision)
        except UnsupportedModelError as error:
            if trained is False:
                raise
            reason = str(error) if _has_trees(model) else ""
    outputs = predictor.outputs(frame)
    # Rows between training rows lead to another class, or to the other half of a regressor's values.
    two_halves = outputs.ndim == 1
    classes = (outputs > outputs.median()).long() if two_halves else decision.classes(outputs.log(), None)
    size = min(MAX_SURROGATE_ROWS, max(MIN_SURROGATE_ROWS, 4 * len(x)))
    rows = sample_surrogate_rows(x, classes, encoder.layout, size=size, random_state=random_state)
    outputs = torch.cat(
        [predictor.outputs(decode_rows(encoder, batch, frame)) for batch in rows.split(_BATCH)]
    )
    known = torch.isfinite(outputs if outputs.ndim == 1 else outputs.sum(dim=1))
    surrogate = train_surrogate(rows[known], outputs[known], encoder.layout, random_state=random_state)
    return BlackBox(predictor, surrogate, encoder, frame.iloc[:1], len(rows), reason, decision)


def _has_trees(model: object) -> bool:
    """Return whether this is a boosted model of a supported library."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    module = type(last).__module__.split(".")[0]
    return module in ("xgboost", "lightgbm", "catboost") or "GradientBoosting" in type(last).__name__
