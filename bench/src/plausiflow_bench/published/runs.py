"""The files of the published runs: folds, weights, counterfactuals and metrics.

The files are not part of this package. They are read from the folder that the environment variable
``PLAUSIFLOW_REFERENCE`` names: ``<name>.npz`` with fold 0 of a data set, ``<name>_maf.npz`` and
``<name>_node.npz`` with the weights of its flow and its NODE, and ``published_metrics.csv``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from plausiflow.errors import DataNotFoundError, InvalidInputError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, NetworkClassifier

Arrays = dict[str, NDArray[Any]]

ENVIRONMENT_VARIABLE = "PLAUSIFLOW_REFERENCE"
METRIC_NAMES = {
    "model_returned_smth": "coverage",
    "valid_cf_disc": "validity",
    "flow_prob_condition_acc": "plausibility",
    "flow_log_density_cfs": "log_density",
    "dissimilarity_proximity_continuous_manhatan": "l1",
    "dissimilarity_proximity_continuous_euclidean": "l2",
    "lof_scores_cfs": "lof",
    "isolation_forest_scores_cfs": "iso_forest",
    "time": "seconds",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PublishedRun:
    """Fold 0 of a data set, with the models and the counterfactuals of the published runs.

    Attributes:
        name: Name of the data set.
        x_train: Training rows, scaled as in the published runs, shape ``(n, d)``.
        y_train: Their true classes, shape ``(n,)``.
        x_test: Test rows, which are the ones explained, shape ``(m, d)``.
        y_test: Their true classes, shape ``(m,)``.
        log_delta: The threshold on the log-density.
        maf_log_prob_train: Log-density of the training rows under the published flow, shape ``(n,)``.
        counterfactuals: Published counterfactuals by method and classifier, such as ``("ppcef", "lr")``,
            shape ``(m, d)`` each. Rows without a counterfactual are NaN.
        maf_arrays: Weights of the published flow, by name.
        classifier_arrays: Weights of the published classifiers, by name.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    log_delta: float
    maf_log_prob_train: Tensor
    counterfactuals: Mapping[tuple[str, str], Tensor]
    maf_arrays: Arrays
    classifier_arrays: Arrays

    @classmethod
    def load(cls, name: str, directory: str | Path | None = None) -> Self:
        """Read the files of one data set.

        Args:
            name: moons, law, audit, heloc, blobs, digits or wine.
            directory: The folder. None means the one that ``PLAUSIFLOW_REFERENCE`` names.
        """
        folder = _folder(directory)
        arrays, maf, node = (_read(folder, f"{name}{kind}.npz") for kind in ("", "_maf", "_node"))
        counterfactuals = {}
        for key in [key for key in arrays if key.startswith("cf_")]:
            _, method, classifier = key.split("_")
            counterfactuals[method, classifier] = _floats(arrays[key])
        return cls(
            name=name,
            x_train=_floats(arrays["X_train"]),
            y_train=torch.from_numpy(arrays["y_train"]).long(),
            x_test=_floats(arrays["X_test"]),
            y_test=torch.from_numpy(arrays["y_test"]).long(),
            log_delta=float(arrays["delta_log"]),
            maf_log_prob_train=_floats(arrays["maf_log_prob_train"]),
            counterfactuals=counterfactuals,
            maf_arrays=maf,
            classifier_arrays={key: value for key, value in arrays.items() if key.startswith(("lr_", "mlp_"))}
            | node,
        )

    def classifier(self, kind: Literal["lr", "mlp", "node"]) -> NetworkClassifier:
        """Return a published classifier, with its published weights."""
        arrays = self.classifier_arrays
        if kind == "lr":
            return LinearClassifier.from_weights(arrays["lr_weight"], arrays["lr_bias"])
        if kind == "mlp":
            layers = sorted(
                key.removesuffix("_weight")
                for key in arrays
                if key.startswith("mlp_") and key.endswith("_weight")
            )
            return MLPClassifier.from_weights(
                [arrays[f"{k}_weight"] for k in layers], [arrays[f"{k}_bias"] for k in layers]
            )
        if kind == "node":
            return NODE.from_weights(arrays)
        raise InvalidInputError(f'There is no published classifier {kind!r}; use "lr", "mlp" or "node".')

    def __repr__(self) -> str:
        rows = (
            f"{len(self.x_train)} training and {len(self.x_test)} test rows, {self.x_train.shape[1]} features"
        )
        return f"PublishedRun({self.name!r}: {rows}, {len(self.counterfactuals)} sets of counterfactuals)"


def published_metrics(directory: str | Path | None = None) -> pd.DataFrame:
    """Return the published metrics, one row per data set, method, classifier and fold.

    The metrics of the paper's tables have plain names: coverage, validity, plausibility, log_density, l1, l2,
    lof, iso_forest and seconds. Other columns keep their published names.

    Args:
        directory: The folder. None means the one that ``PLAUSIFLOW_REFERENCE`` names.
    """
    return pd.read_csv(_existing(_folder(directory), "published_metrics.csv")).rename(columns=METRIC_NAMES)


def _folder(directory: str | Path | None) -> Path:
    named = directory if directory is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    if not named:
        raise DataNotFoundError(
            f"The files of the published runs were not found: `directory` is None and {ENVIRONMENT_VARIABLE} "
            f"is not set. Set {ENVIRONMENT_VARIABLE} to the folder that holds `moons.npz`, `moons_maf.npz`, "
            "`moons_node.npz` and so on."
        )
    return Path(named)


def _existing(folder: Path, name: str) -> Path:
    path = folder / name
    if path.is_file():
        return path
    there = (
        sorted(p.name for p in folder.iterdir() if p.suffix in (".npz", ".csv")) if folder.is_dir() else []
    )
    found = f"it holds {', '.join(there)}" if there else "there is no such folder, or it holds no such files"
    raise DataNotFoundError(
        f"`{name}` was looked for in {folder}, but {found}. "
        f"Pass `directory`, or set {ENVIRONMENT_VARIABLE}, to the folder that holds it."
    )


def _read(folder: Path, name: str) -> Arrays:
    with np.load(_existing(folder, name), allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _floats(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array).float()
