"""Tasks on workers: in this process, in worker processes, or on Ray; one torch thread each.

A worker runs one task at a time. If it dies (a crash in compiled code, out of memory), only that task is
affected, and it is tried once more.
"""

from plausiflow.workers.locks import LockedError, hold_lock
from plausiflow.workers.memory import keep_memory, memory_used
from plausiflow.workers.processes import Processes
from plausiflow.workers.ray import Ray
from plausiflow.workers.tasks import Executor, Inline, Lost, Returned, Started, WorkerError

__all__ = [
    "Executor", "Inline", "LockedError", "Lost", "Processes", "Ray", "Returned", "Started", "WorkerError",
    "hold_lock", "keep_memory", "memory_used",
]  # fmt: skip
