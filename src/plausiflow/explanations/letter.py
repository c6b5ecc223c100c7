"""A letter about one row, for the person whom it is about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plausiflow.explanations.change_roles import NEEDED
from plausiflow.explanations.formatting import FeatureFormatter, format_value, is_missing_value
from plausiflow.letters import (
    Catalogue,
    LetterChange,
    LetterContent,
    LetterFormat,
    check_format,
    read_catalogue,
    render_letter,
)

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

_INTERVAL = re.compile(r"(?:at (?P<end>least|most) )?(?P<low>-?[\d.e+-]+)(?: to (?P<high>-?[\d.e+-]+))?")


def write_letter(
    result: Explanations,
    index: int,
    template: str | Path | None = None,
    language: str | Path = "en",
    format: LetterFormat = "text",
) -> str:
    """Return a letter about the row at position ``index``: what would change its decision, and how sure.

    A row without an answer has a text of its own for each status. The letter makes no legal claim: it says
    that it is not a promise, not legal advice and not a notice that a law may require.

    Args:
        result: The explanations.
        index: Position of the row.
        template: Path of a Jinja2 template; the names that it may use are those of ``LetterContent``.
        language: ``en``, ``de``, or the path of a catalogue of messages that ends in ``.toml``.
        format: ``text`` or ``html``; in HTML every value is escaped.

    Raises:
        InvalidInputError: The template or the catalogue cannot be used, or the format is unknown.
        IndexError: There is no such row.
    """
    check_format(format)
    catalogue = read_catalogue(language)
    return render_letter(letter_content(result, result._position(index), catalogue), template, format)


def letter_content(result: Explanations, i: int, catalogue: Catalogue) -> LetterContent:
    """Return the texts of the letter about the row at position ``i``, in the language of the catalogue."""
    verdict, label = result.verdicts.iloc[i], result.rows.index[i]
    row = ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)
    predicted, target = (_outcome(verdict[name], catalogue) for name in ("predicted", "target"))
    outcome = catalogue.outcome(result.outcome)
    made = None if result.provenance is None else result.provenance.date
    answer = int(result.best[i])
    needed, along, has_roles = _changes(result, answer, catalogue)
    kind = "_number" if not result.labels else ""
    known = "" if is_missing_value(verdict["predicted"]) else f"now{kind}"
    return LetterContent(
        language=catalogue.language,
        title=catalogue.message("title", outcome=outcome),
        reference=catalogue.message("reference", row=row),
        date="" if made is None else catalogue.message("date", date=catalogue.date(made)),
        now=catalogue.message(known, predicted=predicted, target=target) if known else "",
        verdict=_verdict(result, verdict["status"], answer, target, catalogue),
        needed_heading=catalogue.messages["needed" if has_roles else "changes"] if needed else "",
        needed=needed,
        along_heading=catalogue.messages["along"] if along else "",
        along=along,
        certainty=_certainty(result, i, answer, catalogue),
        notes=tuple(catalogue.messages[name] for name in ("not_a_promise", "not_a_notice")),
        status=verdict["status"],
        reason=verdict["reason"],
        row=row,
        outcome=outcome,
        predicted=predicted,
        target=target,
    )


def _verdict(result: Explanations, status: str, answer: int, target: str, catalogue: Catalogue) -> str:
    if status == "found" and not result.labels:
        prediction = _outcome(_figure(result, answer, "prediction"), catalogue)
        return catalogue.message("found_number", prediction=prediction, target=target)
    return catalogue.message(status, target=target)


def _changes(
    result: Explanations, answer: int, catalogue: Catalogue
) -> tuple[tuple[LetterChange, ...], tuple[LetterChange, ...], bool]:
    """Return the changes of an answer that are needed and those along with them, and whether both are known.

    If the decision needs no change alone, all are listed alike.
    """
    if answer < 0:
        return (), (), False
    selected = range(answer, answer + 1)
    cells, roles = result.changed.select(selected), result.roles_of(selected)
    needed, along = list[LetterChange](), list[LetterChange]()
    has_roles = bool((roles["role"] == NEEDED).any())
    values = zip(cells.column, cells.before, cells.after, roles["role"], roles["adverse"], strict=True)
    for column, before, after, role, adverse in values:
        change = _change(FeatureFormatter(result.features[column]), before, after, bool(adverse), catalogue)
        (needed if role == NEEDED or not has_roles else along).append(change)
    return tuple(needed), tuple(along), has_roles


def _change(
    formatter: FeatureFormatter, before: object, after: object, adverse: bool, catalogue: Catalogue
) -> LetterChange:
    name = catalogue.feature(formatter.name)
    old, new = (_value(formatter, text, catalogue) for text in formatter.format_pair(before, after))
    text = catalogue.message("change", feature=name, before=old, after=new)
    text = catalogue.message("unfavourable", change=text) if adverse else text
    return LetterChange(feature=name, before=old, after=new, text=text)


def _value(formatter: FeatureFormatter, text: str, catalogue: Catalogue) -> str:
    named = catalogue.value(formatter.name, text)
    return catalogue.number(named) if formatter.is_number and named == text else named


def _outcome(value: Any, catalogue: Catalogue) -> str:  # noqa: ANN401
    """Return a class, a predicted number or a target interval."""
    if is_missing_value(value):
        return catalogue.messages["unknown"]
    if isinstance(value, float) and not value.is_integer():
        return catalogue.number(f"{value:.6g}")
    text = format_value(value)
    interval = _INTERVAL.fullmatch(text) if isinstance(value, str) else None
    if interval is None or bool(interval["end"]) == bool(interval["high"]):
        return catalogue.outcome(text)
    if interval["end"] == "most":
        return catalogue.message("at_most", high=catalogue.number(interval["low"]))
    ends = {"low": catalogue.number(interval["low"]), "high": catalogue.number(interval["high"] or "")}
    return catalogue.message("at_least" if interval["end"] else "between", **ends)


def _certainty(result: Explanations, i: int, answer: int, catalogue: Catalogue) -> tuple[str, ...]:
    """Return sentences about the probability, the independent checks and retrained models."""
    if answer < 0:
        return ()
    sentences = []
    before, after = float(result.verdicts["probability"].iloc[i]), _figure(result, answer, "probability")
    if result.labels and np.isfinite([before, after]).all():
        shares = {"before": catalogue.percent(before), "after": catalogue.percent(after)}
        sentences.append(catalogue.message("probability", **shares))
    judged, lasting = _figure(result, answer, "judged"), _figure(result, answer, "lasting")
    if np.isfinite(judged):
        name = "checks_all" if judged >= 1 else "checks_some" if judged > 0 else "checks_none"
        sentences.append(catalogue.message(name, share=catalogue.percent(judged)))
    if np.isfinite(lasting):
        sentences.append(catalogue.message("lasting", share=catalogue.percent(lasting)))
    return tuple(sentences)


def _figure(result: Explanations, answer: int, name: str) -> float:
    return float(result.figures[name].iloc[answer]) if name in result.figures else float("nan")
