"""The explanation of one row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.reasons import principal_reasons
from plausiflow.search import NeededDifferences
from plausiflow.tables import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """One row, its counterfactuals and its verdict.

    Attributes:
        row: Label of the row.
        status: Verdict of the row.
        reason: Reason of the verdict; empty if unknown.
        predicted: Class that the model predicts, or ``None``.
        target: Target class, or ``None``.
        probability: Probability of the target class before any change; NaN if unknown.
        sentence: The verdict in plain words.
        factual: The row; cells keep their types.
        counterfactuals: The answers, best first; cells keep their types.
        figures: Cost, probability and other measures of each answer; the index is the rank, from 1.
        changes: Changed cells: rank, feature, from, to.
        misses: Near misses of a row without an answer, each with the reason why it is not an answer.
        bound: Proven lower bound of the cost, after :meth:`certify`; NaN if nothing is proven.
        bound_status: What is proven; see :meth:`Explanations.certify`.
        relax: The fewest rules to relax, if no allowed row is decided as wanted.
        proof: What is proven, in words.
        prove: Returns the explanation with its proof, given the seconds that it may take.
        moves: How far each changed cell moves, as a share of its range; NaN without a length.
        draw: Returns the row and its answers side by side, for notebooks.
        find_references: Returns what sets the row apart from training rows that are decided as wanted.
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
    bound: float = math.nan
    bound_status: str = ""
    relax: tuple[str, ...] = ()
    proof: str = ""
    prove: Callable[[float], Explanation] | None = None

    def certify(self, seconds: float = 10.0) -> Explanation:
        """Return the explanation with what is proven in some seconds; see :meth:`Explanations.certify`."""
        if self.prove is None:
            raise InvalidInputError(
                "Proofs need an explanation that belongs to a result; this one was made on its own. "
                "Use `result[i].certify()`."
            )
        return self.prove(seconds)

    moves: FloatArray | None = None
    find_references: Callable[[], NeededDifferences | None] | None = None
    draw: Callable[[], str] | None = None
    reasons = principal_reasons

    def __repr__(self) -> str:
        return f"Explanation(row {self.row!r}, {self.status}: {self.sentence})"

    def _repr_html_(self) -> str | None:
        return None if self.draw is None else self.draw()


def extract_row(frame: pd.DataFrame, position: int, label: object) -> pd.Series:
    """Return one row of a table, its cells with the types that they have there."""
    cells = [column.iloc[position] for _, column in frame.items()]
    row: pd.Series = pd.Series(dict(zip(frame.columns, cells, strict=True)), dtype=object)
    return row.rename(label)  # type: ignore[call-overload,no-any-return]
