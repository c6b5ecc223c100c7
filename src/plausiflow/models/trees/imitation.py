"""Forests that learn to imitate any model from its outputs on a sample of rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.sklearn.columns import Fitted
from plausiflow.models.trees.forest import Forest
from plausiflow.models.trees.readers import hist_trees

_MIN_PROBABILITY = 1e-3


def imitate_classifier(
    x: Tensor,
    logits: Tensor,
    *,
    n_trees: int = 100,
    n_leaves: int = 31,
    clip: float = 3.5,
    random_state: int = 0,
) -> Forest:
    """Train a forest to imitate a classifier, most closely near its decision boundary.

    Two classes need one regression, of the difference of their logits. More classes need one regression each,
    of centred log-probabilities. Targets are clipped, because far from the boundary the class is clear.
    Inputs ``x`` are NaN for missing values, ``logits`` ``(n, k)`` may be minus infinity. ``random_state``
    seeds the binning.
    """
    if x.ndim != 2 or logits.ndim != 2 or len(x) != len(logits) or logits.shape[1] < 2:
        raise ShapeError(
            "`x` must have shape (n, d) and `logits` (n, k), with a column for each of at least two classes; "
            f"got {tuple(x.shape)} and {tuple(logits.shape)}."
        )
    if bool(logits.isnan().any()) or not 0 < clip < float("inf"):
        raise InvalidInputError(
            f"`logits` must not contain NaN, and `clip` must be positive and finite; got {clip}."
        )
    log_proba = logits.detach().double().cpu().log_softmax(dim=1)
    confidence = log_proba.exp().amax(dim=1)
    weight = 4 * confidence * (1 - confidence) + 0.1
    trees, base = [], torch.zeros(logits.shape[1], dtype=torch.float64)
    for output, target in _regression_targets(log_proba).items():
        regressor = _regressor(n_trees, n_leaves, random_state)
        regressor.fit(_to_array(x), target.clamp(-clip, clip).numpy(), sample_weight=weight.numpy())
        trees += hist_trees(regressor, output)
        base[output] = float(np.ravel(regressor._baseline_prediction)[0])
    return Forest.from_trees(trees, base, x.shape[1], inclusive=True)


def imitate_regressor(
    x: Tensor, values: Tensor, *, n_trees: int = 100, n_leaves: int = 31, random_state: int = 0
) -> Forest:
    """Train a forest to imitate the predictions ``values`` of a regressor, shape ``(n,)``, in their units."""
    if x.ndim != 2 or values.shape != (len(x),):
        raise ShapeError(
            "`x` must have shape (n, d) and `values` (n,), one for each row; "
            f"got {tuple(x.shape)} and {tuple(values.shape)}."
        )
    if not bool(values.isfinite().all()):
        raise InvalidInputError(f"`values` must be finite; {int((~values.isfinite()).sum())} are not.")
    target = values.detach().double().cpu()
    mean, deviation = target.mean(), target.std(correction=0)
    deviation = deviation if deviation > 0 else torch.ones_like(deviation)
    standardised = ((target - mean) / deviation).numpy()
    regressor = _regressor(n_trees, n_leaves, random_state).fit(_to_array(x), standardised)
    forest = Forest.from_trees(hist_trees(regressor, 0), torch.zeros(1), x.shape[1], inclusive=True)
    base = mean + deviation * float(np.ravel(regressor._baseline_prediction)[0])
    return replace(forest, leaf=forest.leaf * deviation, base=base[None])


def _regressor(n_trees: int, n_leaves: int, random_state: int) -> Fitted:
    return HistGradientBoostingRegressor(
        max_iter=n_trees,
        max_leaf_nodes=n_leaves,
        min_samples_leaf=10,
        learning_rate=0.15,
        early_stopping=False,
        random_state=random_state,
    )


def _to_array(x: Tensor) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = x.detach().double().cpu().numpy()
    return array


def _regression_targets(log_proba: Tensor) -> dict[int, Tensor]:
    """Return the target of each output that is learned."""
    if log_proba.shape[1] == 2:
        return {1: log_proba[:, 1] - log_proba[:, 0]}
    # Without a lower bound, an impossible class would pull the mean to minus infinity.
    bounded = log_proba.clamp_min(math.log(_MIN_PROBABILITY)).log_softmax(dim=1)
    return dict(enumerate((bounded - bounded.mean(dim=1, keepdim=True)).unbind(dim=1)))
