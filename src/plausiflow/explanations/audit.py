"""An audit: does the burden of changing a decision fall equally on groups of rows?

For each group of rows, the share with a counterfactual, its cost, its changes and its plausibility are
compared with those of all other rows. What is shown is association, not cause.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.formatting import format_value
from plausiflow.explanations.json_output import json_value
from plausiflow.explanations.matching import feature_matrix, match_rows
from plausiflow.explanations.resampling import (
    adjust_p_values,
    bootstrap_interval,
    permutation_p_values,
    sign_flip_p_value,
)
from plausiflow.tables import FloatArray, Mask
from plausiflow.validation import is_whole, raise_unless, to_float

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

FIGURES = {"cost": "cost", "changes": "n_changes", "plausibility": "score", "lasting": "lasting"}
MEASURE_NAMES = {
    "found": "share with an answer", "cost": "cost of the changes", "changes": "number of changes",
    "plausibility": "plausibility score", "lasting": "share of retrained models that decide so",
}  # fmt: skip
MOST_LEVELS = 20
MISSING = "missing"
NOTE = (
    "A difference is an association between a group and its burden, not its cause. The model, the data, the "
    "rules and what else differs between groups may all contribute."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditSettings:
    """How groups are compared.

    Attributes:
        min_size: Smallest number of rows that need an answer, in the group and outside, for a comparison.
        permutations: Permutations of each test.
        samples: Bootstrap samples of each interval.
        confidence: Share of such intervals that hold the true difference.
        matched: Whether to compare matched rows, too.
        random_state: Seed of permutations and samples.
    """

    min_size: int = 30
    permutations: int = 1999
    samples: int = 1000
    confidence: float = 0.95
    matched: bool = True
    random_state: int = 0

    def __post_init__(self) -> None:
        counts = ("min_size", "permutations", "samples")
        fine = {
            name: ("a whole number, 2 or more", is_whole(getattr(self, name)) and getattr(self, name) >= 2)
            for name in counts
        }
        fine["confidence"] = ("a share between 0 and 1", 0 < to_float(self.confidence) < 1)
        fine["matched"] = ("True or False", isinstance(self.matched, bool))
        whole = is_whole(self.random_state) and self.random_state >= 0
        fine["random_state"] = ("a whole number, 0 or more", whole)
        raise_unless(fine, {name: getattr(self, name) for name in fine})


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """Comparison of groups; ``print`` shows it as text.

    Attributes:
        groups: One line per group: ``rows``, ``needed`` (rows that need an answer), ``found``, and the means
            of each measure.
        differences: One line per group and measure: the mean of the ``group`` and of the ``others``, the
            ``difference``, the interval ``low`` to ``high``, the permutation test's ``p``, and ``p_adjusted``
            over all lines by Benjamini and Hochberg. Groups that are too small are not tested.
        matched: One line per group: ``pairs`` of rows that hardly differ otherwise, their mean ``distance``,
            the ``difference`` of the cost within pairs, its interval, ``p`` and ``p_adjusted``.
        settings: How groups were compared.
    """

    groups: pd.DataFrame
    differences: pd.DataFrame
    matched: pd.DataFrame
    settings: AuditSettings

    def significant(self, level: float = 0.05) -> pd.DataFrame:
        """Return the differences with an adjusted p-value of at most ``level``."""
        return self.differences[self.differences["p_adjusted"] <= level]

    def __str__(self) -> str:
        parts = [self.groups.to_string(float_format="{:.3f}".format)]
        for title, table in (
            ("Differences from all other rows", self.differences),
            ("Matched rows", self.matched),
        ):
            if len(table):
                parts.append(f"{title}:\n{table.to_string(float_format='{:.3f}'.format)}")
        return "\n\n".join([*parts, NOTE])

    def to_json(self) -> str:
        """Return strict JSON with all tables."""
        tables = {
            name: [
                {key: json_value(value) for key, value in line.items()}
                for line in table.reset_index().to_dict("records")
            ]
            for name, table in (
                ("groups", self.groups),
                ("differences", self.differences),
                ("matched", self.matched),
            )
        }
        return json.dumps({"version": 1, **tables, "note": NOTE}, ensure_ascii=False, allow_nan=False)


def audit_result(
    result: Explanations,
    by: str | Sequence[str] | Mapping[str, Sequence[Any]],
    *,
    min_size: int = 30,
    permutations: int = 1999,
    samples: int = 1000,
    confidence: float = 0.95,
    matched: bool = True,
    random_state: int = 0,
) -> Audit:
    """Compare groups of rows: who gets an answer, and what it costs them.

    Args:
        result: The explanations.
        by: A column, several columns, or one value per row by name. With several, groups are those of each
            column and of their intersections.
        min_size: Smallest group that is tested, in rows that need an answer.
        permutations: Permutations of each test.
        samples: Bootstrap samples of each interval.
        confidence: Confidence of the intervals.
        matched: Whether to compare matched rows, too.
        random_state: Seed of permutations and samples.
    """
    settings = AuditSettings(
        min_size=min_size,
        permutations=permutations,
        samples=samples,
        confidence=confidence,
        matched=matched,
        random_state=random_state,
    )
    columns, needed = _columns(by, result.rows), _needed(result)
    members, measures = _members(columns), _measures(result, needed)
    tested = {
        name: mask
        for name, mask in members.items()
        if min((mask & needed).sum(), (~mask & needed).sum()) >= min_size
    }
    rng = np.random.default_rng(random_state)
    return Audit(
        groups=_group_table(members, measures, result, needed),
        differences=_difference_table(tested, measures, settings, rng),
        matched=_matched_table(tested, columns, result, settings, rng),
        settings=settings,
    )


def group_values(
    result: Explanations, by: str | Sequence[str] | Mapping[str, Sequence[Any]]
) -> tuple[dict[str, Mask], dict[str, FloatArray]]:
    """Return the members of each group, and the value of each row for each measure."""
    return _members(_columns(by, result.rows)), _measures(result, _needed(result))


def _needed(result: Explanations) -> Mask:
    """Return which rows need an answer and could be read."""
    return result.is_needed & (result.verdicts["status"] != "invalid_input").to_numpy()


def _columns(by: object, rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the values that define groups, as texts by name."""
    if isinstance(by, str):
        by = [by]
    named: dict[str, Any]
    if isinstance(by, Mapping):
        named = {str(name): values for name, values in by.items()}
    else:
        names = list(by) if isinstance(by, Sequence) else []
        absent = [name for name in names if name not in rows.columns]
        if absent or not names:
            raise InvalidInputError(
                f"`by` must be columns of the rows: {', '.join(map(str, rows.columns))}; got {by!r}. "
                'Pass values of your own as {"age group": values}.'
            )
        named = {str(name): rows[name] for name in names}
    columns = {}
    for name, values in named.items():
        texts = pd.Series([format_value(value) for value in values], dtype=object)
        if len(texts) != len(rows):
            raise InvalidInputError(
                f"`by` must have {len(rows)} values for {name!r}, one per row; got {len(texts)}. "
                "Use the order of the rows."
            )
        if texts.nunique() > MOST_LEVELS:
            raise InvalidInputError(
                f"`by` must have at most {MOST_LEVELS} groups in {name!r}; got {texts.nunique()}. "
                f"Cut numbers into ranges: {{{name!r}: pd.cut(rows[{name!r}], 4)}}."
            )
        columns[name] = texts
    return columns


def _members(columns: Mapping[str, pd.Series]) -> dict[str, Mask]:
    """Return the members of each group: of each column, then of intersections of two and more columns."""
    members: dict[str, Mask] = {}
    for size in range(1, len(columns) + 1):
        for names in combinations(columns, size):
            frame = pd.concat([columns[name] for name in names], axis=1, keys=names)
            for values in sorted(set(frame.itertuples(index=False, name=None))):
                label = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
                members[label] = (frame == list(values)).all(axis=1).to_numpy()
    return members


def _measures(result: Explanations, needed: Mask) -> dict[str, FloatArray]:
    """Return a value of each row for each measure, NaN for rows that do not count."""
    measures = {"found": np.where(needed, result.is_found.astype(np.float64), np.nan)}
    for name, figure in FIGURES.items():
        if figure in result.figures:
            measures[name] = np.where(needed, result.found_figures(figure), np.nan)
    return measures


def _group_table(
    members: Mapping[str, Mask], measures: Mapping[str, FloatArray], result: Explanations, needed: Mask
) -> pd.DataFrame:
    lines = {}
    for label, mask in members.items():
        line = {"rows": int(mask.sum()), "needed": int((mask & needed).sum())}
        line["found_rows"] = int((mask & needed & result.is_found).sum())
        means = {name: _mean(values[mask]) for name, values in measures.items()}
        lines[label] = line | means
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("group")


def _mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _difference_table(
    members: Mapping[str, Mask],
    measures: Mapping[str, FloatArray],
    settings: AuditSettings,
    rng: np.random.Generator,
) -> pd.DataFrame:
    lines: list[dict[str, Any]] = []
    for measure, values in measures.items():
        known = ~np.isnan(values)
        own = {label: mask[known] for label, mask in members.items()}
        own = {
            label: mask for label, mask in own.items() if min(mask.sum(), (~mask).sum()) >= settings.min_size
        }
        if not own:
            continue
        p_values = permutation_p_values(values[known], list(own.values()), settings.permutations, rng)
        for (label, mask), p in zip(own.items(), p_values.tolist(), strict=True):
            inside, outside = values[known][mask], values[known][~mask]
            low, high = bootstrap_interval(inside, outside, settings.samples, settings.confidence, rng)
            lines.append(
                {"group": label, "measure": measure, "rows": len(inside), "mean": float(inside.mean()),
                 "others": float(outside.mean()), "difference": float(inside.mean() - outside.mean()),
                 "low": low, "high": high, "p": p}
            )  # fmt: skip
    return _adjusted(lines, ["group", "measure"])


def _adjusted(lines: list[dict[str, Any]], index: list[str]) -> pd.DataFrame:
    names = ["rows", "mean", "others", "difference", "low", "high", "p"]
    if not lines:
        return pd.DataFrame(
            columns=[*names, "p_adjusted"], index=pd.MultiIndex.from_arrays([[]] * len(index), names=index)
        )
    table = pd.DataFrame(lines)
    table["p_adjusted"] = adjust_p_values(table["p"].to_numpy(np.float64))
    return table.set_index(index)


def _matched_table(
    members: Mapping[str, Mask],
    columns: Mapping[str, pd.Series],
    result: Explanations,
    settings: AuditSettings,
    rng: np.random.Generator,
) -> pd.DataFrame:
    lines: list[dict[str, Any]] = []
    found = result.is_found & result.is_needed
    if settings.matched and members:
        x = feature_matrix(result.rows[found], result.features, list(columns))
        cost = result.found_figures("cost")[found]
        for label, mask in members.items():
            inside, outside, distance = match_rows(x, mask[found])
            if len(inside) < settings.min_size:
                continue
            differences = cost[inside] - cost[outside]
            low, high = bootstrap_interval(
                differences, np.zeros(1), settings.samples, settings.confidence, rng
            )
            lines.append(
                {"group": label, "pairs": len(inside), "distance": float(distance.mean()),
                 "difference": float(differences.mean()), "low": low, "high": high,
                 "p": sign_flip_p_value(differences, settings.permutations, rng)}
            )  # fmt: skip
    if not lines:
        names = ["pairs", "distance", "difference", "low", "high", "p", "p_adjusted"]
        return pd.DataFrame(columns=names, index=pd.Index([], name="group"))
    return _adjusted(lines, ["group"])
