"""Data and models of ``plausiflow benchmark speed``; models are trained once and cached.

Models are trained on the processor. A cached file is found by its settings, its training rows and the source
code that fits, but not by the versions of other packages, so that a machine with another version of torch can
use models that were trained elsewhere.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from plausiflow.atomic import write_atomically
from plausiflow.core import Plausibility, Training
from plausiflow.densities import FLOW_TRAINING, ConditionalFlow, CrossFitEnsemble, Thresholded
from plausiflow.errors import DataNotFoundError, InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow.models import LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow.persistence import add_prefix, fingerprint, get_settings, get_state, restore, to_json_bytes
from plausiflow_bench.harness.selection import ignore_plausibility_warnings, load_fold
from plausiflow_bench.harness.store import FITTING_CODE, source_fingerprint

CLASSIFIERS, DENSITIES = ("lr", "mlp"), ("one", "ensemble")
STAND_IN_COLUMNS, STAND_IN_ROWS = 23, (8367, 2092)
"""The shape of heloc."""
CALIBRATION_CODE = (
    *FITTING_CODE,
    "plausiflow/methods/",
    "plausiflow/search/",
    "plausiflow/solvers/",
    "plausiflow/core/",
)
SHORT_FLOW_TRAINING = replace(FLOW_TRAINING, epochs=20)
"""The training of flows on Gaussian rows, for any number of columns."""

M = TypeVar("M")


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeedData:
    """Rows in [0, 1] for training and for explaining, on the processor.

    Attributes:
        name: Name of the data set.
        x_train: Training rows, shape ``(n, d)``.
        y_train: Their classes, shape ``(n,)``.
        x_test: Test rows, shape ``(m, d)``.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor

    def sample(self, rows: int, seed: int) -> Tensor:
        """Return test rows, drawn with replacement, shape ``(rows, d)``."""
        generator = torch.Generator().manual_seed(seed)
        return self.x_test[torch.randint(len(self.x_test), (rows,), generator=generator)]


def gaussian(d: int, train: int, test: int, seed: int) -> SpeedData:
    """Return two Gaussian classes of d correlated columns, with means two standard deviations apart."""
    draw = np.random.default_rng((seed, d))
    y = np.arange(train + test) % 2
    z = draw.normal(size=(len(y), d))
    for column in range(1, d):
        z[:, column] = 0.5 * z[:, column - 1] + math.sqrt(0.75) * z[:, column]
    z += (2 * y - 1)[:, None] / math.sqrt(d)
    x = torch.from_numpy(np.clip(0.5 + z / 10, 0, 1).astype(np.float32))
    return SpeedData(
        name=f"gaussian_{d}", x_train=x[:train], y_train=torch.from_numpy(y[:train]), x_test=x[train:]
    )


def heloc(seed: int) -> SpeedData:
    """Return fold 0 of heloc, or Gaussian rows of the same size if its file is not on this machine."""
    try:
        fold = load_fold("heloc", 0)
    except DataNotFoundError:
        return gaussian(STAND_IN_COLUMNS, *STAND_IN_ROWS, seed)
    return SpeedData(name="heloc", x_train=fold.x_train, y_train=fold.y_train, x_test=fold.x_test)


@dataclass(frozen=True, kw_only=True)
class ModelRecipe:
    """Settings of the models.

    Attributes:
        hidden: Hidden layers of the MLP.
        training: Training of the classifiers. None means their default.
        flow: The single density, and each member of the ensemble.
        members: The number of members of the ensemble.
    """

    hidden: tuple[int, ...] = (256, 256, 256)
    training: Training | None = None
    flow: ConditionalFlow = field(default_factory=ConditionalFlow)
    members: int = CrossFitEnsemble.members

    def with_short_training(self) -> ModelRecipe:
        """Return the same settings with a short training of flows."""
        epochs = min(SHORT_FLOW_TRAINING.epochs, self.flow.training.epochs)
        return replace(self, flow=replace(self.flow, training=replace(SHORT_FLOW_TRAINING, epochs=epochs)))


class ModelCache:
    """Models that are trained once and cached in memory and, optionally, in files.

    Args:
        folder: Where files are stored. None means in memory only.
        seed: Seed of everything that is trained.
    """

    def __init__(self, folder: Path | None, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self._models: dict[str, Any] = {}

    def classifier(self, kind: str, data: SpeedData, recipe: ModelRecipe) -> NetworkClassifier:
        """Return the fitted classifier ``lr`` or ``mlp``."""
        model: NetworkClassifier = LinearClassifier(random_state=self.seed)
        if kind == "mlp":
            model = MLPClassifier(hidden=recipe.hidden, random_state=self.seed)
        return self._fit(model if recipe.training is None else replace(model, training=recipe.training), data)

    def density(
        self, kind: str, classifier: NetworkClassifier, data: SpeedData, recipe: ModelRecipe
    ) -> Plausibility:
        """Return ``one`` flow with its thresholds, or the ``ensemble``, calibrated for a classifier."""
        base = replace(recipe.flow, random_state=self.seed)
        if kind == "one":
            return self._fit(Thresholded(density=self._fit(base, data)), data)
        ensemble = CrossFitEnsemble(members=recipe.members, base=recipe.flow, random_state=self.seed)
        return self._calibrate(self._fit(ensemble, data), classifier, data)

    def method(
        self, classifier: str, density: str, data: SpeedData, recipe: ModelRecipe, device: torch.device
    ) -> PPCEF:
        """Return PPCEF with both models, in the [0, 1] box, fitted on a device."""
        model = self.classifier(classifier, data, recipe)
        plausibility = self.density(density, model, data, recipe)
        method = PPCEF(
            classifier=model, plausibility=plausibility, lower=0.0, upper=1.0, random_state=self.seed
        )
        return method.fit(data.x_train.to(device), data.y_train.to(device))

    def _fit(self, model: M, data: SpeedData) -> M:
        rows = {"x": data.x_train, "y": data.y_train}
        if isinstance(model, Thresholded):
            rows |= add_prefix("density", get_state(model.density))
        fit: Callable[[Tensor, Tensor], M] = model.fit  # type: ignore[attr-defined]
        return self._get_or_make(
            "fitted", get_settings(model), rows, FITTING_CODE, lambda: fit(data.x_train, data.y_train)
        )

    def _calibrate(
        self, ensemble: CrossFitEnsemble, classifier: NetworkClassifier, data: SpeedData
    ) -> CrossFitEnsemble:
        """Return the ensemble with margins calibrated for a classifier."""

        def calibrate() -> CrossFitEnsemble:
            own = copy.deepcopy(ensemble)
            method = PPCEF(classifier=classifier, density=own, lower=0.0, upper=1.0, random_state=self.seed)
            with ignore_plausibility_warnings():
                method.fit(data.x_train, data.y_train)
            return own

        inputs = {
            "x": data.x_train,
            **add_prefix("classifier", get_state(classifier)),
            **add_prefix("density", get_state(ensemble)),
        }
        return self._get_or_make("calibrated", get_settings(ensemble), inputs, CALIBRATION_CODE, calibrate)

    def _get_or_make(
        self,
        what: str,
        settings: Mapping[str, object],
        inputs: Mapping[str, Tensor],
        code: tuple[str, ...],
        make: Callable[[], M],
    ) -> M:
        """Return a model from memory or from its file, or make it."""
        parts = [what, settings, fingerprint(inputs), source_fingerprint(code)]
        key = hashlib.sha256(to_json_bytes(parts)).hexdigest()[:32]
        if key not in self._models:
            path = None if self.folder is None else self.folder / f"{settings['kind']}-{key}.safetensors"
            if path is not None and path.exists():
                self._models[key] = _read(path, settings)
            else:
                self._models[key] = make()
                if path is not None:
                    state = {name: value.contiguous() for name, value in get_state(self._models[key]).items()}
                    write_atomically(path, save(state))
        made: M = self._models[key]
        return made


def _read(path: Path, settings: Mapping[str, object]) -> object:
    try:
        return restore(settings, load_file(path))
    except SafetensorError as error:
        raise InvalidInputError(
            f"{path} must be a model that this study stored; it cannot be read ({error}). Remove the file to "
            "train the model again."
        ) from error
