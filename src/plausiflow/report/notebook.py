"""What notebooks and ``print`` show: HTML tables without scripts and colours of their own, and texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from plausiflow.report.labels import VERDICTS, format_count, format_share
from plausiflow.report.rendering import render

MAX_NAMES = 8


def notebook_table(
    title: str, rows: pd.DataFrame, changes: Sequence[Sequence[tuple[str, str, str]]], n_hidden: int
) -> str:
    """Return the first rows of a result, with their verdicts and changes, as an HTML table.

    ``rows`` has the texts ``label``, ``status``, ``predicted``, ``target`` and ``sentence``; ``changes`` has
    for each row the name, the old and the new value of the features that change.
    """
    hidden = f"and {format_count(n_hidden, 'more row')}" if n_hidden else ""
    lines = list(zip(rows.to_dict("records"), changes, strict=True))
    return render("notebook_rows.html.j2", title=title, lines=lines, verdicts=VERDICTS, hidden=hidden)


def notebook_row(
    *,
    title: str,
    outcome: str,
    predicted: str,
    target: str,
    status: str,
    sentence: str,
    lines: Sequence[tuple[str, str, list[str], str]],
    figures: Sequence[tuple[str, str, list[str]]],
    n_answers: int,
    n_kept: int,
    n_hidden: int,
) -> str:
    """Return a row and its answers side by side, with the features that change, as HTML.

    ``lines`` have the name of a feature, its value, those of the answers (empty where it stays) and what the
    change is for; ``figures`` the name of a measure and its values; ``n_kept`` is the number of features.
    """
    return render(
        "notebook_row.html.j2",
        title=title,
        outcome=outcome,
        predicted=predicted,
        target=target,
        verdict=VERDICTS[status],
        sentence=sentence,
        lines=lines,
        figures=figures,
        n_answers=n_answers,
        purposes=any(line[3] for line in lines),
        kept=format_count(n_kept - len(lines), "feature"),
        hidden=format_count(n_hidden, "more answer") if n_hidden else "",
    )


def explainer_text(explainer: Any) -> str:  # noqa: ANN401
    """Return the model of an ``Explainer``, how it was resolved, and the number of learned rules."""
    name, model, learned = type(explainer.model).__name__, explainer.model_, explainer.learned_rules
    if model is None:
        return f"Explainer({name}, not fitted)"
    rules = f"; {format_count(len(learned), 'rule')} learned from the table" if learned else ""
    return f"Explainer({name}, resolved as: {model.description}{rules})"


def explainer_table(explainer: Any) -> str:  # noqa: ANN401
    """Return the model, the data, the rules and the settings of an ``Explainer`` as an HTML table."""
    model, encoder = explainer.model_, explainer.encoder_
    facts = {"model": [type(explainer.model).__name__], "fitted": ["no: call fit(x, y)"]}
    if model is not None and encoder is not None:
        facts["fitted"] = ["yes"]
        facts["resolved as"] = [str(model.description)]
        facts[explainer.outcome_] = [_name_list([str(label) for label in model.labels]) or "a number"]
        facts["data"] = [_describe_features(encoder.schema.features)]
        if encoder.schema.notes:
            facts["notes"] = list(encoder.schema.notes)
    facts["rules"] = list(map(str, explainer.constraints)) or ["none"]
    learned = [rule.text for rule in explainer.learned_rules]
    if learned:
        more = len(learned) - MAX_NAMES
        last = [f"and {more:,} more: see learned_rules"] if more > 0 else []
        facts["learned rules"] = learned[:MAX_NAMES] + last
    share = format_share(explainer.plausibility)
    facts["plausibility"] = [f"denser than {share} of real rows with the target"]
    facts["confidence"] = ["off"]
    if explainer.confidence is not None:
        share = format_share(explainer.confidence)
        facts["confidence"] = [f"{share} of the answers must also satisfy an independent density"]
    facts["judges"] = [f"{explainer.judges:,}"]
    return render("explainer.html.j2", facts=facts)


def _describe_features(features: Sequence[Any]) -> str:
    kinds = Counter(str(feature.kind) for feature in features)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return (
        f"{format_count(len(features), 'feature')} ({counts}): {_name_list([str(f.name) for f in features])}"
    )


def _name_list(names: Sequence[str]) -> str:
    n_hidden = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {n_hidden:,} more" if n_hidden > 0 else "")
