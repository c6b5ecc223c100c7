"""Models of scikit-learn, XGBoost and LightGBM as bytes, without pickle, and back.

scikit-learn's go through skops, which makes only objects of types that it knows to be safe and of those that
are named here. XGBoost and LightGBM write their own files; with them goes the little that their estimators
add. Trees are looked at before anybody follows them. A model is only called stored after its copy was made
again and answers some rows alike.
"""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.models import Fitted
from plausiflow.persistence.boosters import check_lightgbm, check_xgboost, without_parameters
from plausiflow.persistence.nodes import check_trees

TRUSTED = frozenset(
    {
        "numpy.dtype",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
    }
)
"""Types that a stored model of scikit-learn may hold, besides estimators of scikit-learn, plain values,
arrays, and functions of NumPy and SciPy that work on arrays."""
_ESTIMATORS = {"xgboost": ("XGBClassifier", "XGBRegressor"), "lightgbm": ("LGBMClassifier", "LGBMRegressor")}
_MOST_ENTRIES, _MOST_BYTES = 200_000, 8 << 30


class NotStored(Exception):
    """A model cannot be stored; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A model as bytes.

    Attributes:
        file: The name of its file.
        content: What is in it.
        about: What else its estimator needs, as JSON has it.
    """

    file: str
    content: bytes
    about: Mapping[str, Any] = field(default_factory=dict)


def stored(model: Fitted) -> Stored:
    """A fitted estimator as bytes.

    Raises:
        NotStored: It is of a kind that is not stored here.
    """
    library, kind = type(model).__module__.partition(".")[0], type(model).__name__
    if library == "sklearn":
        return _to_skops(model)
    if kind not in _ESTIMATORS.get(library, ()):
        raise NotStored(f"a {kind} of `{library}` is not stored")
    return _from_xgboost(model, kind) if library == "xgboost" else _from_lightgbm(model, kind)


def restored(saved: Stored) -> Fitted:
    """The estimator that :func:`stored` wrote.

    Raises:
        MissingExtraError: Its library is not installed.
        InvalidInputError: The bytes hold what is not trusted.
    """
    if saved.file == "model.skops":
        return _of_skops(saved.content)
    return _to_xgboost(saved) if saved.file == "model.json" else _to_lightgbm(saved)


def _to_skops(model: Fitted) -> Stored:
    try:
        from skops import io as skops
    except ImportError as error:
        raise NotStored('the package `skops` is not installed: pip install "plausiflow[files]"') from error
    try:
        content = skops.dumps(model)
        unknown = sorted(set(skops.get_untrusted_types(data=content)) - TRUSTED)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise NotStored(f"skops cannot write it: {error}") from error
    if unknown:
        raise NotStored(f"it holds types that are not trusted: {', '.join(unknown[:5])}")
    return Stored(file="model.skops", content=content)


def _of_skops(content: bytes) -> Fitted:
    try:
        from skops import io as skops
    except ImportError as error:
        raise MissingExtraError("skops", "files", "Loading a model of scikit-learn") from error
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES or sum(entry.file_size for entry in entries) > _MOST_BYTES:
        raise InvalidInputError(f"model.skops unpacks to more than {_MOST_BYTES} bytes")
    unknown = sorted(set(skops.get_untrusted_types(data=content)) - TRUSTED)
    if unknown:
        raise InvalidInputError(f"model.skops holds types that are not trusted: {', '.join(unknown[:5])}")
    model = skops.loads(content, trusted=sorted(TRUSTED))
    check_trees(model)
    return model


def _from_xgboost(model: Fitted, kind: str) -> Stored:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(path)
        content = path.read_bytes()
    missing = float(model.missing)
    settings = {"missing": None if math.isnan(missing) else missing, "n_jobs": model.n_jobs}
    return Stored(file="model.json", content=content, about={"estimator": kind, **settings})


def _to_xgboost(saved: Stored) -> Fitted:
    try:
        import xgboost
    except ImportError as error:
        raise MissingExtraError("xgboost", "trees", "Loading a model of XGBoost") from error
    kind, missing = _kind("xgboost", saved), saved.about["missing"]
    check_xgboost(saved.content)
    made = getattr(xgboost, kind)(
        missing=math.nan if missing is None else float(missing), n_jobs=_threads(saved)
    )
    try:
        made.load_model(bytearray(saved.content))
    except xgboost.core.XGBoostError as error:
        raise InvalidInputError(f"XGBoost cannot read model.json: {str(error)[:200]}") from error
    return made


def _from_lightgbm(model: Fitted, kind: str) -> Stored:
    if callable(model.objective):
        raise NotStored("its objective is a function")
    about: dict[str, Any] = {
        "estimator": kind,
        "objective": model.objective_,
        "n_jobs": model.n_jobs,
        "n_features": int(model.n_features_in_),
        "named": hasattr(model, "feature_names_in_"),
    }
    if kind == "LGBMClassifier":
        classes = np.asarray(model.classes_)
        if classes.dtype.kind not in "biufUO" or not all(map(_is_plain, classes.tolist())):
            raise NotStored("its classes are neither texts, numbers nor booleans")
        about |= {"classes": classes.tolist(), "dtype": classes.dtype.str}
    return Stored(
        file="model.txt", content=without_parameters(model.booster_.model_to_string()).encode(), about=about
    )


def _to_lightgbm(saved: Stored) -> Fitted:
    """An estimator around a booster; LightGBM has no way of its own to make one."""
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("lightgbm", "trees", "Loading a model of LightGBM") from error
    about, text = saved.about, saved.content.decode()
    check_lightgbm(text)
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise InvalidInputError(f"LightGBM cannot read model.txt: {str(error)[:200]}") from error
    made = getattr(lightgbm, _kind("lightgbm", saved))(n_jobs=_threads(saved), verbose=-1)
    made._Booster, made.fitted_ = booster, True
    made._objective = str(about["objective"])
    made._n_features = made._n_features_in = int(about["n_features"])
    made._fitted_with_feature_names = bool(about["named"])
    made._best_iteration, made._best_score, made._evals_result = booster.best_iteration, {}, None
    if _kind("lightgbm", saved) == "LGBMClassifier":
        classes = np.array(about["classes"], dtype=_dtype(about["dtype"]))
        if classes.ndim != 1 or len(classes) < 2:
            raise InvalidInputError("the classes of model.txt must be a list of two or more")
        made._classes, made._n_classes = classes, len(classes)
        made._class_map = {label: i for i, label in enumerate(classes)}
        made._le = lightgbm.compat._LGBMLabelEncoder()
        made._le.classes_ = classes
    return made


def _kind(library: str, saved: Stored) -> str:
    """The estimator's class, out of those that are stored."""
    kind = saved.about["estimator"]
    if kind not in _ESTIMATORS[library]:
        raise InvalidInputError(f"{saved.file} must be of {' or '.join(_ESTIMATORS[library])}; got {kind!r}")
    return str(kind)


def _threads(saved: Stored) -> int | None:
    threads = saved.about["n_jobs"]
    return None if threads is None else int(threads)


def _dtype(written: object) -> np.dtype[Any]:
    if not isinstance(written, str) or len(written) > 8 or written.lstrip("<>|=")[:1] not in tuple("biufUO"):
        raise InvalidInputError(f"the type of classes is not known: {written!r}")
    return np.dtype(written)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | bool | int | float)
