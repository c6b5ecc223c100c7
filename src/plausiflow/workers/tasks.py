"""What happens to tasks, in which order workers get them, and the simplest place to run them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from plausiflow.errors import InvalidInputError, PlausiflowError

T = TypeVar("T")
R = TypeVar("R")

TRIES = 2
FAILED_STARTS = 3
"""So many workers that end before they have started, one after the other, are an error."""


class WorkerError(PlausiflowError, RuntimeError):
    """Workers cannot be started."""


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
            work: What is done with each task. It raises nothing; for other processes it can be imported. Each
                worker has its own copy and keeps it, and with it what the copy has loaded.
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
            yield Returned(number, alone(work, task, torch.get_default_dtype()))


class Queue:
    """Which tasks wait and which run, and how often each was tried.

    Workers stay with a group of tasks as long as there are some, because what they have loaded for one task
    is there for the next.
    """

    def __init__(self, tasks: Sequence[T], group: Group[T]) -> None:
        self.groups = [group(task) for task in tasks]
        self.running: set[int] = set()
        self.tries = Counter[int]()
        self._done = 0
        self._waiting: dict[Hashable, deque[int]] = {}
        for number in range(len(tasks)):
            self._waits(number)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self.groups) - len(self.running) - self._done

    @property
    def left(self) -> int:
        """How many are not done."""
        return len(self.groups) - self._done

    def take(self, last: int | None = None) -> int:
        """The next task for a worker: of the group of its last one, else of a group that nobody has."""
        group = None if last is None else self.groups[last]
        if last is None or group not in self._waiting:
            taken = {self.groups[number] for number in self.running}
            free = (name for name in self._waiting if name not in taken)
            group = next(free, next(iter(self._waiting)))
        number = self._waiting[group].popleft()
        if not self._waiting[group]:
            del self._waiting[group]
        self.running.add(number)
        self.tries[number] += 1
        return number

    def returned(self, number: int, result: R) -> Returned[R]:
        """A task is done."""
        self.running.remove(number)
        self._done += 1
        return Returned(number, result)

    def lost(self, number: int, reason: str) -> list[Lost]:
        """A worker has ended with its task, which waits again or is given up."""
        self.running.remove(number)
        if self.tries[number] < TRIES:
            self._waits(number)
            return []
        self._done += 1
        return [Lost(number, f"tried {TRIES} times, the last time {reason}")]

    def _waits(self, number: int) -> None:
        self._waiting.setdefault(self.groups[number], deque()).append(number)


def alone(work: Callable[[T], R], task: T, dtype: torch.dtype) -> R:
    """Do a task with one thread, in the precision of the process that asked for it."""
    threads, before = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(dtype)
    try:
        return work(task)
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(before)


def check_workers(workers: int) -> None:
    """Raise unless this is a number of workers."""
    if workers < 1:
        raise InvalidInputError(f"`workers` must be at least 1; got {workers}.")
