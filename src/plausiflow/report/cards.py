"""The data of a report's cards, one card per row, for the page's script.

The data are columns that refer to each other by position: the answers of row i are those from ``first[i]`` up
to ``first[i + 1]``, and in the same way the changes of an answer. Missing numbers are null.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.report.charts import density_points
from plausiflow.report.content import ReportContent
from plausiflow.report.labels import FIGURES, VERDICTS, figure_titles
from plausiflow.tables import IntArray

VERSION = 1


def card_data(content: ReportContent) -> dict[str, Any]:
    """Return everything that the page's script needs, as JSON values."""
    rows, answers = content.rows, content.answers
    figures = [name for name in FIGURES if name in answers and answers[name].notna().any()]
    return {
        "version": VERSION,
        "outcome": content.outcome,
        "verdicts": {status: [sign, name] for status, (sign, name, _) in VERDICTS.items()},
        "figures": {name: figure_titles(content.distance)[name] for name in figures},
        "columns": content.columns,
        "rows": {
            **{name: _json_values(rows[name]) for name in rows},
            "first": first_positions(answers["of"].to_numpy(np.int64), len(rows)),
            "misses": first_positions(content.misses["of"].to_numpy(np.int64), len(rows)),
        },
        "answers": {
            **{name: _json_values(answers[name]) for name in ("sentence", *figures)},
            "first": first_positions(content.changes["answer"].to_numpy(np.int64), len(answers)),
        },
        "changes": _cells(content.changes),
        "misses": {
            "why": _json_values(content.misses["why"]),
            "first": first_positions(content.miss_changes["answer"].to_numpy(np.int64), len(content.misses)),
        },
        "missChanges": _cells(content.miss_changes),
        "curves": [{"label": label, "points": density_points(scores)} for label, scores in content.curves],
    }


def first_positions(of: IntArray, n: int) -> list[int]:
    """Return where the items of each of ``n`` owners begin, and where the last one's end.

    Example:
        >>> first_positions(np.array([0, 0, 2]), 3)
        [0, 2, 2, 3]
    """
    positions: list[int] = np.searchsorted(of, np.arange(n + 1)).tolist()
    return positions


def _cells(changes: pd.DataFrame) -> dict[str, list[Any]]:
    names = ("column", "from", "to", "before", "after", "move", "purpose")
    return {name: _json_values(changes[name]) for name in names}


def _json_values(column: pd.Series) -> list[Any]:
    """Return a column as JSON values; objects already are."""
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        return [value if math.isfinite(value) else None for value in values]
    return values
