"""Tables in CSV and Parquet files; the suffix decides.

Every line of a CSV file must have as many cells as the header. Rows are numbered from 1, unless the first
column has no name: pandas writes its index that way.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pandas.api.types import is_string_dtype

from plausiflow.atomic import atomic_path
from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.tables import Schema, frame_problems, parse_column, parse_column_as, text_column

SUFFIXES = (".csv", ".parquet")
_FORMULA = re.compile(r"(?![+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z)[=+\-@\t\r]")
"""Begins a text that a spreadsheet program may run as a formula; a number does not match."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The format of CSV files."""

    separator: str = ","  # Separator of cells, or ``tab``.
    encoding: str = "utf-8"  # Of files to read; files are written in UTF-8.

    def __post_init__(self) -> None:
        if len(self.character) != 1 or self.character in '"\r\n':
            raise InvalidInputError(
                f"--separator must be one character, or `tab`; got {self.separator!r}. Most files use ',' "
                "or ';'."
            )
        try:
            "".encode(self.encoding)
        except LookupError:
            raise InvalidInputError(
                f"--encoding must be one that Python knows, such as utf-8, latin-1 or utf-16; got "
                f"{self.encoding!r}."
            ) from None

    @property
    def character(self) -> str:
        """The separator as one character."""
        return "\t" if self.separator == "tab" else self.separator


def read_table(path: Path, dialect: Dialect, schema: Schema | None = None) -> pd.DataFrame:
    """Read the rows of a file.

    With the schema of the training table, features in CSV files get its dtypes, and other columns are text.
    """
    check_suffix(path)
    if not path.exists():
        near = sorted(other.name for other in path.parent.glob("*") if other.suffix in SUFFIXES)
        close = difflib.get_close_matches(path.name, near, n=1)
        raise InvalidInputError(f"There is no file {path}.{f' Did you mean {close[0]}?' if close else ''}")
    if not path.is_file():
        raise InvalidInputError(f"{path} is a directory; a CSV or Parquet file is expected. Name the file.")
    frame = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path, dialect, schema)
    problems = frame_problems(frame)
    if problems:
        raise InvalidInputError(f"{path} cannot be used: {'; '.join(problems)}.")
    if not len(frame):
        raise InvalidInputError(f"{path} has a header and no rows. Use a file with rows.")
    return frame


def write_table(frame: pd.DataFrame, path: Path, dialect: Dialect, *, formulas_escaped: bool = False) -> None:
    """Write a table without its index, completely or not at all; formulas are escaped in CSV files only."""
    with atomic_path(path) as temporary:
        if path.suffix == ".csv":
            frame = escape_formulas(frame) if formulas_escaped else frame
            # Without quotes, a carriage return would begin a line, and its text could be a formula.
            frame.to_csv(
                temporary,
                index=False,
                sep=dialect.character,
                quoting=csv.QUOTE_NONNUMERIC if formulas_escaped else csv.QUOTE_MINIMAL,
                errors="backslashreplace",
            )
            return
        try:
            _with_single_types(frame).to_parquet(temporary, index=False)
        except ImportError as error:
            raise MissingExtraError("pyarrow", "files", "Writing Parquet files") from error


def escape_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before every text and column name that a spreadsheet program may run as a formula.

    These are texts that begin with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return. Numbers are kept,
    also those that are stored as text.

    Example:
        >>> escape_formulas(pd.DataFrame({"note": ["=1+1", "-2.5", "-a", "a-b"], "debt": [-1, 2, 3, 4]}))
            note  debt
        0  '=1+1    -1
        1   -2.5     2
        2    '-a     3
        3    a-b     4
    """

    def escape(cell: object) -> object:
        return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell

    columns = {
        name: pd.Series([escape(cell) for cell in column], column.index, dtype=object)
        if isinstance(column.dtype, pd.CategoricalDtype) or is_string_dtype(column.dtype)
        else column
        for name, column in frame.items()
    }
    return pd.DataFrame(columns, index=frame.index).rename(columns=escape)


def check_suffix(path: Path) -> None:
    """Raise unless the suffix is one of a table."""
    if path.suffix not in SUFFIXES:
        raise InvalidInputError(
            f"Tables are files that end in {' or '.join(SUFFIXES)}; got {path}. Save it as CSV, or use "
            "another name."
        )


def require_columns(names: Iterable[str], known: Sequence[str], where: str) -> None:
    """Raise unless all names are columns; the error suggests similar names."""
    problems = []
    present = {*known}
    for name in dict.fromkeys(names):
        if name not in present:
            close = difflib.get_close_matches(name, known, n=1)
            problems.append(f"no column {name!r}{f' (did you mean {close[0]!r}?)' if close else ''}")
    if problems:
        listed = ", ".join(known[:30]) + (" and more" if len(known) > 30 else "")
        raise InvalidInputError(f"{where} has {', '.join(problems)}; its columns are {listed}.")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtraError("pyarrow", "files", "Reading Parquet files") from error
    except (ValueError, OSError, KeyError, TypeError) as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidInputError(
            f"{path} cannot be read as Parquet: {text}. Write it again, such as frame.to_parquet(...)."
        ) from error
    if isinstance(frame.index, pd.RangeIndex):
        frame.index = pd.RangeIndex(1, len(frame) + 1)
    return frame


def _read_csv(path: Path, dialect: Dialect, schema: Schema | None) -> pd.DataFrame:
    header, rows = _read_cells(path, dialect)
    duplicates = sorted(name for name, count in Counter(header).items() if count > 1 and name)
    if duplicates:
        listed = ", ".join(map(repr, duplicates))
        raise InvalidInputError(f"{path} has more than one column named {listed}. Rename or delete them.")
    if "" in header[1:]:
        number = header.index("", 1) + 1
        raise InvalidInputError(f"Column {number} of {path} has no name. Give it one in the first line.")
    known = {feature.name: feature for feature in schema.features} if schema else {}
    columns = {}
    for number, name in enumerate(header):
        texts = [row[number] for row in rows]
        if name in known:
            columns[name] = parse_column_as(known[name], texts)
        else:
            columns[name] = (text_column if schema is not None and name else parse_column)(name, texts)
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(rows)))
    if "" in columns:
        return frame.set_index("").rename_axis(None)
    return frame.set_axis(pd.RangeIndex(1, len(rows) + 1), axis=0)


def _read_cells(path: Path, dialect: Dialect) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the cells of each row."""
    text = io.StringIO(_read_text(path, dialect), newline="")
    lines = csv.reader(text, delimiter=dialect.character, strict=True)
    rows: list[list[str]] = []
    try:
        header = [name.strip() for name in next(lines, [])]
        if not any(header):
            raise InvalidInputError(
                f"{path} has no header. Write the names of the columns in its first line."
            )
        for row in filter(None, lines):
            if len(row) != len(header):
                raise InvalidInputError(
                    f"Line {lines.line_num} of {path} has {len(row)} cells, and the header {len(header)}. "
                    f"Put cells with {dialect.character!r} between double quotes, or complete the line."
                )
            rows.append(row)
    except csv.Error as error:
        raise InvalidInputError(
            f"Line {lines.line_num} of {path} cannot be read: {error}. Look for an unclosed double quote."
        ) from error
    other = next((mark for mark in (";", "\t", ",", "|") if mark in header[0]), None)
    if len(header) == 1 and other is not None:
        shown = "tab" if other == "\t" else other
        raise InvalidInputError(
            f"{path} has one column, {header[0][:60]!r}: its cells seem to be separated by {other!r}. Add "
            f"--separator '{shown}'."
        )
    return header, rows


def _read_text(path: Path, dialect: Dialect) -> str:
    content = path.read_bytes()
    if not content.strip():
        raise InvalidInputError(f"{path} is empty. Use a file with a header and rows.")
    try:
        text = content.decode(dialect.encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = content.count(b"\n", 0, start) + 1
        guess = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
        raise InvalidInputError(
            f"{path} is not {dialect.encoding} text: line {line} has the byte "
            f"0x{content[start]:02x}. Save it as UTF-8, or add --encoding {guess}."
        ) from error
    if "\0" in text:
        raise InvalidInputError(f"{path} is not text: it contains zero bytes. Save it as CSV in UTF-8.")
    return text


def _with_single_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert object columns of mixed types to text, because Parquet needs one type."""
    mixed = [
        name
        for name, column in frame.items()
        if column.dtype == object and len({type(cell) for cell in column.dropna()}) > 1
    ]
    return frame.assign(**{str(name): frame[name].map(str, na_action="ignore") for name in mixed})
