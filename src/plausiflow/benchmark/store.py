"""Fitted models kept in files, found again by what they were made from.

A file's name has a hash of the kind, its settings, the rows, the package's version and the code that fits, so
that a change of any of them means another file and nothing has to be invalidated by hand. Files are
safetensors with a checksum, written under another name and renamed: they are whole or not there. Where two
processes want the same model, one fits it while the other waits at a lock, which the system takes from a
process that dies.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from plausiflow.classifiers import NODE, LinearClassifier, MLPClassifier
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Thresholded
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.search.judges import Judges
from plausiflow.training import Training

State = dict[str, Tensor]

KINDS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        LinearClassifier, MLPClassifier, NODE, ConditionalFlow, MixedDensity, KDE, GMM, Thresholded,
        CrossFitEnsemble, Judges, ContextThreshold, Training,
    )
}  # fmt: skip
"""What settings may be made of, by name."""

FITTING_CODE = ("classifiers/", "densities/", "search/judges.py", "frozen.py", "losses.py", "training.py")
_NO_SETTING = {"workers"}
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class StoreWarning(UserWarning):
    """A stored model could not be read; it is fitted again."""


class LockedError(PlausiflowError, RuntimeError):
    """Somebody else holds a lock that is not waited for."""


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
            data |= {f"density.{name}": value for name, value in state_of(model.density).items()}
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
        name = f"{kind}-{hashlib.sha256(_json(parts)).hexdigest()[:32]}"
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
            write_atomically(path, save(state, {"plausiflow": _json(header).decode()}))
        return Kept(value=state, cpu_seconds=seconds, found=False, about=dict(about))


def settings_of(model: object) -> dict[str, object]:
    """What a model was made with, as JSON has it; :func:`restored` takes it back."""
    kind = type(model).__name__
    if KINDS.get(kind) is not type(model) or not is_dataclass(model):
        raise InvalidInputError(
            f"Expected one of {', '.join(KINDS)}; got a {kind}, whose settings are not known. Store its "
            "tensors with `keep`."
        )
    named = {f.name: getattr(model, f.name) for f in fields(model) if f.init and f.name not in _NO_SETTING}
    return {"kind": kind} | {name: _plain(value, f"{kind}.{name}") for name, value in named.items()}


def state_of(model: object) -> State:
    """Everything that a model has learned, as tensors."""
    if isinstance(model, Thresholded):
        own = {} if model.log_delta_ is None else {"log_delta": model.log_delta_}
        return own | {f"density.{name}": value for name, value in state_of(model.density).items()}
    settings_of(model)
    state: State = model.state()  # type: ignore[attr-defined]
    return state


def restored(settings: Mapping[str, Any], state: State) -> Any:  # noqa: ANN401  (one of KINDS)
    """The model that :func:`settings_of` and :func:`state_of` describe."""
    if settings["kind"] == "Thresholded":
        inner = {k.removeprefix("density."): v for k, v in state.items() if k.startswith("density.")}
        own = {name: value for name, value in settings.items() if name not in ("kind", "density")}
        model = Thresholded(density=restored(settings["density"], inner), **own)
        model.log_delta_ = state["log_delta"].clone()
        return model
    return _made(settings).load_state(state)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of tensors: names, types, shapes, kinds of device and every byte."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(_json([name, str(tensor.dtype), list(tensor.shape), tensor.device.type]))
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@cache
def source_fingerprint(parts: tuple[str, ...] = ("",)) -> str:
    """A hash of the package's code, or of the files whose path in it starts with one of ``parts``."""
    package = Path(__file__).parents[1]
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    chosen = [[name, path.read_text()] for name, path in sorted(files.items()) if name.startswith(parts)]
    return hashlib.sha256(_json(chosen)).hexdigest()


def cpu_seconds() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, whenever this process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove what :func:`write_atomically` left in a process that was killed; nobody may be writing."""
    for path in folder.glob(f"{name}*.tmp"):
        path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which says who holds it; the system lets go of it when its owner dies.

    On a file system without locks nothing is held.

    Raises:
        LockedError: If another process holds it and ``wait`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            raise LockedError(file.read() or "a process that has just started") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


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


def _plain(value: object, name: str) -> object:
    """A setting as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, name) for item in value]
    if type(value).__name__ in KINDS:
        return settings_of(value)
    raise InvalidInputError(
        f"`{name}` must be numbers, texts or one of {', '.join(KINDS)} to be stored; got a "
        f"{type(value).__name__}. Fit this one without a store."
    )


def _made(value: Any) -> Any:  # noqa: ANN401  (a setting, or one of KINDS)
    """A setting from what :func:`_plain` gave."""
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, Mapping):
        return value
    return KINDS[value["kind"]](**{name: _made(item) for name, item in value.items() if name != "kind"})


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
