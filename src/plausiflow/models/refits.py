"""Refits: the user's model trained again on other samples of the same rows.

A refit of a scikit-learn model is a clone with other seeds, fitted to a stratified bootstrap of the training
rows; one of our networks is a copy with another seed. Anything else needs a function that trains it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.models.networks import NetworkClassifier
from plausiflow.progress import progress_bar
from plausiflow.tables import IntArray

Retrain = Callable[[pd.DataFrame, Any, int], object]
"""``(x, y, seed) -> model``: trains the model on a sample of the training rows."""

MIN_GUIDES, MIN_JURORS = 5, 3


def draw_refits(
    model: object,
    frame: pd.DataFrame,
    y: Sequence[Any] | pd.Series,
    encoded: tuple[Tensor, Tensor],
    *,
    count: int,
    seed: int,
    retrain: Retrain | Sequence[object] | None = None,
) -> list[object]:
    """Return models that were trained like this one on other samples of the rows.

    Args:
        model: The user's fitted model.
        frame: Training rows.
        y: Their outcomes.
        encoded: The rows, encoded, and their classes; for our own networks.
        count: Number of refits.
        seed: Seed of samples and refits.
        retrain: A function that trains a model, or models that are there already; None to clone.

    Raises:
        InvalidInputError: The model cannot be trained again here, or too few models were given.
    """
    if retrain is not None and not callable(retrain):
        models = list(retrain)
        if len(models) < MIN_GUIDES + MIN_JURORS:
            raise InvalidInputError(
                f"`retrain` must hold at least {MIN_GUIDES + MIN_JURORS} models, {MIN_GUIDES} that guide the "
                f"search and {MIN_JURORS} that check its answers; got {len(models)}."
            )
        return models
    train = retrain if callable(retrain) else _trainer(model)
    outcomes = y if isinstance(y, pd.Series) else pd.Series(list(y))
    generator = np.random.default_rng([seed, 77])
    models = []
    with progress_bar("Training refits", count) as advance:
        for number in range(count):
            rows = bootstrap(frame, outcomes, generator)
            own = seed + 10_007 * (number + 1)
            if train is None:
                models.append(_refit_network(model, encoded, rows, own))
            else:
                models.append(train(frame.iloc[rows], outcomes.iloc[rows], own % 2**31))
            advance(1, "")
    return models


def bootstrap(frame: pd.DataFrame, y: pd.Series, generator: np.random.Generator) -> IntArray:
    """Return rows drawn with replacement, as many of each outcome as there are, and every level once.

    Outcomes with many values, such as numbers, are not counted one by one.
    """
    codes = pd.factorize(y)[0]
    few = codes.max(initial=0) < max(2, len(codes) // 10)
    groups = [np.flatnonzero(codes == k) for k in np.unique(codes)] if few else [np.arange(len(codes))]
    drawn = [generator.choice(rows, size=len(rows)) for rows in groups]
    chosen = np.concatenate(drawn)
    missing = []
    for _, column in frame.select_dtypes(exclude="number").items():
        levels = pd.factorize(column)[0]
        absent = np.setdiff1d(levels, levels[chosen])
        missing += [int(np.flatnonzero(levels == level)[0]) for level in absent]
    return np.concatenate([chosen, np.array(sorted(set(missing)), dtype=np.int64)])


def _trainer(model: object) -> Retrain | None:
    """Return a function that trains the model again; None for one of our networks."""
    if isinstance(model, NetworkClassifier):
        return None
    best = getattr(model, "best_estimator_", model)  # of a search over hyperparameters
    if not isinstance(best, BaseEstimator) or not hasattr(best, "fit"):
        raise InvalidInputError(
            f"`durability` needs models trained on other samples of the table; {type(model).__name__} cannot "
            "be trained again here. Pass `retrain`, a function (x, y, seed) that trains and returns a model, "
            "or a list of models."
        )

    def train(x: pd.DataFrame, y: Any, seed: int) -> object:  # noqa: ANN401
        again = clone(best)
        names = [n for n in again.get_params() if n == "random_state" or n.endswith("__random_state")]
        if names:
            again.set_params(**dict.fromkeys(names, seed))
        again.fit(x, y)
        return again

    return train


def _refit_network(model: object, encoded: tuple[Tensor, Tensor], rows: IntArray, seed: int) -> object:
    assert isinstance(model, NetworkClassifier)
    again = copy.deepcopy(model)
    again.random_state = seed
    x, classes = encoded
    own = torch.from_numpy(rows)
    return again.fit(x[own].float(), classes[own])
