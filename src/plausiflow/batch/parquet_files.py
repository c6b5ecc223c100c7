"""Parquet files in slices: row groups, and parts of large row groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plausiflow.batch.input_files import FileSlice, check_unique
from plausiflow.errors import InvalidInputError

_BUFFER_BYTES, _BATCH_ROWS = 1 << 20, 1 << 14
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""Errors that pyarrow raises for damaged files."""


def read_schema(path: Path) -> pa.Schema:
    """Return the columns of a file, whose names must differ."""
    schema: pa.Schema = _open(path, lambda file: file.schema_arrow)
    check_unique(schema.names)
    return schema


def parquet_slices(path: Path, max_rows: int) -> Iterator[FileSlice]:
    """Yield the row groups of a file, those with more than ``max_rows`` rows in several slices."""
    metadata, first = _open(path, lambda file: file.metadata), 1
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        for number, start in enumerate(range(0, size, max_rows)):
            n = min(max_rows, size - start)
            yield FileSlice(
                first_row=first + start, n_rows=n, group=group, number=number, start=start, stop=start + n
            )
        first += size


def read_parquet(path: Path, rows: FileSlice, columns: Sequence[str]) -> pa.Table:
    """Read a slice of a file; of a large row group, only one batch at a time is in memory."""
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        stored = file.schema_arrow
        schema = pa.schema([stored.field(name) for name in columns])
        batches = file.iter_batches(
            batch_size=_BATCH_ROWS, row_groups=[rows.group], columns=list(columns), use_threads=False
        )
        kept, position = [], 0
        for batch in batches:
            kept.append(batch[max(rows.start - position, 0) : max(rows.stop - position, 0)])
            position += len(batch)
            if position >= rows.stop:
                break
        metadata = _without_index(stored.metadata or {})
    table = pa.Table.from_batches(kept, schema=kept[0].schema if kept else schema)
    if len(table) != rows.n_rows:
        raise InvalidInputError(
            f"row group {rows.group} has {len(table)} rows from row {rows.start} on; its metadata says "
            f"{rows.n_rows}"
        )
    return table.select(list(columns)).replace_schema_metadata(metadata)


def without_invalid_text(table: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return a table whose texts can be decoded, and which rows had one that cannot, with the reason.

    Such a text is replaced by a missing value.
    """
    problems: dict[int, str] = {}
    for number, field in enumerate(table.schema):
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            continue
        try:
            table.column(number).validate(full=True)
        except pa.ArrowInvalid:
            cells = table.column(number).cast(pa.large_binary()).to_pylist()
            wrong = [row for row, cell in enumerate(cells) if cell is not None and not _is_text(cell)]
            problems |= dict.fromkeys(wrong, f"column {field.name!r} is not UTF-8 text")
            for row in wrong:
                cells[row] = None
            column = pa.array(cells, pa.large_binary()).cast(field.type)
            table = table.set_column(number, field.with_nullable(True), column)
    return table, dict(sorted(problems.items()))


def _is_text(cell: bytes) -> bool:
    try:
        cell.decode()
    except UnicodeError:
        return False
    return True


def _open(path: Path, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    try:
        with pq.ParquetFile(path) as file:
            return read(file)
    except _READ_ERRORS as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidInputError(f"it cannot be read as Parquet: {text}") from error


def _without_index(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the dtypes that pandas stored; an index is a column like any other."""
    if b"pandas" not in metadata:
        return {}
    stored = json.loads(metadata[b"pandas"])
    return {b"pandas": json.dumps(stored | {"index_columns": []}).encode()}
