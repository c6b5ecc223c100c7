"""CSV files in slices of records.

A file is read line by line, never whole, with Python's own reader: a quoted cell may contain line breaks, so
the bytes around a position do not show where a record begins. To find the records, each byte is read as one
character, which is right for every encoding that extends ASCII. The text is decoded when a slice is read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from plausiflow.batch.input_files import FileSlice
from plausiflow.errors import InvalidInputError

MAX_LINE_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"


class _Lines:
    """The lines of a file from the current position to ``stop``, and the position after the last one."""

    def __init__(self, file: IO[bytes], encoding: str, stop: int | None = None) -> None:
        self.file, self.encoding, self.stop = file, encoding, stop
        self.position = file.tell()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.stop is not None and self.position >= self.stop:
            raise StopIteration
        line = self.file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise InvalidInputError(
                f"a line has more than {MAX_LINE_BYTES:,} bytes. Check that this is CSV, and that lines end "
                "with a line feed"
            )
        self.position += len(line)
        if self.position == len(line):
            line = line.removeprefix(_BOM)
        return line.decode(self.encoding)


def read_header(path: Path, separator: str, encoding: str) -> list[str]:
    """Return the names of the columns; an empty list for an empty file."""
    with path.open("rb") as file:
        try:
            names: list[str] = next(filter(None, _reader(_Lines(file, encoding), separator)), [])
        except (csv.Error, UnicodeError) as error:
            raise InvalidInputError(f"its header cannot be read: {error}") from error
    header = [name.strip() for name in names]
    if header.count("") > 1 or "" in header[1:]:
        raise InvalidInputError("a column has no name. Name it in the first line")
    duplicates = sorted({name for name in header if header.count(name) > 1})
    if duplicates:
        raise InvalidInputError(f"it has more than one column named {', '.join(map(repr, duplicates))}")
    other = next((mark for mark in ";\t,|" if header and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise InvalidInputError(f"it has one column; its cells seem to be separated by {other!r}")
    return header


def csv_slices(path: Path, separator: str, max_rows: int) -> Iterator[FileSlice]:
    """Yield slices of at most ``max_rows`` records; the header and blank lines do not count.

    A record that cannot be read counts as one; reading its slice raises.
    """
    with path.open("rb") as file:
        lines = _Lines(file, "latin-1")
        records = _reader(lines, separator)
        has_header, first, number, n, start = False, 1, 0, 0, 0
        while True:
            try:
                record = next(records, None)
            except csv.Error:
                record = ["?"]
            if record is None:
                break
            if not record:
                continue
            if not has_header:
                has_header, start = True, lines.position
                continue
            n += 1
            if n == max_rows:
                yield FileSlice(first_row=first, n_rows=n, number=number, start=start, stop=lines.position)
                first, number, n, start = first + n, number + 1, 0, lines.position
        if n:
            yield FileSlice(first_row=first, n_rows=n, number=number, start=start, stop=lines.position)


def read_records(path: Path, rows: FileSlice, separator: str, encoding: str) -> list[list[str]]:
    """Return the cells of the records of a slice; raise if a record cannot be read."""
    with path.open("rb") as file:
        file.seek(rows.start)
        lines = _Lines(file, encoding, rows.stop)
        records: list[list[str]] = []
        try:
            for record in filter(None, _reader(lines, separator)):
                records.append(record)
        except (csv.Error, UnicodeError) as error:
            raise InvalidInputError(
                f"row {rows.first_row + len(records)} cannot be read: {error}. Look for an unclosed double "
                f"quote, and for text that is not {encoding}"
            ) from error
    return records


def _reader(lines: Iterator[str], separator: str) -> Any:  # noqa: ANN401  (the type has no public name)
    return csv.reader(lines, delimiter=separator, strict=True)
