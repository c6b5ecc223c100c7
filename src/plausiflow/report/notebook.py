"""What notebooks show: small tables without scripts, and with no colours of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plausiflow.report.markup import Html, element, joined
from plausiflow.report.words import VERDICTS, counted, share_text

MOST_NAMED = 8
_LEFT = {"style": "text-align: left"}
_NAMED = {"style": "text-align: left", "scope": "row"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of a result.

    Attributes:
        label: Of the row.
        status: Its verdict.
        predicted: What the model answers, as text.
        target: What is wanted, as text.
        changes: Name, value before and value after of what changes in its best answer.
        sentence: What is said where there is no answer, or nothing changes.
    """

    label: str
    status: str
    predicted: str
    target: str
    changes: Sequence[tuple[str, str, str]]
    sentence: str


class ExplainerLike(Protocol):
    """What is shown of an explainer; what it learned is nothing before it is fitted."""

    model: Any
    model_: Any
    encoder_: Any
    outcome_: str
    constraints: Sequence[Any]
    plausibility: float
    confidence: float | None
    judges: int


def rows_table(title: str, lines: Iterable[Line], more: int) -> Html:
    """The first rows of a result: their verdicts, and what changes, new values in bold."""
    head = ["row", "verdict", "predicted", "wanted", "what would change"]
    names = [element("th", _LEFT | {"scope": "col"}, name) for name in head]
    body = [element("tr", None, *_cells(line)) for line in lines]
    table = element(
        "table", None, element("thead", None, element("tr", None, *names)), element("tbody", None, *body)
    )
    rest = element("p", None, f"and {counted(more, 'more row')}") if more else Html("")
    return element("div", None, element("p", None, title), table, rest)


def _cells(line: Line) -> list[Html]:
    sign, name, _ = VERDICTS[line.status]
    changes = [
        joined([f"{feature}: {before} → ", element("strong", None, after)])
        for feature, before, after in line.changes
    ]
    told = Html("<br>".join(changes)) if changes else line.sentence
    rest = (f"{sign} {name}", line.predicted, line.target, told)
    return [element("th", _NAMED, line.label), *(element("td", _LEFT, cell) for cell in rest)]


def explainer_table(explainer: ExplainerLike) -> Html:
    """What the model was taken for, the rules, the data, and what is asked of answers."""
    model, encoder = explainer.model_, explainer.encoder_
    facts = {"model": type(explainer.model).__name__, "fitted": "no: call fit(x, y)"}
    if model is not None and encoder is not None:
        facts["fitted"] = "yes"
        facts["taken for"] = str(model.description)
        facts[explainer.outcome_] = _named([str(label) for label in model.labels]) or "a number"
        facts["data"] = _features(encoder.schema.features)
    facts["rules"] = "\n".join(map(str, explainer.constraints)) or "none"
    facts["plausibility"] = f"denser than {share_text(explainer.plausibility)} of real rows with the outcome"
    facts["confidence"] = (
        "no second opinion asked for"
        if explainer.confidence is None
        else f"{share_text(explainer.confidence)} of the answers must convince a second opinion"
    )
    facts["judges"] = f"{explainer.judges:,}"
    lines = [
        element("tr", None, element("th", _NAMED, name), element("td", _LEFT, _broken(text)))
        for name, text in facts.items()
    ]
    title = element("p", None, element("strong", None, "Explainer"))
    return element("div", None, title, element("table", None, element("tbody", None, *lines)))


def _features(features: Sequence[Any]) -> str:
    kinds = Counter(str(feature.kind) for feature in features)
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return f"{counted(len(features), 'feature')} ({told}): {_named([str(f.name) for f in features])}"


def _named(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def _broken(text: str) -> Html:
    """Lines under each other."""
    return Html("<br>".join(joined([line]) for line in text.split("\n")))
