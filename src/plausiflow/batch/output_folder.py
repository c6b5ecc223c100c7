"""The output directory: parts that are complete or absent, the manifest, failures, and the mark of success.

Names of everything but parts begin with an underscore or a dot, so a program that reads the directory as one
table sees the parts alone.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plausiflow.atomic import atomic_path, remove_leftovers, write_atomically
from plausiflow.batch.part_files import part_identity, part_problem, write_part
from plausiflow.batch.plan import Unit
from plausiflow.errors import InvalidInputError

MANIFEST, SUCCESS, FAILED, LOCK, LOG = "_manifest.json", "_SUCCESS", "_failed", "_lock", "_workers.log"
KIND, FORMAT = "plausiflow batch", 2
_PART = re.compile(r"part-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class OutputFolder:
    """The directory to which a run writes."""

    path: Path

    def part(self, name: str) -> Path:
        """Return the path of a unit's output."""
        return self.path / f"{name}.parquet"

    def write_part(self, unit: Unit, name: str, table: pa.Table) -> None:
        """Write the answers of a unit."""
        with atomic_path(self.part(name)) as temporary, temporary.open("w+b") as file:
            write_part(file, table, part_identity(unit, name))

    def part_problem(self, unit: Unit, name: str) -> str:
        """Return why the part of a unit is not the one that was written; an empty text if it is."""
        return part_problem(self.part(name), part_identity(unit, name))

    def remove_part(self, name: str) -> None:
        """Remove a part; the run is then not complete."""
        self.clear_success()
        self.part(name).unlink(missing_ok=True)

    def open(self, manifest: Mapping[str, Any], *, resume: bool) -> None:
        """Start a run in this directory or, with ``resume``, continue the one with the same fingerprint."""
        for name in ("part-", MANIFEST, SUCCESS):
            remove_leftovers(self.path, name)
        remove_leftovers(self.path / FAILED)
        others = [name for name in self._names() if name not in (LOCK, LOG)]
        if MANIFEST in others:
            if not resume:
                raise InvalidInputError(
                    f"{self.path} already contains a run. Add --resume to continue it, or use another "
                    "directory."
                )
            self._check_same_run(manifest)
        elif others:
            raise InvalidInputError(
                f"{self.path} must be new, empty, or contain a run to continue; it contains "
                f"{', '.join(others[:3])}{' and more' if len(others) > 3 else ''}. Use another directory."
            )
        else:
            content = _to_json({"kind": KIND, "format": FORMAT, **manifest})
            write_atomically(self.path / MANIFEST, content)

    def finished(self) -> set[str]:
        """Return the names of the units whose part is written."""
        return {name.removesuffix(".parquet") for name in self._names() if _PART.fullmatch(name)}

    def record_failure(self, name: str, where: str, reason: str) -> None:
        """Record why a unit has no part."""
        record = {"unit": name, "where": where, "reason": reason}
        write_atomically(self.path / FAILED / f"{name}.json", _to_json(record))

    def clear_failure(self, name: str) -> None:
        """Delete the record of a unit that failed before."""
        (self.path / FAILED / f"{name}.json").unlink(missing_ok=True)

    def mark_success(self, counts: Mapping[str, Any]) -> None:
        """Record that every part is written; this is the last file of a run."""
        write_atomically(self.path / SUCCESS, _to_json(counts))

    def clear_success(self) -> None:
        """Remove the mark of success."""
        (self.path / SUCCESS).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        return sorted(os.listdir(self.path)) if self.path.is_dir() else []

    def _check_same_run(self, manifest: Mapping[str, Any]) -> None:
        path = self.path / MANIFEST
        try:
            existing = json.loads(path.read_bytes())
            assert isinstance(existing, dict)
        except (OSError, ValueError, AssertionError) as error:
            raise InvalidInputError(
                f"{path} cannot be read ({error}). Start a new run in another directory."
            ) from error
        if existing.get("fingerprint") != manifest["fingerprint"]:
            differences = "; ".join(_differences(existing, manifest)) or "its manifest was changed"
            raise InvalidInputError(
                f"{self.path} contains another run, which cannot be continued: {differences}. Use the same "
                "input and options, or another directory."
            )


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows in parts."""

    rows: int  # Rows of the input that have at least one line.
    lines: int  # Lines of the output.
    statuses: Mapping[str, int]  # Rows by status.


def count_rows(
    parts: Iterable[Path], schema: pa.Schema, *, status: str, rank: str
) -> tuple[RowCounts, dict[Path, str]]:
    """Count the rows of parts; also return the parts that cannot be read, with the reason."""
    rows, lines, statuses = 0, 0, Counter[str]()
    unreadable: dict[Path, str] = {}
    for path in parts:
        try:
            with pq.ParquetFile(path) as file:
                if not file.schema_arrow.equals(schema):
                    raise ValueError("its columns are not those of the run")
                table = file.read(columns=[status, rank], use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            unreadable[path] = " ".join(str(error).split())[:200]
            continue
        first = table.filter(pc.or_kleene(pc.is_null(table[rank]), pc.equal(table[rank], 1)))
        counts = pc.value_counts(first[status]).to_pylist()
        statuses.update({entry["values"]: entry["counts"] for entry in counts})
        rows, lines = rows + len(first), lines + len(table)
    return RowCounts(rows, lines, dict(sorted(statuses.items()))), unreadable


def _to_json(content: Mapping[str, Any]) -> bytes:
    """Return JSON with one line for each entry: there may be many units."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _differences(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Describe the differences between two runs."""
    texts = []
    for part in ("question", "rows", "versions"):
        old, new = (side.get(part) for side in (existing, manifest))
        old, new = (side if isinstance(side, dict) else {} for side in (old, new))
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                texts.append(f"{name} was {old.get(name)!r}, and is now {new.get(name)!r}")
    texts += ["the explainer is another one"] * (existing.get("explainer") != manifest.get("explainer"))
    texts += [f"its format was {existing.get('format')}, and is now {FORMAT}"] * (
        existing.get("format") != FORMAT
    )
    texts += ["the input files have changed"] * (existing.get("files") != manifest.get("files"))
    return texts
