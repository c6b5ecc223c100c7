"""The plan of a batch run: units of work, each a slice of a file that becomes one output file.

The units and the names of their output files follow from the input and the options alone. A finished unit is
recognized by its file, whichever worker wrote it, and a unit that is done twice is written to the same place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from plausiflow.batch.csv_files import csv_slices, read_header
from plausiflow.batch.input_files import FileSlice, InputFile, partition_type
from plausiflow.batch.parquet_files import parquet_slices, read_schema
from plausiflow.batch.request import RowSelection
from plausiflow.errors import InvalidInputError
from plausiflow.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A slice of a file, or a file that cannot be used."""

    file: InputFile
    rows: FileSlice
    problem: str = ""  # Why the file, or the rest of it, cannot be used.

    def name(self, fingerprint: str) -> str:
        """Return the name of the output, which differs between runs and between slices.

        Example:
            >>> file = InputFile(path="a.parquet", size=10, modified=0)
            >>> Unit(file=file, rows=FileSlice(first_row=1, n_rows=5, group=2)).name("run")
            'part-159c76caa2eb764f29b517676c193cff'
        """
        identity = [fingerprint, self.file.path, self.rows.group, self.rows.number]
        return f"part-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]}"

    def __str__(self) -> str:
        if self.problem:
            return self.file.path
        last = self.rows.first_row + self.rows.n_rows - 1
        group = "" if self.file.is_csv else f"row group {self.rows.group}, "
        return f"{self.file.path}, {group}rows {self.rows.first_row:,} to {last:,}"


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """All units of a run."""

    root: Path  # Directory of the input files.
    files: Sequence[InputFile]
    units: Sequence[Unit]  # In the order of the input.
    schemas: Sequence[pa.Schema]  # Columns of the files that have rows.

    @property
    def n_rows(self) -> int:
        """Number of rows of all units."""
        return sum(unit.rows.n_rows for unit in self.units)

    def column_types(self, name: str) -> list[pa.DataType]:
        """Return the types that a column has in the files, each once."""
        return list(dict.fromkeys(schema.field(name).type for schema in self.schemas))


def make_plan(
    root: Path,
    files: Sequence[InputFile],
    required: Sequence[str],
    selection: RowSelection,
    *,
    progress: bool = True,
) -> BatchPlan:
    """Inspect every file: its content, its columns and its slices. Files beyond the limit are not opened.

    A file that lacks one of the ``required`` columns becomes a unit with a problem. Raises if no file can be
    used.
    """
    units: list[Unit] = []
    hashed = list(files)
    schemas: dict[InputFile, pa.Schema] = {}
    any_usable = False
    left = float("inf") if selection.limit is None else selection.limit
    with progress_bar("Files", len(files), show=progress) as advance:
        for number, file in enumerate(files):
            if left <= 0:
                break
            path = root / file.path
            try:
                file = hashed[number] = file.with_digest(root)
                schema = _read_columns(path, file, selection)
                _require_columns(required, schema.names)
                any_usable = True
                for rows in _limit_rows(file, _slices(path, file, selection), left):
                    units.append(Unit(file=file, rows=rows))
                    schemas[file] = schema
                    left -= rows.n_rows
            except InvalidInputError as error:
                no_rows = FileSlice(first_row=1, n_rows=0, group=-1)
                units.append(Unit(file=file, rows=no_rows, problem=str(error)))
            advance(1, file.path)
    unusable = [unit for unit in units if unit.problem]
    if unusable and not any_usable:
        raise InvalidInputError(f"{root / unusable[0].file.path} cannot be used: {unusable[0].problem}.")
    return BatchPlan(root=root, files=hashed, units=units, schemas=list(schemas.values()))


def _read_columns(path: Path, file: InputFile, selection: RowSelection) -> pa.Schema:
    """Return the columns of a file, those in the names of directories included; those of CSV are text."""
    if file.is_csv:
        header = read_header(path, selection.separator, selection.encoding)
        schema = pa.schema([(name, pa.string()) for name in header if name])
    else:
        schema = read_schema(path)
    names = {*schema.names}
    partition = [
        pa.field(name, partition_type(value)) for name, value in file.partition.items() if name not in names
    ]
    return pa.schema([*schema, *partition])


def _slices(path: Path, file: InputFile, selection: RowSelection) -> Iterator[FileSlice]:
    if file.is_csv:
        return csv_slices(path, selection.separator, selection.rows_per_unit)
    return parquet_slices(path, selection.rows_per_unit)


def _limit_rows(file: InputFile, slices: Iterator[FileSlice], limit: float) -> Iterator[FileSlice]:
    """Yield the first slices until they have ``limit`` rows; the last one is shortened."""
    for rows in slices:
        if rows.n_rows >= limit:
            n = int(limit)
            yield replace(rows, n_rows=n, stop=rows.stop if file.is_csv else rows.start + n)
            return
        limit -= rows.n_rows
        yield rows


def _require_columns(required: Sequence[str], names: Sequence[str]) -> None:
    present = {*names}
    missing = [name for name in required if name not in present]
    if missing:
        known = ", ".join(names[:30]) + (" and more" if len(names) > 30 else "")
        listed = ", ".join(map(repr, missing[:10])) + (" and more" if len(missing) > 10 else "")
        raise InvalidInputError(f"it has no column {listed}; its columns are {known}")
