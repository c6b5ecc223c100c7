"""The work on one unit: read its rows, explain them, write its part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from plausiflow.batch.input_rows import read_unit
from plausiflow.batch.output_columns import OutputColumns
from plausiflow.batch.output_folder import OutputFolder
from plausiflow.batch.plan import Unit
from plausiflow.batch.request import BatchRequest, ExplainerLocation, RowSelection
from plausiflow.errors import PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.workers import memory_used

_MAX_ERROR_LENGTH = 1000


@dataclass(frozen=True, kw_only=True)
class UnitReport:
    """The result of a unit.

    It is ``fatal`` if other units would fail, too: the explainer cannot be loaded, or the part cannot be
    written. ``memory`` is the peak memory of the worker in bytes, and its memory when the explainer was
    loaded; zeros if unknown.
    """

    rows: int = 0  # Rows of the input that its part answers.
    problem: str = ""  # Why it has no part; empty if it has one.
    fatal: bool = False
    memory: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitExplainer:
    """Explains units; each worker has its own copy, which keeps the loaded explainer."""

    location: ExplainerLocation
    request: BatchRequest
    selection: RowSelection
    root: Path  # Directory of the input files.
    folder: OutputFolder  # Directory of the output.
    fingerprint: str  # Fingerprint of the run.
    columns: OutputColumns

    @cached_property
    def _loaded(self) -> tuple[Explainer, int]:
        """The explainer, and the memory of the process after loading it."""
        return self.location.load(), memory_used()[1]

    def __call__(self, unit: Unit) -> UnitReport:
        """Explain a unit; errors are returned in the report."""
        if unit.problem:
            return UnitReport(problem=unit.problem)
        try:
            explainer, loaded_memory = self._loaded
        except Exception as error:  # loading a user's model may raise anything
            return UnitReport(problem=f"the explainer cannot be loaded: {_one_line(error)}", fatal=True)
        try:
            n, table = self._explain(unit, explainer)
        except Exception as error:  # a damaged file, or a model that raises: the other units go on
            return UnitReport(problem=_one_line(error))
        try:
            self.folder.write_part(unit, unit.name(self.fingerprint), table)
        except OSError as error:
            return UnitReport(problem=f"the part cannot be written: {_one_line(error)}", fatal=True)
        return UnitReport(rows=n, memory=(memory_used()[0], loaded_memory))

    def _explain(self, unit: Unit, explainer: Explainer) -> tuple[int, pa.Table]:
        """Return the number of rows, and the table to write."""
        assert explainer.encoder_ is not None
        schema, path = explainer.encoder_.schema, unit.file.path
        rows = read_unit(self.root, unit, schema, self.selection).select(self.selection)
        readable, unreadable = rows.readable(), rows.unreadable()
        result = explainer.explain(readable.frame[list(schema.names)], **self.request.arguments())
        table = self.columns.to_table(result, readable, path)
        if len(unreadable.numbers):
            table = pa.concat_tables([table, self.columns.unreadable_table(unreadable, path)])
            order = [(self.columns.names[name], "ascending") for name in ("row", "rank")]
            table = table.sort_by(order)
        return len(rows.numbers), table


def _one_line(error: Exception) -> str:
    """Return an error on one line; errors of other libraries with their class."""
    text = " ".join(str(error).split())
    shown = text if isinstance(error, PlausiflowError) else f"{type(error).__name__}: {text}"
    return shown[:_MAX_ERROR_LENGTH].rstrip(".")
