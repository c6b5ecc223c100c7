"""Tasks on Ray: on actors of a cluster, or of one that is started on this machine.

An actor is a worker like a process: it keeps what it has loaded, runs one task at a time, and is replaced
when it dies. Ray itself restarts and retries nothing, so retries are the same for every executor.
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
    MAX_FAILED_STARTS,
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
class Ray:
    """Runs tasks on a Ray cluster.

    Attributes:
        workers: Maximum number of tasks at a time; by default the cluster's processors and GPUs decide.
        address: Address of a running cluster, such as ``auto``. By default a cluster is started here and
            stopped afterwards.
        gpus: GPUs for each worker: 1, or 0.5 if two workers share one, or 0.
    """

    workers: int | None = None
    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_workers(1 if self.workers is None else self.workers)
        if not 0 <= self.gpus < float("inf"):
            raise InvalidInputError(f"`gpus` must be a number of 0 or more, such as 1; got {self.gpus}.")

    def run(self, work: Callable[[T], R], tasks: Sequence[T], group: Group[T]) -> Events[R]:
        """Yield the events of the tasks as they happen; closing the generator kills the workers."""
        try:
            ray = import_module("ray")
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "Running tasks on Ray") from error
        with ExitStack() as cleanup:
            if not ray.is_initialized():
                ray.init(**_init_settings(self.address, self.workers))
                cleanup.callback(ray.shutdown)
            max_actors = self._max_actors(ray.cluster_resources())
            actors, queue = _ActorPool(ray, work, self.gpus), TaskQueue(tasks, group)
            cleanup.callback(actors.kill)
            while queue.n_left:
                actors.grow(min(max_actors, queue.n_left))
                for actor, last in actors.idle():
                    if queue.n_waiting:
                        number = queue.take(last)
                        actors.start_task(actor, number, tasks[number])
                        yield Started(number)
                ended, result, reason = actors.wait()
                if ended is not None and reason is None:
                    yield queue.finish(ended, result)
                elif ended is not None and reason is not None:
                    yield from queue.fail(ended, reason)

    def _max_actors(self, resources: dict[str, float]) -> int:
        """Return the number of actors to start; a cluster with an address may grow to fit them."""
        if self.workers is not None and (self.address is not None or not self.gpus):
            return self.workers
        capacity = resources.get("CPU", 1.0)
        if self.gpus:
            capacity = min(capacity, resources.get("GPU", 0.0) / self.gpus)
            if capacity < 1:
                raise WorkerError(
                    f"Each worker asks for {self.gpus:g} GPU, and the cluster has "
                    f"{resources.get('GPU', 0.0):g}. Add nodes with GPUs, or set `gpus=0`."
                )
        return min(self.workers or sys.maxsize, max(1, int(capacity)))


class _Actor:
    """The Ray actor, which keeps the work and runs tasks."""

    def __init__(self, work: Callable[[Any], Any], dtype: torch.dtype) -> None:
        self.work, self.dtype = work, dtype
        keep_memory()

    def ready(self) -> None:
        """Return once the actor has started."""

    def run_task(self, task: object) -> Any:  # noqa: ANN401
        """Return the result of a task."""
        return run_single_threaded(self.work, task, self.dtype)


class _ActorPool:
    """The actors, the task that each runs now, and the one that it ran before."""

    def __init__(self, ray: Any, work: Callable[[Any], Any], gpus: float) -> None:  # noqa: ANN401
        self.ray = ray
        self.work = ray.put(work)
        self.actor_type = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(_Actor)
        self.last: dict[Any, int | None] = {}
        self.busy: dict[Any, tuple[Any, int | None]] = {}
        self.failed_starts = 0

    def grow(self, size: int) -> None:
        """Start actors until the pool has ``size`` of them."""
        while len(self.last) < size:
            actor = self.actor_type.remote(self.work, torch.get_default_dtype())
            self.last[actor] = None
            self.busy[actor.ready.remote()] = (actor, None)

    def idle(self) -> list[tuple[Any, int | None]]:
        """Return the idle actors, each with the task that it ran before."""
        busy = {actor for actor, _ in self.busy.values()}
        return [(actor, last) for actor, last in self.last.items() if actor not in busy]

    def start_task(self, actor: Any, number: int, task: object) -> None:  # noqa: ANN401
        """Start a task on an actor."""
        self.busy[actor.run_task.remote(task)] = (actor, number)

    def wait(self) -> tuple[int | None, Any, str | None]:
        """Wait for one actor; return the number of its task, the result, and why the actor died or None."""
        (reference,), _ = self.ray.wait(list(self.busy), num_returns=1)
        actor, number = self.busy.pop(reference)
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            del self.last[actor]
            cause = getattr(error, "cause", None) or error
            reason = " ".join(str(cause).split())[:300]
            self.failed_starts += number is None
            if self.failed_starts >= MAX_FAILED_STARTS:
                raise WorkerError(
                    f"Actors on Ray end before they have started: {reason}. Install the same plausiflow, and "
                    "the modules of your model, on every node."
                ) from error
            return number, None, reason
        self.failed_starts = 0
        self.last[actor] = self.last[actor] if number is None else number
        return number, result, None

    def kill(self) -> None:
        """Kill all actors."""
        for actor in self.last:
            self.ray.kill(actor)


def _init_settings(address: str | None, workers: int | None) -> dict[str, Any]:
    """Return the arguments of ``ray.init`` for a running cluster, or for a small local one."""
    variables = {"OMP_NUM_THREADS": "1"}
    if address is not None:
        return {"address": address, "log_to_driver": False, "runtime_env": {"env_vars": variables}}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    small = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    return small | {"log_to_driver": False, "runtime_env": {"env_vars": variables}}
