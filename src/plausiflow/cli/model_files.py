"""Models in files: scikit-learn's through skops, XGBoost's and LightGBM's own; never a pickle.

What a file holds is checked as the model of a saved explainer is: :mod:`plausiflow.persistence.estimators`.
"""

from __future__ import annotations

import json
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
from plausiflow.persistence import Stored, restored, without_parameters

PICKLES = (".pkl", ".pickle", ".joblib", ".sav", ".dill", ".cloudpickle")
_WRONG = (
    LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What libraries raise for a file that is not what its name says."""
_FORMS = "a .skops file, XGBoost's .json or .ubj, LightGBM's .txt, or the directory of a saved explainer"
_XGBOOST_CLASSIFIERS = ("binary:logistic", "multi:softprob")
_XGBOOST_REGRESSORS = ("reg:", "count:poisson")
_LIGHTGBM_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
_LIGHTGBM_REGRESSORS = (
    "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie",
)  # fmt: skip


def read_model(path: Path, labels: Sequence[Any]) -> Any:  # noqa: ANN401  (whatever model it is)
    """The model in a file, or that of a saved explainer.

    Args:
        path: Of a file, or of the directory of an explainer.
        labels: Sorted outcomes of the table; LightGBM's files do not hold those of their models.

    Raises:
        InvalidInputError: This is no model that can be read without running code.
        MissingExtraError: Its library is not installed.
    """
    if path.is_dir():
        return Explainer.load(path).model
    if not path.is_file():
        raise InvalidInputError(f"There is no model {path}. Give {_FORMS}.")
    readers: dict[str, Callable[[bytes], Any]] = {
        ".skops": lambda content: restored(Stored(file="model.skops", content=content)),
        ".json": _xgboost,
        ".ubj": lambda content: _xgboost(_as_json(content)),
        ".txt": lambda content: _lightgbm(content.decode(), labels),
    }
    content = path.read_bytes()
    if path.suffix.lower() in PICKLES or content[:1] == b"\x80":
        raise InvalidInputError(
            f"{path} is a pickle, which runs code when it is read, so it is not read. Where you trust it, "
            "load it in Python and save it with skops: `import skops.io; skops.io.dump(model, "
            f'"{path.stem}.skops")`, then give --model {path.stem}.skops.'
        )
    if path.suffix not in readers:
        raise InvalidInputError(
            f"{path} is no model that can be read here: expected {_FORMS}. Any other model can be explained "
            "in Python: `Explainer(model).fit(x, y)`."
        )
    with _reading(path):
        return readers[path.suffix](content)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file in whatever is wrong with it."""
    try:
        yield
    except MissingExtraError:
        raise
    except (PlausiflowError, *_WRONG) as error:
        text = " ".join(str(error).split())[:300].rstrip(".")
        why = text if isinstance(error, PlausiflowError) else f"{type(error).__name__}: {text}"
        raise InvalidInputError(
            f"The model {path} cannot be read: {why}. Save it anew, with the versions of libraries that are "
            "installed here, or explain it in Python: `Explainer(model).fit(x, y)`."
        ) from error


def _as_json(content: bytes) -> bytes:
    """XGBoost's binary file as its JSON; no tree is followed yet."""
    try:
        import xgboost
    except ImportError as error:
        raise MissingExtraError("xgboost", "trees", "Loading a model of XGBoost") from error
    try:
        return bytes(xgboost.Booster(model_file=bytearray(content)).save_raw(raw_format="json"))
    except xgboost.core.XGBoostError as error:
        raise InvalidInputError(f"XGBoost cannot read it: {str(error)[:200]}") from error


def _xgboost(content: bytes) -> Any:  # noqa: ANN401
    objective = str(json.loads(content)["learner"]["objective"]["name"])
    if objective in _XGBOOST_CLASSIFIERS:
        kind = "XGBClassifier"
    elif objective.startswith(_XGBOOST_REGRESSORS):
        kind = "XGBRegressor"
    else:
        raise InvalidInputError(
            f"its objective is {objective!r}; models of {', '.join(_XGBOOST_CLASSIFIERS)} and reg:… are read"
        )
    about = {"estimator": kind, "missing": None, "n_jobs": 1}
    return restored(Stored(file="model.json", content=content, about=about))


def _lightgbm(text: str, labels: Sequence[Any]) -> Any:  # noqa: ANN401
    stated = re.search(r"^objective=(\S+)(?:.*num_class:(\d+))?", text, re.MULTILINE)
    columns = re.search(r"^feature_names=(.*)$", text, re.MULTILINE)
    if stated is None or columns is None:
        raise InvalidInputError("it is no file that `booster.save_model` of LightGBM wrote")
    objective, names = stated[1], columns[1].split(" ")
    about: dict[str, Any] = {
        "estimator": "LGBMRegressor",
        "objective": objective,
        "n_jobs": 1,
        "n_features": len(names),
        "named": names != [f"Column_{i}" for i in range(len(names))],
    }
    if objective in _LIGHTGBM_CLASSIFIERS:
        count = int(stated[2] or 2)
        if len(labels) != count:
            raise InvalidInputError(
                f"it decides between {count} outcomes, and the table has {len(labels)}: "
                f"{', '.join(map(repr, labels[:10]))}"
            )
        classes = np.array(list(labels))
        about |= {"estimator": "LGBMClassifier", "classes": classes.tolist(), "dtype": classes.dtype.str}
    elif objective not in _LIGHTGBM_REGRESSORS:
        known = ", ".join((*_LIGHTGBM_CLASSIFIERS, *_LIGHTGBM_REGRESSORS))
        raise InvalidInputError(f"its objective is {objective!r}; models of {known} are read")
    return restored(Stored(file="model.txt", content=without_parameters(text).encode(), about=about))
