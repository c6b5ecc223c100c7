"""The result of explaining rows of a table: answers, verdicts, changes, sentences, and ways to pass it on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pandas as pd

from plausiflow.core import Variant
from plausiflow.explanations.changes import Changes
from plausiflow.explanations.document import json_parts
from plausiflow.explanations.drawing import draw
from plausiflow.explanations.measuring import measure
from plausiflow.explanations.parts import Parts
from plausiflow.explanations.reporting import content_of, notebook
from plausiflow.explanations.single import Explanation, row_of
from plausiflow.explanations.summary import Summary, count_statuses, statuses_text, summarise
from plausiflow.report import page_parts


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanations(Parts):
    """What was found for the rows of a table; ``result[i]`` is the row at position ``i`` alone.

    Its attributes are those of :class:`~plausiflow.explanations.parts.Parts`.

    Example:
        >>> from plausiflow.tables.schema import Schema
        >>> rows = pd.DataFrame({"income": [3100, 2000], "job": ["clerk", "none"]}, index=["Ann", "Bob"])
        >>> figures = ["cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged"]
        >>> result = Explanations(
        ...     rows=rows,
        ...     answers=pd.DataFrame({"income": [3800], "job": ["clerk"]}),
        ...     of=np.array([0]),
        ...     figures=pd.DataFrame(1.0, index=[0], columns=figures),
        ...     verdicts=pd.DataFrame(
        ...         {"status": ["found", "infeasible"], "reason": ["", '`Immutable("job")` blocks']}
        ...         | {"predicted": "no", "target": "yes", "probability": 0.2},
        ...         index=rows.index,
        ...     ),
        ...     schema=Schema.infer(rows),
        ... )
        >>> result
        Explanations(2 rows: 1 found, 1 infeasible)
        >>> print(result.sentences.to_string())
        Ann                           income 3,100 → 3,800
        Bob    No answer: `Immutable("job")` blocks.
        >>> result.counterfactuals
             income    job
        Ann    3800  clerk
        Bob    <NA>    NaN
    """

    def __repr__(self) -> str:
        return f"Explanations({statuses_text(count_statuses(self.verdicts['status']))})"

    def _repr_html_(self) -> str:
        return notebook(self)

    @cached_property
    def counterfactuals(self) -> pd.DataFrame:
        """The best answer of each row; index, columns and their order are those of ``rows``.

        Where every row has an answer, so are the dtypes, but for one that cannot hold an answer. A row
        without an answer, one that is already as wanted among them, is missing in every column: nothing is
        invented. Integers and booleans that cannot be missing then become nullable ones (``Int64``, or as
        wide as they were, and ``boolean``).
        """
        frame = self.answers.set_axis(pd.RangeIndex(len(self.answers)), axis=0)
        if (self.best < 0).any():
            nullable = {name: _nullable(dtype) for name, dtype in frame.dtypes.items()}
            frame = frame.astype(nullable).reindex(self.best)
        else:
            frame = frame.take(self.best)
        return frame.set_axis(self.rows.index, axis=0).set_axis(self.rows.columns, axis=1)

    @cached_property
    def status(self) -> pd.DataFrame:
        """The verdict of each row, as in ``verdicts``, and its number of ``answers``."""
        return self.verdicts.assign(answers=np.bincount(self.of, minlength=len(self)))

    @cached_property
    def alternatives(self) -> pd.DataFrame:
        """All answers; the index is the row's label and the rank, from 1. ``figures`` has the same order."""
        labels = self.rows.index.take(self.of)
        names = [name or ("row" if labels.nlevels == 1 else name) for name in labels.names]
        levels = [labels.get_level_values(level) for level in range(labels.nlevels)]
        index = pd.MultiIndex.from_arrays([*levels, self.rank], names=[*names, "rank"])
        return self.answers.set_axis(index, axis=0)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Changed cells of all answers: ``row`` (its label), ``rank``, ``feature``, ``from`` and ``to``.

        Cells are compared exactly, and a missing value equals a missing value.
        """
        table = self._change_table(self.changed)
        table.insert(0, "row", self.rows.index.to_flat_index().take(self.of[self.changed.answer]))
        return table

    @cached_property
    def sentences(self) -> pd.Series:
        """Each row in plain words: the changes of its best answer, or why there is none."""
        return pd.Series(
            self.row_sentences(range(len(self))), index=self.rows.index, dtype=object, name="sentence"
        )

    def summary(self, by: str | pd.Series | Sequence[Any] | None = None) -> Summary:
        """Verdicts, what changes towards each class and, for groups of rows, how they fare.

        Args:
            by: A column of the rows, or one value a row, in their order.

        Raises:
            InvalidInputError: ``by`` is no column, or has another length.
        """
        return summarise(self, by)

    def metrics(self, *, variant: Variant = "sound") -> pd.Series:
        """The share of rows found (``coverage``), and means over the best answers of found rows.

        Rows that are already as wanted count nowhere. With ``encoded`` and ``context`` every metric of
        :mod:`plausiflow.core.metrics` is among them, but for times; else there is what ``figures`` holds.
        """
        return measure(self, variant)

    @overload
    def to_json(self, path: None = None) -> str: ...

    @overload
    def to_json(self, path: str | Path) -> None: ...

    def to_json(self, path: str | Path | None = None) -> str | None:
        """All of it as strict JSON, a text or a file; missing and infinite numbers are null."""
        if path is None:
            return "".join(json_parts(self))
        # A lone surrogate, which UTF-8 cannot hold, becomes the escape that JSON has for it.
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json_parts(self))
        return None

    def to_html(self, path: str | Path, title: str | None = None) -> None:
        """Write a report: one HTML file for a browser, a phone or a printer, which needs no network.

        Args:
            path: Of the file.
            title: Of the page; by default it names the outcome.
        """
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(page_parts(content_of(self, title)))

    def plot(self, i: int, *, rank: int = 1) -> Any:  # noqa: ANN401
        """A matplotlib figure of what changes in an answer of the row at position ``i``.

        Raises:
            InvalidInputError: The row has no answer of this rank.
            MissingExtraError: matplotlib is not installed.
        """
        return draw(self, self.position(i), rank)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Explanation:
        """The row at position ``i``, counted from the end where negative."""
        i = self.position(i)
        label, verdict, answers = self.rows.index[i], self.verdicts.iloc[i], self.answers_of(i)
        own = slice(answers.start, answers.stop)
        misses = []
        if self.misses is not None:
            near = np.flatnonzero(self.misses_of == i).tolist()
            misses = [(row_of(self.misses, j, label), self.misses_why[j]) for j in near]
        return Explanation(
            row=label,
            status=verdict["status"],
            reason=verdict["reason"],
            predicted=verdict["predicted"],
            target=verdict["target"],
            probability=float(verdict["probability"]),
            sentence=self.row_sentences(range(i, i + 1))[0],
            factual=row_of(self.rows, i, label),
            counterfactuals=[row_of(self.answers, a, label) for a in answers],
            figures=self.figures.iloc[own].set_axis(pd.Index(self.rank[own], name="rank"), axis=0),
            changes=self._change_table(self.cells_of(answers)),
            misses=misses,
        )

    def _change_table(self, cells: Changes) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "rank": self.rank[cells.answer],
                "feature": self.rows.columns.take(cells.column),
                "from": pd.Series(cells.before, dtype=object),
                "to": pd.Series(cells.after, dtype=object),
            }
        )


def _nullable(dtype: Any) -> Any:  # noqa: ANN401
    """The dtype that holds the same values, and missing ones."""
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biu":
        return dtype
    if dtype.kind == "b":
        return pd.BooleanDtype()
    return f"{'U' * (dtype.kind == 'u')}Int{8 * dtype.itemsize}"
