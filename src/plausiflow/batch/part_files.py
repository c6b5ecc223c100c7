"""Parts: Parquet files that carry the unit and the rows that they answer, and a checksum of all their bytes.

Both are in the metadata of the file, under the key ``plausiflow``, as a JSON object. Its last entry is the
SHA-256 hash of the file with 64 zeros in place of the hash. A part needs no second file, and a change of any
byte is found.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from plausiflow.batch.plan import Unit

KEY = b"plausiflow"
_BLANK = b"0" * 64
_MARK = b'"sha256": "'
"""Precedes the checksum; in the JSON text of a name, quotes have a backslash."""


def part_identity(unit: Unit, name: str) -> dict[str, Any]:
    """Return what identifies the part of a unit: its name, its file and its rows, the first one from 1."""
    rows = unit.rows
    return {
        "unit": name,
        "file": unit.file.path,
        "row_group": rows.group,
        "first_row": rows.first_row,
        "rows": rows.n_rows,
    }


def write_part(file: IO[bytes], table: pa.Table, identity: dict[str, Any]) -> None:
    """Write a part to a file that is open for writing and reading."""
    entry = json.dumps(identity | {"sha256": _BLANK.decode()})
    pq.write_table(table.replace_schema_metadata({KEY: entry.encode()}), file, compression="zstd")
    file.seek(0)
    content = file.read()
    start = _checksum_start(content)
    file.seek(start)
    file.write(_checksum(content, start))


def part_problem(path: Path, identity: dict[str, Any]) -> str:
    """Return why a part is not the one that was written for a unit; an empty text if it is."""
    try:
        content = path.read_bytes()
        start = _checksum_start(content)
        if content[start : start + len(_BLANK)] != _checksum(content, start):
            return "its checksum is wrong"
        with pq.ParquetFile(io.BytesIO(content)) as file:
            entry = json.loads(file.metadata.metadata[KEY])
        entry.pop("sha256")
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        return " ".join(str(error).split())[:200]
    return "" if entry == identity else f"it has the rows of {entry.get('unit')}"


def _checksum_start(content: bytes) -> int:
    """Return the position of the checksum, which is in the last JSON object of the file."""
    start = content.rfind(_MARK)
    if start < 0:
        raise ValueError("it has no checksum")
    return start + len(_MARK)


def _checksum(content: bytes, start: int) -> bytes:
    """Return the hash of the content with zeros in place of the hash."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_BLANK)
    digest.update(view[start + len(_BLANK) :])
    return digest.hexdigest().encode()
