"""Saved explainers: a directory of safetensors and versioned JSON; no pickle is ever read."""

from plausiflow.persistence.estimators import StoredEstimator, restore_estimator
from plausiflow.persistence.files import (
    DOCUMENT,
    VALUE_ERRORS,
    ArtefactError,
    as_artefact_error,
    read_folder,
)
from plausiflow.persistence.json_files import damaged_file, read_json_file, write_json_file
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
from plausiflow.persistence.stored_rows import restore_rows, store_rows
from plausiflow.persistence.synthetic_rows import SyntheticRows, TrainingSummary, draw_rows
from plausiflow.persistence.tree_checks import strip_lightgbm_parameters
from plausiflow.persistence.xgboost_files import xgboost_objective

__all__ = [
    "DOCUMENT", "VALUE_ERRORS", "ArtefactError", "SavedExplainer", "SavedRefits", "StoredEstimator",
    "SyntheticRows", "TensorDict", "TrainingSummary", "add_prefix", "as_artefact_error", "damaged_file",
    "draw_rows", "fingerprint", "get_settings", "get_state", "load", "read_folder", "read_json_file",
    "restore", "restore_estimator", "restore_rows", "save", "store_rows", "strip_lightgbm_parameters",
    "to_json_bytes", "write_json_file", "xgboost_objective",
]  # fmt: skip
