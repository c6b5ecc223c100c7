"""Data sets and their splits: the paper's five folds, scaled by their training rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from plausiflow.errors import InvalidInputError

N_FOLDS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """One split of a data set, scaled to [0, 1] by the smallest and largest values of its training rows.

    Attributes:
        x_train: Training rows, float, shape ``(n, d)``.
        y_train: Their classes, long, shape ``(n,)``.
        x_test: Test rows on the same scale, so possibly outside [0, 1], shape ``(m, d)``.
        y_test: Their classes, shape ``(m,)``.
        rows_train: Indices of the training rows in the data set, shape ``(n,)``.
        rows_test: Indices of the test rows, shape ``(m,)``.
        minimum: Smallest value of each feature among the training rows, in original units, double, shape
            ``(d,)``.
        range: Largest minus smallest value, one for a constant feature, double, shape ``(d,)``.
        feature_names: One name per column.
        class_names: One name per class.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    rows_train: Tensor
    rows_test: Tensor
    minimum: Tensor
    range: Tensor
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]

    @property
    def n_classes(self) -> int:
        """Number of classes of the data set."""
        return len(self.class_names)

    def to_original(self, x: Tensor) -> Tensor:
        """Return rows ``(..., d)`` in original units, in the dtype and on the device of ``x``."""
        return (x.double() * self.range.to(x.device) + self.minimum.to(x.device)).to(x.dtype)

    def __repr__(self) -> str:
        n_train, n_features = self.x_train.shape
        rows = f"{n_train} training rows, {len(self.x_test)} test rows"
        return f"Fold({rows}, {n_features} features, {self.n_classes} classes)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A named data set with numeric features and a class for every row.

    Attributes:
        name: Name in the catalogue.
        x: Features in original units, one float column each.
        y: Classes, numbered from 0, shape ``(n,)``.
        class_names: One name per class.
        target: Name of the class label.
        provenance: The origin of the rows and how they were prepared.
        source: The file that was read, ``scikit-learn`` or ``generated``.
    """

    name: str
    x: pd.DataFrame
    y: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    target: str
    provenance: str
    source: str

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per column of ``x``."""
        return tuple(str(column) for column in self.x.columns)

    def fold(self, k: int) -> Fold:
        """Return the k-th of the paper's five folds, stratified by class and shuffled with seed 4.

        Example:
            >>> from plausiflow.datasets import load_dataset
            >>> load_dataset("wine").fold(0)
            Fold(142 training rows, 36 test rows, 13 features, 3 classes)
        """
        if k not in range(N_FOLDS):
            raise InvalidInputError(f"`k` must be a fold, from 0 to {N_FOLDS - 1}; got {k!r}.")
        x = self.x.to_numpy(dtype=np.float64)
        train, test = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=4).split(x, self.y))[k]
        minimum = x[train].min(axis=0)
        span = x[train].max(axis=0) - minimum
        span[span == 0] = 1.0
        scaled = torch.from_numpy((x - minimum) / span).to(torch.float32)
        y = torch.from_numpy(self.y.copy())
        rows_train, rows_test = torch.from_numpy(train), torch.from_numpy(test)
        return Fold(
            x_train=scaled[rows_train],
            y_train=y[rows_train],
            x_test=scaled[rows_test],
            y_test=y[rows_test],
            rows_train=rows_train,
            rows_test=rows_test,
            minimum=torch.from_numpy(minimum),
            range=torch.from_numpy(span),
            feature_names=self.feature_names,
            class_names=self.class_names,
        )

    def __repr__(self) -> str:
        rows, features = self.x.shape
        return f"Dataset({self.name}: {rows} rows, {features} features, {len(self.class_names)} classes)"
