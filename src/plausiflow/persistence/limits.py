"""Limits on the memory that reading a file takes: at most four times its size, plus 300 MB.

A small file of unknown origin can ask for any amount of memory: compressed archives, JSON of many small
values, shapes of arrays that are not there. What a file will take is estimated before it is parsed, and a
file that exceeds the limit is refused. Files that plausiflow writes stay far below it.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from plausiflow.errors import InvalidInputError

SLACK = 200 << 20
"""Bytes that a file may take beyond a multiple of its size."""
_MAX_ENTRIES, _UNPACKED_SLACK = 50_000, 48 << 20
_ENTRY, _NODE = b"PK\x01\x02", 1200  # the mark of an entry of an archive; bytes of an object of skops
_WIDE = re.compile(rb"\\u[dD]|[\xf0-\xff]")  # characters that make Python store a text in four bytes each
_PER_TOKEN = {b"{": 250, b":": 150, b",": 64, b"[": 64}  # bytes that Python takes, rounded up


def check_json(content: bytes, name: str, *, per_object: int = 250) -> None:
    """Raise if parsing JSON would take much more memory than its bytes; ``per_object`` is that of an object.

    Args:
        content: The JSON.
        name: What it is, for the message.
        per_object: Bytes that each object takes once it is parsed.
    """
    text = len(content) * (4 if _WIDE.search(content) else 2)
    objects = sum(content.count(token) * size for token, size in (_PER_TOKEN | {b"{": per_object}).items())
    if text + objects > 3 * len(content) + SLACK:
        raise InvalidInputError(
            f"{name} would take {(text + objects) >> 20} MiB of memory when it is read, and has "
            f"{len(content) >> 20} MiB. It is not read."
        )


def check_archive(content: bytes, name: str) -> None:
    """Raise if the archive of a scikit-learn model unpacks to much more than its own size.

    Arrays inside archives inside it count, and so does each use of an array that is used several times.
    """
    if content.count(_ENTRY) > _MAX_ENTRIES:
        raise InvalidInputError(f"{name} has more than {_MAX_ENTRIES} entries. It is not read.")
    limit = len(content) + _UNPACKED_SLACK
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        _require_fits(sum(entry.file_size for entry in archive.infolist()), limit, name)
        for entry in archive.infolist():
            if entry.filename != "schema.json":
                with archive.open(entry) as file:
                    packed = file.read(2) == b"PK"
                if packed:
                    with zipfile.ZipFile(io.BytesIO(archive.read(entry))) as inner:
                        unpacked = sum(part.file_size for part in inner.infolist())
                    sizes[entry.filename] += unpacked
        _require_fits(sum(sizes.values()), limit, name)
        schema = archive.read("schema.json")
    check_json(schema, f"schema.json of {name}", per_object=_NODE)
    _require_fits(sum(sizes.get(file, 0) for file in _used_files(json.loads(schema))), limit, name)


def _require_fits(unpacked: int, limit: int, name: str) -> None:
    if unpacked > limit:
        raise InvalidInputError(
            f"{name} must unpack to at most {limit} bytes, its own size and {_UNPACKED_SLACK >> 20} MiB; it "
            f"unpacks to {unpacked}. Save it without compression: `skops.io.dump(model, path)`."
        )


def _used_files(schema: Any) -> Iterator[str]:  # noqa: ANN401  (any JSON value)
    """Yield the file of each array, as often as it is read: once for each object with its own number."""
    seen, waiting = set(), [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            number = value.get("__id__")
            if isinstance(value.get("file"), str) and (not number or str(number) not in seen):
                seen.add(str(number))
                yield value["file"]
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
