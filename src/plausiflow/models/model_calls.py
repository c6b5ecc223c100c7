"""How often the user's model is called, and what it said about rows that it is asked about again.

Calls are counted in the context of a request: other threads that use the same model have their own counts. A
request asks about some rows several times: when an answer is found, and when it is measured. For few rows a
call costs the same whatever they are, so within a request what the model said about them is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

M = TypeVar("M")

FEW_ROWS, MOST_KEPT = 128, 4096
"""Rows of a call that are kept, and of all calls of a request: to find many rows costs more than a call."""


@dataclass
class ModelCalls:
    """Calls of the user's model, and the total number of rows in them.

    ``known`` is what models said about rows, by model and row.
    """

    calls: int = 0
    rows: int = 0
    known: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)


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


def asked_once(ask: Callable[[M, pd.DataFrame], Tensor]) -> Callable[[M, pd.DataFrame], Tensor]:
    """Decorate a method that asks a model about rows: it is only asked about rows that a request has not had.

    Rows are equal if their cells, with their types, and the dtypes of their columns are. Invalid predictions
    are not kept.
    """

    @wraps(ask)
    def outputs(model: M, frame: pd.DataFrame) -> Tensor:
        counted = _CURRENT.get()
        if counted is None or not 0 < len(frame) <= FEW_ROWS or len(counted.known) > MOST_KEPT:
            return ask(model, frame)
        kind = (id(model), tuple(frame.columns), tuple(map(str, frame.dtypes)))
        rows = frame.itertuples(index=False, name=None)
        keys: list[Hashable] = [(kind, cells, tuple(map(type, cells))) for cells in rows]
        try:
            left = [i for i, key in enumerate(keys) if key not in counted.known]
        except TypeError:  # a cell that cannot be hashed
            return ask(model, frame)
        new = dict(zip(left, ask(model, frame.iloc[left]), strict=True)) if left else {}
        found = [new[i] if i in new else counted.known[key] for i, key in enumerate(keys)]
        for i, row in new.items():
            if not bool(row.isnan().any()):
                counted.known[keys[i]] = row.clone()
        return torch.stack(found)

    return outputs
