"""A result as reports and notebooks show it: cells, changes and figures by position, written for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.explanations.changes import Changes, find_changes
from plausiflow.explanations.document import json_value
from plausiflow.explanations.parts import Parts
from plausiflow.explanations.summary import count_statuses, statuses_text, summarise
from plausiflow.explanations.wording import ARROW, Wording, is_absent, spaced, value_text
from plausiflow.report import Column, Content, Curve, Line, rows_table
from plausiflow.tables import Codes, Feature, Numbers, read_codes, read_numbers

SHOWN_ROWS = 10


def content_of(parts: Parts, title: str | None) -> Content:
    """All that a report shows; without a title it is named after the outcome."""
    outcome = spaced(parts.outcome)
    curve_of, curves = _curves(parts)
    misses, of = (parts.rows.iloc[:0], np.empty(0, np.int64)) if parts.misses is None else _misses(parts)
    why = [parts.misses_why[place] for place in np.argsort(parts.misses_of, kind="stable")]
    return Content(
        title=f"Counterfactuals: {outcome}" if title is None else title,
        outcome=outcome,
        measured=not parts.labels,
        rows=_rows(parts, curve_of),
        columns=[_column(parts.rows.iloc[:, j], feature) for j, feature in enumerate(parts.features)],
        answers=_answers(parts, curve_of, curves),
        changes=_cells(parts.changed, parts.features),
        misses=pd.DataFrame({"of": of, "why": why}),
        miss_changes=_cells(find_changes(parts.rows, misses, of), parts.features),
        features=_features(parts),
        curves=curves,
    )


def notebook(parts: Parts) -> str:
    """The first rows, their verdicts and changes, as a small HTML table."""
    shown = min(SHOWN_ROWS, len(parts))
    rows = _rows(parts, np.full(len(parts), -1), shown)
    wordings = [Wording(feature) for feature in parts.features]
    changes = []
    for i in range(shown):
        own = parts.answers_of(i)[:1]
        cells = parts.cells_of(own) if own else parts.changed[:0]
        changes.append([(spaced(w.feature.name), *_texts(w, a, b)) for w, a, b in _each(cells, wordings)])
    lines = [
        Line(
            label=row["label"],
            status=row["status"],
            predicted=row["predicted"],
            target=row["target"],
            changes=own,
            sentence=row["sentence"],
        )
        for row, own in zip(rows.to_dict("records"), changes, strict=True)
    ]
    title = f"Explanations({statuses_text(count_statuses(parts.verdicts['status']))})"
    return rows_table(title, lines, len(parts) - shown)


def _rows(parts: Parts, curve_of: Codes, count: int | None = None) -> pd.DataFrame:
    """The first rows, or all."""
    verdicts = parts.verdicts.iloc[:count]
    return pd.DataFrame(
        {
            "label": _objects(map(label_text, parts.rows.index[:count].to_flat_index())),
            "status": _objects(verdicts["status"]),
            "reason": _objects(verdicts["reason"]),
            "predicted": _objects(map(outcome_text, verdicts["predicted"])),
            "target": _objects(map(outcome_text, verdicts["target"])),
            "probability": verdicts["probability"].to_numpy(np.float64),
            "sentence": _objects(parts.row_sentences(range(len(verdicts)))),
            "curve": curve_of[:count],
        }
    )


def label_text(label: object) -> str:
    """Of a row; one of several levels has a comma between them."""
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def outcome_text(value: object) -> str:
    """An outcome that is predicted or wanted, a number in few digits; nothing where it is missing."""
    if is_absent(value):
        return ""
    if isinstance(value, float) and not float(value).is_integer():
        return f"{value:.6g}"
    return value_text(value)


def _column(column: pd.Series, feature: Feature) -> Column:
    """Every value of a feature once, and which of them each row has."""
    wording = Wording(feature)
    known: dict[str, int] = {}
    numbers = read_numbers(column)[0] if wording.is_number else np.full(len(column), np.nan)
    codes = []
    for cell, number in zip(column.tolist(), numbers.tolist(), strict=True):
        text = wording.amount(number) if np.isfinite(number) else _level_text(wording, cell)
        codes.append(known.setdefault(text, len(known)))
    return Column(name=spaced(feature.name), texts=list(known), codes=codes)


def _level_text(wording: Wording, cell: object) -> str:
    return value_text(cell, boolean=wording.feature.kind == "boolean")


def _texts(wording: Wording, before: object, after: object) -> tuple[str, str]:
    """A change in words, what it was and what it is."""
    if not wording.is_number:
        return _level_text(wording, before), _level_text(wording, after)
    first, _, second = wording.transition(before, after).partition(ARROW)
    return first, second


def _each(cells: Changes, wordings: list[Wording]) -> Iterable[tuple[Wording, Any, Any]]:
    own = (wordings[column] for column in cells.column.tolist())
    return zip(own, cells.before, cells.after, strict=True)


def _cells(cells: Changes, features: list[Feature]) -> pd.DataFrame:
    """Changed cells as JSON has them, as texts, and how far each moves."""
    wordings = [Wording(feature) for feature in features]
    texts = [_texts(*change) for change in _each(cells, wordings)]
    moves = np.full(len(cells), np.nan)
    for j in np.unique(cells.column).tolist():
        own = cells.column == j
        moves[own] = _moves(features[j], cells[own])
    return pd.DataFrame(
        {
            "answer": cells.answer,
            "column": cells.column,
            "from": _objects(map(json_value, cells.before)),
            "to": _objects(map(json_value, cells.after)),
            "before": _objects(before for before, _ in texts),
            "after": _objects(after for _, after in texts),
            "move": moves,
        }
    )


def _moves(feature: Feature, cells: Changes) -> Numbers:
    """How far the cells of one feature move, in units of its range; NaN for what has no distance."""
    before, after = (pd.Series(values, dtype=object) for values in (cells.before, cells.after))
    if feature.is_number:
        span = (feature.maximum - feature.minimum) or 1.0
        return (read_numbers(after)[0] - read_numbers(before)[0]) / span
    if feature.kind != "ordered":
        return np.full(len(cells), np.nan)
    codes = np.stack([read_codes(before, feature.levels), read_codes(after, feature.levels)])
    steps = (codes[1] - codes[0]) / max(1, len(feature.levels) - 1)
    return np.where(codes.min(axis=0) < 0, np.nan, steps)


def _answers(parts: Parts, curve_of: Codes, curves: list[Curve]) -> pd.DataFrame:
    """Whose each answer is, its words and figures, and how many real rows are less dense."""
    figures = parts.figures.reset_index(drop=True)
    score = figures["score"].to_numpy(np.float64)
    denser, own = np.full(len(score), np.nan), curve_of[parts.of]
    for place, curve in enumerate(curves):
        there = own == place
        denser[there] = np.interp(score[there], curve.percentiles, np.linspace(0, 1, 101))
    sentences = parts.answer_sentences(range(len(parts.answers)))
    return figures.assign(of=parts.of, sentence=_objects(sentences), denser=denser)


def _curves(parts: Parts) -> tuple[Codes, list[Curve]]:
    """For each row the curve of its wanted outcome, -1 where that is not known, and the curves."""
    curve_of = np.full(len(parts), -1, dtype=np.int64)
    if parts.held_out is None or parts.encoded is None:
        return curve_of, []
    classes, curves = parts.encoded[2].cpu().numpy(), list[Curve]()
    known = parts.verdicts["target"].map(lambda target: not is_absent(target)).to_numpy(bool)
    for k in np.unique(classes[known]).tolist():
        if np.isfinite(parts.held_out[k]).all():
            own = known & (classes == k)
            curve_of[own] = len(curves)
            label = outcome_text(parts.labels[k]) if parts.labels else "nearest to the one wanted"
            curves.append(Curve(label=label, percentiles=parts.held_out[k]))
    return curve_of, curves


def _misses(parts: Parts) -> tuple[pd.DataFrame, Codes]:
    """Nearest misses in the order of the rows, and whose they are."""
    assert parts.misses is not None
    order = np.argsort(parts.misses_of, kind="stable")
    return parts.misses.iloc[order].reset_index(drop=True), parts.misses_of[order]


def _features(parts: Parts) -> pd.DataFrame:
    """The summary's table of features, medians as texts."""
    table = summarise(parts, None).features.reset_index()
    wordings = [Wording(feature) for feature in parts.features]
    repeats = len(table) // max(1, len(wordings))
    for name in ("median_rise", "median_fall"):
        pairs = zip(wordings * repeats, table[name].tolist(), strict=True)
        table[name] = _objects(wording.amount(value) for wording, value in pairs)
    targets = [outcome_text(target) if target in parts.labels else "" for target in table["target"]]
    return table.assign(target=_objects(targets), feature=_objects(map(spaced, table["feature"])))


def _objects(values: Iterable[Any]) -> pd.Series:
    return pd.Series(list(values), dtype=object)
