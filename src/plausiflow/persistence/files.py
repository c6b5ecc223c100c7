"""The directory of a saved explainer: safetensors and JSON, written atomically and checked when read.

Only known file names are read, only regular files, only up to fixed sizes, and only if the hash of their
bytes is the one in ``explainer.json``. The hash finds damage, not malice: whoever can write the directory can
write the hash, so every value is checked again where it is used. No file is held in memory before its size,
its header and its hash are right.

One process at a time writes a directory; others wait. A process that reads it sees the old explainer or the
new one: all files are opened in one directory, and if that one was replaced meanwhile, reading starts again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from safetensors.torch import save

from plausiflow.atomic import atomic_path, leftovers, recover
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.persistence.limits import check_json
from plausiflow.persistence.states import TensorDict, to_json_bytes
from plausiflow.persistence.tensor_files import check_header, parse_tensors
from plausiflow.workers import LockedError, hold_lock

FORMAT = 2
"""The version of the format, the only one that can be read."""
KIND = "plausiflow explainer"
DOCUMENT = "explainer.json"
TENSORS = ("plausibility", "judges", "bank", "surrogate", "synthetic_rows", "network", "training", "refits")
"""Names of files with the suffix ``.safetensors``."""
MODELS = ("model.skops", "model.json", "model.txt")
REFITS = re.compile(r"refit-\d{2,3}\.(skops|json|txt)")
"""Names of the files of retrained models."""
NAMES = (*(f"{name}.safetensors" for name in TENSORS), *MODELS)
MAX_DOCUMENT_BYTES, MAX_FILE_BYTES = 32 << 20, 8 << 30
VALUE_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    MemoryError, OSError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Errors that unexpected values in a file can raise, those of recursion and overflow included."""
_CHUNK_BYTES, _MAX_HOLES, _MAX_PARTS = 1 << 20, 64 << 20, 10_000
_ATTEMPTS, _PAUSE = 50, 0.02  # of reading a directory that is replaced meanwhile, and seconds between them


class ArtefactError(PlausiflowError, ValueError):
    """A saved explainer cannot be read: it is damaged, has another version, or is something else."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderContents:
    """The contents of a directory."""

    document: Mapping[str, Any]  # The JSON document.
    tensors: dict[str, TensorDict]  # Tensors by file, one of ``TENSORS``.
    models: dict[str, bytes]  # Bytes by file, one of ``MODELS`` or of ``REFITS``.


@dataclass(frozen=True)
class _Folder:
    """An open directory, which stays the same if another one takes its name."""

    path: Path
    descriptor: int

    def is_current(self) -> bool:
        """Return whether the name still leads to this directory."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except OSError:
            return False

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file; links are not followed."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError as error:
            raise damaged(self.path, f"{name} cannot be opened ({error.strerror})") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise damaged(self.path, f"{name} is not a regular file")
        with open(descriptor, "rb") as file:
            yield file


def write_folder(folder: Path, contents: FolderContents) -> None:
    """Write a directory atomically; a saved explainer that is there is replaced, and nothing else.

    If another process is writing it, this one waits.
    """
    folder = folder.resolve()
    if _reason_to_keep(folder):  # before the work; but another process may be replacing it just now
        with _only_writer(folder):
            _check_replaceable(folder)
    files = dict(contents.models)
    for name, state in contents.tensors.items():
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}
        files[f"{name}.safetensors"] = save(tensors)
    sizes = {name: {"bytes": len(content), "sha256": _hash(content)} for name, content in files.items()}
    document = {"kind": KIND, "format": FORMAT, **contents.document, "files": sizes}
    document["checksum"] = _hash(to_json_bytes(document))
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    with _only_writer(folder):
        _check_replaceable(folder)
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            for name, content in (files | {DOCUMENT: text}).items():
                (temporary / name).write_bytes(content)


def read_folder(folder: Path) -> FolderContents:
    """Read a directory; the size of each file is checked before it is read."""
    _remove_leftovers(folder.resolve())
    with as_artefact_error(folder):
        for _ in range(_ATTEMPTS):
            contents = _read_if_current(folder)
            if contents is not None:
                return contents
            time.sleep(_PAUSE)
    raise ArtefactError(
        f"The explainer in {folder} was replaced again and again while it was read. Load it when no process "
        "saves it."
    )


@contextmanager
def as_artefact_error(folder: Path) -> Iterator[None]:
    """Raise errors that values in a file cause as :class:`ArtefactError`."""
    try:
        yield
    except PlausiflowError:
        raise
    except ImportError as error:
        raise ArtefactError(
            f"The explainer saved in {folder} needs a package that is not installed: {error}. Install it; "
            "`versions` in explainer.json has the versions that were in use."
        ) from error
    except MemoryError as error:
        raise ArtefactError(
            f"The explainer saved in {folder} needs more memory than there is. Load it on a machine with "
            "more memory, or fit and save it again with fewer training rows."
        ) from error
    except VALUE_ERRORS as error:
        text = " ".join(str(error).split())[:300]
        raise damaged(folder, f"its parts do not fit ({type(error).__name__}: {text})") from error


def damaged(folder: Path, problem: str) -> ArtefactError:
    """Return the error for a directory that has changed since it was written."""
    return ArtefactError(
        f"The explainer saved in {folder} cannot be read: {problem}. It is damaged, or was changed after it "
        "was saved. Copy it again, or fit and save the explainer again."
    )


@contextmanager
def _only_writer(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a directory, and remove what killed processes left of it.

    The lock file is removed by its holder; a process that waits for it then makes a new one.
    """
    lock = folder.with_name(f".{folder.name}.lock")
    with hold_lock(lock, wait=wait):
        try:
            recover(folder)
            yield
        finally:
            lock.unlink(missing_ok=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left of a directory, if it may be changed and no process is writing it."""
    if leftovers(folder):
        with suppress(LockedError, OSError), _only_writer(folder, wait=False):
            pass


def _read_if_current(folder: Path) -> FolderContents | None:
    """Read a directory; None if it was replaced meanwhile and cannot be read any more."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if leftovers(folder.resolve()):
            return None
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        problem = "is not a directory" if missing else f"cannot be opened ({error.strerror})"
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder} {problem}. Save one first: "
            "`explainer.save(folder)`."
        ) from error
    opened = _Folder(folder, descriptor)
    try:
        return _read(opened)
    except ArtefactError:
        if opened.is_current():
            raise
        return None
    finally:
        os.close(descriptor)


def _read(folder: _Folder) -> FolderContents:
    document = _read_document(folder)
    files = document.get("files")
    if not isinstance(files, dict) or not all(name in NAMES or REFITS.fullmatch(name) for name in files):
        raise damaged(folder.path, f"`files` may only name {', '.join(NAMES)} and files of refits")
    tensors, models = {}, {}
    for name, entry in files.items():
        try:
            content = _read_checked(folder, name, entry)
            if _is_model(name):
                models[name] = content
            else:
                tensors[name.removesuffix(".safetensors")] = parse_tensors(content, name)
        except InvalidInputError as error:
            raise damaged(folder.path, str(error)) from error
    return FolderContents(document=document, tensors=tensors, models=models)


def _check_replaceable(folder: Path) -> None:
    """Raise unless a directory is new, empty or a saved explainer."""
    if problem := _reason_to_keep(folder):
        raise InvalidInputError(
            f"`folder` must be new, empty or a saved explainer; {folder} {problem}, which would be lost. "
            "Choose another name."
        )


def _reason_to_keep(folder: Path) -> str:
    """Return why a directory must not be replaced; empty if it is new, empty or a saved explainer."""
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return "is a file" if folder.exists() else ""
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return ""
    if others := sorted(names - {DOCUMENT, *NAMES} - _listed_files(folder)):
        return f"contains {', '.join(others[:5])}"
    return "is not a saved explainer" if names and DOCUMENT not in names else ""


def _listed_files(folder: Path) -> set[str]:
    """Return the files that the document of a saved explainer of any format lists."""
    try:
        with (folder / DOCUMENT).open("rb") as file:
            document = json.loads(file.read(MAX_DOCUMENT_BYTES))
        return set(document["files"]) if document["kind"] == KIND else set()
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def _is_model(name: str) -> bool:
    return name in MODELS or REFITS.fullmatch(name) is not None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_document(folder: _Folder) -> dict[str, Any]:
    """Return the JSON document, if its version is supported and its checksum is right."""
    with folder.open(DOCUMENT) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_DOCUMENT_BYTES:
            raise damaged(folder.path, f"{DOCUMENT} has {size} bytes, more than {MAX_DOCUMENT_BYTES}")
        content = file.read(size)
    try:
        check_json(content, DOCUMENT)
        document = json.loads(
            content, parse_constant=parse_finite, parse_float=parse_finite, object_pairs_hook=unique_names
        )
    except (ValueError, RecursionError) as error:
        raise damaged(folder.path, f"{DOCUMENT} is not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder.path / DOCUMENT} is something "
            "else."
        )
    version = document.get("format")
    if type(version) is int and version != FORMAT:
        libraries = document.get("versions")
        writer = f" by plausiflow {libraries.get('plausiflow')}" if isinstance(libraries, dict) else ""
        raise ArtefactError(
            f"The explainer in {folder.path} was saved in format {version}{writer}; this release reads "
            f"format {FORMAT}. Fit the explainer again and save it, or install the release that saved it."
        )
    stated = document.pop("checksum", None)
    if type(version) is not int or stated != _hash(to_json_bytes(document)):
        raise damaged(folder.path, f"the checksum of {DOCUMENT} is wrong")
    return document


def _read_checked(folder: _Folder, name: str, entry: object) -> bytes:
    """Return the bytes of a file that has the stated size and hash; it is hashed before it is held."""
    stated = entry if isinstance(entry, dict) else {}
    size = stated.get("bytes")
    if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise damaged(folder.path, f"the size of {name} must be at most {MAX_FILE_BYTES} bytes")
    with folder.open(name) as file:
        found = os.fstat(file.fileno()).st_size
        if found > size:
            raise damaged(folder.path, f"{name} has {found} bytes, more than {size}")
        if found < size:
            raise damaged(folder.path, f"{name} has changed")
        held = _held_bytes(file.fileno(), size)
        if size > 4 * held + _MAX_HOLES:
            raise damaged(folder.path, f"{name} has holes: it holds {held} of its {size} bytes")
        if not _is_model(name):
            check_header(file, size, name)
            file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        if digest.hexdigest() != stated.get("sha256"):
            raise damaged(folder.path, f"{name} has changed")
        file.seek(0)
        return file.read(size)


def _held_bytes(descriptor: int, size: int) -> int:
    """Return how many bytes of a file are not in holes, which take memory but no space on disk."""
    held = end = 0
    try:
        for _ in range(_MAX_PARTS):
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            held += end - start
        return size
    except OSError as error:  # there are no bytes after the last part, or the system does not tell
        return held if error.errno == errno.ENXIO else size
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def parse_finite(text: str) -> float:
    """Return the number of a JSON text; raise if it is not finite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text; raise if it has a name twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has the same name twice")
    return values
