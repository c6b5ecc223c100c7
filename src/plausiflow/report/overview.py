"""The first part of a report: tables, histograms and sentences about all rows together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.report.charts import histogram
from plausiflow.report.content import ReportContent
from plausiflow.report.directions import direction_chart
from plausiflow.report.labels import (
    SHARES,
    VERDICTS,
    figure_titles,
    format_count,
    format_number,
    format_share,
)
from plausiflow.report.report_table import ReportTable, Share
from plausiflow.tables import FloatArray

_SHORTFALL = re.compile(
    r"(more than )?\d[\d,]*(\.\d+)? (nats )?(?=short of plausible|below the plausibility threshold)"
)


def build_overview(content: ReportContent) -> dict[str, Any]:
    """Return the tables, histograms and sentences that the template of the overview shows."""
    best, status = content.answers.drop_duplicates("of"), content.rows["status"]
    return {
        "headline": _headline(status),
        "directions": direction_chart(content.features, int((status == "found").sum())),
        "numbers": _numbers(content.rows, best),
        "verdicts": _verdicts(status),
        "outcomes": _outcomes(content),
        "features": _features(content.features),
        "plausibility": _plausibility(best),
        "durability": _durability(best),
        "scores": histogram(_known(best, "score"), title="Plausibility score", threshold=True),
        "costs": histogram(_known(best, "cost"), title="Cost"),
        "changes": histogram(_known(best, "n_changes"), title="Number of changed features", integers=True),
        "measures": _measures(best, content.distance),
        "reasons": _reasons(content.rows),
        "learned_rules": _learned_rules(content.learned_rules),
    }


def every_row(content: ReportContent) -> ReportTable:
    """Return one line per row, for readers without scripts."""
    columns = {"Row": "", "Verdict": "", "Predicted": "", "Target": "", "What would change": "words"}
    cells = (content.rows[name].tolist() for name in ("label", "status", "predicted", "target", "sentence"))
    rows = [[label, VERDICTS[status][1], *texts] for label, status, *texts in zip(*cells, strict=True)]
    return ReportTable("Every row and its best answer", columns, rows)


def _headline(status: pd.Series) -> str:
    needed, found = int((status != "already").sum()), int((status == "found").sum())
    text = f"{format_count(len(status), 'row')} explained."
    if needed:
        text += f" {found:,} of the {needed:,} that need an answer have one ({format_share(found, needed)})."
    return text


def _numbers(rows: pd.DataFrame, best: pd.DataFrame) -> list[tuple[str, str]]:
    """Return three counts with their meaning: rows that need a change, with an answer, and confirmed ones."""
    needed, found = rows[rows["status"] != "already"], rows.index[rows["status"] == "found"]
    labels = needed["predicted"].unique()
    named = str(labels[0]) if len(labels) == 1 and labels[0] else "without the target outcome"
    numbers = [(f"{len(needed):,}", named), (f"{len(found):,}", "with a suggestion")]
    if len(_known(best, "judged")):
        sure = best["of"].isin(found) & (best["judged"] >= 1)
        numbers.append((f"{int(sure.sum()):,}", "confirmed by all checks"))
    return numbers


def _verdicts(status: pd.Series) -> ReportTable:
    counts = status.value_counts()
    rows: list[list[str | Share]] = [
        [f"{sign}\u00a0{name}", f"{counts[key]:,}", _share(name, counts[key] / len(status)), meaning]
        for key, (sign, name, meaning) in VERDICTS.items()
        if key in counts
    ]
    columns = {"Verdict": "", "Rows": "number", "Share": "", "Meaning": "words"}
    return ReportTable("How many rows have each verdict", columns, rows)


def _outcomes(content: ReportContent) -> ReportTable:
    """Return the verdicts of each pair of predicted and target outcome, the most common pairs first."""
    rows = content.rows
    predicted = pd.Series("a number", index=rows.index) if content.is_regression else rows["predicted"]
    pairs = rows["status"].groupby([predicted, rows["target"]], sort=False)
    lines = [
        [*map(str, pair), f"{len(status):,}", f"{(status == 'found').sum():,}", _other_verdicts(status)]
        for pair, status in sorted(pairs, key=lambda pair: -len(pair[1]))
    ]
    columns = {"Predicted": "", "Target": "", "Rows": "number", "Found": "number", "Other verdicts": "words"}
    return ReportTable(f"{content.outcome}: predicted and target outcomes", columns, lines)


def _other_verdicts(status: pd.Series) -> str:
    counts = status[status != "found"].value_counts()
    return ", ".join(f"{counts[name]:,} {VERDICTS[name][1]}" for name in VERDICTS if counts.get(name)) or "–"


def _features(features: pd.DataFrame) -> list[ReportTable]:
    """Return one table per target outcome, features that change most often first."""
    columns = {"Feature": "", "Rows": "number", "Share": ""}
    columns |= dict.fromkeys(("Increases", "Decreases", "Most common change"), "words")
    tables = []
    for target, lines in features[features["changed"] > 0].groupby("target", sort=False):
        lines = lines.sort_values("share", ascending=False, kind="stable")
        towards = f" towards {target!s}" if target else ""
        caption = f"Features that change{towards}, in rows with the verdict found"
        tables.append(ReportTable(caption, columns, [_feature(line) for line in lines.to_dict("records")]))
    return tables


def _feature(line: dict[Any, Any]) -> list[str | Share]:
    moves = [
        f"{format_count(line[count], 'time')}, median {line[median]}" if line[count] else "–"
        for count, median in (("rises", "median_rise"), ("falls", "median_fall"))
    ]
    times = line["transitions"]
    common = f"{line['transition']} ({format_count(times, 'time')})" if times else "–"
    return [line["feature"], f"{line['changed']:,}", _share(line["feature"], line["share"]), *moves, common]


def _share(name: str, fraction: float) -> Share:
    text = format_share(fraction)
    return Share(text, fraction, f"{name}: {text}")


def _plausibility(best: pd.DataFrame) -> str:
    score, denser, judged = (_known(best, name) for name in ("score", "denser", "judged"))
    if not len(score):
        return ""
    above = int((score >= 0).sum())
    texts = [f"{above:,} of {format_count(len(score), 'best answer')} reach the threshold."]
    if len(denser):
        median = format_share(float(np.median(denser)))
        texts.append(f"Half of them are more typical than {median} of real rows or more.")
    if len(judged):
        mean = format_share(float(judged.mean()))
        texts.append(
            f"On average they pass {mean} of the independent checks: models of the data that took no part in "
            "the search."
        )
    return " ".join(texts)


def _durability(best: pd.DataFrame) -> str:
    """Say how many retrained models still decide so, and what that does not cover."""
    lasting = _known(best, "lasting")
    if not len(lasting):
        return ""
    all_agree, mean = int((lasting >= 1).sum()), format_share(float(lasting.mean()))
    answers = format_count(len(lasting), "best answer")
    return (
        "Models that were retrained on other samples of the table took no part in the search. On average, "
        f"{mean} of them still decide so; for {all_agree:,} of {answers} all do. This is about "
        "retraining on rows of the same kind. If the population changes, nothing is promised."
    )


def _measures(best: pd.DataFrame, distance: str) -> ReportTable:
    rows = []
    for name, title in figure_titles(distance).items():
        values = _known(best, name)
        if len(values):
            low, middle, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
            figures = (float(values.mean()), low, middle, high)
            rows.append([title, *map(format_share if name in SHARES else format_number, figures)])
    names = ("Mean", "10th percentile", "Median", "90th percentile")
    return ReportTable("Measures of the best answers", {"Measure": ""} | dict.fromkeys(names, "number"), rows)


def _reasons(rows: pd.DataFrame) -> ReportTable:
    """Count the reasons of verdicts; reasons that differ only in the missing plausibility count together."""
    rows = rows[rows["reason"] != ""]
    reasons: Iterable[str] = rows["reason"].map(lambda reason: _SHORTFALL.sub("", reason))
    counts = Counter(zip(reasons, rows["status"], strict=True)).most_common()
    lines = [[reason, VERDICTS[status][1], f"{count:,}"] for (reason, status), count in counts]
    return ReportTable("Reasons for verdicts", {"Reason": "words", "Verdict": "", "Rows": "number"}, lines)


def _learned_rules(rules: pd.DataFrame) -> ReportTable:
    columns = {"Rule": "words", **dict.fromkeys(("Rows it was learned from", "Rows it is about"), "number")}
    columns |= {"Exceptions": "number"}
    lines = [
        [
            rule["description"] + ("" if rule["active"] else " (switched off: answers may break it)"),
            *(f"{rule[name]:,}" for name in ("rows", "support", "exceptions")),
        ]
        for rule in rules.to_dict("records")
    ]
    return ReportTable("Rules learned from the table", columns, lines)


def _known(answers: pd.DataFrame, name: str) -> FloatArray:
    """Return the finite values of a figure."""
    values = answers[name].to_numpy(np.float64) if name in answers else np.empty(0)
    return values[np.isfinite(values)]
