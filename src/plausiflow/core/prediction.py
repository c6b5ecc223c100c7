"""Probabilities and classes that any classifier predicts."""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.core.protocols import Classifier


def predict_proba(classifier: Classifier, x: Tensor) -> Tensor:
    """Class probabilities, the softmax of the logits; keeps the graph.

    Args:
        classifier: Any classifier.
        x: Rows, shape ``(n, d)``.

    Returns:
        Probabilities, shape ``(n, k)``.
    """
    return classifier.logits(x).softmax(dim=-1)


def predict(classifier: Classifier, x: Tensor) -> Tensor:
    """The class with the largest logit, the first of them where several tie.

    Args:
        classifier: Any classifier.
        x: Rows, shape ``(n, d)``.

    Returns:
        Classes, shape ``(n,)``, long.
    """
    with torch.no_grad():
        return classifier.logits(x).argmax(dim=-1)
