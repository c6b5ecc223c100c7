"""One row as a notebook shows it: the row and its answers side by side, only what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plausiflow.explanations.change_roles import UNFAVOURABLE, purpose
from plausiflow.explanations.formatting import FeatureFormatter, format_value, is_missing_value
from plausiflow.explanations.sentences import row_sentences
from plausiflow.report import format_number, format_share, notebook_row

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

MOST_ANSWERS = 5
FIGURES = {
    "probability": "probability of the target",
    "prediction": "prediction",
    "cost": "cost",
    "judged": "independent checks",
}
SHARES = ("probability", "judged")


def row_html(result: Explanations, i: int) -> str:
    """Return the row at position ``i`` and its answers side by side, as HTML."""
    verdict = result.verdicts.iloc[i]
    answers = result.answer_range(i)[:MOST_ANSWERS]
    label = result.rows.index[i]
    outcomes = [
        "" if is_missing_value(verdict[name]) else format_value(verdict[name])
        for name in ("predicted", "target")
    ]
    sentence = "" if len(answers) else row_sentences(result, range(i, i + 1))[0]
    return notebook_row(
        title=f"{', '.join(map(str, label)) if isinstance(label, tuple) else label}",
        outcome=result.outcome,
        predicted=outcomes[0],
        target=outcomes[1],
        status=verdict["status"],
        sentence=sentence,
        lines=_change_lines(result, answers),
        figures=_figure_lines(result, i, answers),
        n_answers=len(answers),
        n_kept=len(result.features),
        n_hidden=len(result.answer_range(i)) - len(answers),
    )


def _change_lines(result: Explanations, answers: range) -> list[tuple[str, str, list[str], str]]:
    """Return for each feature that changes its name, its value, those of the answers, and what it is for.

    Values that stay are empty. What a change is for is that of the first answer that has it.
    """
    cells, roles = result.changed.select(answers), result.roles_of(answers)
    lines = dict[int, tuple[str, str, list[str], str]]()
    parts = zip(
        cells.answer, cells.column, cells.before, cells.after, roles["serves"], roles["adverse"], strict=True
    )
    for answer, column, before, after, serves, adverse in parts:
        formatter = FeatureFormatter(result.features[column])
        old, new = formatter.format_pair(before, after)
        why = ", ".join(filter(None, [purpose(serves), UNFAVOURABLE if adverse else ""]))
        lines.setdefault(int(column), (formatter.name, old, [""] * len(answers), why))
        lines[int(column)][2][int(answer) - answers.start] = new
    return [lines[column] for column in sorted(lines)]


def _figure_lines(result: Explanations, i: int, answers: range) -> list[tuple[str, str, list[str]]]:
    """Return measures: their name, that of the row if it has one, and those of the answers."""
    lines = []
    for name, title in FIGURES.items():
        if name not in result.figures or not len(answers):
            continue
        values = result.figures[name].to_numpy(np.float64)[answers.start : answers.stop]
        if not np.isfinite(values).any():
            continue
        show = format_share if name in SHARES else format_number
        now = show(float(result.verdicts["probability"].iloc[i])) if name == "probability" else ""
        lines.append((title, now, [show(float(value)) for value in values]))
    return lines
