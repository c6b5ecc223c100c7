"""The input files of a batch run, slices of them, and columns whose value is in the name of a directory."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
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
    modified: int  # Time of the last change of the content in nanoseconds, which programs can set.
    changed: int = 0  # Time of the last change of any kind in nanoseconds, as the system records it.
    digest: str = ""  # Hash of the content; empty if the file was not opened.

    @property
    def is_csv(self) -> bool:
        """Whether this is a CSV file; else it is a Parquet file."""
        return self.path.endswith(".csv")

    @property
    def partition(self) -> dict[str, str]:
        """Columns whose value is in the names of directories, such as ``year=2024``."""
        parts = (part.partition("=") for part in self.path.split("/")[:-1] if "=" in part)
        return {name: unquote(value) for name, _, value in parts if name}

    def with_digest(self, root: Path) -> InputFile:
        """Return this file with the hash of its content, which is read in chunks."""
        return replace(self, digest=_hash_file(root / self.path))

    def check_unchanged(self, root: Path) -> Path:
        """Return the full path; raise if the file is gone or was changed since the run began.

        The content is read only if the system recorded a change, such as new permissions or a new content
        with the old size and time.
        """
        path = root / self.path
        now = _inspect(path, self.path)
        is_same = (now.size, now.modified) == (self.size, self.modified)
        if is_same and now.changed != self.changed and self.digest:
            is_same = _digest_now(path, now.size, now.modified, now.changed) == self.digest
        if not is_same:
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
    separate_until: int = 0  # Lines of the CSV file that begin before this byte are records of their own.


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


def check_unique(names: Iterable[str]) -> None:
    """Raise if two columns of a file have the same name."""
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        listed = ", ".join(map(repr, duplicates[:10])) + (" and more" if len(duplicates) > 10 else "")
        raise InvalidInputError(f"it has more than one column named {listed}")


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
    return InputFile(path=name, size=state.st_size, modified=state.st_mtime_ns, changed=state.st_ctime_ns)


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _digest_now(path: Path, size: int, modified: int, changed: int) -> str:
    """Return the hash of a file in this state; each worker needs it once for all units of a file."""
    return _hash_file(path)
