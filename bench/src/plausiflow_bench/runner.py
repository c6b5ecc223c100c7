"""Runs the many tasks of a study; a run that is stopped, in whatever way, goes on where it was.

A task's row is one file under ``results/``, written under another name and renamed, so it is there whole or
not at all and no task is repeated or lost. ``manifest.json`` says what the rows were computed with; other
settings or other code get another folder. Tasks may be added: more data sets or folds extend a run.

The rows come back in the order of the tasks whatever the order in which they ended, and each task draws from
a generator seeded for itself, so tables differ in nothing but their times.
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

from plausiflow.core import local_seed
from plausiflow.errors import InvalidInputError
from plausiflow.persistence import write_atomically
from plausiflow.progress import progress_bar
from plausiflow.workers import Executor, Inline, LockedError, Lost, Returned, Started, locked
from plausiflow_bench.store import cpu_seconds, remove_leftovers, source_fingerprint
from plausiflow_bench.study import Row, environment

TIMES = ("task_wall_seconds", "task_cpu_seconds")
"""The columns that a runner adds and that differ from run to run."""

_LONGEST_ERROR = 1000
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row of a study's table that is still to be computed.

    Example:
        >>> Task(study="paper", dataset="moons", classifier="lr", method="PPCEF", fold=0, seed=1).key
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
        """A name for its file: readable, and different from every other task's."""
        words = [re.sub(r"[^A-Za-z0-9_]", "_", str(value))[:30] for value in astuple(self)]
        return "-".join([*words, hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:10]])

    def __str__(self) -> str:
        return f"{self.dataset} {self.classifier} {self.method} {self.fold}"


Work = Callable[[Task], Row]
Cost = Callable[[Task], float]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run has to show.

    Attributes:
        rows: One for each task, in their order; that of a task that failed has an ``error``.
        earlier: How many tasks an earlier run had finished.
        notes: What was odd in the folder.
    """

    rows: list[Row]
    earlier: int
    notes: list[str]

    @property
    def finished(self) -> list[Row]:
        """The rows of the tasks that did not fail."""
        return [row for row in self.rows if "error" not in row]

    @property
    def failed(self) -> list[Row]:
        """The rows of the tasks that failed."""
        return [row for row in self.rows if "error" in row]

    def __str__(self) -> str:
        now = len(self.finished) - self.earlier
        told = (
            f"{len(self.rows)} tasks: {self.earlier} finished earlier, {now} now, {len(self.failed)} failed."
        )
        remedy = [" Run it again to try those that failed."] if self.failed else []
        errors = [
            f"\n  {row['dataset']} {row['classifier']} {row['method']} {row['fold']}: {row['error']}"
            for row in self.failed
        ]
        return "".join([told, *remedy, *errors, *(f"\n  Note: {note}" for note in self.notes)])


def run(
    tasks: Sequence[Task],
    folder: Path,
    work: Work,
    *,
    executor: Executor | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
    cost: Cost | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Outcome:
    """Do every task that has no row in ``folder`` yet, and give all rows.

    Args:
        tasks: What to do.
        folder: Where rows are kept.
        work: What a task is; a function of a module, so that other processes can import it. Where it raises,
            the task's row has an ``error``, and the next run tries it again.
        executor: Where tasks run; in this process by default.
        settings: What the rows depend on besides the tasks and the code, as JSON has it.
        cost: About how long a task takes, in any unit: long ones start first, and count more in the estimate
            of the time left.
        fresh: Forget what the folder has.
        progress: Show a bar, on a terminal.
    """
    twice = [task.key for task, times in Counter(tasks).items() if times > 1]
    if twice:
        raise InvalidInputError(f"Every task must be there once; got again: {', '.join(twice)}.")
    folder = Path(folder)
    with _held(folder):
        results = folder / "results"
        _check_manifest(folder, _manifest(work, settings), fresh=fresh)
        remove_leftovers(folder)
        remove_leftovers(results)
        rows, notes = _rows(tasks, results)
        finished = {task for task, row in rows.items() if "error" not in row}
        left = in_order([task for task in tasks if task not in finished], cost)
        with (
            _shown(Pace(len(tasks), left, cost), progress) as show,
            closing((executor or Inline()).run(Attempt(work), left, _group)) as events,
        ):
            for event in events:
                task = left[event.number]
                if isinstance(event, Returned):
                    _write(task, event.result, results)
                elif isinstance(event, Lost):
                    _write(task, _failure(f"Lost: {event.reason}"), results)
                show(task, not isinstance(event, Started))
        rows, _ = _rows(tasks, results)
    return Outcome(rows=[rows[task] for task in tasks], earlier=len(finished), notes=notes)


def in_order(tasks: Sequence[Task], cost: Cost | None) -> list[Task]:
    """Data sets and folds together, for the models that their tasks share; the longest first, if known."""
    groups: dict[tuple[str, int], list[tuple[float, Task]]] = {}
    for task in tasks:
        groups.setdefault(_group(task), []).append((cost(task) if cost else 0.0, task))
    longest = sorted(groups.values(), key=lambda group: -sum(spent for spent, _ in group))
    return [task for group in longest for _, task in sorted(group, key=lambda pair: -pair[0])]


@dataclass(frozen=True)
class Attempt:
    """A task's work, timed; what it raises becomes a row.

    Attributes:
        work: What is tried.
    """

    work: Work

    def __call__(self, task: Task) -> Row:
        """The row of a task, with what it took."""
        wall, cpu = time.perf_counter(), cpu_seconds()
        try:
            with local_seed(task.seed, torch.device("cpu")):
                row = _checked(self.work(task), task)
        except (Exception, SystemExit) as error:  # somebody's models run here; the other tasks go on
            last = traceback.extract_tb(error.__traceback__)[-1]
            row = _failure(f"{type(error).__name__}: {error}", f"{Path(last.filename).name}:{last.lineno}")
        return row | dict(zip(TIMES, (time.perf_counter() - wall, cpu_seconds() - cpu), strict=True))


def _group(task: Task) -> tuple[str, int]:
    return task.dataset, task.fold


def _failure(reason: str, where: str = "") -> Row:
    return {"error": reason[:_LONGEST_ERROR], "error_at": where} | dict.fromkeys(TIMES, math.nan)


def _checked(row: Row, task: Task) -> Row:
    """The row, if it can be written and is about the task."""
    named = asdict(task)
    problems = [
        f"`{name}` must be a text or a number, got a {type(value).__name__}"
        for name, value in row.items()
        if not isinstance(value, str | int | float)
    ]
    problems += [
        f"`{name}` must be {named[name]!r} as in the task, got {value!r}"
        for name, value in row.items()
        if name in named and named[name] != value
    ]
    if problems:
        raise InvalidInputError("; ".join(problems) + ". Look at the function that makes the row.")
    json.dumps(row)
    return row


def _rows(tasks: Sequence[Task], results: Path) -> tuple[dict[Task, Row], list[str]]:
    """The rows that are there, and a note about each file that cannot be read, which is put aside."""
    rows, notes = {}, []
    for task in tasks:
        path = results / f"{task.key}.json"
        if not path.exists():
            continue
        try:
            rows[task] = _read(path, task)
        except (OSError, ValueError, RecursionError) as error:
            aside = path.replace(path.with_suffix(".unreadable"))
            reason = f"{type(error).__name__}: {error}"
            notes.append(
                f"{path.name} could not be read ({reason}), is now {aside.name}; its task ran again."
            )
    return rows, notes


def _read(path: Path, task: Task) -> Row:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no JSON")

    row = json.loads(path.read_bytes(), parse_constant=refuse)
    if not isinstance(row, dict) or any(isinstance(value, list | dict) for value in row.values()):
        raise ValueError("not a flat object")
    if {name: row.get(name) for name in asdict(task)} != asdict(task):
        raise ValueError("the row of another task")
    return {name: math.nan if value is None else value for name, value in row.items()}


def _write(task: Task, row: Row, results: Path) -> None:
    """A row with what it is about and where it comes from; numbers that are none become null."""
    whole: Row = asdict(task) | row | environment()
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in whole.items()}
    write_atomically(results / f"{task.key}.json", json.dumps(plain, indent=1).encode() + b"\n")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Be the only run in a folder."""
    try:
        with locked(folder / "run.lock", wait=False):
            yield
    except LockedError as error:
        raise InvalidInputError(
            f"{folder} is in use by {error}. Wait until that run has ended, or take another folder."
        ) from error


def _manifest(work: Work, settings: Mapping[str, object]) -> dict[str, object]:
    """What rows of one folder have in common."""
    name = getattr(work, "__qualname__", type(work).__qualname__)
    made: dict[str, object] = {"work": f"{work.__module__}.{name}"}
    made |= {f"settings.{key}": value for key, value in settings.items()}
    made |= {key: value for key, value in environment().items() if key != "commit"}
    try:
        plain: dict[str, object] = json.loads(json.dumps(made | {"source": source_fingerprint()}))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`settings` must be what JSON can hold: {error}.") from error
    return plain


def _check_manifest(folder: Path, manifest: Mapping[str, object], *, fresh: bool) -> None:
    """Write what the folder's rows are computed with, or raise where it holds rows of another run."""
    path, results = folder / "manifest.json", folder / "results"
    old = [file for file in results.glob("*.json") if re.search(r"-[0-9a-f]{10}\.json$", file.name)]
    if fresh:
        for file in old:
            file.unlink()
    elif path.exists() or old:
        differences = _differences(path, manifest)
        if differences:
            raise InvalidInputError(
                f"{folder} holds another run, which cannot be continued: {'; '.join(differences)}. Take "
                "another folder, start over with `--fresh`, or run with what that one had."
            )
        return
    said = {"commit": environment()["commit"], "started": time.strftime("%F %T")}
    write_atomically(path, json.dumps({**manifest, "information": said}, indent=1).encode() + b"\n")


def _differences(path: Path, manifest: Mapping[str, object]) -> list[str]:
    """Where a stored manifest is not this one."""
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


class Pace:
    """How far a run is, how fast it goes, what runs, and how long it will take.

    Args:
        total: How many tasks there are.
        left: Those of them that are not done yet.
        cost: About how long each takes, in any unit.
    """

    def __init__(self, total: int, left: Sequence[Task], cost: Cost | None = None) -> None:
        self.total, self.left = total, {task: cost(task) if cost else 1.0 for task in left}
        self.done = total - len(left)
        self.running: list[Task] = []
        self._tasks, self._cost = 0, 0.0

    def started(self, task: Task) -> None:
        """A task runs, perhaps again."""
        if task not in self.running:
            self.running.append(task)

    def ended(self, task: Task) -> None:
        """A task is done, well or not."""
        self.running.remove(task)
        self.done += 1
        self._tasks += 1
        self._cost += self.left.pop(task)

    def told(self, seconds: float) -> str:
        """All this in words, so many seconds after the start."""
        names = ", ".join(map(str, self.running[:2])) + ", …" * (len(self.running) > 2)
        told = f"{self.done}/{self.total}"
        if self._cost and seconds:
            rest = seconds * sum(self.left.values()) / self._cost
            unit, size = next((unit for unit in _UNITS if rest >= unit[1]), _UNITS[-1])
            told += f", {60 * self._tasks / seconds:.1f} a minute, about {rest / size:.0f} {unit} left"
        return f"{told}; {names}" if names else told


@contextmanager
def _shown(pace: Pace, progress: bool) -> Iterator[Callable[[Task, bool], None]]:
    """``show(task, ended)`` puts a task that has started or ended on the bar."""
    start = time.monotonic()
    with progress_bar("Tasks", pace.total, show=progress) as advance:
        advance(pace.done, pace.told(0.0))

        def show(task: Task, ended: bool) -> None:
            (pace.ended if ended else pace.started)(task)
            advance(int(ended), pace.told(time.monotonic() - start))

        yield show
