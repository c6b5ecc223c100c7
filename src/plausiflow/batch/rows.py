"""The rows of a unit as an explainer takes them, and the columns that go with them as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from plausiflow.batch.options import Chosen
from plausiflow.batch.sources import NOTHING, Piece, Source, constant, read_csv, read_parquet
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Codes, Mask, Schema, as_text, column_like

NEVER_CHANGED = ("identifier", "constant")
"""Kinds of features that answers take over from the row, as it is stored."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Some rows of a file.

    Attributes:
        numbers: Of the rows in their file, from 1, rising, shape ``(n,)``.
        frame: Features, and other columns of a condition.
        stored: Columns that go with the answers, as they are stored.
        problems: Why a row cannot be read, by its position.
    """

    numbers: Codes
    frame: pd.DataFrame
    stored: pa.Table
    problems: Mapping[int, str]

    def where(self, chosen: Chosen) -> Rows:
        """Those that are meant; a row that cannot be read is not."""
        if chosen.where is None:
            return self
        kept = chosen.where.mask(self.frame)
        kept[list(self.problems)] = False
        return self._only(kept, {})

    def readable(self) -> Rows:
        """Those that can be read."""
        if not self.problems:
            return self
        kept = np.ones(len(self.numbers), dtype=bool)
        kept[list(self.problems)] = False
        return self._only(kept, {})

    def unreadable(self) -> Rows:
        """Those that cannot."""
        kept = np.zeros(len(self.numbers), dtype=bool)
        kept[list(self.problems)] = True
        return self._only(kept, dict(enumerate(self.problems.values())))

    def _only(self, kept: Mask, problems: Mapping[int, str]) -> Rows:
        return replace(
            self,
            numbers=self.numbers[kept],
            frame=self.frame[kept],
            stored=taken(self.stored, np.flatnonzero(kept)),
            problems=problems,
        )


def taken(table: pa.Table, positions: Codes) -> pa.Table:
    """Rows of a table, which may have no columns."""
    return table.take(positions) if table.num_columns else table


def needed(schema: Schema, chosen: Chosen) -> list[str]:
    """All columns that a file must have."""
    asked = () if chosen.where is None else chosen.where.names
    return list(dict.fromkeys((*schema.names, *chosen.carried, *asked)))


def stored_columns(schema: Schema, chosen: Chosen) -> list[str]:
    """Columns that go with the answers as they are stored: the key, others, and features never changed.

    Raises:
        InvalidInputError: One of those asked for is a feature that answers may change.
    """
    fixed = [feature.name for feature in schema.features if feature.kind in NEVER_CHANGED]
    wrong = [name for name in chosen.carried if name in schema.names and name not in fixed]
    if wrong:
        option = "key" if chosen.key in wrong else "columns"
        raise InvalidInputError(
            f"`{option}` must name columns that are carried along; answers may change the feature "
            f"{wrong[0]!r}. Name another column: file and row lead from an answer to its row."
        )
    return list(dict.fromkeys((*chosen.carried, *fixed)))


def read_unit(root: Path, source: Source, piece: Piece, schema: Schema, chosen: Chosen) -> Rows:
    """The rows of a piece of a file.

    Raises:
        InvalidInputError: It cannot be read.
    """
    path = source.checked(root)
    names, stored = needed(schema, chosen), stored_columns(schema, chosen)
    numbers = np.arange(piece.first, piece.first + piece.rows)
    if source.is_csv:
        header, records = read_csv(path, piece, chosen)
        records = records[: piece.rows]  # a limit may end in the middle of a piece
        if len(records) != piece.rows:
            raise InvalidInputError(
                f"{piece.rows} rows are expected from {piece.first} on; got {len(records)}"
            )
        problems = {
            position: f"it has {len(cells)} cells, and the header {len(header)}"
            for position, cells in enumerate(records)
            if len(cells) != len(header)
        }
        for position in problems:
            records[position] = [""] * len(header)
        texts = {name: [cells[i] for cells in records] for i, name in enumerate(header) if name in names}
        texts |= {
            name: ["" if value == NOTHING else value] * piece.rows
            for name, value in source.partition.items()
            if name in names and name not in header
        }
        frame = _frame_of_texts(texts, schema, numbers)
        kept = pa.table({name: pa.array(as_text(name, texts[name]), pa.string()) for name in stored})
        return Rows(numbers=numbers, frame=frame, stored=kept, problems=problems)
    table = read_parquet(path, piece, [name for name in names if name not in source.partition])
    for name, value in source.partition.items():
        if name in names:
            table = table.append_column(name, constant(value, piece.rows))
    frame = _frame_of_table(table, schema, source, numbers)
    return Rows(numbers=numbers, frame=frame, stored=table.select(stored), problems={})


def _frame_of_texts(texts: Mapping[str, Sequence[str]], schema: Schema, numbers: Codes) -> pd.DataFrame:
    """Features with the dtypes of the training table, others as text."""
    known = {feature.name: feature for feature in schema.features}
    columns = {
        name: column_like(known[name], cells) if name in known else as_text(name, cells)
        for name, cells in texts.items()
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(len(numbers))).set_axis(numbers, axis=0)


def _frame_of_table(table: pa.Table, schema: Schema, source: Source, numbers: Codes) -> pd.DataFrame:
    """Columns with their own dtypes; a feature in the name of a directory with that of the training table."""
    frame: pd.DataFrame = table.to_pandas().reset_index(drop=True)
    for name, value in source.partition.items():
        if name in schema.names:
            cells = ["" if value == NOTHING else value] * len(frame)
            frame[name] = column_like(schema.feature(name), cells).array
    return frame.set_axis(numbers, axis=0)
