"""Models of scikit-learn, XGBoost, LightGBM and ONNX files as bytes, without pickle.

scikit-learn models are written by skops, which builds only objects of types that it knows to be safe and of
the types in ``TRUSTED``. XGBoost and LightGBM write their own formats; the few other attributes of their
estimators are stored beside them. Sizes and trees are checked before a library reads them, and boosters that
this process did not write are loaded in a child process first.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.models import Fitted, OnnxModel
from plausiflow.persistence.limits import check_archive, check_json
from plausiflow.persistence.tree_checks import (
    check_lightgbm,
    check_sklearn_trees,
    strip_lightgbm_parameters,
)
from plausiflow.persistence.trial_load import try_in_child
from plausiflow.persistence.xgboost_files import read_xgboost, to_xgboost
from plausiflow.tables import to_python

TRUSTED = frozenset(
    {
        "numpy.dtype",
        "numpy.number",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
    }
)
"""Types that a stored scikit-learn model may contain, besides scikit-learn estimators, plain values, arrays,
and functions of NumPy and SciPy on arrays."""
_ESTIMATORS = {"xgboost": ("XGBClassifier", "XGBRegressor"), "lightgbm": ("LGBMClassifier", "LGBMRegressor")}


class NotStorableError(Exception):
    """A model cannot be stored; the message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class StoredEstimator:
    """A fitted estimator as bytes."""

    file: str  # The name of its file.
    content: bytes  # The bytes of the file.
    attributes: Mapping[str, Any] = field(default_factory=dict)  # Its other attributes, as JSON values.


def store_estimator(model: Fitted) -> StoredEstimator:
    """Return a fitted estimator as bytes; raise :class:`NotStorableError` if it cannot be stored."""
    library, kind = type(model).__module__.partition(".")[0], type(model).__name__
    if library == "sklearn":
        return _store_sklearn(model)
    if isinstance(model, OnnxModel):
        return _store_onnx(model)
    if kind not in _ESTIMATORS.get(library, ()):
        raise NotStorableError(f"models of the class {library}.{kind} are not stored")
    return _store_xgboost(model, kind) if library == "xgboost" else _store_lightgbm(model, kind)


def restore_estimator(stored: StoredEstimator, *, known: bool = False) -> Fitted:
    """Return the estimator that :func:`store_estimator` wrote.

    Bytes that contain types that are not trusted, or invalid trees, raise an :class:`InvalidInputError`. If
    ``known``, this process wrote the bytes, and a booster is not tried in a child process.
    """
    if stored.file == "model.skops":
        return _restore_sklearn(stored.content)
    if stored.file == "model.onnx":
        return _restore_onnx(stored)
    restore = _restore_xgboost if stored.file == "model.json" else _restore_lightgbm
    return restore(stored, known=known)


def _store_sklearn(model: Fitted) -> StoredEstimator:
    try:
        from skops import io as skops
    except ImportError as error:
        raise NotStorableError('`skops` is not installed: pip install "plausiflow[files]"') from error
    try:
        content = skops.dumps(model)
        unknown = sorted(set(skops.get_untrusted_types(data=content)) - TRUSTED)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise NotStorableError(f"skops cannot write it: {error}") from error
    if unknown:
        raise NotStorableError(f"it contains types that are not trusted: {', '.join(unknown[:5])}")
    return StoredEstimator(file="model.skops", content=content)


def _restore_sklearn(content: bytes) -> Fitted:
    try:
        from skops import io as skops
    except ImportError as error:
        raise MissingExtraError("skops", "files", "Loading a scikit-learn model") from error
    check_archive(content, "model.skops")
    unknown = sorted(set(skops.get_untrusted_types(data=content)) - TRUSTED)
    if unknown:
        raise InvalidInputError(f"model.skops contains types that are not trusted: {', '.join(unknown[:5])}.")
    model = skops.loads(content, trusted=sorted(TRUSTED))
    check_sklearn_trees(model)
    return model


def _store_onnx(model: OnnxModel) -> StoredEstimator:
    if model.content is None:
        raise NotStorableError("its file is not known, only a session")
    classes = None if model.classes is None else list(map(to_python, model.classes))
    return StoredEstimator(
        file="model.onnx",
        content=model.content,
        attributes={"classes": classes, "logits": bool(model.logits)},
    )


def _restore_onnx(stored: StoredEstimator) -> OnnxModel:
    classes, logits = stored.attributes["classes"], stored.attributes["logits"] is True
    return OnnxModel(stored.content, classes=classes, logits=logits)


def _store_xgboost(model: Fitted, kind: str) -> StoredEstimator:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(path)
        content = path.read_bytes()
    missing = float(model.missing)
    settings = {"missing": None if math.isnan(missing) else missing, "n_jobs": model.n_jobs}
    return StoredEstimator(file="model.json", content=content, attributes={"class": kind, **settings})


def _restore_xgboost(stored: StoredEstimator, *, known: bool) -> Fitted:
    try:
        import xgboost
    except ImportError as error:
        raise MissingExtraError("xgboost", "trees", "Loading an XGBoost model") from error
    kind, missing = _kind("xgboost", stored), stored.attributes["missing"]
    content = to_xgboost(read_xgboost(stored.content))
    try_in_child("XGBoost", str(xgboost.build_info()["libxgboost"]), content, known=known)
    missing = math.nan if missing is None else float(missing)
    estimator = getattr(xgboost, kind)(missing=missing, n_jobs=_n_jobs(stored))
    try:
        estimator.load_model(bytearray(content))
    except xgboost.core.XGBoostError as error:
        raise InvalidInputError(f"XGBoost cannot read model.json: {str(error)[:200]}") from error
    return estimator


def _store_lightgbm(model: Fitted, kind: str) -> StoredEstimator:
    if callable(model.objective):
        raise NotStorableError("its objective is a function")
    attributes: dict[str, Any] = {
        "class": kind,
        "objective": model.objective_,
        "n_jobs": model.n_jobs,
        "n_features": int(model.n_features_in_),
        "named": hasattr(model, "feature_names_in_"),
    }
    if kind == "LGBMClassifier":
        classes = np.asarray(model.classes_)
        plain = all(isinstance(label, str | bool | int | float) for label in classes.tolist())
        if classes.dtype.kind not in "biufUO" or not plain:
            raise NotStorableError("its classes are not text, numbers or booleans")
        attributes |= {"classes": classes.tolist(), "dtype": classes.dtype.str}
    return StoredEstimator(
        file="model.txt",
        content=strip_lightgbm_parameters(model.booster_.model_to_string()).encode(),
        attributes=attributes,
    )


def _restore_lightgbm(stored: StoredEstimator, *, known: bool) -> Fitted:
    """Build an estimator around a booster, which LightGBM itself cannot do."""
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("lightgbm", "trees", "Loading a LightGBM model") from error
    attributes = stored.attributes
    check_lightgbm(stored.content)
    check_json(stored.content.rpartition(b"\npandas_categorical:")[2], "pandas_categorical of model.txt")
    try_in_child("LightGBM", str(lightgbm.libpath._LIB._name), stored.content, known=known)
    try:
        booster = lightgbm.Booster(model_str=stored.content.decode())
    except lightgbm.basic.LightGBMError as error:
        raise InvalidInputError(f"LightGBM cannot read model.txt: {str(error)[:200]}") from error
    estimator = getattr(lightgbm, _kind("lightgbm", stored))(n_jobs=_n_jobs(stored), verbose=-1)
    estimator._Booster, estimator.fitted_ = booster, True
    estimator._objective = str(attributes["objective"])
    estimator._n_features = estimator._n_features_in = int(attributes["n_features"])
    estimator._fitted_with_feature_names = bool(attributes["named"])
    estimator._best_iteration, estimator._best_score = booster.best_iteration, {}
    estimator._evals_result = None
    if _kind("lightgbm", stored) == "LGBMClassifier":
        classes = np.array(attributes["classes"], dtype=_parse_dtype(attributes["dtype"]))
        if classes.ndim != 1 or len(classes) < 2:
            raise InvalidInputError("The classes of model.txt must be a list of two or more.")
        estimator._classes, estimator._n_classes = classes, len(classes)
        estimator._class_map = {label: i for i, label in enumerate(classes)}
        estimator._le = lightgbm.compat._LGBMLabelEncoder()
        estimator._le.classes_ = classes
    return estimator


def _kind(library: str, stored: StoredEstimator) -> str:
    """Return the name of the estimator's class, which must be a supported one."""
    kind = stored.attributes["class"]
    if kind not in _ESTIMATORS[library]:
        known = " or ".join(_ESTIMATORS[library])
        raise InvalidInputError(f"{stored.file} must be of {known}; got {kind!r}.")
    return str(kind)


def _n_jobs(stored: StoredEstimator) -> int | None:
    n_jobs = stored.attributes["n_jobs"]
    return None if n_jobs is None else int(n_jobs)


def _parse_dtype(name: object) -> np.dtype[Any]:
    if not isinstance(name, str) or len(name) > 8 or name.lstrip("<>|=")[:1] not in tuple("biufUO"):
        raise InvalidInputError(f"The classes must have a dtype of text, numbers or booleans; got {name!r}.")
    return np.dtype(name)
