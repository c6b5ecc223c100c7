"""Micro-batches: one thread does the work of all clients, as much of it at once as is waiting.

Work waits in a queue that holds a bounded number of rows; a request that finds no room is told so at once.
The thread takes what is waiting, up to as many rows as are worked on together, and waits a moment for more
while more keeps coming. Work of the same key is done together. Where that fails, each half is tried alone, so
that what is wrong with one request does no harm to its neighbours.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plausiflow.progress import silent

SEARCHED = 0.9
"""Share of the time that is left for searching; the rest is for checking and sending."""

WAITED, PAUSE = 0.1, 0.2
"""Longest wait for more, as a share of what the last work took, and the pause that ends it, as a share of the
wait: clients who got their answers need a moment to ask again."""

FEWEST = 8
"""Rows that are done together however long they take: fewer hardly take less."""


class Piece(Protocol):
    """Work that can wait."""

    @property
    def key(self) -> Hashable:
        """Work of the same key is done together."""

    @property
    def size(self) -> int:
        """Number of rows."""


W = TypeVar("W", bound=Piece)
R = TypeVar("R")


class QueueFull(Exception):
    """There is no room for so many rows now."""


class Closed(Exception):
    """No more work is taken on."""


@dataclass(frozen=True, eq=False)
class _Ticket(Generic[W, R]):
    work: W
    deadline: float
    future: Future[R]


class Batcher(Generic[W, R]):
    """Does work in one thread, together where that is possible.

    Args:
        answer: Does some works of the same key, in about so many seconds; one result for each.
        queue_rows: Most rows that wait.
        batch_rows: Most rows that are done together, unless a single work has more.
        long: Seconds; when work took longer, half as much is done together, and more when it is quick again.
        wait: Longest wait for more, in seconds.
        observe: Told the number of rows each time that some are done together.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[W], float], Sequence[R]],
        *,
        queue_rows: int,
        batch_rows: int,
        long: float,
        wait: float,
        observe: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._answer, self._observe = answer, observe
        self._queue_rows, self._most_rows, self._batch_rows = queue_rows, batch_rows, batch_rows
        self._long, self._longest_wait, self._last_took = long, wait, 0.0
        self._queue: deque[_Ticket[W, R]] = deque()
        self._changed = threading.Condition()
        self._waiting_rows, self._arrived, self._closed = 0, 0, False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="plausiflow-worker", daemon=True)

    def start(self) -> None:
        """Start to work."""
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Take on nothing more, finish what waits, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def waiting_rows(self) -> int:
        """How many rows wait."""
        return self._waiting_rows

    @property
    def is_open(self) -> bool:
        """Whether work is taken on, and somebody does it."""
        return self._thread.is_alive() and not self._closed

    def busy_for(self) -> float:
        """For how many seconds the thread has been at the same works; zero where it has none."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def submit(self, works: Sequence[W], seconds: float) -> list[Future[R]]:
        """Let works wait, all or none of them; they are in vain after so many seconds.

        A future that is cancelled before its work has begun costs nothing more.

        Raises:
            QueueFull: There is no room for all of them.
            Closed: No more work is taken on.
        """
        rows, deadline = sum(work.size for work in works), time.monotonic() + seconds
        tickets = [_Ticket[W, R](work, deadline, Future()) for work in works]
        with self._changed:
            if self._closed:
                raise Closed
            if self._waiting_rows + rows > self._queue_rows:
                self._forget_cancelled()
            if self._waiting_rows + rows > self._queue_rows:
                raise QueueFull
            self._queue.extend(tickets)
            self._waiting_rows += rows
            self._arrived += 1
            self._changed.notify_all()
        return [ticket.future for ticket in tickets]

    def _forget_cancelled(self) -> None:
        """Make room that is taken by work nobody waits for."""
        self._queue = deque(ticket for ticket in self._queue if not ticket.future.cancelled())
        self._waiting_rows = sum(ticket.work.size for ticket in self._queue)

    def _run(self) -> None:
        with silent():  # standard error is for the log
            self._work()

    def _work(self) -> None:
        while batch := self._take():
            groups: dict[Hashable, list[_Ticket[W, R]]] = {}
            for ticket in batch:
                groups.setdefault(ticket.work.key, []).append(ticket)
            for group in groups.values():
                self._do([ticket for ticket in group if ticket.future.set_running_or_notify_cancel()])

    def _take(self) -> list[_Ticket[W, R]]:
        """What is worked on next; nothing when all is done and no more will come."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            self._wait_for_more()
            batch: list[_Ticket[W, R]] = []
            rows = 0
            while self._queue and (not batch or rows + self._queue[0].work.size <= self._batch_rows):
                batch.append(self._queue.popleft())
                rows += batch[-1].work.size
            self._waiting_rows -= rows
            return batch

    def _wait_for_more(self) -> None:
        """While more keeps coming and there is room for it, but not long beside what work takes."""
        wait = min(self._longest_wait, WAITED * self._last_took)
        end = time.monotonic() + wait
        while self._waiting_rows < self._batch_rows and not self._closed:
            before, left = self._arrived, min(PAUSE * wait, end - time.monotonic())
            if left <= 0:
                return
            self._changed.wait(left)
            if self._arrived == before:
                return

    def _do(self, group: Sequence[_Ticket[W, R]]) -> None:
        """Answer tickets of the same key; where that fails, each half alone."""
        now = time.monotonic()
        for ticket in group:
            if ticket.deadline <= now:
                ticket.future.set_exception(TimeoutError())
        group = [ticket for ticket in group if ticket.deadline > now]
        if not group:
            return
        self._busy_since = now
        try:
            left = max(ticket.deadline for ticket in group) - now
            results = self._answer([ticket.work for ticket in group], SEARCHED * left)
            pairs = list(zip(group, results, strict=True))
        except BaseException as error:  # whatever the model of a user raises, the thread goes on
            if len(group) > 1:
                half = len(group) // 2
                self._do(group[:half])
                self._do(group[half:])
            else:
                group[0].future.set_exception(
                    error if isinstance(error, Exception) else RuntimeError(repr(error))
                )
            return
        finally:
            self._last_took, self._busy_since = time.monotonic() - now, None
        self._adapt(sum(ticket.work.size for ticket in group))
        for ticket, result in pairs:
            ticket.future.set_result(result)

    def _adapt(self, rows: int) -> None:
        """Fewer rows together where so many took long, more where they did not."""
        self._observe(rows)
        if self._last_took > self._long:
            self._batch_rows = min(self._batch_rows, max(FEWEST, rows // 2))
        elif self._last_took < self._long / 4:
            self._batch_rows = min(self._most_rows, 2 * self._batch_rows)
