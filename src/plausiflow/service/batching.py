"""Micro-batching: one thread runs the jobs of all clients, as many together as are waiting.

Jobs wait in a queue of limited length; a request that does not fit is refused at once. The thread takes
waiting jobs up to the size of a batch, and waits while more keep arriving. Jobs with the same key run
together. If they fail, each half runs alone, so that a job that fails does not affect the others; if the
model itself fails, all of them do.

Explanations and predictions have a batcher each, so that predictions do not wait behind explanations.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from plausiflow.errors import ModelError
from plausiflow.progress import hide_progress
from plausiflow.service.jobs import Job, JobResult

SEARCH_SHARE = 0.9
"""Share of the remaining time that a job may use; the rest is for checks and sending."""

WAIT_SHARE, PAUSE_SHARE = 0.1, 0.2
"""Longest wait for more jobs as a share of the last batch's duration, and the pause without a new job that
ends the wait, as a share of the wait: clients with an answer need a moment to send their next request."""

TIME_SHARE = 0.5
"""Jobs run together if each has at least this share of the time that the others have left: one that waited
long must not shorten the search of the others."""

MIN_BATCH = 8
"""A slow batch is not made smaller than this number of rows: fewer rows hardly take less time."""


class JobsRejected(Exception):
    """The jobs of a request are not accepted; the message says why."""


class DeadlinePassed(TimeoutError):
    """The time of a job was over before it started."""


@dataclass(frozen=True, eq=False)
class _QueuedJob:
    job: Job
    deadline: float
    future: Future[JobResult]


class Batcher:
    """A thread that runs jobs, together where possible.

    At most ``queue_rows`` rows are in the queue. At most ``batch_rows`` rows run together, unless a single
    job has more. After a batch that took longer than ``slow`` seconds, batches are halved; they grow again
    after fast ones. ``wait`` is the longest wait for more jobs, in seconds; ``observe`` is called after each
    batch, with its jobs and their results or the error.
    """

    def __init__(
        self,
        *,
        queue_rows: int,
        batch_rows: int,
        slow: float,
        wait: float,
        observe: Callable[[Sequence[Job], list[JobResult] | Exception], None] = lambda jobs, outcome: None,
    ) -> None:
        self._observe = observe
        self._queue_rows, self._max_batch_rows, self._batch_rows = queue_rows, batch_rows, batch_rows
        self._slow, self._max_wait, self._last_duration = slow, wait, 0.0
        self._queue: deque[_QueuedJob] = deque()
        self._changed = threading.Condition()
        self._waiting_rows, self._n_submitted, self._closed = 0, 0, False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._work, name="plausiflow-worker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Accept no more jobs, finish those in the queue, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def waiting_rows(self) -> int:
        """Number of rows in the queue."""
        return self._waiting_rows

    @property
    def is_open(self) -> bool:
        """Whether jobs are accepted and the thread is alive."""
        return self._thread.is_alive() and not self._closed

    def busy_seconds(self) -> float:
        """Return for how many seconds the current batch has been running; 0 if none is running."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def submit(self, jobs: Sequence[Job], seconds: float) -> list[Future[JobResult]]:
        """Add all jobs to the queue, or none of them; after ``seconds`` seconds DeadlinePassed is raised.

        A future that is cancelled before its job has started removes the job. Raises JobsRejected if the
        queue has no space for all of them, or the batcher is closed.
        """
        rows, deadline = sum(job.size for job in jobs), time.monotonic() + seconds
        queued = [_QueuedJob(job, deadline, Future()) for job in jobs]
        with self._changed:
            if self._closed:
                raise JobsRejected("it is shutting down")
            if self._waiting_rows + rows > self._queue_rows:
                self._remove_cancelled()
            if self._waiting_rows + rows > self._queue_rows:
                raise JobsRejected(f"{self._waiting_rows} rows are waiting")
            self._queue.extend(queued)
            self._waiting_rows += rows
            self._n_submitted += 1
            self._changed.notify_all()
        return [entry.future for entry in queued]

    def _remove_cancelled(self) -> None:
        self._queue = deque(entry for entry in self._queue if not entry.future.cancelled())
        self._waiting_rows = sum(entry.job.size for entry in self._queue)

    def _work(self) -> None:
        with hide_progress():  # standard error is for the log
            while batch := self._take():
                groups: dict[Hashable, list[_QueuedJob]] = {}
                for entry in batch:
                    groups.setdefault(entry.job.key, []).append(entry)
                for group in groups.values():
                    for part in _split_by_time_left(group):
                        started = [entry for entry in part if entry.future.set_running_or_notify_cancel()]
                        self._run_group(started)

    def _take(self) -> list[_QueuedJob]:
        """Return the next batch; an empty one after the last job."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            self._wait_for_more()
            batch: list[_QueuedJob] = []
            rows = 0
            while self._queue and (not batch or rows + self._queue[0].job.size <= self._batch_rows):
                batch.append(self._queue.popleft())
                rows += batch[-1].job.size
            self._waiting_rows -= rows
            return batch

    def _wait_for_more(self) -> None:
        """Wait while jobs keep arriving and the batch has space, but briefly compared with a batch."""
        wait = min(self._max_wait, WAIT_SHARE * self._last_duration)
        end = time.monotonic() + wait
        while self._waiting_rows < self._batch_rows and not self._closed:
            before, left = self._n_submitted, min(PAUSE_SHARE * wait, end - time.monotonic())
            if left <= 0:
                return
            self._changed.wait(left)
            if self._n_submitted == before:
                return

    def _run_group(self, group: Sequence[_QueuedJob]) -> None:
        """Run jobs with the same key; if they fail, run each half alone."""
        now = time.monotonic()
        for entry in group:
            if entry.deadline <= now:
                entry.future.set_exception(DeadlinePassed())
        group = [entry for entry in group if entry.deadline > now]
        if not group:
            return
        jobs = [entry.job for entry in group]
        self._busy_since = now
        try:
            left = min(entry.deadline for entry in group) - now
            results = jobs[0].run(jobs, SEARCH_SHARE * left)
            pairs = list(zip(group, results, strict=True))
        except BaseException as error:  # the thread must survive whatever a user's model raises
            known = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self._fail(group, known)
            return
        finally:
            self._last_duration, self._busy_since = time.monotonic() - now, None
        self._adapt(sum(job.size for job in jobs))
        self._observe(jobs, results)
        for entry, result in pairs:
            entry.future.set_result(result)

    def _fail(self, group: Sequence[_QueuedJob], error: Exception) -> None:
        """Run each half of a group alone, unless there is only one job or the model failed for all."""
        if len(group) > 1 and not isinstance(error, ModelError):
            half = len(group) // 2
            self._run_group(group[:half])
            self._run_group(group[half:])
            return
        self._observe([entry.job for entry in group], error)
        for entry in group:
            entry.future.set_exception(error)

    def _adapt(self, rows: int) -> None:
        """Make batches smaller after a slow one, and larger after a fast one."""
        if self._last_duration > self._slow:
            self._batch_rows = min(self._batch_rows, max(MIN_BATCH, rows // 2))
        elif self._last_duration < self._slow / 4:
            self._batch_rows = min(self._max_batch_rows, 2 * self._batch_rows)


def _split_by_time_left(group: Sequence[_QueuedJob]) -> list[list[_QueuedJob]]:
    """Return jobs that have about the same time left; those with the least time first."""
    now, parts = time.monotonic(), list[list[_QueuedJob]]()
    for entry in sorted(group, key=lambda entry: entry.deadline, reverse=True):
        if parts and entry.deadline - now >= TIME_SHARE * (parts[-1][0].deadline - now):
            parts[-1].append(entry)
        else:
            parts.append([entry])
    return [sorted(part, key=lambda entry: entry.deadline) for part in reversed(parts)]
