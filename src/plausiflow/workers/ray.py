"""Tasks on Ray: actors of a cluster, or of one that is started on this machine.

An actor is a worker as a process is one: it keeps what it has loaded, does one task at a time, and when it
dies another takes its place. Ray itself restarts and retries nothing, so that what is tried again, and how
often, is the same everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import torch

from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.workers.memory import keep_memory
from plausiflow.workers.tasks import (
    FAILED_STARTS,
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


@dataclass(frozen=True, kw_only=True)
class Ray:
    """On Ray: a cluster, or one that is started on this machine.

    Attributes:
        workers: Most tasks at a time; by default as many as the processors and GPUs of the cluster are for.
        address: Of a running cluster, such as ``auto``; by default one is started, and stopped afterwards.
        gpus: Each worker's share of GPUs: 1, or 0.5 where two workers share one; 0 for none.
    """

    workers: int | None = None
    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_workers(1 if self.workers is None else self.workers)
        if not 0 <= self.gpus < float("inf"):
            raise InvalidInputError(f"`gpus` must be a number of 0 or more, such as 1; got {self.gpus}.")

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """What happens to the tasks, as it happens; closing it kills the workers."""
        try:
            ray = import_module("ray")
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "Running tasks on Ray") from error
        with ExitStack() as afterwards:
            if not ray.is_initialized():
                ray.init(**_settings(self.address, self.workers))
                afterwards.callback(ray.shutdown)
            most = self._size(ray.cluster_resources())
            crew, queue = _Crew(ray, work, self.gpus), Queue(tasks, group)
            afterwards.callback(crew.kill)
            while queue.left:
                crew.grow(min(most, queue.left))
                for actor, last in crew.idle():
                    if queue.waiting:
                        number = queue.take(last)
                        crew.give(actor, number, tasks[number])
                        yield Started(number)
                told, result, reason = crew.listen()
                if told is not None and reason is None:
                    yield queue.returned(told, result)
                elif told is not None and reason is not None:
                    yield from queue.lost(told, reason)

    def _size(self, resources: dict[str, float]) -> int:
        """How many workers there are to be; a cluster that is not ours may grow to have room for them."""
        if self.workers is not None and (self.address is not None or not self.gpus):
            return self.workers
        room = resources.get("CPU", 1.0)
        if self.gpus:
            room = min(room, resources.get("GPU", 0.0) / self.gpus)
            if room < 1:
                raise WorkerError(
                    f"Each worker asks for {self.gpus:g} GPU, and the cluster has "
                    f"{resources.get('GPU', 0.0):g}. Add nodes with GPUs, or ask for none."
                )
        return min(self.workers or sys.maxsize, max(1, int(room)))


class _Actor:
    """What runs on Ray: keeps the work, and does it."""

    def __init__(self, work: Callable[[Any], Any], dtype: torch.dtype) -> None:
        self.work, self.dtype = work, dtype
        keep_memory()

    def ready(self) -> None:
        """It has what it needs."""

    def do(self, task: object) -> Any:  # noqa: ANN401
        """A task's result."""
        return alone(self.work, task, self.dtype)


class _Crew:
    """The actors, what each does now, and what it did before."""

    def __init__(self, ray: Any, work: Callable[[Any], Any], gpus: float) -> None:  # noqa: ANN401
        self.ray = ray
        self.work = ray.put(work)
        self.kind = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(_Actor)
        self.last: dict[Any, int | None] = {}
        self.busy: dict[Any, tuple[Any, int | None]] = {}
        self.failed_starts = 0

    def grow(self, size: int) -> None:
        """Start actors until there are so many."""
        while len(self.last) < size:
            actor = self.kind.remote(self.work, torch.get_default_dtype())
            self.last[actor] = None
            self.busy[actor.ready.remote()] = (actor, None)

    def idle(self) -> list[tuple[Any, int | None]]:
        """Actors that have nothing to do, and the task that each had before."""
        busy = {actor for actor, _ in self.busy.values()}
        return [(actor, last) for actor, last in self.last.items() if actor not in busy]

    def give(self, actor: Any, number: int, task: object) -> None:  # noqa: ANN401
        """Let an actor do a task."""
        self.busy[actor.do.remote(task)] = (actor, number)

    def listen(self) -> tuple[int | None, Any, str | None]:
        """Wait for news of a task: its number and result, or why its actor has ended with it."""
        (reference,), _ = self.ray.wait(list(self.busy), num_returns=1)
        actor, number = self.busy.pop(reference)
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            del self.last[actor]
            cause = getattr(error, "cause", None) or error
            reason = " ".join(str(cause).split())[:300]
            self.failed_starts += number is None
            if self.failed_starts >= FAILED_STARTS:
                raise WorkerError(
                    f"Actors on Ray end before they have started: {reason}. Every node needs the same "
                    "plausiflow and the modules of the work."
                ) from error
            return number, None, reason
        self.failed_starts = 0
        self.last[actor] = self.last[actor] if number is None else number
        return number, result, None

    def kill(self) -> None:
        """End all actors, and what they do."""
        for actor in self.last:
            self.ray.kill(actor)


def _settings(address: str | None, workers: int | None) -> dict[str, Any]:
    """For a cluster that runs, or for one that is started here, is small and keeps to itself."""
    variables = {"OMP_NUM_THREADS": "1"}
    if address is not None:
        return {"address": address, "log_to_driver": False, "runtime_env": {"env_vars": variables}}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    small = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    return small | {"log_to_driver": False, "runtime_env": {"env_vars": variables}}
