"""The explanation of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """One row, what was found for it, and why if nothing was.

    Attributes:
        row: Its label.
        status: Its verdict.
        reason: Why, where that is known; else empty.
        predicted: Class of the row by the model, or ``None``.
        target: Targets class, or ``None``.
        probability: Of the wanted class before any change; NaN if unknown.
        sentence: All of it in plain words.
        factual: The row; cells keep their types.
        counterfactuals: Its answers, best first; cells keep their types.
        figures: Cost, probability and more of each answer; the index is the rank, from 1.
        changes: Changed cells: rank, feature, from, to.
        misses: Rows that nearly were an answer, where there is none, each with what it lacks.
    """

    row: Any
    status: str
    reason: str
    predicted: Any
    target: Any
    probability: float
    sentence: str
    factual: pd.Series
    counterfactuals: list[pd.Series]
    figures: pd.DataFrame
    changes: pd.DataFrame
    misses: list[tuple[pd.Series, str]]

    def __repr__(self) -> str:
        return f"Explanation(row {self.row!r}, {self.status}: {self.sentence})"


def row_of(frame: pd.DataFrame, position: int, label: object) -> pd.Series:
    """One row of a table, its cells with the types they have there."""
    cells = [column.iloc[position] for _, column in frame.items()]
    row: pd.Series = pd.Series(dict(zip(frame.columns, cells, strict=True)), dtype=object)
    return row.rename(label)  # type: ignore[call-overload,no-any-return]
