"""What many explanations say together: verdicts, what changes, and how groups of rows fare.

Only rows with the status ``found`` count as found, and each by its best answer. A share of rows found is over
the rows that need an answer: all but those that are ``already`` as wanted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.changes import Changes
from plausiflow.explanations.checks import STATUSES
from plausiflow.explanations.parts import Parts
from plausiflow.explanations.wording import Wording, spaced, value_text
from plausiflow.tables import Codes, Feature, read_numbers

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
    """Many explanations in a few tables; ``print`` it.

    Attributes:
        statuses: How many rows have each status.
        features: One line for each wanted class and feature: in how many found rows it changes, and in what
            share of them; of a number how often it rises and falls, and the medians of how far, in original
            units; of anything else the most common transition, and how often it occurs.
        groups: One line for each group, where groups are asked for: its rows, how many are already as wanted
            and how many found, the share found, and the found rows' mean cost and number of changes.
        text: What ``print`` shows.
    """

    statuses: pd.Series
    features: pd.DataFrame
    groups: pd.DataFrame | None
    text: str

    def __str__(self) -> str:
        return self.text


def summarise(parts: Parts, by: str | pd.Series | Sequence[Any] | None) -> Summary:
    """The tables of a result, and their text."""
    best = parts.best[parts.is_found]
    place = np.full(len(parts.answers), -1, dtype=np.int64)
    place[best] = np.arange(len(best))
    cells = parts.changed[place[parts.changed.answer] >= 0]
    codes, classes = classes_of(parts.verdicts["target"][parts.is_found], parts.labels)
    statuses = count_statuses(parts.verdicts["status"])
    features = _features(cells, parts.features, codes[place[cells.answer]], codes, classes)
    groups = None if by is None else _groups(parts, group_values(by, parts.rows))
    text = summary_text(statuses, features, groups, parts.features)
    return Summary(statuses=statuses, features=features, groups=groups, text=text)


def count_statuses(status: pd.Series) -> pd.Series:
    """How many rows have each status that occurs."""
    counts = status.value_counts()
    occurring = [name for name in STATUSES if counts.get(name)]
    return pd.Series([int(counts[name]) for name in occurring], index=occurring, dtype="int64", name="rows")


def statuses_text(counts: pd.Series) -> str:
    """Such as "500 rows: 492 found, 8 infeasible"."""
    total = int(counts.sum())
    parts = ", ".join(f"{count:,} {spaced(str(name))}" for name, count in counts.items())
    return f"{total:,} {'row' if total == 1 else 'rows'}{': ' if parts else ''}{parts}"


def classes_of(targets: pd.Series, labels: Sequence[Any]) -> tuple[Codes, list[Any]]:
    """For each row the number of its wanted class, and those that occur, in the model's order.

    Targets that are no labels, such as intervals, count as one class, "all".
    """
    known = {label: code for code, label in enumerate(labels)}
    codes = np.array([known.get(target, -1) for target in targets], dtype=np.int64)
    if not len(codes) or codes.min() < 0:
        return np.zeros(len(codes), dtype=np.int64), [ALL] if len(codes) else []
    occurring, codes = np.unique(codes, return_inverse=True)
    return codes.astype(np.int64), [labels[code] for code in occurring]


def _features(
    cells: Changes, features: Sequence[Feature], cell_codes: Codes, codes: Codes, classes: Sequence[Any]
) -> pd.DataFrame:
    """One line for each wanted class and feature; ``codes`` are the classes of cells, and of found rows."""
    sizes = np.bincount(codes, minlength=len(classes)).tolist()
    lines = []
    for code, size in enumerate(sizes):
        for j, feature in enumerate(features):
            chosen = cells[(cell_codes == code) & (cells.column == j)]
            lines.append(_line(chosen, Wording(feature), size))
    names = [feature.name for feature in features]
    index = pd.MultiIndex.from_product([list(classes), names], names=["target", "feature"])
    return pd.DataFrame(lines, index=index, columns=list(MEASURES)).astype(MEASURES)


def _line(cells: Changes, wording: Wording, size: int) -> list[Any]:
    share = len(cells) / size
    if wording.is_number:
        after, _ = read_numbers(pd.Series(cells.after, dtype=object))
        before, _ = read_numbers(pd.Series(cells.before, dtype=object))
        moved = after - before
        rises, falls = moved[moved > 0], -moved[moved < 0]
        return [len(cells), share, len(rises), _median(rises), len(falls), _median(falls), "", 0]
    texts = [wording.transition(a, b) for a, b in zip(cells.before, cells.after, strict=True)]
    kinds, counts = np.unique(np.array(texts, dtype=object).astype(str), return_counts=True)
    common, times = (str(kinds[counts.argmax()]), int(counts.max())) if len(kinds) else ("", 0)
    return [len(cells), share, 0, np.nan, 0, np.nan, common, times]


def _median(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _groups(parts: Parts, by: pd.Series) -> pd.DataFrame:
    """One line for each group of rows, those without a group among them."""
    frame = pd.DataFrame(
        {
            "already": ~parts.is_needed,
            "found": parts.is_found,
            "mean_cost": parts.found_figure("cost"),
            "mean_changes": parts.found_figure("n_changes"),
        }
    )
    grouped = frame.groupby(by.reset_index(drop=True), dropna=False, observed=True)
    groups = grouped.agg({"already": "sum", "found": "sum", "mean_cost": "mean", "mean_changes": "mean"})
    groups.insert(0, "rows", grouped.size())
    needed = (groups["rows"] - groups["already"]).to_numpy(np.float64)
    needed[needed == 0] = np.nan
    groups.insert(3, "found_share", groups["found"].to_numpy() / needed)
    return groups


def summary_text(
    statuses: pd.Series, table: pd.DataFrame, groups: pd.DataFrame | None, features: Sequence[Feature]
) -> str:
    """The tables in words, features that change most often first."""
    parts = [statuses_text(statuses)]
    wordings = {feature.name: Wording(feature) for feature in features}
    width = max((len(spaced(name)) for name in wordings), default=0)
    for start in range(0, len(table), len(features)):
        target = table.index[start][0]
        lines = table.iloc[start : start + len(features)].droplevel(0)
        lines = lines[lines["changed"] > 0].sort_values("share", ascending=False, kind="stable")
        parts.append(f"\nWhat changes{'' if target == ALL else f' towards {value_text(target)}'}:")
        for name, line in lines.iterrows():
            what = _change_text(line, wordings[str(name)])
            parts.append(f"  {spaced(str(name)):<{width}}  {line['share']:>4.0%}  {what}")
    if groups is not None:
        shown = groups.set_axis(pd.Index(map(value_text, groups.index), name=groups.index.name), axis=0)
        parts.append(f"\n{shown.to_string(float_format='{:.3f}'.format)}")
    return "\n".join(parts)


def _change_text(line: pd.Series, wording: Wording) -> str:
    if not wording.is_number:
        return f"{line['transition']} ({line['transitions']:,} of {line['changed']:,})"
    moves = (("up", "rises", "median_rise"), ("down", "falls", "median_fall"))
    texts = [
        f"{way} {wording.amount(line[median])} (median of {line[count]:,})"
        for way, count, median in moves
        if line[count]
    ]
    return ", ".join(texts) or "was missing"


def group_values(by: object, rows: pd.DataFrame) -> pd.Series:
    """The group of each row, in their order.

    Raises:
        InvalidInputError: ``by`` is no column, or has another length.
    """
    if isinstance(by, str):
        if by not in rows.columns:
            raise InvalidInputError(
                f"`by` must be a column, one of {', '.join(rows.columns)}, or a Series with one value a row; "
                f"got {by!r}."
            )
        return rows[by]
    groups: pd.Series = by if isinstance(by, pd.Series) else pd.Series(by, name="group")
    if len(groups) != len(rows):
        raise InvalidInputError(f"`by` must have {len(rows)} values, one a row; got {len(groups)}.")
    return groups
