"""What a report shows: plain tables and texts. Nothing here knows how they were found."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from plausiflow.tables import Numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """The values of one feature, written for people.

    Attributes:
        name: Of the feature, as it is read.
        texts: Each different value once.
        codes: For each row which of the texts it has.
    """

    name: str
    texts: list[str]
    codes: list[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """How dense real rows with an outcome are, in nats above the threshold.

    Attributes:
        label: The outcome.
        percentiles: Of the scores of rows that the density had not seen, lowest first, shape ``(101,)``.
    """

    label: str
    percentiles: Numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Content:
    """One report. Tables refer to each other by position.

    Attributes:
        title: Of the page.
        outcome: What the model predicts, as it is read.
        measured: Whether that is a number.
        rows: For each row the texts ``label``, ``status``, ``reason``, ``predicted``, ``target`` and
            ``sentence``, the ``probability`` of what is wanted, and which ``curve`` it has, -1 for none.
        columns: What the rows hold.
        answers: For each answer the row it is ``of``, its ``sentence`` and its figures; ordered by row, the
            best first. ``denser`` is the share of real rows that are less dense.
        changes: For each changed cell of the answers the ``answer``, the ``column``, what it holds as JSON
            (``from``, ``to``) and as texts (``before``, ``after``), and the ``move`` in ranges of the
            feature, NaN where that has no length.
        misses: For each nearest miss the row it is ``of``, and ``why`` it is none.
        miss_changes: Its changed cells, likewise; ``answer`` is the miss.
        features: For each wanted outcome and feature what changes in rows with the status found: ``target``,
            ``feature``, ``changed``, ``share``, ``rises``, ``median_rise``, ``falls``, ``median_fall``,
            ``transition``, ``transitions``; medians are texts.
        curves: How dense real rows are.
    """

    title: str
    outcome: str
    measured: bool
    rows: pd.DataFrame
    columns: list[Column]
    answers: pd.DataFrame
    changes: pd.DataFrame
    misses: pd.DataFrame
    miss_changes: pd.DataFrame
    features: pd.DataFrame
    curves: list[Curve]
