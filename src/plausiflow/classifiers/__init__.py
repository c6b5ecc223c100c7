"""Classifiers: our own networks, and models that users bring."""

from plausiflow.classifiers.adapters import TorchClassifier
from plausiflow.classifiers.base import NetworkClassifier, predict, predict_proba
from plausiflow.classifiers.networks import LinearClassifier, MLPClassifier
from plausiflow.classifiers.node import NODE
from plausiflow.classifiers.sparse import entmax15, entmoid15, sparsemax, sparsemoid

__all__ = [
    "NODE",
    "LinearClassifier",
    "MLPClassifier",
    "NetworkClassifier",
    "TorchClassifier",
    "entmax15",
    "entmoid15",
    "predict",
    "predict_proba",
    "sparsemax",
    "sparsemoid",
]
