"""Models: networks that plausiflow trains, and the models that users bring."""

from plausiflow.models.black_box import BlackBox
from plausiflow.models.decision import (
    Decision,
    DecisionThreshold,
    DecisionWarning,
    is_decision_threshold,
    parse_cutoffs,
    stated_cutoffs,
)
from plausiflow.models.joint import JointModels
from plausiflow.models.layers import Layers, read_layers
from plausiflow.models.model_calls import ModelCalls, count_model_calls
from plausiflow.models.model_rows import with_training_dtypes
from plausiflow.models.networks import LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow.models.node import NODE
from plausiflow.models.onnx_model import OnnxModel
from plausiflow.models.outcomes import encode_labels, is_continuous, pair_outcomes
from plausiflow.models.predictor import (
    OutputKind,
    Predictor,
    make_predictor,
    outputs_differ,
    restore_predictor,
)
from plausiflow.models.refits import MIN_GUIDES, MIN_JURORS, RefitPlan, Retrain, draw_refits
from plausiflow.models.resolve import LabelSource, ModelType, resolve_model, resolve_refit
from plausiflow.models.sklearn.columns import Fitted, InputFormat, UnsupportedModelError
from plausiflow.models.sklearn.conversion import (
    ConvertedClassifier,
    ConvertedRegressor,
    convert_classifier,
    convert_regressor,
)
from plausiflow.models.students import Students, train_students
from plausiflow.models.surrogate import Surrogate, restore_relaxed_trees, restore_trained_surrogate
from plausiflow.models.table_model import EncodedModel, TableModel
from plausiflow.models.torch_classifier import TorchClassifier
from plausiflow.models.torch_module import TableModule, torch_classifier, torch_regressor
from plausiflow.models.trees.exact_trees import ExactTrees, read_exact_trees
from plausiflow.models.trees.forest import Forest

__all__ = [
    "MIN_GUIDES",
    "MIN_JURORS",
    "NODE",
    "BlackBox",
    "ConvertedClassifier",
    "ConvertedRegressor",
    "Decision",
    "DecisionThreshold",
    "DecisionWarning",
    "EncodedModel",
    "ExactTrees",
    "Fitted",
    "Forest",
    "InputFormat",
    "JointModels",
    "LabelSource",
    "Layers",
    "LinearClassifier",
    "MLPClassifier",
    "ModelCalls",
    "ModelType",
    "NetworkClassifier",
    "OnnxModel",
    "OutputKind",
    "Predictor",
    "RefitPlan",
    "Retrain",
    "Students",
    "Surrogate",
    "TableModel",
    "TableModule",
    "TorchClassifier",
    "UnsupportedModelError",
    "convert_classifier",
    "convert_regressor",
    "count_model_calls",
    "draw_refits",
    "encode_labels",
    "is_continuous",
    "is_decision_threshold",
    "make_predictor",
    "outputs_differ",
    "pair_outcomes",
    "parse_cutoffs",
    "read_exact_trees",
    "read_layers",
    "resolve_model",
    "resolve_refit",
    "restore_predictor",
    "restore_relaxed_trees",
    "restore_trained_surrogate",
    "stated_cutoffs",
    "torch_classifier",
    "torch_regressor",
    "train_students",
    "with_training_dtypes",
]  # fmt: skip
