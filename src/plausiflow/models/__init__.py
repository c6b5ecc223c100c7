"""Classifiers: our own networks, and models that users bring."""

from plausiflow.models.base import NetworkClassifier
from plausiflow.models.black_box import BlackBox
from plausiflow.models.encoded import EncodedModel, in_order, is_measured, labels_of, numbers_of
from plausiflow.models.networks import LinearClassifier, MLPClassifier
from plausiflow.models.node import NODE
from plausiflow.models.predictor import OutputKind, Predictor, asked_so, non_deterministic
from plausiflow.models.resolve import ModelResolver, ModelType, predicts_numbers
from plausiflow.models.sklearn.columns import Fitted, Refused
from plausiflow.models.sklearn.comparison import Intake
from plausiflow.models.sklearn.conversion import (
    ConvertedClassifier,
    ConvertedRegressor,
    convert,
    convert_regressor,
)
from plausiflow.models.sparse import entmax15, entmoid15, sparsemax, sparsemoid
from plausiflow.models.surrogate import Surrogate, restore_imitation, restore_relaxed_trees
from plausiflow.models.torch_classifier import TorchClassifier
from plausiflow.models.torch_module import TableModule, torch_classifier, torch_regressor
from plausiflow.models.trees.forest import Forest

__all__ = [
    "NODE",
    "BlackBox",
    "ConvertedClassifier",
    "ConvertedRegressor",
    "EncodedModel",
    "Fitted",
    "Forest",
    "Intake",
    "LinearClassifier",
    "MLPClassifier",
    "ModelResolver",
    "ModelType",
    "NetworkClassifier",
    "OutputKind",
    "Predictor",
    "Refused",
    "Surrogate",
    "TableModule",
    "TorchClassifier",
    "asked_so",
    "convert",
    "convert_regressor",
    "entmax15",
    "entmoid15",
    "in_order",
    "is_measured",
    "labels_of",
    "non_deterministic",
    "numbers_of",
    "predicts_numbers",
    "restore_imitation",
    "restore_relaxed_trees",
    "sparsemax",
    "sparsemoid",
    "torch_classifier",
    "torch_regressor",
]
