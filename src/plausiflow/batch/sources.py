"""The files of a batch run: which there are, which columns they have, and the rows of a piece of one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plausiflow.batch.csv_files import Range, ranges, read_header, read_range
from plausiflow.batch.options import Chosen
from plausiflow.errors import InvalidInputError

SUFFIXES = (".parquet", ".csv")
BUFFER, BATCH = 1 << 20, 1 << 14
"""Bytes that are read ahead in a column of a row group, and rows that are decoded at a time."""
NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""Stands for a missing value in the name of a directory."""
Unreadable = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What reading raises where a file is damaged."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file, as it was when the run began.

    Attributes:
        path: Below the input directory, with slashes.
        size: In bytes.
        modified: In nanoseconds.
    """

    path: str
    size: int
    modified: int

    @property
    def is_csv(self) -> bool:
        """Or else a Parquet file."""
        return self.path.endswith(".csv")

    @property
    def partition(self) -> dict[str, str]:
        """Columns whose one value is in the names of directories, as ``year=2024``."""
        parts = (part.partition("=") for part in self.path.split("/")[:-1] if "=" in part)
        return {name: unquote(value) for name, _, value in parts if name}

    def checked(self, root: Path) -> Path:
        """Its place, if it is what it was.

        Raises:
            InvalidInputError: It is gone, or was written since.
        """
        path = root / self.path
        now = _stated(path, self.path)
        if now != self:
            raise InvalidInputError(f"{path} was changed after the run began. Start another run, elsewhere")
        return path


def find_sources(given: Path) -> tuple[Path, list[Source]]:
    """The directory of the files, and the files: one, or all below a directory, by name.

    Names that begin with a dot or an underscore are left out, as everywhere in data sets of many files.

    Raises:
        InvalidInputError: There is none.
    """
    if given.is_file():
        if given.suffix not in SUFFIXES:
            raise InvalidInputError(
                f"Rows must be in files that end in {' or '.join(SUFFIXES)}, or in a directory of them; got "
                f"{given}."
            )
        return given.parent, [_stated(given, given.name)]
    if not given.is_dir():
        raise InvalidInputError(f"There is no file or directory {given}. Give one with rows.")
    paths = sorted(path.relative_to(given).as_posix() for path in _below(given))
    if not paths:
        raise InvalidInputError(
            f"{given} holds no file that ends in {' or '.join(SUFFIXES)}. Give a directory that does."
        )
    return given, [_stated(given / path, path) for path in paths]


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith((".", "_")):
                yield Path(place) / name


def _stated(path: Path, name: str) -> Source:
    try:
        state = path.stat()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    return Source(path=name, size=state.st_size, modified=state.st_mtime_ns)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some rows of a file that follow each other.

    Attributes:
        first: Number of the first row in its file, from 1.
        rows: How many.
        group: The row group of a Parquet file.
        number: Of the slice of a row group or of a CSV file.
        start: First row in the row group, or first byte of a CSV file.
        stop: After the last one.
    """

    first: int
    rows: int
    group: int = 0
    number: int = 0
    start: int = 0
    stop: int = 0


def columns_of(path: Path, source: Source, chosen: Chosen) -> pa.Schema:
    """The columns of a file; those of a CSV file are text.

    Raises:
        InvalidInputError: It cannot be read.
    """
    if source.is_csv:
        header = read_header(path, chosen.separator, chosen.encoding)
        own = pa.schema([(name, pa.string()) for name in header if name])
    else:
        own = _opened(path, lambda file: file.schema_arrow)
        twice = sorted({name for name in own.names if own.names.count(name) > 1})
        if twice:
            raise InvalidInputError(f"there is more than one column named {', '.join(map(repr, twice))}")
    more = [pa.field(name, value_type(value)) for name, value in source.partition.items()]
    return pa.schema([*own, *(field for field in more if field.name not in own.names)])


def pieces_of(path: Path, source: Source, chosen: Chosen) -> Iterator[Piece]:
    """The pieces of a file, in order: row groups, those that are large cut into slices."""
    most = chosen.rows_per_unit
    if source.is_csv:
        for number, own in enumerate(ranges(path, chosen.separator, most)):
            yield Piece(first=own.first, rows=own.rows, number=number, start=own.start, stop=own.stop)
        return
    sizes = _opened(path, lambda file: _group_sizes(file.metadata))
    first = 1
    for group, size in enumerate(sizes):
        for number, start in enumerate(range(0, size, most)):
            rows = min(most, size - start)
            yield Piece(
                first=first + start, rows=rows, group=group, number=number, start=start, stop=start + rows
            )
        first += size


def read_parquet(path: Path, piece: Piece, columns: Sequence[str]) -> pa.Table:
    """The rows of a piece of a Parquet file; of a large row group no more than a batch at a time is held."""
    with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        batches = file.iter_batches(
            batch_size=BATCH, row_groups=[piece.group], columns=list(columns), use_threads=False
        )
        kept, at = [], 0
        for batch in batches:
            inside = slice(max(piece.start - at, 0), max(piece.stop - at, 0))
            kept.append(batch[inside])
            at += len(batch)
            if at >= piece.stop:
                break
        metadata = _without_index(file.schema_arrow.metadata or {})
    table = pa.Table.from_batches(kept, schema=kept[0].schema if kept else schema)
    if len(table) != piece.rows:
        raise InvalidInputError(
            f"row group {piece.group} has {len(table)} rows from {piece.start} on; {piece.rows} are stated"
        )
    return table.select(list(columns)).replace_schema_metadata(metadata)


def read_csv(path: Path, piece: Piece, chosen: Chosen) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the cells of the rows of a piece of a CSV file."""
    own = Range(first=piece.first, rows=piece.rows, start=piece.start, stop=piece.stop)
    return (
        read_header(path, chosen.separator, chosen.encoding),
        read_range(path, own, chosen.separator, chosen.encoding),
    )


def value_type(text: str) -> pa.DataType:
    """What the value in the name of a directory is: a whole number, text, or missing."""
    if text == NOTHING:
        return pa.null()
    return pa.int64() if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) else pa.string()


def constant(text: str, n: int) -> pa.Array:
    """A column that holds the value in the name of a directory."""
    kind = value_type(text)
    if pa.types.is_null(kind):
        return pa.nulls(n)
    return pa.array(np.full(n, int(text) if pa.types.is_integer(kind) else text), kind)


def _opened(path: Path, read: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    try:
        with pq.ParquetFile(path) as file:
            return read(file)
    except Unreadable as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidInputError(f"it cannot be read as Parquet: {text}") from error


def _without_index(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What pandas wrote of its dtypes; an index is a column as any other."""
    if b"pandas" not in metadata:
        return {}
    written = json.loads(metadata[b"pandas"])
    return {b"pandas": json.dumps(written | {"index_columns": []}).encode()}


def _group_sizes(metadata: Any) -> list[int]:  # noqa: ANN401
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
