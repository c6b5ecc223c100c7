"""Shared by the tests of predictors: a table, scores and outcomes of its rows, a comparison of outputs."""

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

NO_YES = ("no", "yes")
THREE = ("high", "low", "middle")
NAMES = {"text": ("no", "yes"), "integers": (-1, 4), "zero and one": (0, 1), "booleans": (False, True)}


def table(n=120, seed=0) -> pd.DataFrame:
    """Whole numbers, a float, a boolean, text; the index is not that of the rows."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(18, 90, n),
        "the income": rng.normal(50, 10, n),
        "owns": rng.random(n) < 0.5,
        "job": rng.choice(["clerk", "nurse", "smith"], n),
    }
    return pd.DataFrame(columns, index=pd.Index(np.arange(n) * 3 + 7))


FRAME = table()
NUMBERS = FRAME[["age", "the income", "owns"]]
NEW = table(50, seed=1)


def score(frame) -> np.ndarray:
    return np.asarray(frame["age"] / 30 + frame["the income"] / 20 + frame["owns"], dtype=float)


def outcomes(frame, labels) -> np.ndarray:
    rng = np.random.default_rng(2)
    codes = pd.qcut(score(frame) + rng.normal(size=len(frame)), len(labels), labels=False)
    return np.array(labels)[codes]


def chance(frame) -> np.ndarray:
    """A probability that a function may answer with, shape (n,)."""
    return 1 / (1 + np.exp(5 - score(frame)))


def pipeline(model):
    columns = make_column_transformer(
        (StandardScaler(), ["the income", "age"]), (OneHotEncoder(sparse_output=False), ["job", "owns"])
    )
    return make_pipeline(columns, model)


def two(p) -> np.ndarray:
    return np.column_stack([1 - p, p])


def assert_equal(outputs, truth):
    assert outputs.dtype == torch.float64
    np.testing.assert_allclose(outputs.numpy(), truth, atol=1e-7, rtol=0)
