"""Saved explainers: a directory of safetensors and versioned JSON; no pickle is ever read."""

from plausiflow.persistence.estimators import StoredEstimator, restore_estimator
from plausiflow.persistence.files import DOCUMENT, ArtefactError, as_artefact_error, read_folder
from plausiflow.persistence.saved_explainer import SavedExplainer, load, save
from plausiflow.persistence.states import (
    TensorDict,
    add_prefix,
    fingerprint,
    get_settings,
    get_state,
    restore,
    to_json_bytes,
)
from plausiflow.persistence.stored_refits import SavedRefits
from plausiflow.persistence.synthetic_rows import TrainingSummary
from plausiflow.persistence.tree_checks import strip_lightgbm_parameters
from plausiflow.persistence.xgboost_files import xgboost_objective

__all__ = [
    "DOCUMENT", "ArtefactError", "SavedExplainer", "SavedRefits", "StoredEstimator", "TensorDict",
    "TrainingSummary", "add_prefix", "as_artefact_error", "fingerprint", "get_settings", "get_state",
    "load", "read_folder", "restore", "restore_estimator", "save", "strip_lightgbm_parameters",
    "to_json_bytes", "xgboost_objective",
]  # fmt: skip
