"""Models that ``plausiflow fit`` trains, and the quality of models on rows with known outcomes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import (
    DecisionThreshold,
    LinearClassifier,
    MLPClassifier,
    is_continuous,
    parse_cutoffs,
)
from plausiflow.tables import to_python

Train: TypeAlias = Literal["mlp", "logistic", "gbm"]


def is_number(y: pd.Series) -> bool:
    """Return whether outcomes are numbers to predict, and not classes."""
    if isinstance(y.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(y.dtype):
        return False
    return not pd.api.types.is_bool_dtype(y.dtype) and is_continuous(y.astype("float64"))


def make_model(kind: Train, x: pd.DataFrame, y: pd.Series, *, numbers: bool, seed: int) -> Any:  # noqa: ANN401
    """Return a model: boosted trees are trained here, networks later by the explainer, on encoded rows."""
    if kind == "gbm":
        numeric = [name for name in x if pd.api.types.is_numeric_dtype(x[name])]
        text = [name for name in x if name not in numeric]
        trees_class = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
        trees = trees_class(random_state=seed)
        if text:
            encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            # Trees need no scaler, but it converts nullable numbers to floats.
            front = make_column_transformer((encoder, text), (StandardScaler(), numeric))
            trees = make_pipeline(front, trees)
        return trees.fit(x, y)
    if numbers:
        raise InvalidInputError(
            f"`{y.name}` is a number with {y.nunique()} different values, and --train {kind} trains a "
            "classifier. Use --train gbm, or give a regressor with --model."
        )
    return (
        LinearClassifier(random_state=seed)
        if kind == "logistic"
        else MLPClassifier(hidden=(64, 64), random_state=seed)
    )


def with_cutoff(model: Any, threshold: DecisionThreshold, x: pd.DataFrame, y: pd.Series) -> Any:  # noqa: ANN401
    """Return a trained classifier of two outcomes whose ``predict`` uses a cut-off."""
    labels = tuple(to_python(label) for label in model.classes_)
    if len(labels) != 2:
        raise InvalidInputError(
            f"--decision-threshold with --train gbm needs two outcomes; `{y.name}` has {len(labels)}. Use "
            "--train mlp or --train logistic."
        )
    first, second = parse_cutoffs(threshold, labels)
    frozen = FrozenEstimator(model)
    return FixedThresholdClassifier(frozen, threshold=second / (first + second)).fit(x, y)


def split_held_out(y: pd.Series, share: float, *, numbers: bool, seed: int) -> npt.NDArray[np.bool_]:
    """Return the rows to hold out for a test, the same share of each outcome, shape ``(n,)``.

    At least two rows of each outcome remain for training.
    """
    mask = np.zeros(len(y), dtype=np.bool_)
    groups = np.zeros(len(y), dtype=np.int64) if numbers else pd.factorize(y)[0]
    generator = np.random.default_rng(seed)
    for group in range(groups.max() + 1):
        rows = generator.permutation(np.flatnonzero(groups == group))
        mask[rows[: max(0, min(round(share * len(rows)), len(rows) - 2))]] = True
    return mask


def describe_quality(explainer: Explainer, x: pd.DataFrame, y: pd.Series) -> str:
    """Describe the accuracy or error of a model, beside that of a constant prediction."""
    predicted, known = explainer.predict(x), y.notna()
    predicted, y = predicted[known], y[known]
    if explainer.model_ is not None and not explainer.model_.labels:
        error = float((predicted.astype(float) - y.astype(float)).abs().mean())
        baseline = float((y.astype(float) - y.astype(float).median()).abs().mean())
        return f"mean absolute error {error:.3g} ({baseline:.3g} with the median alone)"
    accuracy = float(np.mean(predicted.to_numpy(object) == y.to_numpy(object)))
    common = float(y.value_counts(normalize=True).max())
    return f"accuracy {accuracy:.3f} ({common:.3f} with the most common outcome alone)"
