"""The rows of a unit as a data frame for the explainer, and the columns that are copied to the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from plausiflow.batch.csv_files import read_header, read_records
from plausiflow.batch.input_files import MISSING_PARTITION, InputFile, partition_column
from plausiflow.batch.parquet_files import read_parquet, without_invalid_text
from plausiflow.batch.plan import Unit
from plausiflow.batch.request import RowSelection
from plausiflow.errors import InvalidInputError
from plausiflow.tables import IntArray, Mask, Schema, parse_column_as, text_column

FIXED_KINDS = ("identifier", "constant")
"""Kinds of features that answers never change; they are copied from the row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class InputRows:
    """Rows of a file."""

    numbers: IntArray  # Numbers of the rows in their file, from 1, increasing, shape ``(n,)``.
    frame: pd.DataFrame  # The features, and other columns that a filter needs.
    stored: pa.Table  # Columns to copy to the output, with their stored types.
    problems: Mapping[int, str]  # Why rows cannot be read, by position, increasing.

    def select(self, selection: RowSelection) -> InputRows:
        """Return the rows for which the filter is true, and those that cannot be read."""
        if selection.where is None:
            return self
        unreadable = self._has_problem()
        mask = selection.where.mask(self.frame) | unreadable
        positions = np.flatnonzero(unreadable[mask]).tolist()
        return self._subset(mask, dict(zip(positions, self.problems.values(), strict=True)))

    def readable(self) -> InputRows:
        """Return the rows that can be read."""
        return self._subset(~self._has_problem(), {}) if self.problems else self

    def unreadable(self) -> InputRows:
        """Return the rows that cannot be read."""
        return self._subset(self._has_problem(), dict(enumerate(self.problems.values())))

    def _has_problem(self) -> Mask:
        mask = np.zeros(len(self.numbers), dtype=bool)
        mask[list(self.problems)] = True
        return mask

    def _subset(self, mask: Mask, problems: Mapping[int, str]) -> InputRows:
        return replace(
            self,
            numbers=self.numbers[mask],
            frame=self.frame[mask],
            stored=take_rows(self.stored, np.flatnonzero(mask)),
            problems=problems,
        )


def take_rows(table: pa.Table, positions: IntArray) -> pa.Table:
    """Return rows of a table, which may have no columns."""
    return table.take(positions) if table.num_columns else table


def required_columns(schema: Schema, selection: RowSelection) -> list[str]:
    """Return all columns that a file must have."""
    filtered = () if selection.where is None else selection.where.columns
    return list(dict.fromkeys((*schema.names, *selection.copied_columns, *filtered)))


def stored_columns(schema: Schema, selection: RowSelection) -> list[str]:
    """Return the columns to copy to the output: those of the selection, and features that never change.

    A selection that names a feature that answers may change raises an :class:`InvalidInputError`.
    """
    fixed = [feature.name for feature in schema.features if feature.kind in FIXED_KINDS]
    changing = {*schema.names}.difference(fixed)
    wrong = [name for name in selection.copied_columns if name in changing]
    if wrong:
        option = "key" if selection.key in wrong else "columns"
        raise InvalidInputError(
            f"`{option}` must name columns that are copied to the output; answers may change the feature "
            f"{wrong[0]!r}. Name another column; `file` and `row` lead from an answer to its row."
        )
    return list(dict.fromkeys((*selection.copied_columns, *fixed)))


def read_unit(root: Path, unit: Unit, schema: Schema, selection: RowSelection) -> InputRows:
    """Read the rows of a unit."""
    path = unit.file.check_unchanged(root)
    rows = (_read_csv_rows if unit.file.is_csv else _read_parquet_rows)(path, unit, schema, selection)
    unit.file.check_unchanged(root)  # a program may have replaced it while it was read
    return rows


def _read_csv_rows(path: Path, unit: Unit, schema: Schema, selection: RowSelection) -> InputRows:
    columns, n = {*required_columns(schema, selection)}, unit.rows.n_rows
    header = _csv_header(path, unit.file, selection.separator, selection.encoding)
    records, unreadable = read_records(path, unit.rows, selection.separator, selection.encoding)
    records = records[:n]  # a limit may cut it
    if len(records) != n:
        first = unit.rows.first_row
        raise InvalidInputError(f"{n} rows are expected from row {first} on; got {len(records)}")
    problems = {
        position: unreadable.get(position, f"it has {len(cells)} cells, and the header {len(header)}")
        for position, cells in enumerate(records)
        if len(cells) != len(header) or position in unreadable
    }
    for position in problems:
        records[position] = [""] * len(header)
    texts = {name: [cells[i] for cells in records] for i, name in enumerate(header) if name in columns}
    for name, value in unit.file.partition.items():
        if name in columns and name not in texts:
            texts[name] = _partition_cells(value, n)
    numbers = _row_numbers(unit)
    stored = stored_columns(schema, selection)
    return InputRows(
        numbers=numbers,
        frame=_parse_texts(texts, schema, numbers),
        stored=pa.table({name: pa.array(text_column(name, texts[name]), pa.string()) for name in stored}),
        problems=problems,
    )


@lru_cache(maxsize=8)
def _csv_header(path: Path, file: InputFile, separator: str, encoding: str) -> tuple[str, ...]:
    """Return the names of the columns; a worker reads them once for all units of a file."""
    return tuple(read_header(path, separator, encoding))


def _read_parquet_rows(path: Path, unit: Unit, schema: Schema, selection: RowSelection) -> InputRows:
    columns = required_columns(schema, selection)
    partition = unit.file.partition
    table = read_parquet(path, unit.rows, [name for name in columns if name not in partition])
    table, problems = without_invalid_text(table)
    for name, value in partition.items():
        if name in columns:
            table = table.append_column(name, partition_column(value, unit.rows.n_rows))
    numbers = _row_numbers(unit)
    return InputRows(
        numbers=numbers,
        frame=_to_frame(table, schema, unit.file, numbers),
        stored=table.select(stored_columns(schema, selection)),
        problems=problems,
    )


def _row_numbers(unit: Unit) -> IntArray:
    return np.arange(unit.rows.first_row, unit.rows.first_row + unit.rows.n_rows)


def _partition_cells(value: str, n: int) -> list[str]:
    return ["" if value == MISSING_PARTITION else value] * n


def _parse_texts(texts: Mapping[str, Sequence[str]], schema: Schema, numbers: IntArray) -> pd.DataFrame:
    """Return a frame with the dtypes of the training table; columns that are not features stay text."""
    known = {feature.name: feature for feature in schema.features}
    columns = {
        name: parse_column_as(known[name], cells) if name in known else text_column(name, cells)
        for name, cells in texts.items()
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(len(numbers))).set_axis(numbers, axis=0)


def _to_frame(table: pa.Table, schema: Schema, file: InputFile, numbers: IntArray) -> pd.DataFrame:
    """Return a frame with the dtypes of the file; for directory names, those of the training table."""
    frame: pd.DataFrame = table.to_pandas().reset_index(drop=True)
    for name, value in file.partition.items():
        if name in schema.names:
            frame[name] = parse_column_as(schema.feature(name), _partition_cells(value, len(frame))).array
    return frame.set_axis(numbers, axis=0)
