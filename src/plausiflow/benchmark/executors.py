"""Where tasks run: in this process, in worker processes, or on Ray; with one thread each, everywhere.

A worker does one task at a time, so that a worker that dies (a crash in compiled code, memory that runs out)
takes only its own task with it. That one is tried once more. Workers stay with a group of tasks as long as
there are some, because what they have loaded for one task is there for the next.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError
from typing import Any, Generic, Protocol, TypeVar

import torch

from plausiflow.errors import InvalidInputError, MissingExtraError, PlausiflowError

T = TypeVar("T")
R = TypeVar("R")

TRIES = 2
FAILED_STARTS = 3
NO_START = (
    "Worker processes end before they have started. In a script of your own, call this under "
    '`if __name__ == "__main__":`; where memory is short, use fewer workers.'
)


class WorkerError(PlausiflowError, RuntimeError):
    """Worker processes cannot be started."""


@dataclass(frozen=True)
class Started:
    """The task with this number has begun; it begins again when it is tried again."""

    number: int


@dataclass(frozen=True)
class Returned(Generic[R]):
    """The task with this number is done."""

    number: int
    result: R


@dataclass(frozen=True)
class Lost:
    """The task with this number ended its worker every time it was tried."""

    number: int
    reason: str


Event = Started | Returned[R] | Lost
Events = Generator[Event[R], None, None]
Group = Callable[[T], Hashable]


class Executor(Protocol):
    """Runs tasks somewhere."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens; closing it stops what still runs.

        Args:
            work: What is done with each task. It raises nothing; for other processes it can be imported.
            tasks: In the order in which they should start; an event has a task's number in it.
            group: Tasks with the same value gain from running in the same process.
        """
        ...


@dataclass(frozen=True)
class Inline:
    """In this process, one after the other."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens."""
        for number, task in enumerate(tasks):
            yield Started(number)
            yield Returned(number, _alone(work, task, torch.get_default_dtype()))


@dataclass(frozen=True, kw_only=True)
class Processes:
    """In worker processes, which end when this process does.

    Attributes:
        workers: How many.
        log: The file that what they print is added to; by default it is thrown away.
    """

    workers: int
    log: Path = Path(os.devnull)

    def __post_init__(self) -> None:
        _check_workers(self.workers)

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens; closing it kills the workers."""
        _check_importable(work)
        queue = _Queue(tasks, group)
        crew: list[_Worker] = []
        events: list[Event[R]] = []
        failed_starts = 0
        try:
            while queue.left:
                while len(crew) < min(self.workers, queue.left):
                    crew.append(_Worker(work, self.log))
                for worker in crew:
                    if worker.ready and worker.number is None and queue.waiting:
                        number = queue.take(worker.last)
                        worker.give(number, tasks[number])
                        events.append(Started(number))
                yield from events  # after the workers have got their next tasks
                if failed_starts >= FAILED_STARTS:
                    raise WorkerError(NO_START)
                events = []
                for worker in _with_news(crew):
                    news, value = worker.listen()
                    if news == "returned":
                        events.append(queue.returned(worker.free(), value))
                    elif news == "ended":
                        crew.remove(worker)
                        if worker.number is not None:
                            events += queue.lost(worker.number, value)
                    failed_starts = 0 if worker.ready else failed_starts + 1
            yield from events
        finally:
            for worker in crew:
                worker.kill()


@dataclass(frozen=True, kw_only=True)
class Ray:
    """On Ray: a cluster, or one that is started on this machine.

    Attributes:
        workers: Most tasks at a time; by default as many as there are processors.
        address: Of a running cluster, such as ``auto``; by default one is started, and stopped afterwards.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        _check_workers(1 if self.workers is None else self.workers)

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens; closing it cancels what still runs."""
        try:
            ray = import_module("ray")
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "Running tasks on Ray") from error
        ours = not ray.is_initialized()
        if ours:
            ray.init(**_ray_settings(self.address, self.workers))
        remote = ray.remote(num_cpus=1, max_retries=0)(_alone).remote
        most = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        queue = _Queue(tasks, group)
        running: dict[Any, int] = {}
        try:
            while queue.left:
                while queue.waiting and len(running) < most:
                    number = queue.take()
                    running[remote(work, tasks[number], torch.get_default_dtype())] = number
                    yield Started(number)
                (reference,), _ = ray.wait(list(running), num_returns=1)
                number = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    yield from queue.lost(number, str(cause).strip().partition("\n")[0])
                else:
                    yield queue.returned(number, result)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if ours:
                ray.shutdown()


class _Queue:
    """Which tasks wait and which run, and how often each was tried."""

    def __init__(self, tasks: Sequence[T], group: Group[T]) -> None:
        self.groups = [group(task) for task in tasks]
        self.waiting = list(range(len(tasks)))
        self.running: set[int] = set()
        self.tries = Counter[int]()

    @property
    def left(self) -> int:
        """How many are not done."""
        return len(self.waiting) + len(self.running)

    def take(self, last: int | None = None) -> int:
        """The next task for a worker: of the group of its last one, else of a group that nobody has."""
        taken = {self.groups[number] for number in self.running}

        def rank(number: int) -> int:
            if last is not None and self.groups[number] == self.groups[last]:
                return 0
            return 2 if self.groups[number] in taken else 1

        number = min(self.waiting, key=rank)
        self.waiting.remove(number)
        self.running.add(number)
        self.tries[number] += 1
        return number

    def returned(self, number: int, result: R) -> Returned[R]:
        """A task is done."""
        self.running.remove(number)
        return Returned(number, result)

    def lost(self, number: int, reason: str) -> list[Lost]:
        """A worker has ended with its task, which waits again or is given up."""
        self.running.remove(number)
        if self.tries[number] < TRIES:
            self.waiting.append(number)
            return []
        return [Lost(number, f"tried {TRIES} times, the last time {reason}")]


class _Worker:
    """A process that does one task after the other, and this end of the pipe to it.

    Attributes:
        ready: It has what it needs.
        number: The task that it has; none while it has nothing to do.
        last: The task that it had before.
    """

    def __init__(self, work: Callable[[Any], Any], log: Path) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, str(log), torch.get_default_dtype())
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.ready = False
        self.number: int | None = None
        self.last: int | None = None
        with _children_with_one_thread():
            self.process.start()
        theirs.close()
        self._send(work)

    def give(self, number: int, task: object) -> None:
        """Let it do a task."""
        self.number = number
        self._send(task)

    def free(self) -> int:
        """It has no task any more; gives the one that it had."""
        assert self.number is not None
        self.last, self.number = self.number, None
        return self.last

    def listen(self) -> tuple[str, Any]:
        """What it says, without waiting: ``ready``, ``returned`` and what, or ``ended`` and why."""
        try:
            if self.pipe.poll():
                news, value = self.pipe.recv()
                if news == "unusable":
                    raise InvalidInputError(
                        f"Worker processes must be able to import what they do; they cannot: {value}. Put "
                        "the function into a module that can be imported."
                    )
                self.ready = True
                return news, value
        except (EOFError, OSError):
            pass
        self.process.join(timeout=5)
        code = self.process.exitcode
        self.kill()
        return "ended", _ending(code)

    def kill(self) -> None:
        """End it, and the processes that it has started."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError, PermissionError):  # not there, or not yet a group of its own
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _send(self, value: object) -> None:
        with suppress(OSError):  # it has ended, which listening will say
            self.pipe.send(value)


def _with_news(crew: Sequence[_Worker]) -> list[_Worker]:
    """Wait until some have something to say or have ended."""
    # A process that a dead worker has left behind may hold its pipe open; so do not wait for pipes alone.
    ready = wait([worker.pipe for worker in crew], timeout=1.0)
    return [worker for worker in crew if worker.pipe in ready or worker.process.exitcode is not None]


def _serve(pipe: Connection, log: str, dtype: torch.dtype) -> None:
    """What a worker process does, until its parent is gone."""
    os.setpgrp()  # so that Ctrl-C is the parent's business, and that what a task starts ends with its worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    faulthandler.enable()
    try:
        work = pipe.recv()
    except Exception as error:  # whatever importing somebody's module raises
        pipe.send(("unusable", f"{type(error).__name__}: {error}"))
        return
    pipe.send(("ready", None))
    with suppress(EOFError):
        while True:
            pipe.send(("returned", _alone(work, pipe.recv(), dtype)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _alone(work: Callable[[T], R], task: T, dtype: torch.dtype) -> R:
    """Do a task with one thread, in the precision of the process that asked for it."""
    threads, before = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    try:
        return work(task)
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(before)


@contextmanager
def _children_with_one_thread() -> Iterator[None]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _ray_settings(address: str | None, workers: int | None) -> dict[str, Any]:
    """For a cluster that runs, or for one that is started here, is small and keeps to itself."""
    variables = {"OMP_NUM_THREADS": "1"}
    if address is not None:
        return {"address": address, "log_to_driver": False, "runtime_env": {"env_vars": variables}}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    small = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    return small | {"log_to_driver": False, "runtime_env": {"env_vars": variables}}


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    hint = ", as when memory runs out" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise InvalidInputError(f"`workers` must be at least 1; got {workers}.")


def _check_importable(work: Callable[[Any], Any]) -> None:
    try:
        ForkingPickler.dumps(work)
    except (PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"Worker processes must be able to import what they do; they cannot: {error}. Give a function of "
            "a module, not a lambda or one that is defined inside another function."
        ) from error
