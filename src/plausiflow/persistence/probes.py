"""Synthetic rows that tell one model from another: drawn from the schema alone, never training rows.

Numbers are uniform over their training range, on their grid, levels uniform over those that are known. What
a model answers for them is kept; a model that is given later must answer the same.
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
from plausiflow.models import EncodedModel, Predictor, non_deterministic
from plausiflow.persistence.states import fingerprint
from plausiflow.tables import Encoder, is_missing, plain

ROWS = 64
TOLERANCE, ROUNDING = 1e-6, 1e-12
"""How far a model's answers may be from those before: of another day, and of its own copy."""
_MISSING = {"None": None, "NA": pd.NA, "NaN": np.nan}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What is remembered of a table besides what was learned.

    Attributes:
        fingerprint: A hash of its encoded rows and of their classes.
        rows: How many there were.
        missing: How each column writes a missing cell, where some row misses it.
        identifiers: A value of each identifier, which a model that takes it is given for rows that have none.
    """

    fingerprint: str
    rows: int
    missing: Mapping[str, str]
    identifiers: Mapping[str, Any]

    @classmethod
    def of(cls, frame: pd.DataFrame, encoder: Encoder, x: Tensor, classes: Tensor) -> Self:
        """Of training rows, encoded and as they came."""
        absent = {name: frame[name][is_missing(frame[name])] for name in frame.columns}
        names = [feature.name for feature in encoder.schema.features if feature.kind == "identifier"]
        first = {name: plain(frame[name].iloc[0]) for name in names}
        return cls(
            fingerprint=fingerprint({"x": x, "classes": classes}),
            rows=len(frame),
            missing={name: _written(cells.iloc[0]) for name, cells in absent.items() if len(cells)},
            identifiers={name: value for name, value in first.items() if _is_plain(value)},
        )


def probe_rows(encoder: Encoder, seed: int = 0) -> Tensor:
    """Encoded rows ``(ROWS, width)``, drawn from the schema."""
    layout, generator = encoder.layout, torch.Generator().manual_seed(seed)
    x = torch.zeros(ROWS, layout.width, dtype=torch.float64)
    numbers = torch.rand(ROWS, len(layout.numbers), generator=generator, dtype=torch.float64)
    x[:, layout.numbers] = numbers
    codes = torch.zeros(ROWS, len(layout.with_levels), dtype=torch.long)
    for j, block in enumerate(layout.with_levels):
        codes[:, j] = torch.randint(len(block.levels), (ROWS,), generator=generator)
    return layout.with_codes(layout.snap(x), codes)


def probe_frame(encoder: Encoder, x: Tensor, origin: Origin) -> pd.DataFrame:
    """The same as rows of the table, in its dtypes, missing cells written as it writes them."""
    frame = encoder.decode(x)
    for feature in encoder.schema.features:
        name = feature.name
        if name in origin.identifiers:
            cells: pd.Series = pd.Series([origin.identifiers[name]] * len(frame), dtype=object)
            frame[name] = cells.astype(feature.dtype)
        if name in origin.missing and frame[name].dtype == object:
            column = frame[name].to_numpy(dtype=object, copy=True)
            column[is_missing(frame[name])] = _MISSING[origin.missing[name]]
            frame[name] = pd.Series(column, dtype=object)
    return frame


def probe_answers(model: EncodedModel | Predictor, x: Tensor, frame: pd.DataFrame) -> Tensor:
    """Probabilities ``(ROWS, k)`` or predictions ``(ROWS,)``; NaN where the model has none."""
    if isinstance(model, Predictor):
        return model.outputs(frame)
    answers = model.answers(x)
    return answers.exp() if model.labels else answers


def require_same_answers(answers: Tensor, before: Tensor, *, given: bool) -> None:
    """Check that a model answers as the one that was saved did.

    Raises:
        ModelError: It does not.
    """
    shape, expected = tuple(answers.shape), tuple(before.shape)
    differ = torch.ones(len(before), dtype=torch.bool)
    if shape == expected:
        differ = non_deterministic(before, answers.to(before), tolerance=TOLERANCE)
    if bool(differ.any()):
        most = float((answers - before).abs().nan_to_num().max()) if shape == expected else math.inf
        what = "`model` must be the one that was explained" if given else "The stored model has changed"
        raise ModelError(
            f"{what}: for {int(differ.sum())} of {len(before)} synthetic rows it does not answer as it did "
            f"when the explainer was saved, but by up to {most:.2g} otherwise. Give that model, or fit the "
            "explainer to this one."
        )


def same_answers(answers: Tensor, before: Tensor, tolerance: float) -> bool:
    """Whether all answers are the same; one NaN is as good as another."""
    return answers.shape == before.shape and not bool(
        non_deterministic(before, answers.to(before), tolerance=tolerance).any()
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float) and value == value


def _written(cell: object) -> str:
    """How a missing cell is written."""
    return "None" if cell is None else "NA" if cell is pd.NA else "NaN"
