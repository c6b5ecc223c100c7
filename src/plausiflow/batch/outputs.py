"""The output directory: parts that are whole or not there, the manifest, what failed, and the end.

Names of everything but parts begin with an underscore or a dot, so that whoever reads the directory as one
table sees the parts alone.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plausiflow.errors import InvalidInputError
from plausiflow.persistence import write_atomically

MANIFEST, SUCCESS, FAILED, LOCK, LOG = "_manifest.json", "_SUCCESS", "_failed", "_lock", "_workers.log"
KIND, FORMAT = "plausiflow batch", 1
_PART = re.compile(r"part-[0-9a-f]{32}\.parquet")
_LEFTOVERS = (".part-*.tmp", f"{MANIFEST}.*.tmp", f"{SUCCESS}.*.tmp", f"{FAILED}/*.tmp")


@dataclass(frozen=True)
class Folder:
    """Where a run writes.

    Attributes:
        path: Of the directory.
    """

    path: Path

    def part(self, name: str) -> Path:
        """The file of a unit."""
        return self.path / f"{name}.parquet"

    def write_part(self, name: str, table: pa.Table) -> None:
        """Write the answers of a unit: under another name first, so that the part is whole or not there."""
        beside = self.path / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            with beside.open("wb") as file:
                pq.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.part(name))
        finally:
            beside.unlink(missing_ok=True)

    def open(self, manifest: Mapping[str, Any], *, resume: bool) -> None:
        """Begin a run here, or go on with the one that was begun.

        Args:
            manifest: What the run is; its ``fingerprint`` tells it from others.
            resume: Whether a run that is here may be gone on with.

        Raises:
            InvalidInputError: Something else is here, or another run.
        """
        for path in (path for pattern in _LEFTOVERS for path in self.path.glob(pattern)):
            path.unlink(missing_ok=True)
        others = [name for name in self._names() if name not in (LOCK, LOG)]
        if MANIFEST in others:
            if not resume:
                raise InvalidInputError(
                    f"{self.path} holds a run already. Add --resume to go on with it, or give another name."
                )
            self._check(manifest)
        elif others:
            raise InvalidInputError(
                f"{self.path} must be new, empty, or hold a run to go on with; it holds "
                f"{', '.join(others[:3])}{' and more' if len(others) > 3 else ''}. Give another name."
            )
        else:
            write_atomically(self.path / MANIFEST, _json({"kind": KIND, "format": FORMAT} | dict(manifest)))

    def done(self) -> set[str]:
        """Names of the units that have their part."""
        return {name.removesuffix(".parquet") for name in self._names() if _PART.fullmatch(name)}

    def record_failure(self, name: str, where: str, reason: str) -> None:
        """Remember why a unit has no part."""
        record = {"unit": name, "where": where, "reason": reason}
        write_atomically(self.path / FAILED / f"{name}.json", _json(record))

    def forget_failure(self, name: str) -> None:
        """A unit has its part after all."""
        (self.path / FAILED / f"{name}.json").unlink(missing_ok=True)

    def succeed(self, counts: Mapping[str, Any]) -> None:
        """Say that every part is there; the last thing that a run writes."""
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)  # the names of the parts
        finally:
            os.close(directory)
        write_atomically(self.path / SUCCESS, _json(counts))

    def _names(self) -> list[str]:
        return sorted(os.listdir(self.path)) if self.path.is_dir() else []

    def _check(self, manifest: Mapping[str, Any]) -> None:
        """Raise unless the run that is here is this one."""
        try:
            there = json.loads((self.path / MANIFEST).read_bytes())
            assert isinstance(there, dict)
        except (OSError, ValueError, AssertionError) as error:
            raise InvalidInputError(
                f"{self.path / MANIFEST} cannot be read ({error}). Start another run, elsewhere."
            ) from error
        if there.get("fingerprint") != manifest["fingerprint"]:
            told = "; ".join(_differences(there, manifest)) or "its manifest was changed"
            raise InvalidInputError(
                f"{self.path} holds another run, which cannot be gone on with: {told}. Run with what that "
                "one had, or give another name."
            )


@dataclass(frozen=True)
class Tally:
    """What parts hold.

    Attributes:
        rows: Rows of the input that have a line or more.
        lines: Of the output.
        statuses: Rows by status.
    """

    rows: int
    lines: int
    statuses: Mapping[str, int]


def tally(
    parts: Iterable[Path], fields: pa.Schema, *, status: str, rank: str
) -> tuple[Tally, dict[Path, str]]:
    """Count the rows of parts, and tell what is wrong with parts that cannot be read."""
    rows, lines, statuses = 0, 0, Counter[str]()
    wrong: dict[Path, str] = {}
    for path in parts:
        try:
            with pq.ParquetFile(path) as file:
                if not file.schema_arrow.equals(fields):
                    raise ValueError("its columns are not those of the run")
                table = file.read(columns=[status, rank], use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            wrong[path] = " ".join(str(error).split())[:200]
            continue
        first = table.filter(pc.or_kleene(pc.is_null(table[rank]), pc.equal(table[rank], 1)))
        counts = pc.value_counts(first[status]).to_pylist()
        statuses.update({entry["values"]: entry["counts"] for entry in counts})
        rows, lines = rows + len(first), lines + len(table)
    return Tally(rows, lines, dict(sorted(statuses.items()))), wrong


def _json(content: Mapping[str, Any]) -> bytes:
    """A line for each entry: there may be many units."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What tells two runs apart, in words."""
    told = []
    for part in ("question", "rows", "versions"):
        old, new = _mapping(there.get(part)), _mapping(here.get(part))
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                told.append(f"{name} is {old.get(name)!r} there, {new.get(name)!r} here")
    told += ["the explainer is another one"] * (there.get("explainer") != here.get("explainer"))
    told += ["the input files have changed"] * (there.get("files") != here.get("files"))
    return told


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
