"""Save, log and load explainers with MLflow; as a pyfunc, ``predict`` explains rows.

The only module that imports MLflow. The directory of the explainer is the one that :meth:`Explainer.save`
writes, so nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_integer_dtype

from plausiflow import __version__
from plausiflow.errors import InvalidInputError, MissingExtraError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.tables import Feature, Schema

try:
    import mlflow
    from mlflow.models import Model, ModelSignature
    from mlflow.models.model import MLMODEL_FILE_NAME
    from mlflow.models.utils import _save_example
    from mlflow.tracking.artifact_utils import _download_artifact_from_uri
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec
    from mlflow.types import Schema as Columns
except ImportError as error:
    raise MissingExtraError("mlflow-skinny", "mlflow", "`plausiflow.mlflow`") from error

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR_NAME = "plausiflow"
FOLDER = "explainer"
ARGUMENTS: Mapping[str, Any] = {"k": 1, "min_probability": 0.0, "time_limit": 0.0, "locked": []}
"""Arguments of ``explain`` that a pyfunc takes as parameters, besides ``target``; zero stands for None."""


def save_model(
    explainer: Explainer,
    path: str | Path,
    *,
    target: str | float = "opposite",
    signature: ModelSignature | None = None,
    input_example: pd.DataFrame | None = None,
    pip_requirements: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    mlflow_model: Model | None = None,
) -> None:
    """Save a fitted explainer to a new directory, as a model of MLflow.

    Args:
        explainer: The explainer; its model must be one that :meth:`Explainer.save` stores.
        path: The directory, which must not exist.
        target: The outcome that a pyfunc asks for if its ``params`` name none.
        signature: What a pyfunc takes and returns; by default from the schema.
        input_example: Rows that are saved as an example.
        pip_requirements: What an environment needs; by default this version of plausiflow with its files.
        metadata: More metadata of the model.
        mlflow_model: The model that MLflow makes in ``log_model``.

    Raises:
        InvalidInputError: The directory exists, or the model of the explainer cannot be stored.
    """
    path = Path(path)
    if path.exists() and any(path.iterdir()):
        raise InvalidInputError(
            f"`path` must be a new or empty directory; {path} has files. Name another one."
        )
    if explainer.encoder_ is None:
        raise NotFittedError("This explainer has not been fitted. Call `fit(x, y)` with rows first.")
    path.mkdir(parents=True, exist_ok=True)
    explainer.save(path / FOLDER)
    _require_stored(path / FOLDER)
    requirements = pip_requirements or [f"plausiflow[{','.join(_extras(explainer))}]=={__version__}"]
    (path / "requirements.txt").write_text("\n".join(requirements) + "\n")
    saved = mlflow_model or Model()
    saved.signature = signature or _signature(explainer, target)
    if metadata is not None:
        saved.metadata = metadata
    if input_example is not None:
        _save_example(saved, input_example, str(path))
    saved.add_flavor(FLAVOR_NAME, plausiflow_version=__version__, data=FOLDER, target=target)
    mlflow.pyfunc.add_to_model(
        saved,
        loader_module="plausiflow.mlflow",
        data=FOLDER,
        env={"virtualenv": "python_env.yaml"},
        model_config={"target": target},
    )
    _write_environment(path)
    saved.save(str(path / MLMODEL_FILE_NAME))


def log_model(explainer: Explainer, name: str = "explainer", **settings: Any) -> Any:  # noqa: ANN401
    """Log a fitted explainer to the active run; ``settings`` are those of :func:`save_model`.

    Further settings are those of ``mlflow.models.Model.log``, such as ``registered_model_name``. Returns
    MLflow's ``ModelInfo``, whose ``model_uri`` is what :func:`load_model` takes.
    """
    import plausiflow.mlflow as flavor

    return Model.log(artifact_path=None, name=name, flavor=flavor, explainer=explainer, **settings)


def load_model(model_uri: str | Path, dst_path: str | None = None) -> Explainer:
    """Return the explainer of a saved or logged model; its answers are the same bit for bit.

    Args:
        model_uri: A directory, or an address of MLflow such as ``runs:/…/explainer`` or ``models:/credit/1``.
        dst_path: Where files are downloaded to.
    """
    local = Path(_download_artifact_from_uri(artifact_uri=str(model_uri), output_path=dst_path))
    known = Model.load(str(local)).flavors.get(FLAVOR_NAME)
    if known is None:
        raise InvalidInputError(
            f"`model_uri` must be a model that plausiflow.mlflow saved; {model_uri} is not. "
            "Save an explainer: `plausiflow.mlflow.save_model(explainer, path)`."
        )
    return Explainer.load(local / known["data"])


class ExplainerModel:
    """An explainer as a pyfunc: ``predict`` explains rows and returns a table of all answers."""

    def __init__(self, explainer: Explainer, target: Any) -> None:  # noqa: ANN401
        self.explainer, self.target = explainer, target

    def predict(self, rows: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return ``explain(rows, target).to_frame()``; ``params`` may have arguments of ``explain``."""
        given = dict(params or {})
        target = given.pop("target", "") or self.target
        labels = self.explainer.model_.labels if self.explainer.model_ is not None else ()
        target = next((label for label in labels if str(label) == str(target)), target)
        plain = {
            name: list(value) if isinstance(value, tuple | np.ndarray) else value
            for name, value in given.items()
        }
        settings: dict[str, Any] = {
            name: value for name, value in plain.items() if value is not None and value != ARGUMENTS.get(name)
        }
        return self.explainer.explain(rows, target, **settings).to_frame()


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ExplainerModel:
    """Return the pyfunc of a saved model; MLflow calls this."""
    return ExplainerModel(Explainer.load(path), (model_config or {}).get("target", "opposite"))


def _require_stored(folder: Path) -> None:
    document = json.loads((folder / "explainer.json").read_text())["model"]
    if document["stored"] is None:
        raise InvalidInputError(
            f"The model of this explainer, a {document['class']}, cannot be stored with it: "
            f"{document['not_stored_because']}. Log that model by itself, and load the explainer with "
            "`Explainer.load(folder, model=model)`."
        )


def _extras(explainer: Explainer) -> list[str]:
    """Return the extras that loading needs."""
    library = type(explainer.model).__module__.partition(".")[0]
    more = {"xgboost": ["trees"], "lightgbm": ["trees"]}.get(library, [])
    more += ["onnx"] if type(explainer.model).__name__ == "OnnxModel" else []
    return ["files", *more]


def _write_environment(path: Path) -> None:
    import platform

    lines = [f"python: {platform.python_version()}", "build_dependencies: [pip]", "dependencies:"]
    (path / "python_env.yaml").write_text("\n".join([*lines, "- -r requirements.txt", ""]))


def _signature(explainer: Explainer, target: Any) -> ModelSignature:  # noqa: ANN401
    """Return the columns of the rows and the parameters of a pyfunc.

    What it returns depends on the answers.
    """
    schema: Schema = explainer.encoder_.schema  # type: ignore[union-attr]
    columns = [ColSpec(_type(f), f.name, required=True) for f in schema.features]
    parameters = [
        ParamSpec("target", DataType.string, str(target)),
        ParamSpec("k", DataType.long, ARGUMENTS["k"]),
        ParamSpec("min_probability", DataType.double, ARGUMENTS["min_probability"]),
        ParamSpec("time_limit", DataType.double, ARGUMENTS["time_limit"]),
        ParamSpec("locked", DataType.string, ARGUMENTS["locked"], shape=(-1,)),
    ]
    return ModelSignature(inputs=Columns(columns), params=ParamSchema(parameters))


def _type(feature: Feature) -> Any:  # noqa: ANN401
    """Return the type of a column; whole numbers that may be missing are doubles, as in pandas."""
    if is_bool_dtype(feature.dtype) and not feature.can_miss:
        return DataType.boolean
    if is_integer_dtype(feature.dtype) and not feature.can_miss:
        return DataType.long
    if is_integer_dtype(feature.dtype) or is_float_dtype(feature.dtype):
        return DataType.double
    return DataType.string
