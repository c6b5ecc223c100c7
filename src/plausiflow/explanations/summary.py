"""Summaries of many explanations: verdicts, changes and groups of rows.

Only rows with the status ``found`` count as found, each with its best answer. The share of rows found is over
the rows that need an answer: all except those with the status ``already``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.changes import Changes
from plausiflow.explanations.checks import STATUSES
from plausiflow.explanations.formatting import FeatureFormatter, format_value
from plausiflow.tables import Feature, FloatArray, IntArray, read_numbers

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

ALL = "all"
MEASURES: dict[Hashable, Any] = {
    "changed": "int64",
    "share": "float64",
    "rises": "int64",
    "median_rise": "float64",
    "falls": "int64",
    "median_fall": "float64",
    "transition": object,
    "transitions": "int64",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """Summary tables of many explanations; ``print`` shows them as text.

    Attributes:
        statuses: Number of rows with each status.
        features: One line per target class and feature: the number and the share of found rows in which it
            changes. Numbers have the counts of rises and falls and their medians, in original units; other
            features have the most common transition and its count.
        groups: One line per group, or None without groups: its rows, how many have the status ``already`` and
            ``found``, the share found, and the mean cost and mean number of changes of the found rows.
        text: The text that ``print`` shows.
    """

    statuses: pd.Series
    features: pd.DataFrame
    groups: pd.DataFrame | None
    text: str

    def __str__(self) -> str:
        return self.text


def summarise(result: Explanations, by: str | pd.Series | Sequence[Any] | None) -> Summary:
    """Summarise a result, with groups of rows if ``by`` is given."""
    best = result.best[result.is_found]
    found_row = np.full(len(result.answers), -1, dtype=np.int64)
    found_row[best] = np.arange(len(best))
    cells = result.changed[found_row[result.changed.answer] >= 0]
    codes, classes = _target_codes(result.verdicts["target"][result.is_found], result.labels)
    statuses = count_statuses(result.verdicts["status"])
    features = _feature_table(cells, result.features, codes[found_row[cells.answer]], codes, classes)
    groups = None if by is None else _group_table(result, _group_values(by, result.rows))
    text = _summary_text(statuses, features, groups, result.features)
    return Summary(statuses=statuses, features=features, groups=groups, text=text)


def count_statuses(status: pd.Series) -> pd.Series:
    """Count the rows of each status that occurs."""
    counts = status.value_counts()
    occurring = [name for name in STATUSES if counts.get(name)]
    return pd.Series([int(counts[name]) for name in occurring], index=occurring, dtype="int64", name="rows")


def format_statuses(counts: pd.Series) -> str:
    """Return a text such as "500 rows: 492 found, 8 infeasible"."""
    total = int(counts.sum())
    parts = ", ".join(f"{count:,} {str(name).replace('_', ' ')}" for name, count in counts.items())
    return f"{total:,} {'row' if total == 1 else 'rows'}{': ' if parts else ''}{parts}"


def _target_codes(targets: pd.Series, labels: Sequence[Any]) -> tuple[IntArray, list[Any]]:
    """Return the code of each row's target class, and the classes that occur, in the model's order.

    Targets that are not labels, such as intervals, count as one class, "all".
    """
    known = {label: code for code, label in enumerate(labels)}
    codes = np.array([known.get(target, -1) for target in targets], dtype=np.int64)
    if not len(codes) or codes.min() < 0:
        return np.zeros(len(codes), dtype=np.int64), [ALL] if len(codes) else []
    occurring, codes = np.unique(codes, return_inverse=True)
    return codes.astype(np.int64), [labels[code] for code in occurring]


def _feature_table(
    cells: Changes, features: Sequence[Feature], cell_codes: IntArray, codes: IntArray, classes: Sequence[Any]
) -> pd.DataFrame:
    """Return one line per target class and feature; ``codes`` are the classes of found rows."""
    lines = []
    for code, size in enumerate(np.bincount(codes, minlength=len(classes)).tolist()):
        for j, feature in enumerate(features):
            selected = cells[(cell_codes == code) & (cells.column == j)]
            lines.append(_feature_line(selected, FeatureFormatter(feature), size))
    names = [feature.name for feature in features]
    index = pd.MultiIndex.from_product([list(classes), names], names=["target", "feature"])
    return pd.DataFrame(lines, index=index, columns=list(MEASURES)).astype(MEASURES)


def _feature_line(cells: Changes, formatter: FeatureFormatter, size: int) -> list[Any]:
    share = len(cells) / size
    if formatter.is_number:
        after, _ = read_numbers(pd.Series(cells.after, dtype=object))
        before, _ = read_numbers(pd.Series(cells.before, dtype=object))
        moves = after - before
        rises, falls = moves[moves > 0], -moves[moves < 0]
        return [len(cells), share, len(rises), _median(rises), len(falls), _median(falls), "", 0]
    texts = [formatter.format_transition(a, b) for a, b in zip(cells.before, cells.after, strict=True)]
    kinds, counts = np.unique(np.array(texts, dtype=object).astype(str), return_counts=True)
    common, times = (str(kinds[counts.argmax()]), int(counts.max())) if len(kinds) else ("", 0)
    return [len(cells), share, 0, np.nan, 0, np.nan, common, times]


def _median(values: FloatArray) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _group_table(result: Explanations, by: pd.Series) -> pd.DataFrame:
    """Return one line per group; rows without a group form a group."""
    frame = pd.DataFrame(
        {
            "already": ~result.is_needed,
            "found": result.is_found,
            "mean_cost": result.found_figures("cost"),
            "mean_changes": result.found_figures("n_changes"),
        }
    )
    grouped = frame.groupby(by.reset_index(drop=True), dropna=False, observed=True)
    groups = grouped.agg({"already": "sum", "found": "sum", "mean_cost": "mean", "mean_changes": "mean"})
    groups.insert(0, "rows", grouped.size())
    needed = (groups["rows"] - groups["already"]).to_numpy(np.float64)
    needed[needed == 0] = np.nan
    groups.insert(3, "found_share", groups["found"].to_numpy() / needed)
    return groups


def _summary_text(
    statuses: pd.Series, table: pd.DataFrame, groups: pd.DataFrame | None, features: Sequence[Feature]
) -> str:
    """Return the tables as text; features that change most often come first."""
    parts = [format_statuses(statuses)]
    formatters = {feature.name: FeatureFormatter(feature) for feature in features}
    width = max((len(formatter.name) for formatter in formatters.values()), default=0)
    for start in range(0, len(table), len(features)):
        target = table.index[start][0]
        lines = table.iloc[start : start + len(features)].droplevel(0)
        lines = lines[lines["changed"] > 0].sort_values("share", ascending=False, kind="stable")
        parts.append(f"\nWhat changes{'' if target == ALL else f' towards {format_value(target)}'}:")
        for name, line in lines.iterrows():
            formatter = formatters[str(name)]
            text = _change_text(line, formatter)
            parts.append(f"  {formatter.name:<{width}}  {line['share']:>4.0%}  {text}")
    if groups is not None:
        shown = groups.set_axis(pd.Index(map(format_value, groups.index), name=groups.index.name), axis=0)
        parts.append(f"\n{shown.to_string(float_format='{:.3f}'.format)}")
    return "\n".join(parts)


def _change_text(line: pd.Series, formatter: FeatureFormatter) -> str:
    if not formatter.is_number:
        return f"{line['transition']} ({line['transitions']:,} of {line['changed']:,})"
    texts = [
        f"{direction} {formatter.format_number(line[median])} (median of {line[count]:,})"
        for direction, count, median in (("up", "rises", "median_rise"), ("down", "falls", "median_fall"))
        if line[count]
    ]
    return ", ".join(texts) or "was missing"


def _group_values(by: object, rows: pd.DataFrame) -> pd.Series:
    """Return the group of each row, in their order."""
    if isinstance(by, str):
        if by not in rows.columns:
            raise InvalidInputError(
                f"`by` must be a column, one of {', '.join(rows.columns)}, or a Series with one value per "
                f"row; got {by!r}."
            )
        return rows[by]
    groups: pd.Series = by if isinstance(by, pd.Series) else pd.Series(by, name="group")
    if len(groups) != len(rows):
        raise InvalidInputError(f"`by` must have {len(rows)} values, one per row; got {len(groups)}.")
    return groups
