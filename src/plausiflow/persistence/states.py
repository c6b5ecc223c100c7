"""Settings and tensors of fitted objects, and how to restore the objects from them.

Settings are JSON values; everything that was learned is a dictionary of tensors. A file can only name the
classes in ``KNOWN_CLASSES``: names are looked up there and never imported. An object of any other class, such
as a user's density, is stored as the name of its class and its tensors. To restore it, the caller passes an
object of that class.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from plausiflow.core import Training
from plausiflow.densities import (
    GMM,
    KDE,
    ConditionalFlow,
    ContextThreshold,
    CrossFitEnsemble,
    Judges,
    MixedDensity,
    OneCycle,
    Thresholded,
)
from plausiflow.errors import InvalidInputError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier
from plausiflow.tables import to_python

TensorDict = dict[str, Tensor]
KNOWN_CLASSES: Mapping[str, type[Any]] = {
    known.__name__: known
    for known in (
        LinearClassifier, MLPClassifier, NODE, ConditionalFlow, MixedDensity, KDE, GMM, Thresholded,
        CrossFitEnsemble, ContextThreshold, Judges, OneCycle, Training,
    )
}  # fmt: skip
USER_CLASS = "user"
"""The ``kind`` of an object whose class is not in ``KNOWN_CLASSES``."""
_LIBRARIES = (
    "plausiflow", "torch", "numpy", "pandas", "sklearn", "zuko", "safetensors", "skops", "xgboost",
    "lightgbm",
)  # fmt: skip


@runtime_checkable
class HasState(Protocol):
    """A fitted object that can be saved; a user's density or plausibility needs these two methods."""

    def state(self) -> TensorDict:
        """Return everything learned, as tensors by name."""
        ...

    def load_state(self, state: TensorDict) -> object:
        """Restore what :meth:`state` returned, in an object with the same settings."""
        ...


def is_known(model: object) -> bool:
    """Return whether the class of an object is in ``KNOWN_CLASSES``."""
    return KNOWN_CLASSES.get(type(model).__name__) is type(model)


def get_settings(model: object, *, user_classes: bool = False) -> dict[str, object]:
    """Return the settings of an object of a known class as JSON values; :func:`build` reads them.

    If ``user_classes``, ``model`` and the objects inside it may be of other classes that have ``state`` and
    ``load_state``. Their settings are not stored.

    Example:
        >>> settings = get_settings(KDE(bandwidth=0.5))
        >>> settings
        {'kind': 'KDE', 'bandwidth': 0.5}
        >>> build(settings)
        KDE(bandwidth=0.5)
    """
    settings: dict[str, object] = _to_json(model, "The object", user_classes)
    return settings


def get_state(model: Any) -> TensorDict:  # noqa: ANN401  (an object with `state`)
    """Return everything that an object has learned, as tensors."""
    state: TensorDict = model.state()
    others = {name: type(value).__name__ for name, value in state.items() if not isinstance(value, Tensor)}
    if others:
        raise InvalidInputError(
            f"`state()` must return a dictionary of tensors; got these types of values: {others}. Convert "
            "them with `torch.as_tensor`."
        )
    return state


def build(settings: Any, user_object: object = None) -> Any:  # noqa: ANN401  (a setting, or one of the classes)
    """Return the object that :func:`get_settings` described, not fitted.

    ``user_object`` is used where the settings name a class that is not known; it must be of that class.
    """
    if isinstance(settings, list):
        return tuple(build(item, user_object) for item in settings)
    if not isinstance(settings, Mapping):
        return settings
    if settings["kind"] != USER_CLASS:
        values = {name: build(value, user_object) for name, value in settings.items() if name != "kind"}
        return KNOWN_CLASSES[settings["kind"]](**values)
    name = str(settings["class"])
    if user_object is None or _class_name(user_object) != name:
        given = "none was given" if user_object is None else f"got a `{_class_name(user_object)}`"
        raise InvalidInputError(
            f"`density` must be an object of the class `{name}`, as when the explainer was saved; {given}. "
            "The class itself is not stored. Create it with the settings of the one that was fitted and pass "
            f"it: `Explainer.load(folder, density={name.rpartition('.')[2]}(...))`."
        )
    return user_object


def restore(settings: Mapping[str, Any], state: TensorDict) -> Any:  # noqa: ANN401  (one of the classes)
    """Return the object that :func:`get_settings` and :func:`get_state` described."""
    return build(settings).load_state(state)


def has_user_class(settings: object) -> bool:
    """Return whether settings name a class that is not known."""
    if isinstance(settings, Mapping):
        return settings.get("kind") == USER_CLASS or any(map(has_user_class, settings.values()))
    return isinstance(settings, list) and any(map(has_user_class, settings))


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of the names, dtypes, shapes, device types and bytes of tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(to_json_bytes([name, str(tensor.dtype), list(tensor.shape), tensor.device.type]))
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def add_prefix(prefix: str, state: Mapping[str, Tensor]) -> TensorDict:
    """Return the tensors under the names ``prefix.name``."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries in use that a saved explainer depends on."""
    used = {name: sys.modules.get(name) for name in _LIBRARIES}
    return {name: str(getattr(module, "__version__", "")) for name, module in used.items() if module}


def to_json_bytes(value: object) -> bytes:
    """Return a value as JSON, always with the same bytes."""
    return json.dumps(value, sort_keys=True).encode()


def _class_name(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def _to_json(value: Any, name: str, user_classes: bool) -> Any:  # noqa: ANN401  (any JSON value)
    value, kind = to_python(value), type(value).__name__
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_to_json(item, name, user_classes) for item in value]
    if is_known(value):
        names = [field.name for field in fields(value) if field.init]
        return {"kind": kind} | {n: _to_json(getattr(value, n), f"`{kind}.{n}`", user_classes) for n in names}
    if user_classes and isinstance(value, HasState):
        return {"kind": USER_CLASS, "class": _class_name(value)}
    remedy = (
        "Add `state()` and `load_state(state)` to its class" if user_classes else "Fit it without a store"
    )
    raise InvalidInputError(
        f"{name} must be made of numbers, text and objects of {', '.join(KNOWN_CLASSES)} to be stored; got a "
        f"{kind}. {remedy}."
    )
