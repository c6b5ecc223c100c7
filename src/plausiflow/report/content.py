"""The content of a report: plain tables and texts, without any knowledge of how they were found."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from plausiflow.tables import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportColumn:
    """The values of one feature, as texts.

    Attributes:
        name: Readable name of the feature.
        texts: Each distinct value once.
        codes: Position in ``texts`` of each row's value.
    """

    name: str
    texts: list[str]
    codes: list[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityCurve:
    """How dense real rows with one outcome are.

    Attributes:
        label: The outcome.
        percentiles: Percentiles of the plausibility scores of held-out rows, ascending, shape ``(101,)``.
    """

    label: str
    percentiles: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportContent:
    """Everything that one report shows. Tables refer to each other by position.

    Attributes:
        title: Title of the page.
        outcome: Readable name of what the model predicts.
        is_regression: Whether the model predicts a number.
        rows: For each row the texts ``label``, ``status``, ``reason``, ``predicted``, ``target`` and
            ``sentence``, the ``probability`` of the target, and the position of its ``curve``, -1 for none.
        columns: The values of the rows.
        answers: For each answer the row it is ``of``, its ``sentence`` and its figures; ordered by row, the
            best first. ``denser`` is the share of real rows that are less dense.
        changes: For each changed cell the ``answer``, the ``column``, its values as JSON (``from``, ``to``)
            and as texts (``before``, ``after``), and the ``move`` in units of the feature's range, NaN if it
            has no length.
        misses: For each near miss the row it is ``of``, and ``why`` it is not an answer.
        miss_changes: Changed cells of the near misses, as in ``changes``; ``answer`` is the near miss.
        features: For each target outcome and feature the changes in rows with the status found: ``target``,
            ``feature``, ``changed``, ``share``, ``rises``, ``median_rise``, ``falls``, ``median_fall``,
            ``transition``, ``transitions``; medians are texts.
        curves: Densities of real rows.
    """

    title: str
    outcome: str
    is_regression: bool
    rows: pd.DataFrame
    columns: list[ReportColumn]
    answers: pd.DataFrame
    changes: pd.DataFrame
    misses: pd.DataFrame
    miss_changes: pd.DataFrame
    features: pd.DataFrame
    curves: list[DensityCurve]
