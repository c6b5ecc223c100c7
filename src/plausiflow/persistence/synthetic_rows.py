"""Synthetic rows that tell one model from another; they are drawn from the schema and are no training rows.

Numbers are uniform over their training range, on their grid; levels are uniform over the known ones. The
outputs of a model for these rows are saved. A model that is passed to ``load`` must give the same outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.errors import ModelError
from plausiflow.models import EncodedModel, Predictor, outputs_differ
from plausiflow.persistence.states import fingerprint
from plausiflow.tables import Encoder, is_missing, to_python

N_ROWS = 64
TOLERANCE, ROUNDING = 1e-6, 1e-12
"""Largest difference of a model's outputs from the saved ones: of a loaded model, and of a copy at once."""
_MISSING = {"None": None, "NA": pd.NA, "NaN": np.nan}


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """Facts about the training table that are saved besides what was learned."""

    fingerprint: str  # A hash of the encoded rows and their classes.
    rows: int  # The number of rows.
    missing: Mapping[str, str]  # How each column with missing cells writes them.
    identifiers: Mapping[str, Any]  # One value of each identifier column, for models that take it.

    @classmethod
    def from_table(cls, frame: pd.DataFrame, encoder: Encoder, x: Tensor, classes: Tensor) -> Self:
        """Summarize training rows, given as a table and encoded."""
        absent = {name: frame[name][is_missing(frame[name])] for name in frame.columns}
        names = [feature.name for feature in encoder.schema.features if feature.kind == "identifier"]
        first = {name: to_python(frame[name].iloc[0]) for name in names}
        return cls(
            fingerprint=fingerprint({"x": x, "classes": classes}),
            rows=len(frame),
            missing={name: _missing_name(cells.iloc[0]) for name, cells in absent.items() if len(cells)},
            identifiers={
                name: value
                for name, value in first.items()
                if isinstance(value, str | bool | int | float) and value == value
            },
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticRows:
    """Rows to compare models on."""

    encoder: Encoder
    x: Tensor  # Encoded rows, shape ``(N_ROWS, width)``.
    frame: pd.DataFrame  # The same rows as a table.

    @classmethod
    def decode(cls, encoder: Encoder, x: Tensor, summary: TrainingSummary) -> Self:
        """Build the table from encoded rows, with the dtypes and the missing values of the training table."""
        expected = (N_ROWS, encoder.layout.width)
        if x.shape != expected or x.dtype != torch.float64:
            raise ValueError(f"the synthetic rows must be doubles of shape {expected}")
        frame = encoder.decode(x)
        for feature in encoder.schema.features:
            name = feature.name
            if name in summary.identifiers:
                cells: pd.Series = pd.Series([summary.identifiers[name]] * len(frame), dtype=object)
                frame[name] = cells.astype(feature.dtype)
            if name in summary.missing and frame[name].dtype == object:
                column = frame[name].to_numpy(dtype=object, copy=True)
                column[is_missing(frame[name])] = _MISSING[summary.missing[name]]
                frame[name] = pd.Series(column, dtype=object)
        return cls(encoder=encoder, x=x, frame=frame)

    def outputs(self, model: EncodedModel | Predictor) -> Tensor:
        """Return probabilities ``(N_ROWS, k)`` or predictions ``(N_ROWS,)``; NaN where the model has none."""
        if isinstance(model, Predictor):
            return model.outputs(self.frame)
        outputs = model.predict_outputs(self.x)
        return outputs.exp() if model.labels else outputs


def draw_rows(encoder: Encoder) -> Tensor:
    """Draw encoded rows ``(N_ROWS, width)`` from the schema; they are always the same."""
    layout, generator = encoder.layout, torch.Generator().manual_seed(0)
    x = torch.zeros(N_ROWS, layout.width, dtype=torch.float64)
    x[:, layout.numbers] = torch.rand(N_ROWS, len(layout.numbers), generator=generator, dtype=torch.float64)
    codes = torch.zeros(N_ROWS, len(layout.with_levels), dtype=torch.long)
    for j, block in enumerate(layout.with_levels):
        codes[:, j] = torch.randint(len(block.levels), (N_ROWS,), generator=generator)
    return layout.with_codes(layout.snap(x), codes)


def differing_rows(outputs: Tensor, saved: Tensor, tolerance: float) -> Tensor:
    """Return which rows have other outputs than saved, bool, shape ``(n,)``; NaN equals NaN."""
    if outputs.shape != saved.shape:
        return torch.ones(len(saved), dtype=torch.bool)
    return outputs_differ(saved, outputs.to(saved), tolerance=tolerance)


def require_same_outputs(outputs: Tensor, saved: Tensor, *, given: bool, name: str = "`model`") -> None:
    """Raise unless a model, ``given`` by the user or stored, gives the saved outputs.

    ``name`` is what the error calls a given model.
    """
    differ = differing_rows(outputs, saved, TOLERANCE)
    if bool(differ.any()):
        same_shape = outputs.shape == saved.shape
        largest = float((outputs - saved).abs().nan_to_num().max()) if same_shape else math.inf
        role = "that was explained" if name == "`model`" else "that was saved in this place"
        problem = f"{name} must be the model {role}" if given else "The stored model has changed"
        raise ModelError(
            f"{problem}: its outputs for {int(differ.sum())} of {len(saved)} synthetic rows differ from the "
            f"saved ones by up to {largest:.2g}. Pass the model {role}, or fit a new explainer."
        )


def _missing_name(cell: object) -> str:
    return "None" if cell is None else "NA" if cell is pd.NA else "NaN"
