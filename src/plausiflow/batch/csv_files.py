"""CSV files in pieces: where records begin, and the cells of a range of records.

A file is read line by line, never whole, by Python's own reader: a quoted cell may hold line breaks, so where
a record begins cannot be told from the bytes around it. To find the places of records, bytes are taken for
characters one by one, which is right for every encoding that extends ASCII; what they mean is looked at when
a range is read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from plausiflow.errors import InvalidInputError

LONGEST_LINE = 1 << 24
"""Bytes."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Records that follow each other.

    Attributes:
        first: Number of the first one in its file, from 1.
        rows: How many.
        start: Place of its first byte.
        stop: Place after its last one.
    """

    first: int
    rows: int
    start: int
    stop: int


class _Lines:
    """The lines of a file from here to ``stop``, and the place after the last one that was given."""

    def __init__(self, file: IO[bytes], encoding: str, stop: int | None = None) -> None:
        self.file, self.encoding, self.stop = file, encoding, stop
        self.place = file.tell()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.stop is not None and self.place >= self.stop:
            raise StopIteration
        line = self.file.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise InvalidInputError(
                f"a line has more than {LONGEST_LINE:,} bytes: is this CSV? End lines with a line feed"
            )
        if self.place == 0:
            line, self.place = line.removeprefix(_BOM), len(line) - len(line.removeprefix(_BOM))
        self.place += len(line)
        return line.decode(self.encoding)


def read_header(path: Path, separator: str, encoding: str) -> list[str]:
    """Names of the columns; none where the file is empty.

    Raises:
        InvalidInputError: There is no header that can be used.
    """
    with path.open("rb") as file:
        try:
            names: list[str] = next(filter(None, _reader(_Lines(file, encoding), separator)), [])
        except (csv.Error, UnicodeError) as error:
            raise InvalidInputError(f"its header cannot be read: {error}") from error
    header = [name.strip() for name in names]
    if header.count("") > 1 or "" in header[1:]:
        raise InvalidInputError("a column has no name; give it one in the first line")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InvalidInputError(f"there is more than one column named {', '.join(map(repr, twice))}")
    other = next((mark for mark in ";\t,|" if header and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise InvalidInputError(f"it has one column: its cells seem to be separated by {other!r}")
    return header


def ranges(path: Path, separator: str, most: int) -> Iterator[Range]:
    """The records of a file, at most so many in a range; the header and blank lines are none.

    A record that cannot be read counts as one, and whoever reads its range is told.
    """
    with path.open("rb") as file:
        lines = _Lines(file, "latin-1")
        records = _reader(lines, separator)
        header, number, rows, start = False, 1, 0, 0
        while True:
            try:
                record = next(records, None)
            except csv.Error:
                record = ["?"]
            if record is None:
                break
            if not record:
                continue
            if not header:
                header, start = True, lines.place
                continue
            rows += 1
            if rows == most:
                yield Range(first=number, rows=rows, start=start, stop=lines.place)
                number, rows, start = number + rows, 0, lines.place
        if rows:
            yield Range(first=number, rows=rows, start=start, stop=lines.place)


def read_range(path: Path, own: Range, separator: str, encoding: str) -> list[list[str]]:
    """The cells of the records of a range.

    Raises:
        InvalidInputError: A record cannot be read.
    """
    with path.open("rb") as file:
        file.seek(own.start)
        lines = _Lines(file, encoding, own.stop)
        records: list[list[str]] = []
        try:
            for record in filter(None, _reader(lines, separator)):
                records.append(record)
        except (csv.Error, UnicodeError) as error:
            raise InvalidInputError(
                f"row {own.first + len(records)} cannot be read: {error}. Look for an unclosed double quote, "
                f"and for text that is not {encoding}"
            ) from error
    return records


def _reader(lines: Iterator[str], separator: str) -> Any:  # noqa: ANN401  (the type has no public name)
    return csv.reader(lines, delimiter=separator, strict=True)
