"""Models in files: skops for scikit-learn, the own formats of XGBoost and LightGBM, ONNX; never a pickle.

The content is checked like the model of a saved explainer: :mod:`plausiflow.persistence.estimators`.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from plausiflow.errors import InvalidInputError, MissingExtraError, PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.models import OnnxModel
from plausiflow.persistence import (
    StoredEstimator,
    restore_estimator,
    strip_lightgbm_parameters,
    xgboost_objective,
)

MAX_BYTES = 8 << 30
PICKLES = (".pkl", ".pickle", ".joblib", ".sav", ".dill", ".cloudpickle")
_READ_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    MemoryError, OSError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Errors that libraries raise for files with other content than their name says."""
_FORMS = (
    "a .skops file, XGBoost's .json or .ubj, LightGBM's .txt, an .onnx file, or the directory of a saved "
    "explainer"
)
_XGBOOST_CLASSIFIERS = ("binary:logistic", "multi:softprob")
_XGBOOST_REGRESSORS = ("reg:", "count:poisson")
_LIGHTGBM_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
_LIGHTGBM_REGRESSORS = (
    "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie",
)  # fmt: skip


def read_model(path: Path, labels: Sequence[Any]) -> Any:  # noqa: ANN401  (whatever model it is)
    """Return the model in a file, or that of a saved explainer, without running code from the file.

    ``labels`` are the sorted outcomes of the table; files of LightGBM do not contain them.
    """
    if path.is_dir():
        return Explainer.load(path).model
    if not path.is_file():
        raise InvalidInputError(f"There is no model {path}. Give {_FORMS}.")
    readers: dict[str, Callable[[bytes], Any]] = {
        ".skops": lambda content: restore_estimator(StoredEstimator(file="model.skops", content=content)),
        ".json": lambda content: _read_xgboost(content, path.name),
        ".ubj": lambda content: _read_xgboost(content, path.name),
        ".onnx": OnnxModel,
        ".txt": lambda content: _read_lightgbm(content.decode(), labels),
    }
    with path.open("rb") as file:
        first = file.read(1)
    if path.suffix.lower() in PICKLES or first == b"\x80":
        raise InvalidInputError(
            f"{path} is a pickle, which runs code when it is read, so it is not read. If you trust it, load "
            "it in Python and save it with skops: `import skops.io; skops.io.dump(model, "
            f'"{path.stem}.skops")`, then give --model {path.stem}.skops.'
        )
    if path.suffix not in readers:
        raise InvalidInputError(
            f"{path} is not a model that can be read here: expected {_FORMS}. Explain other models in "
            "Python: `Explainer(model).fit(x, y)`."
        )
    with _reading(path):
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInputError(f"it has {path.stat().st_size} bytes, more than {MAX_BYTES}")
        return readers[path.suffix](path.read_bytes())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except MissingExtraError:
        raise
    except (PlausiflowError, *_READ_ERRORS) as error:
        text = " ".join(str(error).split())[:300].rstrip(".")
        why = text if isinstance(error, PlausiflowError) else f"{type(error).__name__}: {text}"
        raise InvalidInputError(
            f"The model {path} cannot be read: {why}. Save it again with the library versions that are "
            "installed here, or explain it in Python: `Explainer(model).fit(x, y)`."
        ) from error


def _read_xgboost(content: bytes, name: str) -> Any:  # noqa: ANN401
    objective = xgboost_objective(content, name)
    if objective in _XGBOOST_CLASSIFIERS:
        kind = "XGBClassifier"
    elif objective.startswith(_XGBOOST_REGRESSORS):
        kind = "XGBRegressor"
    else:
        raise InvalidInputError(
            f"its objective is {objective!r}; supported are {', '.join(_XGBOOST_CLASSIFIERS)} and reg:…"
        )
    attributes = {"class": kind, "missing": None, "n_jobs": 1}
    return restore_estimator(StoredEstimator(file="model.json", content=content, attributes=attributes))


def _read_lightgbm(text: str, labels: Sequence[Any]) -> Any:  # noqa: ANN401
    objective_line = re.search(r"^objective=(\S+)(?:.*num_class:(\d+))?", text, re.MULTILINE)
    columns = re.search(r"^feature_names=(.*)$", text, re.MULTILINE)
    if objective_line is None or columns is None:
        raise InvalidInputError("it was not written by `booster.save_model` of LightGBM")
    objective, names = objective_line[1], columns[1].split(" ")
    attributes: dict[str, Any] = {
        "class": "LGBMRegressor",
        "objective": objective,
        "n_jobs": 1,
        "n_features": len(names),
        "named": names != [f"Column_{i}" for i in range(len(names))],
    }
    if objective in _LIGHTGBM_CLASSIFIERS:
        count = int(objective_line[2] or 2)
        if len(labels) != count:
            raise InvalidInputError(
                f"it has {count} outcomes, and the table has {len(labels)}: "
                f"{', '.join(map(repr, labels[:10]))}"
            )
        classes = np.array(list(labels))
        attributes |= {"class": "LGBMClassifier", "classes": classes.tolist(), "dtype": classes.dtype.str}
    elif objective not in _LIGHTGBM_REGRESSORS:
        known = ", ".join((*_LIGHTGBM_CLASSIFIERS, *_LIGHTGBM_REGRESSORS))
        raise InvalidInputError(f"its objective is {objective!r}; supported are {known}")
    content = strip_lightgbm_parameters(text).encode()
    return restore_estimator(StoredEstimator(file="model.txt", content=content, attributes=attributes))
