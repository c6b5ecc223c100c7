"""A directory of safetensors and JSON, written whole or not at all, and read with suspicion.

Only names that this code knows are read, only plain files, only up to stated sizes, and only where the hash
of their bytes is the one that ``explainer.json`` states. That hash tells damage, not malice: whoever can
write the directory can write the hash, so what is read is checked all the same by whoever uses it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.persistence.states import State, as_json

FORMAT = 1
"""Raised when older code could not read what newer code writes."""
KIND = "plausiflow explainer"
DOCUMENT = "explainer.json"
TENSORS = ("densities", "judges", "bank", "likeness", "probes", "network", "training")
"""Files of tensors, each with the ending ``.safetensors``."""
MODELS = ("model.skops", "model.json", "model.txt")
NAMES = (*(f"{name}.safetensors" for name in TENSORS), *MODELS)
LARGEST_DOCUMENT, LARGEST_FILE, LARGEST_HEADER = 32 << 20, 8 << 30, 16 << 20
"""Bytes."""


class ArtefactError(PlausiflowError, ValueError):
    """A saved explainer cannot be read: it is damaged, of another version, or not one at all."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Contents:
    """What a directory holds.

    Attributes:
        about: What JSON can hold.
        tensors: By the name of their file, one of ``TENSORS``.
        models: Bytes by the name of their file, one of ``MODELS``.
    """

    about: Mapping[str, Any]
    tensors: Mapping[str, State]
    models: Mapping[str, bytes]


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


def write(folder: Path, contents: Contents) -> None:
    """Write a directory beside its place, then put it there; an older one of the same kind is replaced.

    Raises:
        InvalidInputError: Something else is in that place.
    """
    folder = folder.resolve()
    _check_place(folder)
    files = {
        f"{name}.safetensors": save(
            {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}
        )
        for name, state in contents.tensors.items()
    }
    files |= contents.models
    document = {"kind": KIND, "format": FORMAT, **contents.about, "files": _listed(files)}
    document["checksum"] = _hash(as_json(document))
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    before = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        beside.mkdir(parents=True)
        for name, content in (files | {DOCUMENT: text}).items():
            write_atomically(beside / name, content)
        if folder.exists():
            folder.rename(before)
        beside.rename(folder)
    finally:
        if before.exists() and not folder.exists():
            before.rename(folder)
        for leftover in (beside, before):
            shutil.rmtree(leftover, ignore_errors=True)


def read(folder: Path) -> Contents:
    """Read a directory; every size is checked before any byte is read.

    Raises:
        ArtefactError: It is not there, damaged, of a newer version, or not a saved explainer.
    """
    if not folder.is_dir():
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder} is none. Save one first: "
            "`explainer.save(folder)`."
        )
    document = _document(folder)
    files = document.get("files")
    if not isinstance(files, dict) or not set(files) <= set(NAMES):
        raise damaged(folder, f"`files` must name some of {', '.join(NAMES)}")
    content = {name: _checked(folder, name, entry) for name, entry in files.items()}
    return Contents(
        about=document,
        tensors={
            name: _tensors(folder, f"{name}.safetensors", content[f"{name}.safetensors"])
            for name in TENSORS
            if f"{name}.safetensors" in content
        },
        models={name: content[name] for name in MODELS if name in content},
    )


def damaged(folder: Path, why: str) -> ArtefactError:
    """The error for a directory that is not as it was written."""
    return ArtefactError(
        f"The explainer saved in {folder} cannot be read: {why}. It is damaged, or was changed after it was "
        "saved. Copy it again from where it was saved, or fit and save it anew."
    )


def _check_place(folder: Path) -> None:
    """Raise where a directory would take the place of anything but an older one."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = sorted(names - {DOCUMENT, *NAMES})
    if foreign or (names and DOCUMENT not in names) or not folder.is_dir():
        what = f"holds {', '.join(foreign[:5]) or 'no saved explainer'}" if names else "is a file"
        raise InvalidInputError(
            f"`folder` must be new, empty or an explainer that was saved before; {folder} {what}, which "
            "would be lost. Give another name."
        )


def _listed(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {name: {"bytes": len(content), "sha256": _hash(content)} for name, content in files.items()}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _document(folder: Path) -> dict[str, Any]:
    """The JSON of a directory, of a version that is known and with its own hash."""
    content = _bytes(folder, DOCUMENT, LARGEST_DOCUMENT)
    try:
        document = json.loads(
            content, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_without_repeats
        )
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{DOCUMENT} is no JSON as it was written ({error})") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder / DOCUMENT} is not that of one."
        )
    version = document.get("format")
    if type(version) is int and version != FORMAT:
        made_by = document.get("versions")
        by = f", by plausiflow {made_by.get('plausiflow')}" if isinstance(made_by, dict) else ""
        raise ArtefactError(
            f"The explainer saved in {folder} has format {version}{by}; this plausiflow reads format "
            f"{FORMAT}. Install the version that saved it, or fit and save it anew."
        )
    stated = document.pop("checksum", None)
    if type(version) is not int or stated != _hash(as_json(document)):
        raise damaged(folder, f"the checksum of {DOCUMENT} is wrong")
    return document


def _checked(folder: Path, name: str, entry: object) -> bytes:
    """A file that has the size and the hash that are stated for it."""
    stated = entry if isinstance(entry, dict) else {}
    size = stated.get("bytes")
    if type(size) is not int or not 0 <= size <= LARGEST_FILE:
        raise damaged(folder, f"the size of {name} must be stated, at most {LARGEST_FILE} bytes")
    content = _bytes(folder, name, size)
    if len(content) != size or _hash(content) != stated.get("sha256"):
        raise damaged(folder, f"{name} is not what was written")
    return content


def _bytes(folder: Path, name: str, most: int) -> bytes:
    """A plain file of a directory, at most so large; links are not followed."""
    try:
        number = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise damaged(folder, f"{name} cannot be opened ({error.strerror})") from error
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise damaged(folder, f"{name} is no plain file")
        if status.st_size > most:
            raise damaged(folder, f"{name} has {status.st_size} bytes, more than {most}")
        with open(number, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(number)


def _tensors(folder: Path, name: str, content: bytes) -> State:
    if int.from_bytes(content[:8], "little") > min(LARGEST_HEADER, len(content)):
        raise damaged(folder, f"the header of {name} is too long")
    try:
        return {key: tensor.clone() for key, tensor in load(content).items()}
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise damaged(folder, f"{name} is no file of tensors ({error})") from error


def _refused(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return made
