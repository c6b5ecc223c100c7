"""Units of work: a row group, or a slice of one, and the one file that it becomes.

What a unit is, and what its file is called, follows from the input and the options alone. So a unit that was
done is known by its file, whoever did it, and one that is done twice is written to the same place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from plausiflow.batch.options import Chosen
from plausiflow.batch.sources import Piece, Source, columns_of, pieces_of
from plausiflow.errors import InvalidInputError
from plausiflow.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of a file, or a file that cannot be used.

    Attributes:
        source: The file.
        piece: Of it.
        problem: Why the file, or what is left of it, cannot be used.
    """

    source: Source
    piece: Piece
    problem: str = ""

    def name(self, fingerprint: str) -> str:
        """Of its output, different in every run and for every piece.

        Example:
            >>> source = Source(path="a.parquet", size=10, modified=0)
            >>> Unit(source=source, piece=Piece(first=1, rows=5, group=2)).name("run")
            'part-159c76caa2eb764f29b517676c193cff'
        """
        place = [fingerprint, self.source.path, self.piece.group, self.piece.number]
        return f"part-{hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]}"

    def __str__(self) -> str:
        if self.problem:
            return self.source.path
        last = self.piece.first + self.piece.rows - 1
        group = "" if self.source.is_csv else f"row group {self.piece.group}, "
        return f"{self.source.path}, {group}rows {self.piece.first:,} to {last:,}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """All that there is to do.

    Attributes:
        root: The directory of the files.
        sources: The files.
        units: What to do, in the order of the input.
        schemas: The columns of the files that have rows.
    """

    root: Path
    sources: Sequence[Source]
    units: Sequence[Unit]
    schemas: Sequence[pa.Schema]

    @property
    def rows(self) -> int:
        """Of all units."""
        return sum(unit.piece.rows for unit in self.units)

    def types_of(self, name: str) -> list[pa.DataType]:
        """What a column is in the files, each type once."""
        return list(dict.fromkeys(schema.field(name).type for schema in self.schemas))


def make_plan(
    root: Path, sources: Sequence[Source], needed: Sequence[str], chosen: Chosen, *, progress: bool = True
) -> Plan:
    """Look at every file: its columns, and where its pieces are.

    Args:
        root: The directory of the files.
        sources: The files.
        needed: Columns that each must have; a file that lacks one becomes a unit with a problem.
        chosen: Which rows; of files behind the limit nothing is read.
        progress: Show a bar, on a terminal.

    Raises:
        InvalidInputError: No file can be used.
    """
    units: list[Unit] = []
    schemas: dict[Source, pa.Schema] = {}
    usable = False
    left = float("inf") if chosen.limit is None else chosen.limit
    with progress_bar("Files", len(sources), show=progress) as advance:
        for source in sources:
            if left <= 0:
                break
            try:
                schema = columns_of(root / source.path, source, chosen)
                if source.size or not source.is_csv:
                    _require(needed, schema.names)
                usable = True
                for piece in _limited(source, pieces_of(root / source.path, source, chosen), left):
                    units.append(Unit(source=source, piece=piece))
                    schemas[source] = schema
                    left -= piece.rows
            except InvalidInputError as error:
                nothing = Piece(first=1, rows=0, group=-1)
                units.append(Unit(source=source, piece=nothing, problem=str(error)))
            advance(1, source.path)
    problems = [unit for unit in units if unit.problem]
    if problems and not usable:
        raise InvalidInputError(f"{root / problems[0].source.path} cannot be used: {problems[0].problem}.")
    return Plan(root=root, sources=sources, units=units, schemas=list(schemas.values()))


def _limited(source: Source, pieces: Iterator[Piece], most: float) -> Iterator[Piece]:
    """The first pieces, the last one shortened, until they have so many rows."""
    for piece in pieces:
        if piece.rows >= most:
            rows = int(most)
            yield replace(piece, rows=rows, stop=piece.stop if source.is_csv else piece.start + rows)
            return
        most -= piece.rows
        yield piece


def _require(needed: Sequence[str], names: Sequence[str]) -> None:
    gone = [name for name in needed if name not in names]
    if gone:
        known = ", ".join(names[:30]) + (" and more" if len(names) > 30 else "")
        raise InvalidInputError(f"it has no column {', '.join(map(repr, gone))}; its columns are {known}")
