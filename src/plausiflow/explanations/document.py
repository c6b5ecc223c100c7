"""What leaves Python as strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.explanations.checks import VERDICTS
from plausiflow.explanations.parts import Parts
from plausiflow.explanations.wording import is_absent

VERSION = 1
_FIGURES = ("cost", "probability", "score", "judged")


def json_value(value: Any) -> Any:  # noqa: ANN401
    """As JSON can hold it: missing and infinite numbers are null, dates ISO texts, what else there is text.

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
        value = float(str(value))  # the shortest text that gives the same float, in its own precision
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_absent(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_value(entry) for entry in value]
    if isinstance(value, date | time | pd.Timedelta):
        return value.isoformat()
    return str(value)


def json_column(column: pd.Series | pd.Index) -> list[Any]:
    """A whole column, all at once where its dtype allows it."""
    dtype, cells = column.dtype, column.tolist()
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        if dtype.kind == "f" and dtype != np.float64:
            return [json_value(cell) for cell in column.to_numpy()]
        for place in np.flatnonzero(~np.isfinite(column.to_numpy())):
            cells[place] = None
        return cells
    return [cell if type(cell) is str else json_value(cell) for cell in cells]


def _records(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names, columns = frame.columns.tolist(), [json_column(column) for _, column in frame.items()]
    return (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))


def json_parts(parts: Parts) -> Iterator[str]:
    """The text of a JSON document, piece by piece, one row each."""
    head = {"version": VERSION, "outcome": parts.outcome}
    yield json.dumps(head, ensure_ascii=False).removesuffix("}") + ', "rows": ['
    for i, row in enumerate(_rows(parts)):
        yield ", " * (i > 0) + json.dumps(row, ensure_ascii=False, allow_nan=False)
    yield "]}"


def _rows(parts: Parts) -> Iterator[dict[str, Any]]:
    verdicts, answers = parts.verdicts, _answers(parts)
    misses: dict[int, list[Any]] = {}
    if parts.misses is not None:
        written = zip(parts.misses_of.tolist(), _records(parts.misses), parts.misses_why, strict=True)
        for i, values, why in written:
            misses.setdefault(i, []).append({"values": values, "why": why})
    columns = {
        "row": json_column(parts.rows.index.to_flat_index()),
        **{name: json_column(verdicts[name]) for name in VERDICTS},
        "sentence": parts.row_sentences(range(len(parts))),
    }
    counts = np.bincount(parts.of, minlength=len(parts)).tolist()
    cells = zip(*columns.values(), strict=True)
    for i, (factual, own) in enumerate(zip(_records(parts.rows), cells, strict=True)):
        yield {
            **dict(zip(columns, own, strict=True)),
            "factual": factual,
            "counterfactuals": [_answer(factual, *next(answers)) for _ in range(counts[i])],
            "misses": misses.get(i, []),
        }


def _answers(parts: Parts) -> Iterator[tuple[dict[str, Any], list[str], dict[str, Any]]]:
    """The values of each answer, the features that changed, and its figures."""
    names = parts.rows.columns.take(parts.changed.column).tolist()
    bounds = np.searchsorted(parts.changed.answer, np.arange(len(parts.answers) + 1)).tolist()
    changed = (names[start:stop] for start, stop in pairwise(bounds))
    sentences = parts.answer_sentences(range(len(parts.answers)))
    figures = parts.figures[list(_FIGURES)].assign(sentence=sentences)
    return zip(_records(parts.answers), changed, _records(figures), strict=True)


def _answer(
    factual: Mapping[str, Any], values: Mapping[str, Any], changed: Sequence[str], figures: Mapping[str, Any]
) -> dict[str, Any]:
    changes = [{"feature": name, "from": factual[name], "to": values[name]} for name in changed]
    return {"values": values, "changes": changes, **figures}
