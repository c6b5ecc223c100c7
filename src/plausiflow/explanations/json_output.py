"""Strict JSON of values, columns and results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow.explanations.certificates import BOUNDS
from plausiflow.explanations.checks import VERDICTS
from plausiflow.explanations.formatting import is_missing_value
from plausiflow.explanations.sentences import answer_sentences, row_sentences

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

VERSION = 1
_FIGURES = ("cost", "probability", "score", "judged")


def json_value(value: Any) -> Any:  # noqa: ANN401
    """Convert a value to JSON: missing and infinite numbers to null, dates to ISO, other objects to text.

    Example:
        >>> [json_value(value) for value in (np.int8(3), np.nan, pd.Timestamp("2024-02-29"), pd.NA)]
        [3, None, '2024-02-29T00:00:00', None]
    """
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.floating):
        value = float(str(value))  # the shortest text that gives the same float in its precision
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_missing_value(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_value(entry) for entry in value]
    if isinstance(value, date | time | pd.Timedelta):
        return value.isoformat()
    return str(value)


def json_column(column: pd.Series | pd.Index) -> list[Any]:
    """Convert a column to JSON values, all at once if its dtype allows it."""
    dtype, cells = column.dtype, column.tolist()
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        if dtype.kind == "f" and dtype != np.float64:
            return [json_value(cell) for cell in column.to_numpy()]
        for place in np.flatnonzero(~np.isfinite(column.to_numpy())):
            cells[place] = None
        return cells
    return [cell if type(cell) is str else json_value(cell) for cell in cells]


def json_parts(result: Explanations) -> Iterator[str]:
    """Yield the text of a JSON document: a head, one part per row, and an end."""
    head = {"version": VERSION, "outcome": result.outcome}
    yield json.dumps(head, ensure_ascii=False).removesuffix("}") + ', "rows": ['
    for i, row in enumerate(_json_rows(result)):
        yield ", " * (i > 0) + json.dumps(row, ensure_ascii=False, allow_nan=False)
    yield "]}"


def _json_rows(result: Explanations) -> Iterator[dict[str, Any]]:
    answers, misses = _json_answers(result), dict[int, list[Any]]()
    if result.misses is not None:
        near = zip(result.misses_of.tolist(), _records(result.misses), result.misses_why, strict=True)
        for i, values, why in near:
            misses.setdefault(i, []).append({"values": values, "why": why})
    columns = {
        "row": json_column(result.rows.index.to_flat_index()),
        **{
            name: json_column(result.verdicts[name])
            for name in (*VERDICTS, *BOUNDS)
            if name in result.verdicts
        },
        "sentence": row_sentences(result, range(len(result))),
    }
    counts = np.bincount(result.of, minlength=len(result)).tolist()
    cells = zip(*columns.values(), strict=True)
    for i, (factual, verdict) in enumerate(zip(_records(result.rows), cells, strict=True)):
        counterfactuals = []
        for values, changed, figures in (next(answers) for _ in range(counts[i])):
            changes = [
                {"feature": name, "from": factual[name], "to": values[name], **roles}
                for name, roles in changed
            ]
            counterfactuals.append(
                {"values": values, "changes": changes, "distance": result.distance, **figures}
            )
        yield {
            **dict(zip(columns, verdict, strict=True)),
            "factual": factual,
            "counterfactuals": counterfactuals,
            "misses": misses.get(i, []),
        }


_Changed = list[tuple[str, dict[str, Any]]]
"""The features that changed, each with its role."""


def _json_answers(result: Explanations) -> Iterator[tuple[dict[str, Any], _Changed, dict[str, Any]]]:
    """Yield the values of each answer, the features that changed, and its figures."""
    names = result.rows.columns.take(result.changed.column).tolist()
    cells = list(zip(names, _records(result.change_roles), strict=True))
    bounds = np.searchsorted(result.changed.answer, np.arange(len(result.answers) + 1)).tolist()
    changed = (cells[start:stop] for start, stop in pairwise(bounds))
    sentences = answer_sentences(result, range(len(result.answers)))
    names_of_figures = [*_FIGURES, *(name for name in ("lasting",) if name in result.figures)]
    figures = result.figures[names_of_figures].assign(
        sentence=sentences, advantages=pd.Series(result.advantages, dtype=object).to_numpy()
    )
    return zip(_records(result.answers), changed, _records(figures), strict=True)


def _records(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names, columns = frame.columns.tolist(), [json_column(column) for _, column in frame.items()]
    return (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
