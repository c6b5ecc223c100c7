"""The content of reports and notebook tables: rows, changes and figures of a result, formatted as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from plausiflow.constraints import LearnedRules
from plausiflow.explanations.audit import NOTE, Audit
from plausiflow.explanations.audit_tables import audit_tables
from plausiflow.explanations.change_roles import UNFAVOURABLE, purpose, role_table
from plausiflow.explanations.changes import Changes, find_changes, relative_moves
from plausiflow.explanations.formatting import FeatureFormatter, format_value, is_missing_value
from plausiflow.explanations.json_output import json_value
from plausiflow.explanations.provenance import describe_provenance
from plausiflow.explanations.sentences import answer_sentences, row_sentences
from plausiflow.explanations.summary import summarise
from plausiflow.report import ReportContent, ReportTable, notebook_table, render_report
from plausiflow.tables import FloatArray, IntArray, read_numbers

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

NOTEBOOK_ROWS = 10


class ReportSection(Protocol):
    """Something that adds tables to a report, such as ``GroupExplanations``."""

    def report_tables(self) -> tuple[ReportTable, ...]:
        """Return the tables."""
        ...


def write_report(
    result: Explanations,
    path: str | Path,
    title: str | None = None,
    *,
    audit: Audit | None = None,
    groups: ReportSection | None = None,
) -> None:
    """Write a report: one HTML file for a browser, a phone or a printer, without network access.

    Printed, each row has a page of its own; the address ``report.html#row-3`` shows the page of the row at
    position 3 alone.

    Args:
        result: The explanations.
        path: Path of the file.
        title: Title of the page; names the outcome by default.
        audit: What :meth:`audit` returned; adds a section that compares groups.
        groups: What :meth:`Explainer.explain_groups` returned; adds a section about few actions.
    """
    content = report_content(result, title)
    if audit is not None:
        content = replace(content, audit=audit_tables(audit), audit_note=NOTE)
    if groups is not None:
        content = replace(content, groups=groups.report_tables())
    page = render_report(content)
    Path(path).write_text(page, encoding="utf-8", errors="backslashreplace", newline="\n")


def report_content(result: Explanations, title: str | None) -> ReportContent:
    """Return the content of a report; the default title names the outcome."""
    outcome = result.outcome
    curve_of, curves = _density_curves(result)
    formatters = [FeatureFormatter(feature) for feature in result.features]
    order = np.argsort(result.misses_of, kind="stable")
    misses = result.rows.iloc[:0] if result.misses is None else result.misses
    misses = misses.iloc[order].reset_index(drop=True)
    miss_changes = find_changes(result.rows, misses, result.misses_of[order])
    return ReportContent(
        title=f"Counterfactuals: {outcome}" if title is None else title,
        outcome=outcome,
        is_regression=not result.labels,
        distance=result.distance,
        rows=_row_table(result, curve_of),
        columns=[_report_column(result.rows.iloc[:, j], f) for j, f in enumerate(formatters)],
        answers=_answer_table(result, curve_of, curves),
        changes=_cell_table(result.changed, formatters, result.change_roles),
        misses=pd.DataFrame({"of": result.misses_of[order], "why": [result.misses_why[k] for k in order]}),
        miss_changes=_cell_table(miss_changes, formatters),
        features=_feature_table(result, formatters),
        learned_rules=LearnedRules(result.learned_rules).to_frame(),
        curves=curves,
        provenance=describe_provenance(result),
    )


def notebook_html(result: Explanations) -> str:
    """Return the first rows, their verdicts and changes, as a small HTML table."""
    count = min(NOTEBOOK_ROWS, len(result))
    formatters = [FeatureFormatter(feature) for feature in result.features]
    changes = []
    for i in range(count):
        cells = result.changed.select(result.answer_range(i)[:1])
        pairs = _pairs(cells, formatters)
        changes.append([(f.name, *f.format_pair(before, after)) for f, before, after in pairs])
    rows = _row_table(result, np.full(len(result), -1), count)
    return notebook_table(repr(result), rows, changes, len(result) - count)


def _row_table(result: Explanations, curve_of: IntArray, count: int | None = None) -> pd.DataFrame:
    """Return the first ``count`` rows, or all."""
    verdicts, index = result.verdicts.iloc[:count], result.rows.index[:count].to_flat_index()
    labels = (", ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in index)
    return pd.DataFrame(
        {
            "label": _objects(labels),
            "status": _objects(verdicts["status"]),
            "reason": _objects(verdicts["reason"]),
            "predicted": _objects(map(_outcome_text, verdicts["predicted"])),
            "target": _objects(map(_outcome_text, verdicts["target"])),
            "probability": verdicts["probability"].to_numpy(np.float64),
            "sentence": _objects(row_sentences(result, range(len(verdicts)))),
            "curve": curve_of[:count],
        }
    )


def _outcome_text(value: object) -> str:
    """Return a predicted or target outcome, a number with few digits; empty if it is missing."""
    if is_missing_value(value):
        return ""
    if isinstance(value, float) and not float(value).is_integer():
        return f"{value:.6g}"
    return format_value(value)


def _report_column(column: pd.Series, formatter: FeatureFormatter) -> dict[str, Any]:
    known: dict[str, int] = {}
    numbers = read_numbers(column)[0] if formatter.is_number else np.full(len(column), np.nan)
    codes = []
    for cell, number in zip(column.tolist(), numbers.tolist(), strict=True):
        text = formatter.format_number(number) if np.isfinite(number) else formatter.format_level(cell)
        codes.append(known.setdefault(text, len(known)))
    return {"name": formatter.name, "texts": list(known), "codes": codes}


def _pairs(cells: Changes, formatters: list[FeatureFormatter]) -> Iterable[tuple[FeatureFormatter, Any, Any]]:
    return zip((formatters[j] for j in cells.column.tolist()), cells.before, cells.after, strict=True)


def _cell_table(
    cells: Changes, formatters: list[FeatureFormatter], roles: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return changed cells as JSON values and as texts, how far each moves, and what it is for."""
    roles = role_table(cells, pd.Index([f.name for f in formatters]), None) if roles is None else roles
    purposes = [
        f"{purpose(serves)}, {UNFAVOURABLE}" if adverse else purpose(serves)
        for serves, adverse in zip(roles["serves"], roles["adverse"], strict=True)
    ]
    texts = [formatter.format_pair(before, after) for formatter, before, after in _pairs(cells, formatters)]
    return pd.DataFrame(
        {
            "answer": cells.answer,
            "column": cells.column,
            "from": _objects(map(json_value, cells.before)),
            "to": _objects(map(json_value, cells.after)),
            "before": _objects(before for before, _ in texts),
            "after": _objects(after for _, after in texts),
            "move": relative_moves(cells, [formatter.feature for formatter in formatters]),
            "purpose": _objects(purposes),
        }
    )


def _answer_table(
    result: Explanations, curve_of: IntArray, curves: list[tuple[str, FloatArray]]
) -> pd.DataFrame:
    """Return each answer's row, sentence and figures, and the share of real rows that are less dense."""
    figures = result.figures.reset_index(drop=True)
    score = figures["score"].to_numpy(np.float64)
    denser, curve_of_answer = np.full(len(score), np.nan), curve_of[result.of]
    for k, (_, percentiles) in enumerate(curves):
        of_curve = curve_of_answer == k
        denser[of_curve] = np.interp(score[of_curve], percentiles, np.linspace(0, 1, 101))
    sentences = answer_sentences(result, range(len(result.answers)))
    return figures.assign(of=result.of, sentence=_objects(sentences), denser=denser)


def _density_curves(result: Explanations) -> tuple[IntArray, list[tuple[str, FloatArray]]]:
    """Return for each row the position of its target's curve, -1 if that is unknown, and the curves."""
    curve_of = np.full(len(result), -1, dtype=np.int64)
    if result.held_out is None or result.encoded is None:
        return curve_of, []
    classes, curves = result.encoded[2].cpu().numpy(), list[tuple[str, FloatArray]]()
    known = result.verdicts["target"].map(lambda target: not is_missing_value(target)).to_numpy(bool)
    for k in np.unique(classes[known]).tolist():
        if np.isfinite(result.held_out[k]).all():
            curve_of[known & (classes == k)] = len(curves)
            label = _outcome_text(result.labels[k]) if result.labels else "closest to the target"
            curves.append((label, result.held_out[k]))
    return curve_of, curves


def _feature_table(result: Explanations, formatters: list[FeatureFormatter]) -> pd.DataFrame:
    """Return the summary's table of features, with medians as texts."""
    table = summarise(result, None).features.reset_index()
    repeats = len(table) // max(1, len(formatters))
    for name in ("median_rise", "median_fall"):
        pairs = zip(formatters * repeats, table[name].tolist(), strict=True)
        table[name] = _objects(formatter.format_number(value) for formatter, value in pairs)
    targets = [_outcome_text(target) if target in result.labels else "" for target in table["target"]]
    return table.assign(target=_objects(targets), feature=_objects(table["feature"]))


def _objects(values: Iterable[Any]) -> pd.Series:
    return pd.Series(list(values), dtype=object)
