"""Fitted models kept in files, found again by what they were made from.

A file's name has a hash of the kind, its settings, the rows, the package's version and the code that fits, so
that a change of any of them means another file and nothing has to be invalidated by hand. Files are
safetensors with a checksum, written under another name and renamed: they are whole or not there. Where two
processes want the same model, one fits it while the other waits at a lock, which the system takes from a
process that dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
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

from plausiflow.densities import Judges, Thresholded
from plausiflow.persistence import KINDS as PERSISTENT
from plausiflow.persistence import State, as_json, below, fingerprint, write_atomically
from plausiflow.workers import LockedError, locked

__all__ = [
    "KINDS", "Kept", "LockedError", "Store", "StoreWarning", "cpu_seconds", "fingerprint", "locked",
    "remove_leftovers", "restored", "settings_of", "source_fingerprint", "state_of", "write_atomically",
]  # fmt: skip

KINDS = PERSISTENT.with_(Judges)
settings_of, state_of, restored = KINDS.settings_of, KINDS.state_of, KINDS.restored

FITTING_CODE = ("classifiers/", "densities/", "densities/judges.py", "frozen.py", "losses.py", "training.py")


class StoreWarning(UserWarning):
    """A stored model could not be read; it is fitted again."""


class Fittable(Protocol):
    """What a store can fit."""

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn from rows and their classes."""
        ...


T = TypeVar("T")
F = TypeVar("F", bound=Fittable)


@dataclass(frozen=True, kw_only=True)
class Kept(Generic[T]):
    """Something from a store.

    Attributes:
        value: The fitted model, or the state.
        cpu_seconds: Processor seconds that fitting took, whenever that was, child processes included.
        found: It had been fitted before.
        about: What else was stored beside the tensors.
    """

    value: T
    cpu_seconds: float
    found: bool
    about: dict[str, object]


class Store:
    """A folder of fitted models; several processes may use it at once.

    Example:
        >>> import tempfile
        >>> from plausiflow.densities import KDE
        >>> x, y = torch.rand(50, 2), torch.arange(50) % 2
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.fitted(KDE(), x, y).found, store.fitted(KDE(), x, y).found
        (False, True)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def fitted(self, model: F, x: Tensor, y: Tensor) -> Kept[F]:
        """A model with the settings of ``model``, fitted to rows: read where it is known, else fitted now.

        Args:
            model: One of ``KINDS``, not fitted; the density inside a ``Thresholded`` is.
            x: Rows, shape ``(n, d)``.
            y: Their classes, shape ``(n,)``.
        """
        settings = settings_of(model)
        data = {"x": x, "y": y}
        if isinstance(model, Thresholded):
            data |= below("density", state_of(model.density))
        kept = self.keep(
            type(model).__name__, settings, data, lambda: (state_of(model.fit(x, y)), {"settings": settings})
        )
        value = restored(settings, kept.value) if kept.found else model
        return Kept(value=value, cpu_seconds=kept.cpu_seconds, found=kept.found, about=kept.about)

    def keep(
        self,
        kind: str,
        settings: Mapping[str, object],
        data: Mapping[str, Tensor],
        make: Callable[[], tuple[State, Mapping[str, object]]],
    ) -> Kept[State]:
        """The tensors that ``make`` gives, and what it says about them; it is called once for all processes.

        Args:
            kind: What it is; part of the file's name.
            settings: What it is made with, as JSON has it.
            data: The tensors it is made from.
            make: Gives the tensors, and anything that JSON can hold.
        """
        parts = [kind, settings, fingerprint(data), metadata.version("plausiflow"), torch.__version__]
        parts += [source_fingerprint(FITTING_CODE), str(torch.get_default_dtype())]
        name = f"{kind}-{hashlib.sha256(as_json(parts)).hexdigest()[:32]}"
        path = self.folder / f"{name}.safetensors"
        kept = _read(path)
        if isinstance(kept, Kept):
            return kept
        with locked(self.folder / "locks" / name):
            kept = _read(path)  # another process may have been faster
            if isinstance(kept, Kept):
                return kept
            if kept is not None:
                warnings.warn(f"{path} cannot be read ({kept}); fitting again.", StoreWarning, stacklevel=2)
            remove_leftovers(self.folder, name)
            before = cpu_seconds()
            made, about = make()
            seconds = cpu_seconds() - before
            state = {key: value.detach().cpu().contiguous().clone() for key, value in made.items()}
            header = {"about": about, "cpu_seconds": seconds, "checksum": fingerprint(state)}
            write_atomically(path, save(state, {"plausiflow": as_json(header).decode()}))
        return Kept(value=state, cpu_seconds=seconds, found=False, about=dict(about))


@cache
def source_fingerprint(parts: tuple[str, ...] = ("",)) -> str:
    """A hash of the package's code, or of the files whose path in it starts with one of ``parts``."""
    package = Path(__file__).parents[1]
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    chosen = [[name, path.read_text()] for name, path in sorted(files.items()) if name.startswith(parts)]
    return hashlib.sha256(as_json(chosen)).hexdigest()


def cpu_seconds() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove what :func:`write_atomically` left in a process that was killed; nobody may be writing."""
    for path in folder.glob(f"{name}*.tmp"):
        path.unlink(missing_ok=True)


def _read(path: Path) -> Kept[State] | str | None:
    """What a file holds, what is wrong with it, or nothing where there is none."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["plausiflow"])
            state = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if fingerprint(state) != header["checksum"]:
            return "its checksum is wrong"
        return Kept(value=state, cpu_seconds=header["cpu_seconds"], found=True, about=header["about"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
