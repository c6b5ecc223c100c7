"""A runner for the many tasks of a study. A run that was stopped continues where it was.

The row of each task is one file under ``results/``, written atomically, so that no task is lost or repeated.
``manifest.json`` describes what the rows were computed with; a folder accepts only rows of the same settings
and the same code. Tasks may be added later: more data sets or folds extend a run.

Rows are returned in the order of the tasks, and each task seeds its own generator. The rows therefore do not
depend on the order of execution, except for their times.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from plausiflow.atomic import remove_leftovers, write_atomically
from plausiflow.core import local_seed
from plausiflow.errors import InvalidInputError
from plausiflow.progress import progress_bar
from plausiflow.workers import Executor, Inline, LockedError, Lost, Returned, Started, hold_lock
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment, finite_or_none
from plausiflow_bench.harness.store import source_fingerprint

TIME_COLUMNS = ("task_wall_seconds", "task_cpu_seconds")
"""The columns that the runner adds; they differ from run to run."""

_MAX_ERROR_LENGTH = 1000
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True, kw_only=True)
class StudyTask:
    """One row of a study's table that is to be computed.

    Example:
        >>> StudyTask(study="paper", dataset="moons", classifier="lr", method="PPCEF", fold=0, seed=1).key
        'paper-moons-lr-PPCEF-0-1-4b3a87687f'
    """

    study: str
    dataset: str
    classifier: str
    method: str
    fold: int
    seed: int

    @property
    def key(self) -> str:
        """The stem of the task's file name: readable and unique."""
        words = [re.sub(r"[^A-Za-z0-9_]", "_", str(value))[:30] for value in astuple(self)]
        return "-".join([*words, hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:10]])

    def __str__(self) -> str:
        return f"{self.dataset} {self.classifier} {self.method} {self.fold}"


Work = Callable[[StudyTask], Row]
Cost = Callable[[StudyTask], float]


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The result of a run.

    Attributes:
        rows: One row per task, in the order of the tasks. The row of a failed task has an ``error``.
        earlier: The number of tasks that an earlier run had finished.
        notes: Remarks about files of the folder that could not be read.
    """

    rows: list[Row]
    earlier: int
    notes: list[str]

    @property
    def finished(self) -> list[Row]:
        """The rows of the tasks that succeeded."""
        return [row for row in self.rows if "error" not in row]

    @property
    def failed(self) -> list[Row]:
        """The rows of the tasks that failed."""
        return [row for row in self.rows if "error" in row]

    def __str__(self) -> str:
        now = len(self.finished) - self.earlier
        counts = (
            f"{len(self.rows)} tasks: {self.earlier} finished earlier, {now} now, {len(self.failed)} failed."
        )
        remedy = [" Run it again to retry the failed tasks."] if self.failed else []
        errors = [
            f"\n  {row['dataset']} {row['classifier']} {row['method']} {row['fold']}: {row['error']}"
            for row in self.failed
        ]
        return "".join([counts, *remedy, *errors, *(f"\n  Note: {note}" for note in self.notes)])


def run(
    tasks: Sequence[StudyTask],
    folder: Path,
    work: Work,
    *,
    executor: Executor | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    cost: Cost | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> RunOutcome:
    """Run every task that has no row in ``folder`` yet, and return the rows of all tasks.

    Args:
        tasks: The tasks, each once.
        folder: Where rows are stored.
        work: Computes the row of a task. It must be importable by other processes. If it raises, the row of
            the task has an ``error``, and the next run tries the task again.
        executor: Where tasks run. None means this process.
        settings: JSON values that the rows depend on, besides the tasks and the code.
        cost: The approximate duration of a task in any unit. Long tasks start first, and the estimate of the
            remaining time is weighted by cost.
        fresh: Whether to delete the rows of the folder first.
        progress: Whether to show a progress bar on a terminal.
    """
    repeated = [task.key for task, times in Counter(tasks).items() if times > 1]
    if repeated:
        raise InvalidInputError(f"Every task must be given once; got repeatedly: {', '.join(repeated)}.")
    folder = Path(folder)
    with _locked_folder(folder):
        results = folder / "results"
        _check_manifest(folder, _manifest(work, settings), fresh=fresh)
        remove_leftovers(folder)
        remove_leftovers(results)
        rows, notes = _read_rows(tasks, results)
        finished = {task for task, row in rows.items() if "error" not in row}
        left = schedule([task for task in tasks if task not in finished], cost)
        with (
            _progress(RunProgress(len(tasks), left, cost), progress) as show,
            closing((executor or Inline()).run(TimedWork(work), left, _group)) as events,
        ):
            for event in events:
                task = left[event.number]
                if isinstance(event, Returned):
                    _write_row(task, event.result, results)
                elif isinstance(event, Lost):
                    _write_row(task, _error_row(f"Lost: {event.reason}"), results)
                show(task, not isinstance(event, Started))
        rows, _ = _read_rows(tasks, results)
    return RunOutcome(rows=[rows[task] for task in tasks], earlier=len(finished), notes=notes)


def schedule(tasks: Sequence[StudyTask], cost: Cost | None) -> list[StudyTask]:
    """Order tasks: those of one data set and fold together, as they share models, and the longest first."""
    groups: dict[tuple[str, int], list[tuple[float, StudyTask]]] = {}
    for task in tasks:
        groups.setdefault(_group(task), []).append((cost(task) if cost else 0.0, task))
    longest = sorted(groups.values(), key=lambda group: -sum(spent for spent, _ in group))
    return [task for group in longest for _, task in sorted(group, key=lambda pair: -pair[0])]


@dataclass(frozen=True)
class TimedWork:
    """The work of a task with its times; an exception becomes a row with an ``error``.

    Attributes:
        work: Computes the row of a task.
    """

    work: Work

    def __call__(self, task: StudyTask) -> Row:
        """Return the row of a task, with its times."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        try:
            with local_seed(task.seed, torch.device("cpu")):
                row = _check_row(self.work(task), task)
        except (Exception, SystemExit) as error:  # a failed task must not stop the others
            last = traceback.extract_tb(error.__traceback__)[-1]
            row = _error_row(f"{type(error).__name__}: {error}", f"{Path(last.filename).name}:{last.lineno}")
        return row | dict(zip(TIME_COLUMNS, (time.perf_counter() - wall, cpu_seconds() - cpu), strict=True))


def _group(task: StudyTask) -> tuple[str, int]:
    return task.dataset, task.fold


def _error_row(reason: str, where: str = "") -> Row:
    return {"error": reason[:_MAX_ERROR_LENGTH], "error_at": where} | dict.fromkeys(TIME_COLUMNS, math.nan)


def _check_row(row: Row, task: StudyTask) -> Row:
    """Return the row, or raise if it cannot be written or belongs to another task."""
    named = asdict(task)
    problems = [
        f"`{name}` must be a text or a number; got a {type(value).__name__}"
        for name, value in row.items()
        if not isinstance(value, str | int | float)
    ]
    problems += [
        f"`{name}` must be {named[name]!r} as in the task; got {value!r}"
        for name, value in row.items()
        if name in named and named[name] != value
    ]
    if problems:
        raise InvalidInputError(". ".join(problems) + ". Check the function that makes the row.")
    json.dumps(row)
    return row


def _read_rows(tasks: Sequence[StudyTask], results: Path) -> tuple[dict[StudyTask, Row], list[str]]:
    """Return the stored rows, and a note for each unreadable file, which is renamed."""
    rows, notes = {}, []
    for task in tasks:
        path = results / f"{task.key}.json"
        if not path.exists():
            continue
        try:
            rows[task] = _read_row(path, task)
        except (OSError, ValueError, RecursionError) as error:
            renamed = path.replace(path.with_suffix(".unreadable"))
            reason = f"{type(error).__name__}: {error}"
            notes.append(
                f"{path.name} could not be read ({reason}) and is now {renamed.name}; its task ran again."
            )
    return rows, notes


def _read_row(path: Path, task: StudyTask) -> Row:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is not valid JSON")

    row = json.loads(path.read_bytes(), parse_constant=refuse)
    if not isinstance(row, dict) or any(isinstance(value, list | dict) for value in row.values()):
        raise ValueError("not a flat object")
    if {name: row.get(name) for name in asdict(task)} != asdict(task):
        raise ValueError("the row of another task")
    return {name: math.nan if value is None else value for name, value in row.items()}


def _write_row(task: StudyTask, row: Row, results: Path) -> None:
    """Write a row with its task, the commit and the versions; numbers that are not finite become null."""
    plain = finite_or_none(asdict(task) | row | environment())
    write_atomically(results / f"{task.key}.json", json.dumps(plain, indent=1).encode() + b"\n")


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    try:
        with hold_lock(folder / "run.lock", wait=False):
            yield
    except LockedError as error:
        raise InvalidInputError(
            f"{folder} is in use by {error}. Wait until that run has ended, or use another folder."
        ) from error


def _manifest(work: Work, settings: Mapping[str, object]) -> dict[str, object]:
    """Return what all rows of one folder have in common."""
    name = getattr(work, "__qualname__", type(work).__qualname__)
    manifest: dict[str, object] = {"work": f"{work.__module__}.{name}"}
    manifest |= {f"settings.{key}": value for key, value in settings.items()}
    manifest |= {key: value for key, value in environment().items() if key != "commit"}
    try:
        plain: dict[str, object] = json.loads(json.dumps(manifest | {"source": source_fingerprint()}))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`settings` must be JSON values: {error}.") from error
    return plain


def _check_manifest(folder: Path, manifest: Mapping[str, object], *, fresh: bool) -> None:
    """Write the manifest of a new folder, or raise if the folder has rows of another run."""
    path, results = folder / "manifest.json", folder / "results"
    old = [file for file in results.glob("*.json") if re.search(r"-[0-9a-f]{10}\.json$", file.name)]
    if fresh:
        for file in old:
            file.unlink()
    elif path.exists() or old:
        differences = _differences(path, manifest)
        if differences:
            raise InvalidInputError(
                f"{folder} holds another run, which cannot be continued: {'; '.join(differences)}. Use "
                "another folder, start over with `--fresh`, or repeat the settings of that run."
            )
        return
    information = {"commit": environment()["commit"], "started": time.strftime("%F %T")}
    write_atomically(path, json.dumps({**manifest, "information": information}, indent=1).encode() + b"\n")


def _differences(path: Path, manifest: Mapping[str, object]) -> list[str]:
    """Describe the differences between a stored manifest and this one."""
    try:
        stored = json.loads(path.read_bytes())
        information = stored.pop("information")
        commits = f"commit {information['commit']} there, {environment()['commit']} here"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"its manifest.json cannot be read ({type(error).__name__}: {error})"]
    differ = [name for name in {**stored, **manifest} if stored.get(name) != manifest.get(name)]
    return [
        f"the code has changed ({commits})"
        if name == "source"
        else f"{name} is {stored.get(name)!r} there, {manifest.get(name)!r} here"
        for name in differ
    ]


class RunProgress:
    """The progress of a run: finished and running tasks, speed, and an estimate of the remaining time.

    Args:
        total: The number of all tasks.
        left: The tasks that are not finished yet.
        cost: The approximate duration of a task, in any unit.
    """

    def __init__(self, total: int, left: Sequence[StudyTask], cost: Cost | None = None) -> None:
        self.total, self.left = total, {task: cost(task) if cost else 1.0 for task in left}
        self.done = total - len(left)
        self.running: list[StudyTask] = []
        self._tasks, self._cost = 0, 0.0

    def start(self, task: StudyTask) -> None:
        """Note that a task has started, perhaps for the second time."""
        if task not in self.running:
            self.running.append(task)

    def finish(self, task: StudyTask) -> None:
        """Note that a task has ended, with or without an error."""
        self.running.remove(task)
        self.done += 1
        self._tasks += 1
        self._cost += self.left.pop(task)

    def describe(self, seconds: float) -> str:
        """Return the progress as text, ``seconds`` after the start."""
        names = ", ".join(map(str, self.running[:2])) + ", …" * (len(self.running) > 2)
        text = f"{self.done}/{self.total}"
        if self._cost and seconds:
            rest = seconds * sum(self.left.values()) / self._cost
            unit, size = next((unit for unit in _UNITS if rest >= unit[1]), _UNITS[-1])
            text += f", {60 * self._tasks / seconds:.1f} a minute, about {rest / size:.0f} {unit} left"
        return f"{text}; {names}" if names else text


@contextmanager
def _progress(state: RunProgress, visible: bool) -> Iterator[Callable[[StudyTask, bool], None]]:
    """Show a bar; ``show(task, ended)`` updates it when a task has started or ended."""
    start = time.monotonic()
    with progress_bar("Tasks", state.total, show=visible) as advance:
        advance(state.done, state.describe(0.0))

        def show(task: StudyTask, ended: bool) -> None:
            (state.finish if ended else state.start)(task)
            advance(int(ended), state.describe(time.monotonic() - start))

        yield show
