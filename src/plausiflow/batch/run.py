"""A batch run: every row of the input exactly once in the output, however often the run is stopped.

The manifest is written first and lists all units. Each finished unit has its part, which is written
atomically. A resumed run checks the parts, explains the units without a part, and writes ``_SUCCESS`` last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd

from plausiflow.batch.input_files import find_input_files
from plausiflow.batch.input_rows import required_columns
from plausiflow.batch.manifest import build_manifest
from plausiflow.batch.output_columns import output_columns
from plausiflow.batch.output_folder import LOCK, LOG, OutputFolder, RowCounts, count_rows
from plausiflow.batch.plan import BatchPlan, Unit, make_plan
from plausiflow.batch.request import BatchRequest, ExplainerLocation, RowSelection
from plausiflow.batch.summary import BatchSummary, unit_progress
from plausiflow.batch.unit_explainer import UnitExplainer, UnitReport
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.workers import Executor, LockedError, Processes, Returned, Started, WorkerError, hold_lock


def run_batch(
    explainer: ExplainerLocation | Path | str,
    data: Path | str,
    out: Path | str,
    *,
    request: BatchRequest | None = None,
    selection: RowSelection | None = None,
    executor: Executor | None = None,
    resume: bool = False,
    progress: bool = True,
) -> BatchSummary:
    """Explain every row of files, and write a Parquet file for each unit.

    Args:
        explainer: Directory of the saved explainer.
        data: A Parquet or CSV file, or a directory of them.
        out: Output directory: new, empty or, with ``resume``, that of the same run.
        request: The arguments of ``explain``.
        selection: The rows to explain, and the columns to copy.
        executor: Where units run; by default in one worker process.
        resume: Continue a run that was stopped; failed units are tried again.
        progress: Whether to show a progress bar on a terminal.

    Raises:
        InvalidInputError: An argument cannot be used, or ``out`` contains another run.
        WorkerError: Workers cannot be started, load the explainer, or write.
    """
    start = time.monotonic()
    location = (
        explainer if isinstance(explainer, ExplainerLocation) else ExplainerLocation(folder=Path(explainer))
    )
    request, selection, out = request or BatchRequest(), selection or RowSelection(), Path(out)
    root, files = find_input_files(Path(data))
    _check_output_path(Path(data), out)
    loaded = location.load()
    assert loaded.encoder_ is not None
    required = required_columns(loaded.encoder_.schema, selection)
    plan = make_plan(root.resolve(), files, required, selection, progress=progress)
    columns = output_columns(_explain_no_rows(loaded, request), selection, plan)
    manifest = build_manifest(location, request, selection, plan, columns)
    work = UnitExplainer(
        location=location,
        request=request,
        selection=selection,
        root=plan.root,
        folder=OutputFolder(out.resolve()),
        fingerprint=manifest["fingerprint"],
        columns=columns,
    )
    del loaded
    with _only_run(out):
        work.folder.open(manifest, resume=resume)
        damaged = _remove_damaged_parts(work, plan)
        left = _unfinished_units(work, plan)
        executor = executor or Processes(workers=1, log=out / LOG)
        results = _explain_units(work, left, executor, plan, progress=progress)
        counts = _finish(work, plan, results.failed)
    return BatchSummary(
        counts=counts,
        units=len(plan.units),
        units_before=len(plan.units) - len(left),
        new_rows=results.rows,
        failed={str(unit): reason for unit, reason in results.failed.items()},
        damaged={str(unit): reason for unit, reason in damaged.items()},
        seconds=time.monotonic() - start,
        memory=(results.peak_memory, results.memory_beyond),
    )


def _check_output_path(data: Path, out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InvalidInputError(f"{out} is a file; a directory is expected. Use another name.")
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InvalidInputError(f"{out} is inside the input directory {data}. Use a directory outside of it.")


def _explain_no_rows(explainer: Explainer, request: BatchRequest) -> Explanations:
    """Explain zero rows: an invalid request raises here, before anything is written."""
    assert explainer.encoder_ is not None
    features = explainer.encoder_.schema.features
    frame = pd.DataFrame({feature.name: pd.Series([], dtype=feature.dtype) for feature in features})
    on_cpu = replace(request, device="cpu")  # only workers need the device
    return explainer.explain(frame, **on_cpu.arguments())


@contextmanager
def _only_run(out: Path) -> Iterator[None]:
    """Hold the lock of the output directory."""
    try:
        with hold_lock(out / LOCK, wait=False):
            yield
    except LockedError as error:
        raise InvalidInputError(
            f"{out} is in use by {error}. Wait until that run has ended, or use another directory."
        ) from error


def _remove_damaged_parts(work: UnitExplainer, plan: BatchPlan) -> dict[Unit, str]:
    """Check all existing parts, and remove those that are not as they were written; return them."""
    folder = work.folder
    units = {unit.name(work.fingerprint): unit for unit in plan.units}
    finished = folder.finished()
    foreign = finished - set(units)
    if foreign:
        raise InvalidInputError(
            f"{folder.path} contains {min(foreign)}.parquet, which is not part of this run. Use another "
            "directory."
        )
    problems = {name: folder.part_problem(units[name], name) for name in units if name in finished}
    damaged = {name: problem for name, problem in problems.items() if problem}
    for name in damaged:
        folder.remove_part(name)
    return {units[name]: problem for name, problem in damaged.items()}


def _unfinished_units(work: UnitExplainer, plan: BatchPlan) -> list[Unit]:
    finished = work.folder.finished()
    left = [unit for unit in plan.units if unit.name(work.fingerprint) not in finished]
    if left:
        work.folder.clear_success()
    return left


@dataclass
class _UnitResults:
    """Failed units with the reason, rows, and the memory of workers."""

    failed: dict[Unit, str] = field(default_factory=dict)
    rows: int = 0
    peak_memory: int = 0
    memory_beyond: int = 0

    def add(self, unit: Unit, report: UnitReport) -> None:
        """Add the report of a unit."""
        if report.problem:
            self.failed[unit] = report.problem
        self.rows += report.rows
        peak, loaded = report.memory
        self.peak_memory = max(self.peak_memory, peak)
        self.memory_beyond = max(self.memory_beyond, peak - loaded)


def _explain_units(
    work: UnitExplainer, left: Sequence[Unit], executor: Executor, plan: BatchPlan, *, progress: bool
) -> _UnitResults:
    """Explain units, and record those that fail."""
    results = _UnitResults()
    if not left:
        return results
    with (
        unit_progress(plan, left, progress) as add_progress,
        closing(executor.run(work, left, lambda unit: None)) as events,
    ):
        for event in events:
            if isinstance(event, Started):
                continue
            unit = left[event.number]
            name = unit.name(work.fingerprint)
            if isinstance(event, Returned):
                report = event.result
            elif work.folder.part(name).exists():  # the worker died after it had written the part
                report = UnitReport()
            else:
                report = UnitReport(problem=f"its worker ended: {event.reason}")
            if report.fatal:
                raise WorkerError(f"The run was stopped at {unit}: {report.problem}.")
            if report.problem:
                work.folder.record_failure(name, str(unit), report.problem)
            else:
                work.folder.clear_failure(name)
            results.add(unit, report)
            add_progress(unit)
    return results


def _finish(work: UnitExplainer, plan: BatchPlan, failed: dict[Unit, str]) -> RowCounts:
    """Count the rows of all parts, and mark success if none is missing; unreadable parts are removed."""
    folder, names = work.folder, work.columns.names
    parts = {folder.part(unit.name(work.fingerprint)): unit for unit in plan.units if unit not in failed}
    counts, unreadable = count_rows(parts, work.columns.schema, status=names["status"], rank=names["rank"])
    for path, reason in unreadable.items():
        unit = parts[path]
        failed[unit] = f"its part cannot be read: {reason}"
        folder.record_failure(unit.name(work.fingerprint), str(unit), failed[unit])
        path.unlink(missing_ok=True)
    if failed:
        folder.clear_success()
    else:
        folder.mark_success({"fingerprint": work.fingerprint, "units": len(plan.units)} | asdict(counts))
    return counts
