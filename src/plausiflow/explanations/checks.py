"""Checks that the parts of a result are consistent: numbers of rows, columns, answers and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from plausiflow.tables import IntArray, Mask, Schema, frame_problems

STATUSES = ("found", "already", "relaxed", "infeasible", "not_reached", "invalid_input")
ANSWERED = ("found", "relaxed")
FIGURES = ("cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged")
VERDICTS = ("status", "reason", "predicted", "target", "probability")


def table_problems(
    rows: pd.DataFrame, answers: pd.DataFrame, misses: pd.DataFrame | None, schema: Schema
) -> Iterator[str]:
    """Yield the problems of the tables and their columns."""
    tables = {"rows": rows, "answers": answers} | ({} if misses is None else {"misses": misses})
    # Tables with the columns of the schema, or of the rows, need no further look.
    checked = isinstance(rows, pd.DataFrame) and list(rows.columns) == list(schema.names)
    named = {n: t for n, t in tables.items() if (t is rows and not checked) or not _same_columns(t, rows)}
    problems = [f"`{name}`: {text}" for name, table in named.items() for text in frame_problems(table)]
    yield from problems
    if problems:
        return
    if set(rows.columns) != set(schema.names):
        yield f"`rows` must have the columns {', '.join(schema.names)}; got {', '.join(map(str, rows))}"
    for name, table in tables.items():
        if list(table.columns) != list(rows.columns):
            names = ", ".join(map(str, table))
            yield f"`{name}` must have the columns of `rows`, in their order; got {names}"


def _same_columns(table: object, rows: object) -> bool:
    if not isinstance(table, pd.DataFrame) or not isinstance(rows, pd.DataFrame):
        return False
    return list(table.columns) == list(rows.columns)


def answer_problems(of: IntArray, figures: pd.DataFrame, n: int, m: int) -> Iterator[str]:
    """Yield the problems of the answers' rows and figures, for ``n`` rows and ``m`` answers."""
    wrong_positions = list(_position_problems("of", of, "answers", n, m))
    yield from wrong_positions
    if not wrong_positions and (np.diff(of) < 0).any():
        yield "`of` must not decrease: answers are ordered by row, then by cost"
    absent = [name for name in FIGURES if name not in figures.columns]
    if absent:
        yield f"`figures` lacks the columns {', '.join(absent)}"
    if len(figures) != m:
        yield f"`figures` must have {m} rows, one for each answer; got {len(figures)}"
    elif not wrong_positions and "cost" in figures:
        cost = figures["cost"].to_numpy(np.float64)
        if ((np.diff(of) == 0) & (np.diff(cost) < 0)).any():
            yield "the costs of a row's answers must not decrease: the best answer comes first"


def verdict_problems(verdicts: pd.DataFrame, index: pd.Index, of: IntArray) -> Iterator[str]:
    """Yield the problems of the verdicts; ``of`` may be wrong itself."""
    absent = [name for name in VERDICTS if name not in verdicts.columns]
    if absent:
        yield f"`verdicts` lacks the columns {', '.join(absent)}"
    if not verdicts.index.equals(index):
        yield f"`verdicts` must have the index of `rows`, {len(index)} labels; got {len(verdicts)} others"
        return
    if "status" not in verdicts:
        return
    unknown = sorted({str(status) for status in verdicts["status"]} - set(STATUSES))
    if unknown:
        yield f"a status must be one of {', '.join(STATUSES)}; got {', '.join(unknown)}"
    expected = verdicts["status"].isin(ANSWERED).to_numpy(bool)
    has_answer = np.isin(np.arange(len(index)), of)
    if (missing := expected & ~has_answer).any():
        yield f"rows with status found or relaxed have no answer, at positions {_first_positions(missing)}"
    if (extra := has_answer & ~expected).any():
        yield f"rows with an answer are neither found nor relaxed, at positions {_first_positions(extra)}"


def miss_problems(misses: pd.DataFrame | None, of: IntArray, why: Sequence[str], n: int) -> Iterator[str]:
    """Yield the problems of the near misses."""
    m = 0 if misses is None else len(misses)
    yield from _position_problems("misses_of", of, "misses", n, m)
    if len(why) != m:
        yield f"`misses_why` must have {m} texts, one for each miss; got {len(why)}"


def encoded_problems(encoded: tuple[Tensor, Tensor, Tensor] | None, n: int, m: int) -> Iterator[str]:
    """Yield the problems of the encoded rows."""
    if encoded is None:
        return
    x, x_cf, y_target = (tuple(part.shape) for part in encoded)
    if len(x) != 2 or x[0] != n or x_cf != (m, *x[1:]) or y_target != (n,):
        expected = f"({n}, width), ({m}, width) and ({n},)"
        yield f"`encoded` must have the shapes {expected}; got {x}, {x_cf} and {y_target}"


def _position_problems(name: str, of: IntArray, what: str, n: int, m: int) -> Iterator[str]:
    given: Any = of
    if not isinstance(given, np.ndarray) or given.shape != (m,) or given.dtype.kind not in "iu":
        shape = f"shape {np.shape(given)}, {getattr(given, 'dtype', type(given).__name__)}"
        yield f"`{name}` must be an array of {m} integers, one for each of `{what}`; got {shape}"
    elif m and not (given.min() >= 0 and given.max() < n):
        yield f"`{name}` must hold positions 0 to {n - 1}; got {given.min()} to {given.max()}"


def _first_positions(mask: Mask) -> str:
    positions = np.flatnonzero(mask).tolist()
    return ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
