"""Fitted models as settings that JSON can hold and tensors, and back; nothing else is needed to make them.

``Kinds`` is a closed list of classes: what a file names is looked up there, and never imported.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

import torch
from torch import Tensor

from plausiflow.core import Training
from plausiflow.densities import (
    GMM,
    KDE,
    ConditionalFlow,
    ContextThreshold,
    CrossFitEnsemble,
    MixedDensity,
    Thresholded,
)
from plausiflow.errors import InvalidInputError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier
from plausiflow.tables import plain

State = dict[str, Tensor]
_NO_SETTING = {"workers"}
LIBRARIES = (
    "plausiflow", "torch", "numpy", "pandas", "sklearn", "zuko", "safetensors", "skops", "xgboost",
    "lightgbm",
)  # fmt: skip
"""What a saved explainer depends on, as it is imported."""


@dataclass(frozen=True)
class Kinds:
    """The classes that settings may be made of, by name.

    Example:
        >>> settings = KINDS.settings_of(KDE(bandwidth=0.5))
        >>> settings
        {'kind': 'KDE', 'bandwidth': 0.5}
        >>> KINDS.made(settings)
        KDE(bandwidth=0.5)
    """

    classes: Mapping[str, type[Any]]

    @classmethod
    def of(cls, *classes: type[Any]) -> Self:
        """By the names of classes."""
        return cls({one.__name__: one for one in classes})

    def with_(self, *classes: type[Any]) -> Kinds:
        """The same and some more."""
        return Kinds({**self.classes, **Kinds.of(*classes).classes})

    def __contains__(self, model: object) -> bool:
        return self.classes.get(type(model).__name__) is type(model)

    def settings_of(self, model: object) -> dict[str, object]:
        """What a model was made with, as JSON has it; :meth:`made` and :meth:`restored` take it back."""
        kind = type(model).__name__
        if model not in self or not is_dataclass(model):
            raise InvalidInputError(
                f"Expected one of {', '.join(self.classes)}; got a {kind}, whose settings are not known. "
                "Store its tensors by themselves."
            )
        named = {f.name: getattr(model, f.name) for f in fields(model) if f.init}
        return {"kind": kind} | {
            name: self._plain(value, f"{kind}.{name}")
            for name, value in named.items()
            if name not in _NO_SETTING
        }

    def state_of(self, model: object) -> State:
        """Everything that a model has learned, as tensors."""
        self.settings_of(model)
        state: State = model.state()  # type: ignore[attr-defined]
        return state

    def made(self, settings: Any) -> Any:  # noqa: ANN401  (a setting, or one of the classes)
        """The model that :meth:`settings_of` describes, not fitted."""
        if isinstance(settings, list):
            return tuple(map(self.made, settings))
        if not isinstance(settings, Mapping):
            return settings
        values = {name: self.made(value) for name, value in settings.items() if name != "kind"}
        return self.classes[settings["kind"]](**values)

    def restored(self, settings: Mapping[str, Any], state: State) -> Any:  # noqa: ANN401  (one of the classes)
        """The model that :meth:`settings_of` and :meth:`state_of` describe."""
        return self.made(settings).load_state(state)

    def _plain(self, value: object, name: str) -> object:
        """A setting as JSON has it."""
        value = plain(value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple):
            return [self._plain(item, name) for item in value]
        if value in self:
            return self.settings_of(value)
        raise InvalidInputError(
            f"`{name}` must be numbers, texts or one of {', '.join(self.classes)} to be stored; got a "
            f"{type(value).__name__}. Fit this one without a store."
        )


KINDS = Kinds.of(
    LinearClassifier, MLPClassifier, NODE, ConditionalFlow, MixedDensity, KDE, GMM, Thresholded,
    CrossFitEnsemble, ContextThreshold, Training,
)  # fmt: skip
"""Our own classifiers and densities."""


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of tensors: names, types, shapes, kinds of device and every byte."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(as_json([name, str(tensor.dtype), list(tensor.shape), tensor.device.type]))
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def below(name: str, state: Mapping[str, Tensor]) -> State:
    """The tensors, below a name."""
    return {f"{name}.{key}": value for key, value in state.items()}


def versions() -> dict[str, str]:
    """Of the libraries that are in use."""
    used = {name: sys.modules.get(name) for name in LIBRARIES}
    return {name: str(getattr(module, "__version__", "")) for name, module in used.items() if module}


def as_json(value: object) -> bytes:
    """The one way to write a value."""
    return json.dumps(value, sort_keys=True).encode()
