"""The content of a report: plain tables and texts, without any knowledge of how they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from plausiflow.report.report_table import ReportTable
from plausiflow.tables import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportContent:
    """Everything that one report shows. Tables refer to each other by position.

    Attributes:
        title: Title of the page.
        outcome: Readable name of what the model predicts.
        is_regression: Whether the model predicts a number.
        distance: The distance that the costs are measured in.
        rows: For each row the texts ``label``, ``status``, ``reason``, ``predicted``, ``target`` and
            ``sentence``, the ``probability`` of the target, and the position of its ``curve``, -1 for none.
        columns: For each feature its readable ``name``, its distinct values as ``texts``, and as ``codes``
            the position of each row's value in these.
        answers: For each answer the row it is ``of``, its ``sentence`` and its figures; ordered by row, the
            best first. ``denser`` is the share of real rows that are less dense.
        changes: For each changed cell the ``answer``, the ``column``, its values as JSON (``from``, ``to``)
            and as texts (``before``, ``after``), the ``move`` in units of the feature's range, NaN if it
            has no length.
        misses: For each near miss the row it is ``of``, and ``why`` it is not an answer.
        miss_changes: Changed cells of the near misses, as in ``changes``; ``answer`` is the near miss.
        features: For each target outcome and feature the changes in rows with the status found: ``target``,
            ``feature``, ``changed``, ``share``, ``rises``, ``median_rise``, ``falls``, ``median_fall``,
            ``transition``, ``transitions``; medians are texts.
        learned_rules: For each rule that was learned from the table its ``description``, the number of
            training ``rows``, of those that it is about (``support``) and of ``exceptions``, and whether it
            is ``active``.
        curves: For each curve the outcome, and the percentiles of the plausibility scores of held-out rows
            with that outcome, ascending, shape ``(101,)``.
        groups: Tables about few actions for many rows, if there are any.
        audit: Tables that compare groups of rows, if there are any.
        audit_note: What such a comparison does not say.
        provenance: Names and texts of what is known about the origin of the result.
    """

    title: str
    outcome: str
    is_regression: bool
    distance: str
    rows: pd.DataFrame
    columns: list[dict[str, Any]]
    answers: pd.DataFrame
    changes: pd.DataFrame
    misses: pd.DataFrame
    miss_changes: pd.DataFrame
    features: pd.DataFrame
    learned_rules: pd.DataFrame
    curves: list[tuple[str, FloatArray]]
    groups: tuple[ReportTable, ...] = ()
    audit: tuple[ReportTable, ...] = ()
    audit_note: str = ""
    provenance: tuple[tuple[str, tuple[str, ...]], ...] = ()
