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
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError
from typing import Any, TypeVar

import torch

from plausiflow.errors import InvalidInputError
from plausiflow.workers.memory import keep_memory
from plausiflow.workers.tasks import (
    MAX_FAILED_STARTS,
    Event,
    Events,
    Group,
    Started,
    TaskQueue,
    WorkerError,
    check_workers,
    run_single_threaded,
)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Runs tasks in worker processes, which end with this process.

    Attributes:
        workers: Number of processes.
        log: File to which the output of the processes is appended; discarded by default.
    """

    workers: int
    log: Path = Path(os.devnull)

    def __post_init__(self) -> None:
        check_workers(self.workers)

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """Yield the events of the tasks as they happen; closing the generator kills the workers."""
        _check_importable(work)
        queue = TaskQueue(tasks, group)
        workers: list[_WorkerProcess] = []
        events: list[Event[R]] = []
        failed_starts = 0
        try:
            while queue.n_left:
                while len(workers) < min(self.workers, queue.n_left):
                    workers.append(_WorkerProcess(work, self.log))
                for worker in workers:
                    if worker.ready and worker.number is None and queue.n_waiting:
                        number = queue.take(worker.last)
                        worker.start_task(number, tasks[number])
                        events.append(Started(number))
                yield from events  # after the workers have received their next tasks
                if failed_starts >= MAX_FAILED_STARTS:
                    raise WorkerError(
                        "Worker processes end before they have started. In a script of your own, call this "
                        'under `if __name__ == "__main__":`. If memory is short, use fewer workers.'
                    )
                events = []
                for worker in _wait_for_messages(workers):
                    message, value = worker.receive()
                    if message == "returned":
                        events.append(queue.finish(worker.end_task(), value))
                    elif message == "ended":
                        workers.remove(worker)
                        if worker.number is not None:
                            events += queue.fail(worker.number, value)
                    failed_starts = 0 if worker.ready else failed_starts + 1
            yield from events
        finally:
            for worker in workers:
                worker.kill()


class _WorkerProcess:
    """A process that runs one task after the other, and this end of the pipe to it."""

    def __init__(self, work: Callable[[Any], Any], log: Path) -> None:
        context = get_context("spawn")
        self.pipe, child_end = context.Pipe()
        arguments = (child_end, str(log), torch.get_default_dtype())
        self.process = context.Process(target=_run_worker, args=arguments, daemon=True)
        self.ready = False  # Whether the process has started and received its work.
        self.number: int | None = None  # The task that it runs now; None while it is idle.
        self.last: int | None = None  # The task that it ran before.
        resource_tracker.ensure_running()  # its start would allow interrupts again
        with _single_threaded_children(), _uninterrupted_children():
            self.process.start()
        child_end.close()
        self._send(work)

    def start_task(self, number: int, task: object) -> None:
        """Send a task to the process."""
        self.number = number
        self._send(task)

    def end_task(self) -> int:
        """Mark the process as idle, and return the number of the task that it ran."""
        assert self.number is not None
        self.last, self.number = self.number, None
        return self.last

    def receive(self) -> tuple[str, Any]:
        """Return the next message without waiting: ``ready``, ``returned`` or ``ended``, and its value."""
        try:
            if self.pipe.poll():
                message, value = self.pipe.recv()
                if message == "unusable":
                    raise InvalidInputError(
                        f"Worker processes cannot import the function that they run: {value}. Put it into a "
                        "module that can be imported."
                    )
                self.ready = True
                return message, value
        except (EOFError, OSError):
            pass
        self.process.join(timeout=5)
        code = self.process.exitcode
        self.kill()
        return "ended", _describe_exit(code)

    def kill(self) -> None:
        """Kill the process and its children."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError, PermissionError):  # gone, or not yet the leader of its group
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _send(self, value: object) -> None:
        with suppress(OSError):  # the process has ended, which `receive` reports
            self.pipe.send(value)


@contextmanager
def _uninterrupted_children() -> Iterator[None]:
    """Let children start with interrupts blocked: Ctrl+C while they import would print their tracebacks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_messages(workers: Sequence[_WorkerProcess]) -> list[_WorkerProcess]:
    """Wait until workers have sent a message or ended, and return these."""
    # A child of a dead worker may keep its pipe open, so check the exit codes, too.
    ready = wait([worker.pipe for worker in workers], timeout=1.0)
    return [worker for worker in workers if worker.pipe in ready or worker.process.exitcode is not None]


def _run_worker(pipe: Connection, log: str, dtype: torch.dtype) -> None:
    """Run tasks in a worker process until the parent ends."""
    os.setpgrp()  # Ctrl+C goes to the parent alone, and children of a task are killed with the worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    faulthandler.enable()
    keep_memory()
    try:
        work = pipe.recv()
    except Exception as error:  # importing a user's module may raise anything
        pipe.send(("unusable", f"{type(error).__name__}: {error}"))
        return
    pipe.send(("ready", None))
    with suppress(EOFError):
        while True:
            pipe.send(("returned", run_single_threaded(work, pipe.recv(), dtype)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.killpg(os.getpgrp(), signal.SIGKILL)


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _describe_exit(code: int | None) -> str:
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
            f"Worker processes cannot import the function that they run: {error}. Define it in a module, not "
            "as a lambda or inside another function."
        ) from error
