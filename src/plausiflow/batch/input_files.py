"""The input files of a batch run, slices of them, and columns whose value is in the name of a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from plausiflow.errors import InvalidInputError

SUFFIXES = (".parquet", ".csv")
MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Stands for a missing value in the name of a directory."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file, as it was when the run began."""

    path: str  # Path below the input directory, with slashes.
    size: int  # Size in bytes.
    modified: int  # Time of the last change in nanoseconds.

    @property
    def is_csv(self) -> bool:
        """Whether this is a CSV file; else it is a Parquet file."""
        return self.path.endswith(".csv")

    @property
    def partition(self) -> dict[str, str]:
        """Columns whose value is in the names of directories, such as ``year=2024``."""
        parts = (part.partition("=") for part in self.path.split("/")[:-1] if "=" in part)
        return {name: unquote(value) for name, _, value in parts if name}

    def check_unchanged(self, root: Path) -> Path:
        """Return the full path; raise if the file is gone or was changed since the run began."""
        path = root / self.path
        if _inspect(path, self.path) != self:
            raise InvalidInputError(
                f"{path} was changed after the run began. Start a new run in another directory"
            )
        return path


@dataclass(frozen=True, kw_only=True)
class FileSlice:
    """Consecutive rows of a file."""

    first_row: int  # Number of the first row in the file, from 1.
    n_rows: int
    group: int = 0  # Row group of a Parquet file.
    number: int = 0  # Number of the slice in its row group or CSV file.
    start: int = 0  # First row in the row group, or first byte of the CSV file.
    stop: int = 0  # End of the slice, exclusive.


def find_input_files(data: Path) -> tuple[Path, list[InputFile]]:
    """Return the root directory and the files: a single file, or all files below a directory, by name.

    Names that begin with a dot or an underscore are skipped, as is usual for data sets of many files.
    """
    suffixes = " or ".join(SUFFIXES)
    if data.is_file():
        if data.suffix not in SUFFIXES:
            raise InvalidInputError(
                f"Rows must be in files that end in {suffixes}, or in a directory of them; got {data}."
            )
        return data.parent, [_inspect(data, data.name)]
    if not data.is_dir():
        raise InvalidInputError(f"There is no file or directory {data}.")
    paths = sorted(path.relative_to(data).as_posix() for path in _walk(data))
    if not paths:
        raise InvalidInputError(
            f"{data} contains no file that ends in {suffixes}. Use a directory with such files."
        )
    return data, [_inspect(data / path, path) for path in paths]


def partition_type(text: str) -> pa.DataType:
    """Return the type of a value in the name of a directory: integer, string or null."""
    if text == MISSING_PARTITION:
        return pa.null()
    return pa.int64() if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) else pa.string()


def partition_column(text: str, n: int) -> pa.Array:
    """Return a column with the value in the name of a directory, shape ``(n,)``."""
    kind = partition_type(text)
    if pa.types.is_null(kind):
        return pa.nulls(n)
    return pa.array(np.full(n, int(text) if pa.types.is_integer(kind) else text), kind)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith((".", "_")):
                yield Path(parent) / name


def _inspect(path: Path, name: str) -> InputFile:
    try:
        state = path.stat()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    return InputFile(path=name, size=state.st_size, modified=state.st_mtime_ns)
