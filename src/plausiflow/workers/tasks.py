"""Events of tasks, the queue from which workers get them, and the executor that needs no workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from plausiflow.errors import InvalidInputError, PlausiflowError

T = TypeVar("T")
R = TypeVar("R")

MAX_TRIES = 2
MAX_FAILED_STARTS = 3
"""Workers that may fail to start, one after the other, before the run fails."""


class WorkerError(PlausiflowError, RuntimeError):
    """Workers cannot be started."""


@dataclass(frozen=True)
class Started:
    """A task has started; it starts again when it is tried again."""

    number: int


@dataclass(frozen=True)
class Returned(Generic[R]):
    """A task has returned its result."""

    number: int
    result: R


@dataclass(frozen=True)
class Lost:
    """A task was given up: its worker died every time it was tried."""

    number: int
    reason: str


Event = Started | Returned[R] | Lost
Events = Generator[Event[R], None, None]
Group = Callable[[T], Hashable]


class Executor(Protocol):
    """Runs tasks in this process, in other processes or on other machines."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """Yield the events of the tasks as they happen; closing the generator stops running tasks.

        Args:
            work: The function that is called with each task. It must not raise, and must be importable where
                it runs in another process. Each worker keeps its own copy, with everything the copy loaded.
            tasks: The tasks, in the order in which they should start. Events refer to them by position.
            group: Returns the group of a task. Tasks of one group run faster in the same worker.
        """
        ...


@dataclass(frozen=True)
class Inline:
    """Runs tasks in this process, one after the other."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """Yield the events of the tasks as they happen."""
        for number, task in enumerate(tasks):
            yield Started(number)
            yield Returned(number, run_single_threaded(work, task, torch.get_default_dtype()))


class TaskQueue:
    """Waiting and running tasks, and how often each was tried.

    A worker stays with a group of tasks as long as tasks of the group wait, because what it loaded for one
    task serves the next.
    """

    def __init__(self, tasks: Sequence[T], group: Group[T]) -> None:
        self.groups = [group(task) for task in tasks]
        self.running: set[int] = set()
        self.tries = Counter[int]()
        self._n_done = 0
        self._waiting: dict[Hashable, deque[int]] = {}
        for number in range(len(tasks)):
            self._append(number)

    @property
    def n_waiting(self) -> int:
        """Number of tasks that wait for a worker."""
        return len(self.groups) - len(self.running) - self._n_done

    @property
    def n_left(self) -> int:
        """Number of tasks that are not done."""
        return len(self.groups) - self._n_done

    def take(self, last: int | None = None) -> int:
        """Take the next task, from the group of the last one if tasks of it wait, else from a free group."""
        group = None if last is None else self.groups[last]
        if last is None or group not in self._waiting:
            busy = {self.groups[number] for number in self.running}
            free = (name for name in self._waiting if name not in busy)
            group = next(free, next(iter(self._waiting)))
        number = self._waiting[group].popleft()
        if not self._waiting[group]:
            del self._waiting[group]
        self.running.add(number)
        self.tries[number] += 1
        return number

    def finish(self, number: int, result: R) -> Returned[R]:
        """Record that a task returned a result."""
        self.running.remove(number)
        self._n_done += 1
        return Returned(number, result)

    def fail(self, number: int, reason: str) -> list[Lost]:
        """Record that a worker died with its task; the task waits again or is given up."""
        self.running.remove(number)
        if self.tries[number] < MAX_TRIES:
            self._append(number)
            return []
        self._n_done += 1
        return [Lost(number, f"tried {MAX_TRIES} times, the last time {reason}")]

    def _append(self, number: int) -> None:
        self._waiting.setdefault(self.groups[number], deque()).append(number)


def run_single_threaded(work: Callable[[T], R], task: T, dtype: torch.dtype) -> R:
    """Call ``work`` with one torch thread and ``dtype`` as the default dtype; restore both afterwards."""
    threads, before = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    try:
        return work(task)
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(before)


def check_workers(workers: int) -> None:
    """Raise unless the number of workers is positive."""
    if workers < 1:
        raise InvalidInputError(f"`workers` must be at least 1; got {workers}.")
