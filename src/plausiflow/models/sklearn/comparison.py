"""Comparison of a converted model with the original, on rows of a table and on perturbed rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.models.sklearn.columns import Fitted, InputFormat, UnsupportedModelError, call_model
from plausiflow.tables import Encoder, float_dtype

TOLERANCE = 1e-6
"""Largest accepted difference of probabilities, or of numbers relative to their size."""
_ROWS = 256
_OVERSHOOT = 0.25  # How far perturbed numbers go beyond the training range, as a share of it.


def check_predictions(
    predict: Callable[[Tensor], Tensor],
    model: Fitted,
    inputs: InputFormat,
    encoder: Encoder,
    sample: pd.DataFrame,
) -> None:
    """Raise unless a converted model predicts as the original, on sample rows and on perturbed rows.

    ``predict`` returns logits ``(n, k)``, whose softmax is compared if the model has probabilities, or
    numbers ``(n,)``, for encoded rows. Predictions may differ by up to 1e-6.
    """
    differences = []
    for frame in (round_trip_rows(encoder, sample), perturbed_rows(encoder, sample)):
        encoded = encoder.encode(frame)
        with torch.no_grad():
            predicted = predict(encoded.x[torch.from_numpy(encoded.usable)])
        differences.append(prediction_difference(predicted, model, inputs.select(frame[encoded.usable])))
    difference = float(np.max(differences))
    if not difference <= TOLERANCE:
        hint = "; it is given single precision, double may do" if _is_single(inputs.select(sample)) else ""
        raise UnsupportedModelError(
            f"{type(model).__name__} and its conversion differ by up to {difference:.1e} in their answers"
            + hint
        )


def _is_single(rows: Any) -> bool:  # noqa: ANN401
    dtypes = rows.dtypes if isinstance(rows, pd.DataFrame) else [rows.dtype]
    return all(float_dtype(dtype).itemsize < 8 for dtype in dtypes)


def prediction_difference(predicted: Tensor, model: Fitted, rows: Any) -> float:  # noqa: ANN401
    """Return the largest difference between predictions and those of the model itself.

    For logits ``(n, k)`` of a classifier it is a difference of probabilities, or of the decision function if
    it has none; for numbers ``(n,)`` of a regressor a difference of predictions. It is divided by the model's
    prediction where that exceeds one.
    """
    if predicted.ndim == 1:
        expected, actual = call_model(model, "predict", rows), predicted.numpy()
        if expected.shape[1:] == (1,):  # the model was fitted on a table with one column
            expected = expected[:, 0]
    elif hasattr(model, "predict_proba"):
        expected, actual = call_model(model, "predict_proba", rows), predicted.softmax(dim=1).numpy()
    else:
        expected = call_model(model, "decision_function", rows)
        actual = (predicted[:, 1] - predicted[:, 0] if expected.ndim == 1 else predicted).numpy()
    if actual.shape != expected.shape:
        raise UnsupportedModelError(
            f"{type(model).__name__} answers with shape {expected.shape}, not {actual.shape}"
        )
    return float((np.abs(actual - expected) / np.maximum(1, np.abs(expected))).max())


def _usable_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """Return up to 256 rows that can be encoded, spread over the sample, with a new index."""
    usable = np.flatnonzero(encoder.encode(sample).usable)
    if not len(usable):
        raise UnsupportedModelError(
            "the sample has no row that can be encoded, to compare the model's answers on"
        )
    chosen = usable[np.linspace(0, len(usable) - 1, min(len(usable), _ROWS)).astype(np.int64)]
    return sample.iloc[chosen].reset_index(drop=True)


def round_trip_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the sample after encoding and decoding."""
    rows = _usable_rows(encoder, sample)
    return encoder.decode(encoder.encode(rows).x, like=rows)


def perturbed_rows(encoder: Encoder, sample: pd.DataFrame) -> pd.DataFrame:
    """Return rows with random numbers, some beyond the training range, and with every level in turn.

    Missing cells stay missing, because their marker differs between rows. Other cells become missing only in
    columns where the sample misses none.
    """
    rows, layout = _usable_rows(encoder, sample), encoder.layout
    n = max([_ROWS, *(len(block.levels) for block in layout.with_levels)])
    like = rows.iloc[np.resize(np.arange(len(rows)), n)].reset_index(drop=True)
    x = encoder.encode(like).x
    codes, generator = layout.codes(x), torch.Generator().manual_seed(0)
    numbers = torch.rand(n, len(layout.numbers), generator=generator, dtype=x.dtype)
    numbers[::2] = numbers[::2] * (1 + 2 * _OVERSHOOT) - _OVERSHOOT
    x[:, layout.numbers] = numbers
    for j, block in enumerate(layout.with_levels):
        closed = torch.tensor(block.closed)
        stays = closed[codes[:, j]]
        new = torch.randperm(n, generator=generator) % len(block.levels)
        codes[:, j] = torch.where(stays | (closed[new] & stays.any()), codes[:, j], new)
    return encoder.decode(layout.with_codes(x, codes), like=like)
