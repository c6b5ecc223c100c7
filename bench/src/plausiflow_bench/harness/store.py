"""A store of fitted models on disk, found by a hash of everything that they were made from.

The name of a file contains a hash of the kind of model, its settings, the training rows, the version of
plausiflow and the source code that fits models. When any of them changes, the model is fitted again under a
new name, so stale files are never read. Files are safetensors with a checksum and are written atomically.
When two processes need the same model, one fits it and the other waits for a lock; the operating system
releases the lock of a process that dies.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import plausiflow
from plausiflow.atomic import remove_leftovers, write_atomically
from plausiflow.densities import Thresholded
from plausiflow.persistence import (
    TensorDict,
    add_prefix,
    fingerprint,
    get_settings,
    get_state,
    restore,
    to_json_bytes,
)
from plausiflow.workers import hold_lock
from plausiflow_bench.harness.rows import cpu_seconds

PACKAGES = {
    "plausiflow": Path(plausiflow.__file__).parent,
    "plausiflow_bench": Path(__file__).parents[1],
}
FITTING_CODE = (
    "plausiflow/models/",
    "plausiflow/densities/",
    "plausiflow/core/frozen.py",
    "plausiflow/core/losses.py",
    "plausiflow/core/training.py",
    "plausiflow_bench/harness/store.py",
)
"""The source files whose change means that stored models are fitted again."""


class StoreWarning(UserWarning):
    """A stored model could not be read and is fitted again."""


class Fittable(Protocol):
    """A model that a store can fit."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Fit the model to rows ``(n, d)`` and their classes ``(n,)``."""
        ...


T = TypeVar("T")
F = TypeVar("F", bound=Fittable)


@dataclass(frozen=True, kw_only=True)
class StoreEntry(Generic[T]):
    """An entry of a store.

    Attributes:
        value: The fitted model, or its tensors.
        cpu_seconds: Processor seconds that fitting took when the model was fitted, child processes included.
        found: Whether the entry was in the store already.
        info: The JSON values that were stored beside the tensors.
    """

    value: T
    cpu_seconds: float
    found: bool
    info: dict[str, object]


class Store:
    """A folder of fitted models that several processes may use at once.

    Example:
        >>> import tempfile
        >>> from plausiflow.densities import KDE
        >>> x, y = torch.rand(50, 2), torch.arange(50) % 2
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.fit(KDE(), x, y).found, store.fit(KDE(), x, y).found
        (False, True)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def fit(self, model: F, x: Tensor, y: Tensor) -> StoreEntry[F]:
        """Fit a model to rows, or read it if it is in the store.

        Args:
            model: An unfitted model of plausiflow. The density inside a ``Thresholded`` is fitted.
            x: Training rows, shape ``(n, d)``.
            y: Their classes, shape ``(n,)``.
        """
        settings = get_settings(model)
        data = {"x": x, "y": y}
        if isinstance(model, Thresholded):
            data |= add_prefix("density", get_state(model.density))
        entry = self.get_or_make(
            type(model).__name__, settings, data, lambda: (get_state(model.fit(x, y)), {"settings": settings})
        )
        value = restore(settings, entry.value) if entry.found else model
        return StoreEntry(value=value, cpu_seconds=entry.cpu_seconds, found=entry.found, info=entry.info)

    def get_or_make(
        self,
        kind: str,
        settings: Mapping[str, object],
        data: Mapping[str, Tensor],
        make: Callable[[], tuple[TensorDict, Mapping[str, object]]],
    ) -> StoreEntry[TensorDict]:
        """Return the tensors that ``make`` returns; it is called once for all processes.

        Args:
            kind: The kind of model, which is part of the file name.
            settings: Settings of the model, as JSON values.
            data: The tensors that the model is made from.
            make: Returns the tensors, and a mapping of JSON values that describe them.
        """
        parts = [kind, settings, fingerprint(data), metadata.version("plausiflow"), torch.__version__]
        parts += [source_fingerprint(FITTING_CODE), str(torch.get_default_dtype())]
        name = f"{kind}-{hashlib.sha256(to_json_bytes(parts)).hexdigest()[:32]}"
        path = self.folder / f"{name}.safetensors"
        entry = _read(path)
        if isinstance(entry, StoreEntry):
            return entry
        with hold_lock(self.folder / "locks" / name):
            entry = _read(path)  # another process may have been faster
            if isinstance(entry, StoreEntry):
                return entry
            if entry is not None:
                warnings.warn(f"{path} cannot be read ({entry}); fitting again.", StoreWarning, stacklevel=2)
            remove_leftovers(self.folder, name)
            before = cpu_seconds()
            made, info = make()
            seconds = cpu_seconds() - before
            state = {key: value.detach().cpu().contiguous().clone() for key, value in made.items()}
            header = {"info": info, "cpu_seconds": seconds, "checksum": fingerprint(state)}
            write_atomically(path, save(state, {"plausiflow": to_json_bytes(header).decode()}))
        return StoreEntry(value=state, cpu_seconds=seconds, found=False, info=dict(info))


@cache
def source_fingerprint(prefixes: tuple[str, ...] = ("",)) -> str:
    """Return a hash of the source code of plausiflow and of the studies.

    Args:
        prefixes: Only files whose path, such as ``plausiflow/core/losses.py``, starts with one of these.
    """
    files = {
        f"{package}/{path.relative_to(folder).as_posix()}": path
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*.py")
    }
    chosen = [[name, path.read_text()] for name, path in sorted(files.items()) if name.startswith(prefixes)]
    return hashlib.sha256(to_json_bytes(chosen)).hexdigest()


def _read(path: Path) -> StoreEntry[TensorDict] | str | None:
    """Return the entry in a file, the reason why it cannot be read, or None if there is no file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["plausiflow"])
            state = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if fingerprint(state) != header["checksum"]:
            return "its checksum is wrong"
        return StoreEntry(value=state, cpu_seconds=header["cpu_seconds"], found=True, info=header["info"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
