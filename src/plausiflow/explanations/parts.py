"""The parts of a result, checked to belong together, and what follows from them by position."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pandas as pd
from torch import Tensor

from plausiflow.core import Context
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import checks
from plausiflow.explanations.changes import Changes, find_changes
from plausiflow.explanations.wording import is_absent, listed, phrases, spaced, value_text, verdict_sentence
from plausiflow.tables import Codes, Feature, Mask, Numbers, Schema


def _no_positions() -> Codes:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Parts:
    """Rows, their answers and verdicts.

    A row's *answers* are counterfactuals that were verified on the decoded row. It has some exactly where its
    status is ``found`` or ``relaxed``; the first is its best.

    Attributes:
        rows: The n rows that were explained, as they came.
        answers: The m answers, with the columns of ``rows``; ordered by row, then by cost.
        of: Position of the row that each answer belongs to, shape ``(m,)``.
        figures: For each answer ``cost``, ``l1`` and ``l2`` (encoded), ``n_changes``, ``probability`` of the
            wanted class, ``log_density``, ``score`` (nats above what is asked) and ``judged`` (share of
            judges that accept it, NaN where it was not judged). For a model without gradients ``steady``:
            the share of 32 fresh corners, a thousandth of each number's range away, that it decides alike;
            for a number that is predicted, the ``prediction``.
        verdicts: For each row ``status``, ``reason``, ``predicted`` and ``target`` class, and the
            ``probability`` of the wanted class as the row is; the index is that of ``rows``.
        misses: Rows that nearly are an answer, where there is none; columns as in ``rows``.
        misses_of: Position of the row that each miss belongs to.
        misses_why: What each miss lacks.
        schema: Of the table.
        outcome: What the model predicts.
        labels: Its classes, in the model's order.
        encoded: Encoded rows ``(n, width)`` and answers ``(m, width)``, and wanted classes ``(n,)``.
        context: What metrics measure against.
        held_out: Percentiles of the scores of real rows that no member had seen, by wanted class, shape
            ``(k, 101)``: how dense real rows are, beside which the ``score`` of an answer stands.
        model_calls: How often a model without gradients was asked, all rows of a call at once.
        model_rows: About how many rows it was asked.

    Raises:
        InvalidInputError: The parts do not belong together; the message lists every problem.
    """

    rows: pd.DataFrame
    answers: pd.DataFrame
    of: Codes
    figures: pd.DataFrame
    verdicts: pd.DataFrame
    misses: pd.DataFrame | None = None
    misses_of: Codes = field(default_factory=_no_positions)
    misses_why: list[str] = field(default_factory=list)
    schema: Schema
    outcome: str = "outcome"
    labels: tuple[Any, ...] = ()
    encoded: tuple[Tensor, Tensor, Tensor] | None = None
    context: Context | None = None
    held_out: Numbers | None = None
    model_calls: int = 0
    model_rows: int = 0

    def __post_init__(self) -> None:
        problems = list(checks.table_problems(self.rows, self.answers, self.misses, self.schema))
        if not problems:
            n, m = len(self.rows), len(self.answers)
            problems += checks.answer_problems(self.of, self.figures, n, m)
            problems += checks.verdict_problems(self.verdicts, self.rows.index, self.of)
            problems += checks.miss_problems(self.misses, self.misses_of, self.misses_why, n)
            problems += checks.encoded_problems(self.encoded, n, m)
        if problems:
            raise InvalidInputError("The parts of the result do not fit:\n- " + "\n- ".join(problems))
        # A copy: what people do to their table later changes nothing here.
        object.__setattr__(self, "rows", self.rows.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def position(self, i: int) -> int:
        """A position of a row, counted from the end where negative.

        Raises:
            IndexError: There is no such row.
            TypeError: This is no position; rows are not found by their labels.
        """
        position = operator.index(i)
        if not -len(self) <= position < len(self):
            raise IndexError(f"position {position} is not among {len(self)} rows")
        return position % len(self)

    def answers_of(self, i: int) -> range:
        """Positions of the answers of the row at position ``i``, best first."""
        start, stop = np.searchsorted(self.of, [i, i + 1]).tolist()
        return range(start, stop)

    @cached_property
    def best(self) -> Codes:
        """Position of each row's best answer, -1 where it has none, shape ``(n,)``."""
        best = np.full(len(self), -1, dtype=np.int64)
        answered, first = np.unique(self.of, return_index=True)
        best[answered] = first
        return best

    @cached_property
    def rank(self) -> Codes:
        """Rank of each answer among those of its row, from 1, shape ``(m,)``."""
        return cast(Codes, np.arange(len(self.of)) - np.searchsorted(self.of, self.of) + 1)

    @cached_property
    def is_found(self) -> Mask:
        """Which rows have the status ``found``, shape ``(n,)``."""
        return (self.verdicts["status"] == "found").to_numpy(dtype=bool)

    @cached_property
    def is_needed(self) -> Mask:
        """Which rows need an answer: all that are not already as wanted, shape ``(n,)``."""
        return (self.verdicts["status"] != "already").to_numpy(dtype=bool)

    def found_figure(self, name: str) -> Numbers:
        """A figure of the best answer of each found row, NaN for other rows, shape ``(n,)``."""
        values = np.full(len(self), np.nan)
        values[self.is_found] = self.figures[name].to_numpy(np.float64)[self.best[self.is_found]]
        return values

    @cached_property
    def features(self) -> list[Feature]:
        """Those of the columns, in the order of the rows."""
        known = dict(zip(self.schema.names, self.schema.features, strict=True))
        return [known[name] for name in self.rows.columns]

    @cached_property
    def changed(self) -> Changes:
        """The changed cells of all answers, by position."""
        return find_changes(self.rows, self.answers, self.of)

    def cells_of(self, answers: range) -> Changes:
        """The changed cells of some answers that follow each other."""
        first, last = np.searchsorted(self.changed.answer, [answers.start, answers.stop])
        return self.changed[first:last]

    def answer_sentences(self, answers: range) -> list[str]:
        """The changes of some answers that follow each other, in plain words."""
        cells = self.cells_of(answers)
        written = phrases(cells, self.features)
        bounds = np.searchsorted(cells.answer, np.arange(answers.start, answers.stop + 1)).tolist()
        return [listed(written[start:stop]) or "no change" for start, stop in pairwise(bounds)]

    def row_sentences(self, rows: range) -> list[str]:
        """Some rows that follow each other, in plain words."""
        first, last = np.searchsorted(self.of, [rows.start, rows.stop]).tolist()
        texts = self.answer_sentences(range(first, last))
        own = slice(rows.start, rows.stop)
        changes = [texts[a - first] if a >= 0 else "" for a in self.best[own].tolist()]
        columns = (self.verdicts[name].iloc[own].tolist() for name in ("status", "reason", "target"))
        return [
            verdict_sentence(status, reason, text, self.wanted(target))
            for text, status, reason, target in zip(changes, *columns, strict=True)
        ]

    def wanted(self, target: object) -> str:
        """What is asked for, such as "loan is granted"; empty where that is unknown."""
        return "" if is_absent(target) else f"{spaced(self.outcome)} is {value_text(target)}"
