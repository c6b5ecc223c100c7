"""Models that ``plausiflow fit`` trains itself, and how well models do on rows whose outcomes are known."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier, MLPClassifier, is_measured

Train: TypeAlias = Literal["mlp", "logistic", "gbm"]


def is_number(y: pd.Series) -> bool:
    """Whether outcomes look like a number to be predicted, whole ones among them."""
    if isinstance(y.dtype, pd.CategoricalDtype) or not pd.api.types.is_numeric_dtype(y.dtype):
        return False
    return not pd.api.types.is_bool_dtype(y.dtype) and is_measured(y.astype("float64"))


def model_for(kind: Train, x: pd.DataFrame, y: pd.Series, *, numbers: bool, seed: int) -> Any:  # noqa: ANN401
    """A model of its kind; boosted trees are trained, a network is left to the explainer, which encodes rows.

    Args:
        kind: Of the model.
        x: Training rows.
        y: Their outcomes.
        numbers: Whether a number is predicted.
        seed: Of the training.
    """
    if kind == "gbm":
        numeric = [name for name in x if pd.api.types.is_numeric_dtype(x[name])]
        text = [name for name in x if name not in numeric]
        made = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
        trees = made(random_state=seed)
        if text:
            encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            # Trees need no scaler, but it makes plain floats of nullable numbers.
            front = make_column_transformer((encoder, text), (StandardScaler(), numeric))
            trees = make_pipeline(front, trees)
        return trees.fit(x, y)
    if numbers:
        raise InvalidInputError(
            f"`{y.name}` is a number to be predicted, with {y.nunique()} different values, and --train "
            f"{kind} decides between outcomes. Use --train gbm, or give a regressor with --model."
        )
    return LinearClassifier(seed=seed) if kind == "logistic" else MLPClassifier(hidden=(64, 64), seed=seed)


def held_out(y: pd.Series, share: float, *, numbers: bool, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows are not learned from, so that a model can be tried on them; as many of each outcome.

    At least two rows of each outcome stay.
    """
    chosen = np.zeros(len(y), dtype=np.bool_)
    groups = np.zeros(len(y), dtype=np.int64) if numbers else pd.factorize(y)[0]
    generator = np.random.default_rng(seed)
    for group in range(groups.max() + 1):
        own = generator.permutation(np.flatnonzero(groups == group))
        chosen[own[: max(0, min(round(share * len(own)), len(own) - 2))]] = True
    return chosen


def quality(explainer: Explainer, x: pd.DataFrame, y: pd.Series) -> str:
    """How often a model is right on rows, or how far off, beside what would be so without looking."""
    told, known = explainer.predict(x), y.notna()
    told, y = told[known], y[known]
    if explainer.model_ is not None and not explainer.model_.labels:
        error = float((told.astype(float) - y.astype(float)).abs().mean())
        plain = float((y.astype(float) - y.astype(float).median()).abs().mean())
        return f"mean absolute error {error:.3g} ({plain:.3g} with the median alone)"
    right = float(np.mean(told.to_numpy(object) == y.to_numpy(object)))
    common = float(y.value_counts(normalize=True).max())
    return f"accuracy {right:.3f} ({common:.3f} with the most common outcome alone)"
