"""How often the user's model is called, and whether a failure is the model's own or that of a row.

Calls are counted in the context of a request: other threads that use the same model have their own counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class ModelCalls:
    """Calls of the user's model, and the total number of rows in them."""

    calls: int = 0
    rows: int = 0


_CURRENT: ContextVar[ModelCalls | None] = ContextVar("model_calls", default=None)


@contextmanager
def count_model_calls() -> Iterator[ModelCalls]:
    """Count the calls of models within this block, in this thread or task.

    Example:
        >>> with count_model_calls() as counted:
        ...     add_model_call(rows=3)
        >>> counted
        ModelCalls(calls=1, rows=3)
    """
    counted = ModelCalls()
    token = _CURRENT.set(counted)
    try:
        yield counted
    finally:
        _CURRENT.reset(token)


def add_model_call(rows: int) -> None:
    """Count one call with so many rows."""
    counted = _CURRENT.get()
    if counted is not None:
        counted.calls += 1
        counted.rows += rows
