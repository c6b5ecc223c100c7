"""CSV files in slices of records.

A file is read line by line, never whole, with Python's own reader: a quoted cell may contain line breaks, so
the bytes around a position do not show where a record begins. To find the records, each byte is read as one
character, which is right for every encoding that extends ASCII. The text of a record is decoded when its
slice is read, so a byte of another encoding never changes where records begin.

A record that cannot be read costs its first line only. An unclosed quote would otherwise hide all lines up to
the next quote: reading continues with the second line, and each line up to the one that showed the error is a
record of its own. So every line is read at most three times, whatever the file contains.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from plausiflow.batch.input_files import FileSlice, check_unique
from plausiflow.errors import InvalidInputError

MAX_LINE_BYTES = 1 << 24
"""Most bytes of a line, and of all lines of a record."""
_BOM = b"\xef\xbb\xbf"
_UNCLOSED = "a double quote is not closed"


class _Record(NamedTuple):
    """A record: its cells and its text, with each byte as one character; or why it cannot be read."""

    cells: list[str]
    text: str
    problem: str = ""


class _TooLongError(csv.Error):
    """A line or a record has too many bytes."""


class _Lines:
    """The lines of a file up to the byte ``stop``, each byte as one character.

    Attributes:
        record: The lines of the record that is being read; the reader of records empties it.
        position: The byte after the last line.
        first_end: The byte after the first line of the record.
        last_start: The first byte of the last line; at the end of the file, its end.
    """

    def __init__(self, file: IO[bytes], start: int, stop: int | None) -> None:
        self.file, self.stop = file, stop
        self.record: list[str] = []
        self.rewind(start)

    def rewind(self, position: int) -> None:
        """Continue at this byte."""
        self.file.seek(position)
        self.position = self.first_end = self.last_start = position

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last_start = self.position
        if self.stop is not None and self.position >= self.stop:
            raise StopIteration
        if self.record and self.position - self.first_end >= MAX_LINE_BYTES:
            raise _TooLongError(f"it has more than {MAX_LINE_BYTES:,} bytes")
        line = self.file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        is_long = len(line) == MAX_LINE_BYTES and not line.endswith(b"\n")
        start, self.position = self.position, self.position + len(line)
        if is_long:
            self._skip_line()
        if not self.record:
            self.first_end = self.position
        if is_long:
            raise _TooLongError(f"a line has more than {MAX_LINE_BYTES:,} bytes")
        self.record.append((line if start else line.removeprefix(_BOM)).decode("latin-1"))
        return self.record[-1]

    def _skip_line(self) -> None:
        while piece := self.file.readline(MAX_LINE_BYTES):
            self.position += len(piece)
            if piece.endswith(b"\n"):
                break


class _Records:
    """The records of a file from the byte ``start`` to ``stop``, without blank lines.

    Attributes:
        separate_until: Lines that begin before this byte are records of their own.
    """

    def __init__(
        self,
        file: IO[bytes],
        separator: str,
        *,
        start: int = 0,
        stop: int | None = None,
        separate_until: int = 0,
    ) -> None:
        self.separator, self.separate_until = separator, separate_until
        self._lines = _Lines(file, start, stop)
        self._reader = _reader(self._lines, separator)

    @property
    def position(self) -> int:
        """The byte after the last record."""
        return self._lines.position

    def __iter__(self) -> Iterator[_Record]:
        return self

    def __next__(self) -> _Record:
        lines = self._lines
        while True:
            lines.record.clear()
            try:
                if lines.position < self.separate_until:
                    cells: list[str] = next(_reader([next(lines)], self.separator), [])
                else:
                    cells = next(self._reader)
            except csv.Error as error:
                is_open = lines.last_start >= lines.first_end
                self.separate_until = max(self.separate_until, lines.last_start)
                lines.rewind(lines.first_end)
                return _Record([], "", _UNCLOSED if is_open else _describe(error))
            if cells:
                return _Record(cells, "".join(lines.record))


def read_header(path: Path, separator: str, encoding: str) -> list[str]:
    """Return the names of the columns; raise if they are not usable."""
    with path.open("rb") as file:
        record = next(_Records(file, separator), None)
    if record is None:
        raise InvalidInputError(
            "it is empty; a header and rows are expected. Write the file again, or remove it"
        )
    cells, problem = _decode(record, separator, encoding)
    if problem:
        raise InvalidInputError(f"its header cannot be read: {problem}")
    header = [name.strip() for name in cells]
    if "" in header[1:]:
        raise InvalidInputError("a column has no name. Name it in the first line")
    check_unique(header)
    other = next((mark for mark in ";\t,|" if mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise InvalidInputError(f"it has one column; its cells seem to be separated by {other!r}")
    return header


def csv_slices(path: Path, separator: str, max_rows: int) -> Iterator[FileSlice]:
    """Yield slices of at most ``max_rows`` records; the header and blank lines do not count.

    A record that cannot be read counts as one.
    """
    with path.open("rb") as file:
        records = _Records(file, separator)
        next(records, None)
        first, number = 1, 0
        while True:
            start, separate_until = records.position, records.separate_until
            n = sum(1 for _ in islice(records, max_rows))
            if not n:
                return
            yield FileSlice(
                first_row=first,
                n_rows=n,
                number=number,
                start=start,
                stop=records.position,
                separate_until=separate_until,
            )
            first, number = first + n, number + 1


def read_records(
    path: Path, rows: FileSlice, separator: str, encoding: str
) -> tuple[list[list[str]], dict[int, str]]:
    """Return the cells of each record of a slice, and why records cannot be read, by position.

    A record that cannot be read has no cells.
    """
    cells: list[list[str]] = []
    problems: dict[int, str] = {}
    with path.open("rb") as file:
        records = _Records(
            file, separator, start=rows.start, stop=rows.stop, separate_until=rows.separate_until
        )
        for position, record in enumerate(records):
            own, problem = _decode(record, separator, encoding)
            cells.append(own)
            if problem:
                problems[position] = problem
    return cells, problems


def _decode(record: _Record, separator: str, encoding: str) -> tuple[list[str], str]:
    """Return the cells of a record, or why it cannot be read."""
    if record.problem:
        return [], record.problem
    content = record.text.encode("latin-1")
    try:
        text = content.decode(encoding)
    except UnicodeError as error:
        at = f" at the byte 0x{content[error.start]:02x}" if isinstance(error, UnicodeDecodeError) else ""
        return [], f"it is not {encoding} text{at}"
    if text == record.text:
        return record.cells, ""
    try:
        records = list(_reader([text], separator))
    except csv.Error as error:
        return [], _describe(error)
    return (records[0], "") if len(records) == 1 else ([], f"it is not valid CSV in {encoding}")


def _describe(error: csv.Error) -> str:
    """Return why a record cannot be read, for a person who looks at the file."""
    text = str(error).partition(" - ")[0]
    if isinstance(error, _TooLongError):
        return text
    if text.startswith("field larger"):
        return f"a cell has more than {csv.field_size_limit():,} characters"
    if text.startswith("unexpected end"):
        return _UNCLOSED
    return f"it is not valid CSV ({text}); check its double quotes"


def _reader(lines: Iterable[str], separator: str) -> Any:  # noqa: ANN401  (the type has no public name)
    return csv.reader(lines, delimiter=separator, strict=True)
