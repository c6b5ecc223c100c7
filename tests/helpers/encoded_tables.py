"""Helpers of the tests of encoding: a table, its schema, and rows that change while encoded."""

import warnings

import numpy as np
import pandas as pd
import torch

from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema, SchemaWarning


def infer_quietly(frame, **chosen) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        return Schema.infer(frame, **chosen)


def strip(column: pd.Series) -> list:
    cells = column.astype(object).where(column.notna(), None)
    return [cell.strip() if isinstance(cell, str) else cell for cell in cells]


TABLE = pd.DataFrame(
    {
        "age": [31, 54, 47, 60, 22, 38],
        "rate": [0.1, 0.2, 0.7, 0.3, 0.9, 1.1],
        "score": [0.1234567, 0.7654321, 0.3333333, 0.5050505, 0.9111111, 0.2],
        "sex": ["Male", " Male", "Female", "Male", "Female", "Female"],
        "owns": [True, False, True, True, False, True],
        "debt": [100.0, np.nan, 300.0, 200.0, 500.0, 200.0],
        "job": ["clerk", None, "clerk", "cook", "none", "cook"],
        "size": pd.Categorical(list("SMLSML"), categories=list("SML"), ordered=True),
        "country": ["NL"] * 6,
        "id": [f"k{i}" for i in range(6)],
    }
)


SCHEMA = Schema.infer(TABLE, kinds={"id": "identifier"})


def changed(rows, encoder=None, **numbers):
    """Return the rows decoded after some features were set to a number or to a level code."""
    encoder = encoder or Encoder(SCHEMA)
    x = encoder.encode(rows).x
    for name, value in numbers.items():
        block = encoder.layout.block(name)
        if block.number is not None:
            x[:, block.number] = block.scale.encode(torch.tensor(float(value)))
        if len(block.levels):
            x[:, block.levels.start : block.levels.stop] = 0
            x[:, block.levels.start + (0 if block.number is not None else value)] = 1
    return encoder.decode(x, like=rows)
