"""A model without gradients: the model itself, asked on rows of the table, and a likeness that has gradients.

Boosted trees are relaxed as they are; anything else teaches a student of trees, on training rows, rows like
them and points between them (:mod:`plausiflow.models.surrogate`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from plausiflow.models.predictor import Predictor
from plausiflow.models.sklearn.columns import Refused
from plausiflow.models.surrogate import Surrogate, own_trees, student_of
from plausiflow.models.surrogate_rows import pool
from plausiflow.tables import Encoder

_TINY = 1e-300
_BLOCK = 65_536
SAMPLE = 256
FEWEST, MOST = 10_000, 40_000
"""Rows that a student learns from: four times the training rows, within these bounds."""


@dataclass(frozen=True, eq=False)
class BlackBox:
    """A model that only answers.

    Attributes:
        asked: The model itself.
        likeness: A differentiable likeness of it.
        encoder: Of the table.
        sample: A training row, for what encoded rows do not hold.
        taught: How many rows the model was asked about to make the likeness.
        reason: Why the likeness is a student, where the model has trees of its own.
    """

    asked: Predictor
    likeness: Surrogate
    encoder: Encoder
    sample: pd.DataFrame
    taught: int = 0
    reason: str = ""

    differentiable = False

    @property
    def labels(self) -> tuple[Any, ...]:
        """Of its classes, in its order; none for a regressor."""
        return self.asked.labels

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.labels)

    @property
    def description(self) -> str:
        """What the model was taken for."""
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"{self.asked.name}, asked for {self.asked.answers}, without gradients; the search follows "
            f"{self.likeness.description}{why}, and every answer is verified on the model itself"
        )

    def outputs(self, temperature: float) -> Callable[[Tensor], Tensor]:
        """Logits or predictions of the likeness, on encoded rows; keeps the graph."""
        soft = self.likeness.at(temperature)
        return soft if self.labels else lambda x: soft(x)[:, 0]

    def answer(self, frame: pd.DataFrame) -> Tensor:
        """What the model says of rows: log-probabilities ``(n, k)``, predictions ``(n,)``; NaN for none."""
        outputs = self.asked.outputs(_as_trained(self.encoder, frame))
        return outputs.clamp_min(_TINY).log() if self.labels else outputs

    def answers(self, x: Tensor, frame: pd.DataFrame | None = None) -> Tensor:
        """The same for encoded rows ``(n, width)``, which are decoded where ``frame`` does not hold them."""
        if frame is None:
            frame = decoded(self.encoder, x, self.sample)
        return self.answer(frame)

    def logits(self, x: Tensor) -> Tensor:
        """Log-probabilities of encoded rows ``(n, width) -> (n, k)``; there is no gradient."""
        return self.answers(x.detach()).to(x)


def _as_trained(encoder: Encoder, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with columns of plain objects in the dtypes of training: one cell that is none spoils a column."""
    columns = {}
    for feature in encoder.schema.features:
        column = frame[feature.name]
        if column.dtype == object and feature.dtype != object:
            for dtype in (feature.dtype, "float64"):
                with suppress(TypeError, ValueError):
                    columns[feature.name] = column.astype(dtype)
                    break
    return frame.assign(**columns) if columns else frame


def decoded(encoder: Encoder, x: Tensor, sample: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table for encoded ones; what these do not hold is as in the first row of a sample."""
    frame = encoder.decode(x)
    for feature in encoder.schema.features:
        if feature.kind == "identifier":
            cells = sample[feature.name].iloc[[0] * len(frame)]
            frame[feature.name] = cells.set_axis(frame.index)
    return frame[sample.columns]


def black_box(
    model: object,
    asked: Predictor,
    encoder: Encoder,
    frame: pd.DataFrame,
    x: Tensor,
    classes: Tensor,
    *,
    student: bool | None = None,
    seed: int = 0,
) -> BlackBox:
    """A model that only answers, with its likeness.

    Args:
        model: As it came, for its trees.
        asked: The same, as it is asked.
        encoder: Of the table.
        frame: Training rows.
        x: The same, encoded.
        classes: What the model decides for them, shape ``(n,)``.
        student: Whether the likeness must be a student, or must not; nothing lets the model decide.
        seed: Of the student's rows.

    Raises:
        Refused: Its own trees are asked for, and cannot be read.
    """
    reason = ""
    if not student:
        try:
            return BlackBox(asked, own_trees(model, encoder, frame.iloc[:SAMPLE]), encoder, frame.iloc[:1])
        except Refused as refusal:
            if student is False:
                raise
            reason = str(refusal) if _has_trees(model) else ""
    size = min(MOST, max(FEWEST, 4 * len(x)))
    taught = pool(x, classes, encoder.layout, size=size, seed=seed)
    outputs = torch.cat([asked.outputs(decoded(encoder, some, frame)) for some in taught.split(_BLOCK)])
    known = torch.isfinite(outputs if outputs.ndim == 1 else outputs.sum(dim=1))
    likeness = student_of(taught[known], outputs[known], encoder.layout, seed=seed)
    return BlackBox(asked, likeness, encoder, frame.iloc[:1], len(taught), reason)


def _has_trees(model: object) -> bool:
    """Whether it is a boosted model whose trees might have been read."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    module = type(last).__module__.split(".")[0]
    return module in ("xgboost", "lightgbm", "catboost") or "GradientBoosting" in type(last).__name__
