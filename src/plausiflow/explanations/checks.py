"""Whether the parts of a result belong together: numbers of rows, columns, answers where verdicts say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from plausiflow.tables import Codes, Schema, frame_problems

STATUSES = ("found", "already", "relaxed", "infeasible", "not_reached", "invalid_input")
ANSWERED = ("found", "relaxed")
FIGURES = ("cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged")
VERDICTS = ("status", "reason", "predicted", "target", "probability")


def table_problems(
    rows: pd.DataFrame, answers: pd.DataFrame, misses: pd.DataFrame | None, schema: Schema
) -> Iterator[str]:
    """What is wrong with the tables and their columns."""
    tables = {"rows": rows, "answers": answers} | ({} if misses is None else {"misses": misses})
    problems = [f"`{name}`: {text}" for name, table in tables.items() for text in frame_problems(table)]
    yield from problems
    if problems:
        return
    if set(rows.columns) != set(schema.names):
        yield f"`rows` must have the columns {', '.join(schema.names)}; got {', '.join(map(str, rows))}"
    for name, table in tables.items():
        if list(table.columns) != list(rows.columns):
            names = ", ".join(map(str, table))
            yield f"`{name}` must have the columns of `rows`, in their order; got {names}"


def answer_problems(of: Codes, figures: pd.DataFrame, n: int, m: int) -> Iterator[str]:
    """What is wrong with whose the answers are, and with their figures."""
    wrong_positions = list(position_problems("of", of, "answers", n, m))
    yield from wrong_positions
    if not wrong_positions and (np.diff(of) < 0).any():
        yield "`of` must not fall: answers are ordered by row, then by cost"
    absent = [name for name in FIGURES if name not in figures.columns]
    if absent:
        yield f"`figures` lacks the columns {', '.join(absent)}"
    if len(figures) != m:
        yield f"`figures` must have {m} rows, one for each answer; got {len(figures)}"
    elif not wrong_positions and "cost" in figures:
        cost = figures["cost"].to_numpy(np.float64)
        if ((np.diff(of) == 0) & (np.diff(cost) < 0)).any():
            yield "the costs of a row's answers must not fall: the best answer comes first"


def verdict_problems(verdicts: pd.DataFrame, index: pd.Index, of: Codes) -> Iterator[str]:
    """What is wrong with the verdicts; ``of`` may be wrong itself."""
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
    said = verdicts["status"].isin(ANSWERED).to_numpy(bool)
    has = np.isin(np.arange(len(index)), of)
    if (said & ~has).any():
        yield f"rows without an answer are called found or relaxed, at positions {_some(said & ~has)}"
    if (has & ~said).any():
        yield f"rows with an answer are called neither found nor relaxed, at positions {_some(has & ~said)}"


def miss_problems(misses: pd.DataFrame | None, of: Codes, why: Sequence[str], n: int) -> Iterator[str]:
    """What is wrong with the nearest misses."""
    m = 0 if misses is None else len(misses)
    yield from position_problems("misses_of", of, "misses", n, m)
    if len(why) != m:
        yield f"`misses_why` must have {m} texts, one for each miss; got {len(why)}"


def encoded_problems(encoded: tuple[Tensor, Tensor, Tensor] | None, n: int, m: int) -> Iterator[str]:
    """What is wrong with the encoded rows."""
    if encoded is None:
        return
    x, x_cf, y_target = (tuple(part.shape) for part in encoded)
    if len(x) != 2 or x[0] != n or x_cf != (m, *x[1:]) or y_target != (n,):
        yield (
            f"`encoded` must have the shapes ({n}, width), ({m}, width) and ({n},); "
            f"got {x}, {x_cf} and {y_target}"
        )


def position_problems(name: str, of: Codes, what: str, n: int, m: int) -> Iterator[str]:
    """What is wrong with positions of rows."""
    given: Any = of
    if not isinstance(given, np.ndarray) or given.shape != (m,) or given.dtype.kind not in "iu":
        shape = f"shape {np.shape(given)}, {getattr(given, 'dtype', type(given).__name__)}"
        yield f"`{name}` must be an array of {m} integers, one for each of `{what}`; got {shape}"
    elif m and not (given.min() >= 0 and given.max() < n):
        yield f"`{name}` must hold positions 0 to {n - 1}; got {given.min()} to {given.max()}"


def _some(where: npt.NDArray[np.bool_]) -> str:
    positions = np.flatnonzero(where).tolist()
    return ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
