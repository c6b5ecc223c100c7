"""Tasks in worker processes of this machine."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError
from typing import Any, TypeVar

import torch

from plausiflow.errors import InvalidInputError
from plausiflow.workers.memory import keep_memory
from plausiflow.workers.tasks import (
    FAILED_STARTS,
    Event,
    Events,
    Group,
    Queue,
    Started,
    WorkerError,
    alone,
    check_workers,
)

T = TypeVar("T")
R = TypeVar("R")

NO_START = (
    "Worker processes end before they have started. In a script of your own, call this under "
    '`if __name__ == "__main__":`; where memory is short, use fewer workers.'
)


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
        check_workers(self.workers)

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens; closing it kills the workers."""
        _check_importable(work)
        queue = Queue(tasks, group)
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
    keep_memory()
    try:
        work = pipe.recv()
    except Exception as error:  # whatever importing somebody's module raises
        pipe.send(("unusable", f"{type(error).__name__}: {error}"))
        return
    pipe.send(("ready", None))
    with suppress(EOFError):
        while True:
            pipe.send(("returned", alone(work, pipe.recv(), dtype)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(os.getpgrp(), signal.SIGKILL)


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


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None or code >= 0:
        return f"its process ended with status {code}"
    name = signal.Signals(-code).name
    hint = ", as when memory runs out" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"


def _check_importable(work: Callable[[Any], Any]) -> None:
    try:
        ForkingPickler.dumps(work)
    except (PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            f"Worker processes must be able to import what they do; they cannot: {error}. Give a function of "
            "a module, not a lambda or one that is defined inside another function."
        ) from error
