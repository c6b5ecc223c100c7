"""Rows of the table as a user's own model takes them: in training dtypes, decoded from encoded rows."""

from __future__ import annotations

from contextlib import suppress

import pandas as pd
from pandas.api.types import is_object_dtype
from torch import Tensor

from plausiflow.tables import Encoder


def with_training_dtypes(encoder: Encoder, frame: pd.DataFrame) -> pd.DataFrame:
    """Convert object columns to their training dtypes; one unreadable cell makes a column object."""
    columns = {}
    objects = {name for name, dtype in frame.dtypes.items() if is_object_dtype(dtype)}
    for feature in encoder.schema.features:
        if feature.name in objects and feature.dtype != object:
            column = frame[feature.name]
            for dtype in (feature.dtype, "float64"):
                with suppress(TypeError, ValueError, OverflowError):
                    columns[feature.name] = column.astype(dtype)
                    break
    return frame.assign(**columns) if columns else frame


def decode_rows(encoder: Encoder, x: Tensor, sample: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the table for encoded ones; identifiers are those of the first row of the sample."""
    frame = encoder.decode(x)
    for feature in encoder.schema.features:
        if feature.kind == "identifier":
            frame[feature.name] = sample[feature.name].iloc[[0] * len(frame)].set_axis(frame.index)
    return frame[sample.columns]


def decode_probe(encoder: Encoder, x: Tensor, sample: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return an encoded row as a model takes it; None if it has identifiers that no sample shows."""
    if sample is None:
        if any(feature.kind == "identifier" for feature in encoder.schema.features):
            return None
        frame = encoder.decode(x)[list(encoder.schema.names)]
    else:
        frame = decode_rows(encoder, x, sample)
    return with_training_dtypes(encoder, frame)
