"""A deadline that binds inside a search: loops look at the clock, wherever they are.

A search is many nested loops. Each of them calls :func:`check_deadline` once in a while; when the time is
over, the search of these rows ends with :class:`DeadlineError`, and what was found before is kept. The
deadline belongs to the context of a request: other threads have their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from plausiflow.errors import PlausiflowError

DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)
"""The time of the monotonic clock at which a search ends, None for never. Inner loops look at it first."""


class DeadlineError(PlausiflowError):
    """The time of a request is over; the rows that were searched get the verdict ``not_reached``."""


@contextmanager
def deadline(at: float | None) -> Iterator[None]:
    """Let :func:`check_deadline` raise within this block after a time of the monotonic clock; None: never."""
    token = DEADLINE.set(at)
    try:
        yield
    finally:
        DEADLINE.reset(token)


def check_deadline() -> None:
    """Raise :class:`DeadlineError` if the time is over.

    Example:
        >>> check_deadline()
        >>> with deadline(time.monotonic() - 1):
        ...     check_deadline()
        Traceback (most recent call last):
        plausiflow.core.deadlines.DeadlineError: The time limit of this search is over.
    """
    at = DEADLINE.get()
    if at is not None and time.monotonic() >= at:
        raise DeadlineError("The time limit of this search is over.")
