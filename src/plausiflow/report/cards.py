"""The second part of a report, one card for each row: as data for the page's script, and as a plain table.

Data are columns that refer to each other by position: the answers of row i are those from ``first[i]`` up to
``first[i + 1]``, the changes of an answer likewise. Missing numbers are null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from plausiflow.report.charts import density_points
from plausiflow.report.content import Content
from plausiflow.report.markup import Html, table
from plausiflow.report.words import FIGURES, VERDICTS
from plausiflow.tables import Codes

VERSION = 1


def card_data(content: Content) -> dict[str, Any]:
    """All that the page's script needs, as JSON can hold it."""
    rows, answers = content.rows, content.answers
    n, own = len(rows), answers["of"].to_numpy(np.int64)
    figures = [name for name in FIGURES if name in answers and answers[name].notna().any()]
    return {
        "version": VERSION,
        "outcome": content.outcome,
        "verdicts": {status: [sign, name] for status, (sign, name, _) in VERDICTS.items()},
        "figures": {name: FIGURES[name] for name in figures},
        "columns": [
            {"name": column.name, "texts": column.texts, "codes": column.codes} for column in content.columns
        ],
        "rows": {
            **{name: _values(rows[name]) for name in rows},
            "first": firsts(own, n),
            "misses": firsts(content.misses["of"].to_numpy(np.int64), n),
        },
        "answers": {
            **{name: _values(answers[name]) for name in ("sentence", *figures)},
            "first": _cells_first(content.changes, len(answers)),
        },
        "changes": _cells(content.changes),
        "misses": {
            "why": _values(content.misses["why"]),
            "first": _cells_first(content.miss_changes, len(content.misses)),
        },
        "missChanges": _cells(content.miss_changes),
        "curves": [
            {"label": curve.label, "points": density_points(curve.percentiles)} for curve in content.curves
        ],
    }


def plain_table(content: Content) -> Html:
    """Every row in one line, for readers without scripts."""
    columns = (content.rows[name].tolist() for name in ("label", "status", "predicted", "target", "sentence"))
    lines = (
        [label, VERDICTS[status][1], predicted, target, sentence]
        for label, status, predicted, target, sentence in zip(*columns, strict=True)
    )
    head = ["Row", "Verdict", "Predicted", "Targets", "What would change"]
    return table("Every row and its best answer", head, lines, words=(4,))


def firsts(of: Codes, n: int) -> list[int]:
    """Where the things of each of ``n`` owners begin, and where the last one's end.

    Example:
        >>> firsts(np.array([0, 0, 2]), 3)
        [0, 2, 2, 3]
    """
    places: list[int] = np.searchsorted(of, np.arange(n + 1)).tolist()
    return places


def _cells_first(changes: pd.DataFrame, n: int) -> list[int]:
    return firsts(changes["answer"].to_numpy(np.int64), n)


def _cells(changes: pd.DataFrame) -> dict[str, list[Any]]:
    names = ("column", "from", "to", "before", "after", "move")
    return {name: _values(changes[name]) for name in names}


def _values(column: pd.Series) -> list[Any]:
    """As JSON can hold them; objects are so already."""
    values: list[Any] = column.tolist()
    if column.dtype.kind != "f":
        return values
    finite = np.isfinite(column.to_numpy(np.float64))
    return [value if known else None for value, known in zip(values, finite.tolist(), strict=True)]
