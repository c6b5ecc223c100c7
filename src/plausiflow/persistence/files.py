"""The directory of a saved explainer: safetensors and JSON, written atomically and checked when read.

Only known file names are read, only regular files, only up to fixed sizes, and only if the hash of their
bytes is the one in ``explainer.json``. The hash finds damage, not malice: whoever can write the directory can
write the hash, so every value is checked again where it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from plausiflow.atomic import atomic_path
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.persistence.states import TensorDict, to_json_bytes

FORMAT = 2
"""The version of the format, the only one that can be read."""
KIND = "plausiflow explainer"
DOCUMENT = "explainer.json"
TENSORS = ("plausibility", "judges", "bank", "surrogate", "synthetic_rows", "network", "training")
"""Names of files with the suffix ``.safetensors``."""
MODELS = ("model.skops", "model.json", "model.txt")
NAMES = (*(f"{name}.safetensors" for name in TENSORS), *MODELS)
MAX_DOCUMENT_BYTES, MAX_FILE_BYTES, MAX_HEADER_BYTES = 32 << 20, 8 << 30, 16 << 20


class ArtefactError(PlausiflowError, ValueError):
    """A saved explainer cannot be read: it is damaged, has another version, or is something else."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderContents:
    """The contents of a directory."""

    document: Mapping[str, Any]  # The JSON document.
    tensors: Mapping[str, TensorDict]  # Tensors by file, one of ``TENSORS``.
    models: Mapping[str, bytes]  # Bytes by file, one of ``MODELS``.


def write_folder(folder: Path, contents: FolderContents) -> None:
    """Write a directory atomically; a saved explainer that is there is replaced, and nothing else."""
    folder = folder.resolve()
    _check_replaceable(folder)
    files = dict(contents.models)
    for name, state in contents.tensors.items():
        tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}
        files[f"{name}.safetensors"] = save(tensors)
    sizes = {name: {"bytes": len(content), "sha256": _hash(content)} for name, content in files.items()}
    document = {"kind": KIND, "format": FORMAT, **contents.document, "files": sizes}
    document["checksum"] = _hash(to_json_bytes(document))
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        for name, content in (files | {DOCUMENT: text}).items():
            (temporary / name).write_bytes(content)


def read_folder(folder: Path) -> FolderContents:
    """Read a directory; the size of each file is checked before it is read."""
    if not folder.is_dir():
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder} is not a directory. Save one "
            "first: `explainer.save(folder)`."
        )
    document = _read_document(folder)
    files = document.get("files")
    if not isinstance(files, dict) or not set(files) <= set(NAMES):
        raise damaged(folder, f"`files` may only name {', '.join(NAMES)}")
    content = {name: _read_checked(folder, name, entry) for name, entry in files.items()}
    return FolderContents(
        document=document,
        tensors={
            name: _parse_tensors(folder, f"{name}.safetensors", content[f"{name}.safetensors"])
            for name in TENSORS
            if f"{name}.safetensors" in content
        },
        models={name: content[name] for name in MODELS if name in content},
    )


def damaged(folder: Path, problem: str) -> ArtefactError:
    """Return the error for a directory that has changed since it was written."""
    return ArtefactError(
        f"The explainer saved in {folder} cannot be read: {problem}. It is damaged, or was changed after it "
        "was saved. Copy it again, or fit and save the explainer again."
    )


def _check_replaceable(folder: Path) -> None:
    """Raise unless a directory is new, empty or a saved explainer."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if not folder.is_dir():
        problem = "is a file"
    elif others := sorted(names - {DOCUMENT, *NAMES} - _listed_files(folder)):
        problem = f"contains {', '.join(others[:5])}"
    elif names and DOCUMENT not in names:
        problem = "is not a saved explainer"
    else:
        return
    raise InvalidInputError(
        f"`folder` must be new, empty or a saved explainer; {folder} {problem}, which would be lost. Choose "
        "another name."
    )


def _listed_files(folder: Path) -> set[str]:
    """Return the files that the document of a saved explainer of any format lists."""
    try:
        document = json.loads((folder / DOCUMENT).read_bytes())
        return set(document["files"]) if document["kind"] == KIND else set()
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_document(folder: Path) -> dict[str, Any]:
    """Return the JSON document, if its version is supported and its checksum is right."""
    content = _read_bytes(folder, DOCUMENT, MAX_DOCUMENT_BYTES)
    try:
        document = json.loads(
            content, parse_constant=_parse_finite, parse_float=_parse_finite, object_pairs_hook=_unique_names
        )
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{DOCUMENT} is not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ArtefactError(
            f"`folder` must be the directory of a saved explainer; {folder / DOCUMENT} is something else."
        )
    version = document.get("format")
    if type(version) is int and version != FORMAT:
        libraries = document.get("versions")
        writer = f" by plausiflow {libraries.get('plausiflow')}" if isinstance(libraries, dict) else ""
        raise ArtefactError(
            f"The explainer in {folder} was saved in format {version}{writer}; this release reads format "
            f"{FORMAT}. Fit the explainer again and save it, or install the release that saved it."
        )
    stated = document.pop("checksum", None)
    if type(version) is not int or stated != _hash(to_json_bytes(document)):
        raise damaged(folder, f"the checksum of {DOCUMENT} is wrong")
    return document


def _read_checked(folder: Path, name: str, entry: object) -> bytes:
    """Return the bytes of a file that has the stated size and hash."""
    stated = entry if isinstance(entry, dict) else {}
    size = stated.get("bytes")
    if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise damaged(folder, f"the size of {name} must be at most {MAX_FILE_BYTES} bytes")
    content = _read_bytes(folder, name, size)
    if len(content) != size or _hash(content) != stated.get("sha256"):
        raise damaged(folder, f"{name} has changed")
    return content


def _read_bytes(folder: Path, name: str, max_bytes: int) -> bytes:
    """Return the bytes of a regular file of limited size; links are not followed."""
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise damaged(folder, f"{name} cannot be opened ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise damaged(folder, f"{name} is not a regular file")
        if status.st_size > max_bytes:
            raise damaged(folder, f"{name} has {status.st_size} bytes, more than {max_bytes}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def _parse_tensors(folder: Path, name: str, content: bytes) -> TensorDict:
    if int.from_bytes(content[:8], "little") > min(MAX_HEADER_BYTES, len(content)):
        raise damaged(folder, f"the header of {name} is too long")
    try:
        return {key: tensor.clone() for key, tensor in load(content).items()}
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise damaged(folder, f"{name} is not a safetensors file ({error})") from error


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has the same name twice")
    return values
