"""What a worker does with a unit: read its rows, explain them, write its part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from plausiflow.batch.columns import Output
from plausiflow.batch.options import BatchRequest, Chosen, Saved
from plausiflow.batch.outputs import Folder
from plausiflow.batch.rows import read_unit
from plausiflow.batch.units import Unit
from plausiflow.errors import PlausiflowError
from plausiflow.explainer import Explainer

_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of a unit.

    Attributes:
        rows: Of the input that its part answers.
        problem: Why it has no part.
        ends_run: Others would fail, too: the explainer cannot be loaded, or nothing can be written.
        memory: Most bytes that the worker has had at once, and those that it had when the explainer was
            loaded; zero where the system does not tell.
    """

    rows: int = 0
    problem: str = ""
    ends_run: bool = False
    memory: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Explains units; each worker has one, which keeps the explainer.

    Attributes:
        saved: The explainer.
        asked: About every row.
        chosen: Which rows.
        root: The directory of the input.
        folder: Of the output.
        fingerprint: Of the run.
        output: The columns.
    """

    saved: Saved
    asked: BatchRequest
    chosen: Chosen
    root: Path
    folder: Folder
    fingerprint: str
    output: Output

    @cached_property
    def _loaded(self) -> tuple[Explainer, int]:
        """The explainer, and the memory that is used with it."""
        return self.saved.load(), memory_used()[1]

    def __call__(self, unit: Unit) -> Report:
        """Do a unit; whatever goes wrong is in the report."""
        if unit.problem:
            return Report(problem=unit.problem)
        try:
            explainer, before = self._loaded
        except Exception as error:  # somebody's model may be loaded here
            return Report(problem=f"the explainer cannot be loaded: {_told(error)}", ends_run=True)
        try:
            rows, table = self._answers(unit, explainer)
        except Exception as error:  # files are damaged and models raise; the other units go on
            return Report(problem=_told(error))
        try:
            self.folder.write_part(unit.name(self.fingerprint), table)
        except OSError as error:
            return Report(problem=f"nothing can be written: {_told(error)}", ends_run=True)
        return Report(rows=rows, memory=(memory_used()[0], before))

    def _answers(self, unit: Unit, explainer: Explainer) -> tuple[int, pa.Table]:
        """How many rows there are, and what is written of them."""
        assert explainer.encoder_ is not None
        schema = explainer.encoder_.schema
        rows = read_unit(self.root, unit.source, unit.piece, schema, self.chosen).where(self.chosen)
        readable, unread = rows.readable(), rows.unreadable()
        result = explainer.explain(readable.frame[list(schema.names)], **self.asked.arguments())
        table = self.output.table(result, readable, unit.source.path)
        if not len(unread.numbers):
            return len(rows.numbers), table
        both = pa.concat_tables([table, self.output.unread(unread, unit.source.path)])
        ours = self.output.ours
        ordered = both.sort_by([(ours["row"], "ascending"), (ours["rank"], "ascending")])
        return len(rows.numbers), ordered


def memory_used() -> tuple[int, int]:
    """Most bytes of memory that this process has had at once, and those that it has; Linux tells."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0, 0
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    most, now = (1024 * int(told.get(name, "0 kB").split()[0]) for name in ("VmHWM", "VmRSS"))
    return most, now


def _told(error: Exception) -> str:
    """An error on one line; that of somebody else's code with its name."""
    text = " ".join(str(error).split())
    shown = text if isinstance(error, PlausiflowError) else f"{type(error).__name__}: {text}"
    return shown[:_LONGEST].rstrip(".")
