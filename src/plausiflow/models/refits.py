"""Refits: the user's model trained again on other samples of the same rows.

A refit of a scikit-learn model is a clone with other seeds, fitted to a stratified bootstrap of the training
rows; one of our networks is a copy with another seed. Anything else needs a function that trains it. Clones
are trained in several threads; each has its own seed, so the number of threads changes nothing.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.networks import NetworkClassifier
from plausiflow.progress import progress_bar
from plausiflow.tables import IntArray

Retrain = Callable[[pd.DataFrame, Any, int], object]
"""``(x, y, seed) -> model``: trains the model on a sample of the training rows."""

MIN_GUIDES, MIN_JURORS = 5, 3


@dataclass(eq=False)
class RefitPlan:
    """Refits that are about to be trained: on which rows, with which seeds, by which function.

    Samples and seeds are drawn first, so the models do not depend on how many are trained at once.

    Attributes:
        model: The user's fitted model.
        frame: Training rows.
        y: Their outcomes.
        encoded: The rows, encoded, and their classes; for our own networks.
        count: Number of refits.
        seed: Seed of samples and refits.
        retrain: A function that trains a model, or models that are there already; None to clone.
    """

    model: object
    frame: pd.DataFrame
    y: Sequence[Any] | pd.Series
    encoded: tuple[Tensor, Tensor]
    count: int
    seed: int
    retrain: Retrain | Sequence[object] | None = None
    _known: dict[int, object] = field(init=False, default_factory=dict)
    _rows: list[IntArray] = field(init=False, default_factory=list)
    _train: Retrain | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.retrain is not None and not callable(self.retrain):
            if isinstance(self.retrain, str) or not isinstance(self.retrain, Iterable):
                raise InvalidInputError(
                    "`retrain` must be a function (x, y, seed) that trains and returns a model, or a list of "
                    f"models; got {self.retrain!r}."
                )
            models = list(self.retrain)
            if len(models) < MIN_GUIDES + MIN_JURORS:
                raise InvalidInputError(
                    f"`retrain` must hold at least {MIN_GUIDES + MIN_JURORS} models, {MIN_GUIDES} that guide "
                    f"the search and {MIN_JURORS} that check its answers; got {len(models)}."
                )
            self.count, self._known = len(models), dict(enumerate(models))
            return
        self._train = self.retrain if callable(self.retrain) else _trainer(self.model)
        self.y = self.y if isinstance(self.y, pd.Series) else pd.Series(list(self.y))
        generator = np.random.default_rng([self.seed, 77])
        self._rows = [bootstrap(self.frame, self.y, generator) for _ in range(self.count)]

    def seconds_left(self) -> float:
        """Return about how long the refits will take; the first one is trained and kept."""
        if len(self._known) == self.count:
            return 0.0
        begun = time.perf_counter()
        self._known[0] = self._refit(0)
        left = time.perf_counter() - begun
        return left * (self.count - 1) / self._at_once(None)

    def draw(self, workers: int | None = None) -> list[object]:
        """Train the refits, several at once if they are clones; None uses all processors."""
        left = [number for number in range(self.count) if number not in self._known]
        workers = self._at_once(workers)
        with progress_bar("Training refits", len(left)) as advance, ThreadPoolExecutor(workers) as pool:
            waiting = {pool.submit(self._refit, number, workers > 1): number for number in left}
            for done in as_completed(waiting):
                self._known[waiting[done]] = done.result()
                advance(1, "")
        return [self._known[number] for number in range(self.count)]

    def _at_once(self, workers: int | None) -> int:
        """Return how many refits are trained at once.

        Only clones have seeds of their own: a user's function or a network may share a random state.
        """
        if self.retrain is not None or isinstance(self.model, NetworkClassifier):
            return 1
        return max(1, min(self.count, workers or len(os.sched_getaffinity(0))))

    def _refit(self, number: int, single: bool = False) -> object:
        rows, seed = self._rows[number], (self.seed + 10_007 * (number + 1)) % 2**31
        if self._train is None:
            return _refit_network(self.model, self.encoded, rows, seed)
        assert isinstance(self.y, pd.Series)
        train = self._train
        if self.retrain is None and single:
            alone = _trainer(self.model, n_jobs=1)
            assert alone is not None
            train = alone
        try:
            return train(self.frame.iloc[rows], self.y.iloc[rows], seed)
        except Exception as error:
            raise ModelError(
                "The model could not be trained again for `durability`. Pass `retrain`, a function "
                "(x, y, seed) that trains it on a sample of the rows, or a list of models. "
                f"{type(error).__name__}: {error}"
            ) from error


def draw_refits(
    model: object,
    frame: pd.DataFrame,
    y: Sequence[Any] | pd.Series,
    encoded: tuple[Tensor, Tensor],
    *,
    count: int,
    seed: int,
    retrain: Retrain | Sequence[object] | None = None,
    workers: int | None = None,
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
        workers: How many are trained at once; None for as many as there are processors.

    Raises:
        InvalidInputError: The model cannot be trained again here, or too few models were given.
    """
    return RefitPlan(model, frame, y, encoded, count, seed, retrain).draw(workers)


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


def _trainer(model: object, n_jobs: int | None = None) -> Retrain | None:
    """Return a function that trains the model again; None for one of our networks.

    ``n_jobs`` is how many processors each refit uses, if the model has such a setting; None keeps its own.
    """
    if isinstance(model, NetworkClassifier):
        return None
    best = getattr(model, "best_estimator_", model)  # of a search over hyperparameters
    if not isinstance(best, BaseEstimator) or not hasattr(best, "fit"):
        raise InvalidInputError(
            f"`durability` needs models trained on other samples of the table; {type(model).__name__} cannot "
            "be trained again here. Pass `retrain`, a function (x, y, seed) that trains and returns a model, "
            "or a list of models."
        )

    _require_trainable(best)

    def train(x: pd.DataFrame, y: Any, seed: int) -> object:  # noqa: ANN401
        again = clone(best)
        names = again.get_params()
        settings = {n: seed for n in names if n.rpartition("__")[2] == "random_state"}
        if n_jobs is not None:
            asked = {n for n, value in names.items() if value is not None}
            settings |= {n: n_jobs for n in asked if n.rpartition("__")[2] == "n_jobs"}
        again.set_params(**settings)
        again.fit(x, y)
        return again

    return train


def _require_trainable(model: BaseEstimator) -> None:
    """Raise if a part of the model that predicts stays as it is when the model is fitted again."""
    parts = model.get_params(deep=True)
    frozen = [name for name, part in parts.items() if _is_frozen(part)]
    frozen += [name for name, part in parts.items() if name.rpartition("__")[2] == "cv" and part == "prefit"]
    if frozen or _is_frozen(model):
        where = f"its {' and '.join(frozen)}" if frozen else "it"
        raise InvalidInputError(
            f"`durability` needs models that differ, but {type(model).__name__} cannot be trained again: "
            f"{where} is frozen or prefitted. Pass `retrain`, a function (x, y, seed) that trains it, or a "
            "list of models."
        )


def _is_frozen(part: object) -> bool:
    return isinstance(part, FrozenEstimator) and hasattr(part, "predict")


def _refit_network(model: object, encoded: tuple[Tensor, Tensor], rows: IntArray, seed: int) -> object:
    assert isinstance(model, NetworkClassifier)
    again = copy.deepcopy(model)
    again.random_state = seed
    x, classes = encoded
    own = torch.from_numpy(rows)
    return again.fit(x[own].float(), classes[own])
