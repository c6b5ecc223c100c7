"""The result of explaining the rows of a table."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import pandas as pd
from torch import Tensor

from plausiflow.constraints import LearnedRule
from plausiflow.core import Context, Variant
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import checks
from plausiflow.explanations.advantages import find_advantages
from plausiflow.explanations.audit import audit_result
from plausiflow.explanations.certificates import BOUNDS, certified
from plausiflow.explanations.change_roles import role_table
from plausiflow.explanations.changes import Changes, find_changes, relative_moves
from plausiflow.explanations.decision_plane import plot_map
from plausiflow.explanations.explanation import Explanation, extract_row
from plausiflow.explanations.flat_table import answer_table, nullable_dtype
from plausiflow.explanations.json_output import json_parts
from plausiflow.explanations.letter import write_letter
from plausiflow.explanations.measures import result_metrics
from plausiflow.explanations.plotting import plot, plot_changes, plot_groups, plot_population, plot_tradeoff
from plausiflow.explanations.provenance import Provenance
from plausiflow.explanations.realism import RealismJudge
from plausiflow.explanations.report_content import notebook_html, write_report
from plausiflow.explanations.row_view import row_html
from plausiflow.explanations.sentences import row_sentences
from plausiflow.explanations.summary import Summary, count_statuses, format_statuses, summarise
from plausiflow.search import Certifier, ChangeRoles
from plausiflow.tables import Feature, FloatArray, IntArray, Mask, Schema


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanations:
    """Counterfactuals and verdicts of the rows of a table; ``result[i]`` is the row at position ``i``.

    The *answers* of a row are counterfactuals that were verified on the decoded row. A row has answers if and
    only if its status is ``found`` or ``relaxed``; the first is the best.

    Attributes:
        rows: The n rows that were explained, unchanged.
        answers: The m answers, with the columns of ``rows``; ordered by row, then by cost.
        of: Position of the row that each answer belongs to, shape ``(m,)``.
        figures: For each answer ``cost``, ``l1`` and ``l2`` (encoded), ``n_changes``, ``probability`` of the
            target class, ``log_density``, ``score`` (plausible from 0, in nats) and ``judged`` (share of the
            judges that accept it, NaN without judges). A model without gradients adds ``steady``: the share
            of 32 nearby rows, a thousandth of each number's range away, with the same decision. A regressor
            adds ``prediction``. With ``durability`` there is ``lasting``: the share of retrained models,
            none of which took part in the search, that decide as wanted.
        verdicts: For each row ``status``, ``reason``, ``predicted`` and ``target`` class, and the
            ``probability`` of the target class before any change; the index is that of ``rows``.
        misses: Near misses of rows without an answer; the columns of ``rows``.
        misses_of: Position of the row that each near miss belongs to.
        misses_why: Why each near miss is not an answer.
        schema: Schema of the table.
        outcome: Name of what the model predicts.
        distance: The distance that ``cost`` is measured in: ``l2``, ``l1`` or ``l1-mad``.
        labels: Classes, in the model's order; empty for a regressor.
        encoded: Encoded rows ``(n, width)``, encoded answers ``(m, width)`` and target classes ``(n,)``.
        context: Context of the metrics.
        realism: Training rows that ``metrics`` compares answers with.
        held_out: Percentiles of the scores of held-out real rows, by target class, shape ``(k, 101)``.
        learned_rules: Rules that were learned from the training table.
        roles: What each change serves.
        model_calls: Number of calls of a model without gradients; a call evaluates many rows.
        model_rows: Approximate number of rows in these calls.
        certifier: Knows what was fitted, and proves what answers cost at least; None if made from tables.
        density: Whether answers had to be plausible.
        jurors: Number of retrained models that ``lasting`` is a share of.
        provenance: Date, model, rules, thresholds and seed, for reports.

    Raises:
        InvalidInputError: The parts are inconsistent; the message lists every problem.

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
        Ann                          income: 3,100 → 3,800
        Bob    No answer: `Immutable("job")` blocks.
    """

    rows: pd.DataFrame
    answers: pd.DataFrame
    of: IntArray
    figures: pd.DataFrame
    verdicts: pd.DataFrame
    misses: pd.DataFrame | None = None
    misses_of: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    misses_why: list[str] = field(default_factory=list)
    schema: Schema
    outcome: str = "outcome"
    distance: str = "l2"
    labels: tuple[Any, ...] = ()
    encoded: tuple[Tensor, Tensor, Tensor] | None = None
    context: Context | None = None
    realism: RealismJudge | None = None
    held_out: FloatArray | None = None
    learned_rules: Sequence[LearnedRule] = ()
    roles: ChangeRoles | None = None
    model_calls: int = 0
    model_rows: int = 0
    certifier: Certifier | None = None
    density: bool = True
    jurors: int = 0
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        problems = list(checks.table_problems(self.rows, self.answers, self.misses, self.schema))
        if not problems:
            n, m = len(self.rows), len(self.answers)
            problems += checks.answer_problems(self.of, self.figures, n, m)
            problems += checks.verdict_problems(self.verdicts, self.rows.index, self.of)
            problems += checks.miss_problems(self.misses, self.misses_of, self.misses_why, n)
            problems += checks.encoded_problems(self.encoded, n, m)
        if problems:
            raise InvalidInputError("The parts of the result are inconsistent:\n- " + "\n- ".join(problems))
        # A copy: later changes to the user's table do not change the result.
        object.__setattr__(self, "rows", self.rows.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Explanations({format_statuses(count_statuses(self.verdicts['status']))})"

    def _repr_html_(self) -> str:
        return notebook_html(self)

    @cached_property
    def counterfactuals(self) -> pd.DataFrame:
        """The best answer of each row, with the index, the columns and their order of ``rows``.

        A row without an answer is missing in every column; this includes rows with the status ``already``.
        If every row has an answer, the dtypes are those of ``rows``, unless a dtype cannot hold an answer.
        Otherwise integers and booleans become nullable (``Int64``, or as wide as they were, and ``boolean``);
        ``best_answers`` keeps them.
        """
        frame = self.answers.set_axis(pd.RangeIndex(len(self.answers)), axis=0)
        if (self.best < 0).any():
            nullable = {name: nullable_dtype(dtype) for name, dtype in frame.dtypes.items()}
            frame = frame.astype(nullable).reindex(self.best)
        else:
            frame = frame.take(self.best)
        return frame.set_axis(self.rows.index, axis=0).set_axis(self.rows.columns, axis=1)

    @cached_property
    def best_answers(self) -> pd.DataFrame:
        """The best answer of each row that has one, with the dtypes of ``rows``; the index is a part of its.

        A dtype that cannot hold an answer is widened.
        """
        answered = np.flatnonzero(self.best >= 0)
        frame = self.answers.take(self.best[answered])
        return frame.set_axis(self.rows.index.take(answered), axis=0)

    @cached_property
    def status(self) -> pd.DataFrame:
        """The verdict of each row, as in ``verdicts``, and its number of ``answers``."""
        return self.verdicts.assign(answers=np.bincount(self.of, minlength=len(self)))

    @cached_property
    def alternatives(self) -> pd.DataFrame:
        """All answers, in the order of ``figures``; the index is the row's label and the rank, from 1.

        The columns and their dtypes are those of ``rows``, so that a model can predict them; ``to_frame`` has
        costs, too.
        """
        labels = self.rows.index.take(self.of)
        names = [name or ("row" if labels.nlevels == 1 else name) for name in labels.names]
        levels = [labels.get_level_values(level) for level in range(labels.nlevels)]
        index = pd.MultiIndex.from_arrays([*levels, self.rank], names=[*names, "rank"])
        return self.answers.set_axis(index, axis=0)

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Changed cells of all answers: ``row`` (its label), ``rank``, ``feature``, ``from`` and ``to``.

        ``role`` is ``needed`` if the model no longer decides as wanted once this change alone is undone, and
        ``accompanying`` otherwise; ``serves`` then tells what suffers: ``plausibility``, ``certainty`` (the
        decision would be too close), or a rule. ``adverse`` changes, made alone, take the row farther from
        its target. Cells are compared exactly, and a missing value equals a missing value.
        """
        table = self._change_table(range(len(self.answers)))
        table.insert(0, "row", self.rows.index.to_flat_index().take(self.of[self.changed.answer]))
        return table

    @cached_property
    def sentences(self) -> pd.Series:
        """Each row in plain words: the changes of its best answer, or why it has no answer."""
        sentences = row_sentences(self, range(len(self)))
        return pd.Series(sentences, index=self.rows.index, dtype=object, name="sentence")

    @cached_property
    def best(self) -> IntArray:
        """Position of each row's best answer, -1 without an answer, shape ``(n,)``."""
        best = np.full(len(self), -1, dtype=np.int64)
        answered, first = np.unique(self.of, return_index=True)
        best[answered] = first
        return best

    @cached_property
    def rank(self) -> IntArray:
        """Rank of each answer among those of its row, from 1, shape ``(m,)``."""
        return cast(IntArray, np.arange(len(self.of)) - np.searchsorted(self.of, self.of) + 1)

    @cached_property
    def is_found(self) -> Mask:
        """Whether each row has the status ``found``, shape ``(n,)``."""
        return (self.verdicts["status"] == "found").to_numpy(dtype=bool)

    @cached_property
    def is_needed(self) -> Mask:
        """Whether each row needs an answer: its status is not ``already``, shape ``(n,)``."""
        return (self.verdicts["status"] != "already").to_numpy(dtype=bool)

    @cached_property
    def features(self) -> list[Feature]:
        """Features of the columns, in the order of ``rows``."""
        known = dict(zip(self.schema.names, self.schema.features, strict=True))
        return [known[name] for name in self.rows.columns]

    @cached_property
    def changed(self) -> Changes:
        """Changed cells of all answers, by position."""
        return find_changes(self.rows, self.answers, self.of)

    def found_figures(self, name: str) -> FloatArray:
        """Return a figure of the best answer of each found row, NaN for other rows, shape ``(n,)``."""
        values = np.full(len(self), np.nan)
        values[self.is_found] = self.figures[name].to_numpy(np.float64)[self.best[self.is_found]]
        return values

    def answer_range(self, i: int) -> range:
        """Return the positions of the answers of the row at position ``i``, best first."""
        start, stop = np.searchsorted(self.of, [i, i + 1]).tolist()
        return range(start, stop)

    def summary(self, by: str | pd.Series | Sequence[Any] | None = None) -> Summary:
        """Summarise verdicts, changes towards each class and, if ``by`` is given, groups of rows.

        Args:
            by: A column of the rows, or one value per row, in their order.

        Raises:
            InvalidInputError: ``by`` is not a column, or has the wrong length.
        """
        return summarise(self, by)

    audit = audit_result

    def metrics(self, *, variant: Variant = "sound") -> pd.Series:
        """Return the share of rows found (``coverage``) and means over the best answers of found rows.

        Rows with the status ``already`` do not count. With ``encoded`` and ``context`` the result has every
        metric of :mod:`plausiflow.core.metrics` except times; otherwise it has the columns of ``figures``.
        With ``realism`` it also has ``gower_distance``, ``gower_outliers``, ``two_sample_auc`` and
        ``learned_rules_broken``; see :mod:`plausiflow.explanations.realism`.
        """
        return result_metrics(self, variant)

    def certify(self, seconds: float = 10.0, *, workers: int = 1) -> Explanations:
        """Return the result with proofs; ``status`` has what is proven about each row.

        ``bound``: no allowed row that the model decides as wanted costs less, plausible or not.
        ``bound_status``: ``optimal``, ``bound``, ``no_recourse``, ``not_reached`` or ``not_possible``.
        ``relax``: the fewest rules to relax. ``proof``: all that in words. See docs/guide/proofs.md.

        Args:
            seconds: Seconds that the proof of each row may take.
            workers: Processes that prove at the same time.
        """
        return certified(self, seconds, workers)

    def to_frame(self) -> pd.DataFrame:
        """Return all answers of all rows in one table, of all ranks, and a line for a row without an answer.

        Columns: ``row`` (its label), ``rank`` (1 for the best answer), ``status``, ``reason``, ``predicted``,
        ``target``, the features of the answer, and ``cost``, ``probability``, ``score``, ``judged`` or
        ``prediction``. If a feature has one of these names, the column has the prefix ``plausiflow_``.
        """
        return answer_table(self, pd.DataFrame(index=self.rows.index))

    @overload
    def to_json(self, path: None = None) -> str: ...

    @overload
    def to_json(self, path: str | Path) -> None: ...

    def to_json(self, path: str | Path | None = None) -> str | None:
        """Return strict JSON, or write it to ``path``; missing and infinite numbers are null."""
        if path is None:
            return "".join(json_parts(self))
        # A lone surrogate, which UTF-8 cannot hold, becomes the escape that JSON has for it.
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json_parts(self))
        return None

    to_html = write_report
    letter = write_letter
    plot, plot_changes, plot_population = plot, plot_changes, plot_population
    plot_tradeoff, plot_map, plot_groups = plot_tradeoff, plot_map, plot_groups

    def __iter__(self) -> Iterator[Explanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Explanation:
        """Return the row at position ``i``; negative positions count from the end."""
        i = self._position(i)
        label, verdict, answers = self.rows.index[i], self.verdicts.iloc[i], self.answer_range(i)
        selected = slice(answers.start, answers.stop)
        misses = []
        if self.misses is not None:
            near = np.flatnonzero(self.misses_of == i).tolist()
            misses = [(extract_row(self.misses, j, label), self.misses_why[j]) for j in near]
        return Explanation(
            row=label,
            status=verdict["status"],
            reason=verdict["reason"],
            predicted=verdict["predicted"],
            target=verdict["target"],
            probability=float(verdict["probability"]),
            sentence=row_sentences(self, range(i, i + 1))[0],
            factual=extract_row(self.rows, i, label),
            counterfactuals=[extract_row(self.answers, a, label) for a in answers],
            figures=self.figures.iloc[selected].set_axis(pd.Index(self.rank[selected], name="rank"), axis=0),
            changes=self._change_table(answers),
            misses=misses,
            **{name: verdict[name] for name in BOUNDS if name in verdict},
            prove=lambda seconds: certified(self, seconds, 1, [i])[i],
            moves=relative_moves(self.changed.select(answers), self.features),
            draw=partial(row_html, self, i),
            find_references=None if self.certifier is None else partial(self.certifier.references.of, i),
        )

    def _position(self, i: int) -> int:
        position = operator.index(i)
        if not -len(self) <= position < len(self):
            raise IndexError(f"position {position} is not among {len(self)} rows")
        return position % len(self)

    def _change_table(self, answers: range) -> pd.DataFrame:
        """Return the changed cells of consecutive answers."""
        changes = self.changed.select(answers)
        return pd.DataFrame(
            {
                "rank": self.rank[changes.answer],
                "feature": self.rows.columns.take(changes.column),
                "from": pd.Series(changes.before, dtype=object),
                "to": pd.Series(changes.after, dtype=object),
            }
        ).join(self.roles_of(answers))

    @cached_property
    def advantages(self) -> list[list[str]]:
        """What speaks for each answer among several of its row: least cost, fewest changes, most certain."""
        return find_advantages(self.of, self.figures)

    @cached_property
    def change_roles(self) -> pd.DataFrame:
        """``role``, ``serves`` and ``adverse`` of all changed cells, in the order of ``changed``."""
        return role_table(self.changed, self.rows.columns, self.roles)

    def roles_of(self, answers: range) -> pd.DataFrame:
        """Return the roles of the changed cells of consecutive answers."""
        first, last = np.searchsorted(self.changed.answer, [answers.start, answers.stop])
        return self.change_roles.iloc[first:last].reset_index(drop=True)
