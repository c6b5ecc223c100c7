"""A batch run: every row of the input exactly once in the output, however often the run is stopped.

The manifest comes first and says what is to be done. Each unit that is done has its part, which is put in its
place whole. A run that goes on does the units that have none, and ``_SUCCESS`` comes last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd

from plausiflow.batch.columns import output_of
from plausiflow.batch.manifest import manifest_of
from plausiflow.batch.options import BatchRequest, Chosen, Saved
from plausiflow.batch.outcome import Outcome, shown
from plausiflow.batch.outputs import LOCK, LOG, SUCCESS, Folder, Tally, tally
from plausiflow.batch.rows import needed
from plausiflow.batch.sources import find_sources
from plausiflow.batch.units import Plan, Unit, make_plan
from plausiflow.batch.work import Report, Work
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.workers import Executor, LockedError, Lost, Processes, Returned, Started, WorkerError, locked


def run_batch(
    explainer: Saved | Path | str,
    given: Path | str,
    out: Path | str,
    *,
    asked: BatchRequest | None = None,
    chosen: Chosen | None = None,
    executor: Executor | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Outcome:
    """Explain every row of files, and write a Parquet file for each piece of them.

    Args:
        explainer: Where it was saved.
        given: A Parquet or CSV file, or a directory of them.
        out: A directory: new, empty or, with ``resume``, of this very run.
        asked: What is asked about each row.
        chosen: Which rows, and what is carried along.
        executor: Where units run; one worker process by default.
        resume: Go on with a run that was stopped; units that failed are tried again.
        progress: Show a bar, on a terminal.

    Raises:
        InvalidInputError: Something cannot be used, or ``out`` holds another run.
        WorkerError: Workers cannot be started, load the explainer, or write.
    """
    start = time.monotonic()
    saved = explainer if isinstance(explainer, Saved) else Saved(folder=Path(explainer))
    asked, chosen, out = asked or BatchRequest(), chosen or Chosen(), Path(out)
    root, sources = find_sources(Path(given))
    _check_place(Path(given), out)
    loaded = saved.load()
    assert loaded.encoder_ is not None
    names = needed(loaded.encoder_.schema, chosen)
    plan = make_plan(root.resolve(), sources, names, chosen, progress=progress)
    output = output_of(_nothing(loaded, asked), chosen, plan)
    manifest = manifest_of(saved, asked, chosen, plan, output)
    fingerprint = manifest["fingerprint"]
    work = Work(
        saved=saved,
        asked=asked,
        chosen=chosen,
        root=plan.root,
        folder=Folder(out.resolve()),
        fingerprint=fingerprint,
        output=output,
    )
    del loaded
    with _held(out):
        work.folder.open(manifest, resume=resume)
        left = _left(work.folder, plan, fingerprint)
        executor = executor or Processes(workers=1, log=out / LOG)
        ended = _do(work, left, executor, plan, progress=progress)
        counted = _finish(work, plan, ended.failed)
    return Outcome(
        tally=counted,
        units=len(plan.units),
        earlier=len(plan.units) - len(left),
        rows_now=ended.rows,
        failed={str(unit): reason for unit, reason in ended.failed.items()},
        seconds=time.monotonic() - start,
        memory=(ended.most, ended.beyond),
    )


def _check_place(given: Path, out: Path) -> None:
    """Raise where the output would be part of the input, or in the place of a file."""
    if out.exists() and not out.is_dir():
        raise InvalidInputError(f"{out} is a file; a directory is expected. Give another name.")
    if given.is_dir() and out.resolve().is_relative_to(given.resolve()):
        raise InvalidInputError(f"{out} is inside {given}, which is read. Give a directory outside of it.")


def _nothing(explainer: Explainer, asked: BatchRequest) -> Explanations:
    """What the explainer says of no rows; what cannot be asked raises here, before anything is written."""
    assert explainer.encoder_ is not None
    features = explainer.encoder_.schema.features
    frame = pd.DataFrame({feature.name: pd.Series([], dtype=feature.dtype) for feature in features})
    here = replace(asked, device="cpu")  # only workers need the device
    return explainer.explain(frame, **here.arguments())


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """Be the only run in a directory."""
    try:
        with locked(out / LOCK, wait=False):
            yield
    except LockedError as error:
        raise InvalidInputError(
            f"{out} is in use by {error}. Wait until that run has ended, or give another name."
        ) from error


def _left(folder: Folder, plan: Plan, fingerprint: str) -> list[Unit]:
    """The units that have no part yet."""
    names = {unit.name(fingerprint): unit for unit in plan.units}
    foreign = folder.done() - set(names)
    if foreign:
        raise InvalidInputError(
            f"{folder.path} holds {min(foreign)}.parquet, which is not of this run. Give another name."
        )
    done = folder.done()
    return [unit for name, unit in names.items() if name not in done]


@dataclass
class _Ended:
    """What became of units: why some have no part, rows, and the memory of workers."""

    failed: dict[Unit, str] = field(default_factory=dict)
    rows: int = 0
    most: int = 0
    beyond: int = 0

    def add(self, unit: Unit, report: Report) -> None:
        """One more unit has ended."""
        if report.problem:
            self.failed[unit] = report.problem
        self.rows += report.rows
        self.most = max(self.most, report.memory[0])
        self.beyond = max(self.beyond, report.memory[0] - report.memory[1])


def _do(work: Work, left: Sequence[Unit], executor: Executor, plan: Plan, *, progress: bool) -> _Ended:
    """Do units, and keep records of those that fail."""
    ended = _Ended()
    if not left:
        return ended
    with (
        shown(plan, left, progress) as show,
        closing(executor.run(work, left, lambda unit: None)) as events,
    ):
        for event in events:
            if isinstance(event, Started):
                continue
            unit = left[event.number]
            name = unit.name(work.fingerprint)
            report = event.result if isinstance(event, Returned) else _lost(event, work.folder.part(name))
            if report.ends_run:
                raise WorkerError(f"The run was stopped at {unit}: {report.problem}.")
            if report.problem:
                work.folder.record_failure(name, str(unit), report.problem)
            else:
                work.folder.forget_failure(name)
            ended.add(unit, report)
            show(unit)
    return ended


def _lost(event: Lost, part: Path) -> Report:
    """Of a unit whose worker ended; perhaps when its part was already in its place."""
    return Report() if part.exists() else Report(problem=f"its worker ended: {event.reason}")


def _finish(work: Work, plan: Plan, failed: dict[Unit, str]) -> Tally:
    """Read what the parts hold; where all are there, say so. One that cannot be read is removed."""
    folder, ours = work.folder, work.output.ours
    parts = {folder.part(unit.name(work.fingerprint)): unit for unit in plan.units if unit not in failed}
    counted, wrong = tally(parts, work.output.fields, status=ours["status"], rank=ours["rank"])
    for path, why in wrong.items():
        unit = parts[path]
        failed[unit] = f"its part could not be read again: {why}"
        folder.record_failure(unit.name(work.fingerprint), str(unit), failed[unit])
        path.unlink(missing_ok=True)
    if failed:
        (folder.path / SUCCESS).unlink(missing_ok=True)
    else:
        folder.succeed({"fingerprint": work.fingerprint, "units": len(plan.units)} | asdict(counted))
    return counted
