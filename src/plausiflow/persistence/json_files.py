"""One JSON file with a kind, a format and a checksum, written atomically and checked when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plausiflow.atomic import write_atomically
from plausiflow.errors import InvalidInputError
from plausiflow.persistence.files import ArtefactError, parse_finite, unique_names
from plausiflow.persistence.limits import check_json
from plausiflow.persistence.states import library_versions, to_json_bytes

MAX_BYTES = 1 << 30


def write_json_file(path: Path, kind: str, version: int, body: Mapping[str, Any]) -> None:
    """Write a document; a file that is there is replaced, a directory is not.

    Raises:
        InvalidInputError: The path is a directory.
    """
    if path.is_dir():
        raise InvalidInputError(f"`path` must be the name of a file; {path} is a directory. Add a file name.")
    document = {"kind": kind, "format": version, "versions": library_versions(), **body}
    document["checksum"] = _checksum(document)
    write_atomically(path, json.dumps(document, allow_nan=False).encode() + b"\n")


def read_json_file(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a document.

    Raises:
        ArtefactError: The file cannot be read, is damaged, or is something else.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        raise ArtefactError(
            f"`path` must be a file with {kind}; {path} cannot be opened ({error.strerror}). Check the name."
        ) from error
    if size > MAX_BYTES:
        raise ArtefactError(f"{path} must have at most {MAX_BYTES} bytes; it has {size}. It is not read.")
    try:
        check_json(content, path.name)
        document = json.loads(
            content, parse_constant=parse_finite, parse_float=parse_finite, object_pairs_hook=unique_names
        )
    except (ValueError, RecursionError) as error:
        raise damaged_file(path, kind, f"it is not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise ArtefactError(f"`path` must be a file with {kind}; {path} is something else. Check the name.")
    if document.get("format") != version:
        raise ArtefactError(
            f"{path} has the format {document.get('format')!r}; this release reads format {version}. Save it "
            "again, or install the release that saved it."
        )
    stated = document.pop("checksum", None)
    if stated != _checksum(document):
        raise damaged_file(path, kind, "its checksum is wrong")
    return document


def damaged_file(path: Path, kind: str, problem: str) -> ArtefactError:
    """Return the error for a file that has changed since it was written."""
    return ArtefactError(
        f"The file {path} with {kind} cannot be read: {problem}. It is damaged, or was changed after it was "
        "saved. Copy it again, or save it again."
    )


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json_bytes(document)).hexdigest()
