"""Tasks on workers: in this process, in worker processes, or on Ray; with one thread each, everywhere.

A worker does one task at a time, so that a worker that dies (a crash in compiled code, memory that runs out)
takes only its own task with it. That one is tried once more.
"""

from plausiflow.workers.locks import LockedError, locked
from plausiflow.workers.memory import keep_memory
from plausiflow.workers.processes import Processes
from plausiflow.workers.ray import Ray
from plausiflow.workers.tasks import (
    Event,
    Events,
    Executor,
    Group,
    Inline,
    Lost,
    Returned,
    Started,
    WorkerError,
)

__all__ = [
    "Event",
    "Events",
    "Executor",
    "Group",
    "Inline",
    "LockedError",
    "Lost",
    "Processes",
    "Ray",
    "Returned",
    "Started",
    "WorkerError",
    "keep_memory",
    "locked",
]
