"""A model type from outside the package: any object with the protocol of a classifier or a regressor."""

import numpy as np
import pandas as pd
import torch

import plausiflow as pf


class Ring:
    """A classifier of encoded rows that no library has: class 1 outside a circle around the middle."""

    n_classes, differentiable = 2, True

    def logits(self, x):
        outside = 40 * ((x - 0.5).square().sum(1) - 0.05)
        return torch.stack([torch.zeros_like(outside), outside], 1)


class Product:
    """A regressor of encoded rows: the product of both numbers."""

    def values(self, x):
        return x[:, 0] * x[:, 1]


def table() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).random((200, 2)), columns=["a", "b"])


def test_a_classifier_from_outside_is_explained():
    x, model = table(), Ring()
    y = np.where(((x.to_numpy() - 0.5) ** 2).sum(1) > 0.05, "outer", "inner")
    explainer = pf.Explainer(model, confidence=None, judges=0).fit(x, y)
    rows = x[explainer.predict(x) == "inner"].iloc[:5]
    result = explainer.explain(rows, target="outer")
    assert (result.status["status"] == "found").all()
    assert (explainer.predict(result.answers) == "outer").all()


def test_a_regressor_from_outside_is_explained():
    x = table()
    explainer = pf.Explainer(Product(), confidence=None, judges=0).fit(x, x["a"] * x["b"])
    rows = x[explainer.predict(x) < 0.2].iloc[:5]
    result = explainer.explain(rows, target=(0.4, 0.6))
    assert (result.status["status"] == "found").all()
    assert explainer.predict(result.answers).between(0.4, 0.6).all()
