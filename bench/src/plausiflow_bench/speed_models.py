"""What ``plausiflow benchmark speed`` measures with: rows, and models that are trained once and kept.

Models are always trained on the processor. Their files are found again by settings, rows and the code that
fits, but not by the versions of other packages: a machine with another torch uses what was trained elsewhere.
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from plausiflow.core import Plausibility, Training
from plausiflow.densities import (
    FLOW_TRAINING,
    ConditionalFlow,
    CrossFitEnsemble,
    PlausibilityWarning,
    Thresholded,
)
from plausiflow.errors import DataNotFoundError, InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow.models import LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow.persistence import as_json, below, fingerprint, write_atomically
from plausiflow_bench.store import FITTING_CODE, restored, settings_of, source_fingerprint, state_of
from plausiflow_bench.study import fold_of

CLASSIFIERS, DENSITIES = ("lr", "mlp"), ("one", "ensemble")
STAND_IN_COLUMNS, STAND_IN_ROWS = 23, (8367, 2092)
"""As heloc has them."""
CALIBRATING_CODE = (
    *FITTING_CODE,
    "methods/",
    "densities/calibration.py",
    "densities/row_scores.py",
    "solvers/",
)
BRIEF = replace(FLOW_TRAINING, epochs=20)
"""How flows of drawn rows are trained, for any number of columns."""

M = TypeVar("M")


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Rows in [0, 1] to train on and to explain, on the processor.

    Attributes:
        name: Of the data set.
        x_train: Shape ``(n, d)``.
        y_train: Their classes, shape ``(n,)``.
        x_test: Shape ``(m, d)``.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor

    def drawn(self, rows: int, seed: int) -> Tensor:
        """Test rows, drawn with replacement, shape ``(rows, d)``."""
        generator = torch.Generator().manual_seed(seed)
        return self.x_test[torch.randint(len(self.x_test), (rows,), generator=generator)]


def gaussian(d: int, train: int, test: int, seed: int) -> Data:
    """Two Gaussian classes of d columns, neighbours correlated, means two standard deviations apart."""
    draw = np.random.default_rng((seed, d))
    y = np.arange(train + test) % 2
    z = draw.normal(size=(len(y), d))
    for column in range(1, d):
        z[:, column] = 0.5 * z[:, column - 1] + math.sqrt(0.75) * z[:, column]
    z += (2 * y - 1)[:, None] / math.sqrt(d)
    x = torch.from_numpy(np.clip(0.5 + z / 10, 0, 1).astype(np.float32))
    return Data(
        name=f"gaussian_{d}", x_train=x[:train], y_train=torch.from_numpy(y[:train]), x_test=x[train:]
    )


def heloc(seed: int) -> Data:
    """The first of the paper's folds, or Gaussian rows of that size where the file is not on this machine."""
    try:
        fold = fold_of("heloc", 0)
    except DataNotFoundError:
        return gaussian(STAND_IN_COLUMNS, *STAND_IN_ROWS, seed)
    return Data(name="heloc", x_train=fold.x_train, y_train=fold.y_train, x_test=fold.x_test)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How models are made.

    Attributes:
        hidden: Layers of the perceptron.
        training: Of the classifiers; none means their own.
        flow: Of the single density, and of each member of the ensemble.
        members: Of the ensemble.
    """

    hidden: tuple[int, ...] = (256, 256, 256)
    training: Training | None = None
    flow: ConditionalFlow = field(default_factory=ConditionalFlow)
    members: int = CrossFitEnsemble.members

    def brief(self) -> Recipe:
        """The same with flows that are trained briefly."""
        epochs = min(BRIEF.epochs, self.flow.training.epochs)
        return replace(self, flow=replace(self.flow, training=replace(BRIEF, epochs=epochs)))


class Models:
    """Models of some rows, each trained once.

    Args:
        folder: Where they are kept; none keeps them in memory only.
        seed: Of everything that is trained.
    """

    def __init__(self, folder: Path | None, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self._made: dict[str, Any] = {}

    def classifier(self, kind: str, data: Data, recipe: Recipe) -> NetworkClassifier:
        """``lr`` or ``mlp``."""
        model: NetworkClassifier = LinearClassifier(seed=self.seed)
        if kind == "mlp":
            model = MLPClassifier(hidden=recipe.hidden, seed=self.seed)
        return self._fitted(
            model if recipe.training is None else replace(model, training=recipe.training), data
        )

    def density(self, kind: str, classifier: NetworkClassifier, data: Data, recipe: Recipe) -> Plausibility:
        """``one`` flow with its thresholds, or the ``ensemble``, calibrated for a classifier."""
        base = replace(recipe.flow, seed=self.seed)
        if kind == "one":
            return self._fitted(Thresholded(density=self._fitted(base, data)), data)
        ensemble = CrossFitEnsemble(members=recipe.members, base=recipe.flow, seed=self.seed)
        return self._calibrated(self._fitted(ensemble, data), classifier, data)

    def method(
        self, classifier: str, density: str, data: Data, recipe: Recipe, device: torch.device
    ) -> PPCEF:
        """The search with both, in the [0, 1] box, ready on a device."""
        model = self.classifier(classifier, data, recipe)
        plausibility = self.density(density, model, data, recipe)
        method = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0, seed=self.seed)
        return method.fit(data.x_train.to(device), data.y_train.to(device))

    def _fitted(self, model: M, data: Data) -> M:
        rows = {"x": data.x_train, "y": data.y_train}
        if isinstance(model, Thresholded):
            rows |= below("density", state_of(model.density))
        fit: Callable[[Tensor, Tensor], M] = model.fit  # type: ignore[attr-defined]
        return self._kept(
            "fitted", settings_of(model), rows, FITTING_CODE, lambda: fit(data.x_train, data.y_train)
        )

    def _calibrated(
        self, ensemble: CrossFitEnsemble, classifier: NetworkClassifier, data: Data
    ) -> CrossFitEnsemble:
        """The ensemble with the margins that the search needs on this classifier."""

        def calibrate() -> CrossFitEnsemble:
            own = copy.deepcopy(ensemble)
            method = PPCEF(classifier=classifier, density=own, lower=0.0, upper=1.0, seed=self.seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PlausibilityWarning)  # only what it costs is of interest here
                method.fit(data.x_train, data.y_train)
            return own

        made_from = {
            "x": data.x_train,
            **below("classifier", state_of(classifier)),
            **below("density", state_of(ensemble)),
        }
        return self._kept("calibrated", settings_of(ensemble), made_from, CALIBRATING_CODE, calibrate)

    def _kept(
        self,
        what: str,
        settings: Mapping[str, object],
        made_from: Mapping[str, Tensor],
        code: tuple[str, ...],
        make: Callable[[], M],
    ) -> M:
        """A model from memory, from its file, or made now."""
        parts = [what, settings, fingerprint(made_from), source_fingerprint(code)]
        key = hashlib.sha256(as_json(parts)).hexdigest()[:32]
        if key not in self._made:
            path = None if self.folder is None else self.folder / f"{settings['kind']}-{key}.safetensors"
            if path is not None and path.exists():
                self._made[key] = _read(path, settings)
            else:
                self._made[key] = make()
                if path is not None:
                    state = {name: value.contiguous() for name, value in state_of(self._made[key]).items()}
                    write_atomically(path, save(state))
        made: M = self._made[key]
        return made


def _read(path: Path, settings: Mapping[str, object]) -> object:
    try:
        return restored(settings, load_file(path))
    except SafetensorError as error:
        raise InvalidInputError(
            f"{path} must be a model that this study has kept; it cannot be read ({error}). Remove the file: "
            "the model is then trained again."
        ) from error
