"""Threads: small problems use one, because several spin while they wait for each other.

torch and the libraries of models (OpenMP, BLAS) start as many threads as there are cores. For a few rows each
operation takes microseconds, so threads wait longer than they work: one row of a table costs ten times the
processor time. Inside :func:`suitable_threads` a small problem has one thread; afterwards everything is as it
was before, also if calls of several threads overlap.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sized
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController

ROWS_WORTH_THREADS = 512
"""From so many rows on, more threads end a search sooner."""


class _OneThread:
    """Knows the number of threads before anybody used one thread.

    The number belongs to the thread that sets it, but a new thread takes over the one that was set last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside, self._usual, self._modules = 0, 1, 0
        self._controller: ThreadpoolController | None = None

    def enter(self) -> int:
        """Use one thread from now on; return the number to restore."""
        with self._lock:
            own = torch.get_num_threads()
            if self._inside == 0:
                self._usual = own
            self._inside += 1
            torch.set_num_threads(1)
            return own if own > 1 else self._usual

    def leave(self, number: int) -> None:
        """Restore the number of threads."""
        with self._lock:
            self._inside -= 1
            torch.set_num_threads(number)

    def libraries(self) -> ThreadpoolController:
        """Return the other libraries with threads; looked for again if modules were imported since."""
        with self._lock:
            if self._controller is None or len(sys.modules) != self._modules:
                self._controller, self._modules = ThreadpoolController(), len(sys.modules)
            return self._controller


_ONE_THREAD, _OWN = _OneThread(), threading.local()


@contextmanager
def suitable_threads(rows: object = None) -> Iterator[None]:
    """Let a problem use one thread inside the block, unless it has many rows."""
    if getattr(_OWN, "inside", False) or (isinstance(rows, Sized) and len(rows) >= ROWS_WORTH_THREADS):
        yield
        return
    number, _OWN.inside = _ONE_THREAD.enter(), True
    try:
        with _ONE_THREAD.libraries().limit(limits=1):
            yield
    finally:
        _OWN.inside = False
        _ONE_THREAD.leave(number)
