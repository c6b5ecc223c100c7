"""Explanations in plain sentences: the changes of each counterfactual, and the verdict of each row."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from plausiflow.explanations.change_roles import combine_phrases
from plausiflow.explanations.formatting import (
    FeatureFormatter,
    format_value,
    is_missing_value,
)

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations


def answer_sentences(result: Explanations, answers: range) -> list[str]:
    """Return the changes of consecutive answers, one sentence each."""
    changes = result.changed.select(answers)
    formatters = [FeatureFormatter(feature) for feature in result.features]
    cells = zip(changes.column.tolist(), changes.before, changes.after, strict=True)
    phrases = [formatters[column].format_change(before, after) for column, before, after in cells]
    bounds = np.searchsorted(changes.answer, np.arange(answers.start, answers.stop + 1)).tolist()
    roles = result.roles_of(answers)
    sentences = [
        combine_phrases(phrases[start:stop], roles.iloc[start:stop]) or "no change"
        for start, stop in pairwise(bounds)
    ]
    if "lasting" not in result.figures:
        return sentences
    lasting = result.figures["lasting"].to_numpy()[answers.start : answers.stop]
    return [
        f"{text} (still decided so by {round(share * result.jurors)} of {result.jurors} retrained models)"
        for text, share in zip(sentences, lasting, strict=True)
    ]


def row_sentences(result: Explanations, rows: range) -> list[str]:
    """Return the verdicts of consecutive rows, one sentence each."""
    first, last = np.searchsorted(result.of, [rows.start, rows.stop]).tolist()
    texts = answer_sentences(result, range(first, last))
    selected = slice(rows.start, rows.stop)
    changes = [texts[a - first] if a >= 0 else "" for a in result.best[selected].tolist()]
    columns = (result.verdicts[name].iloc[selected].tolist() for name in ("status", "reason", "target"))
    sentences = [
        verdict_sentence(status, reason, text, outcome=result.outcome, target=target)
        for text, status, reason, target in zip(changes, *columns, strict=True)
    ]
    if "proof" not in result.verdicts:
        return sentences
    proofs = result.verdicts["proof"].iloc[selected].tolist()
    return [
        f"{_end_sentence(text)} {_end_sentence(proof)}" if proof else text
        for text, proof in zip(sentences, proofs, strict=True)
    ]


def verdict_sentence(status: str, reason: str, changes: str, *, outcome: str, target: object) -> str:
    """Return the sentence of one row; ``reason``, ``changes`` and ``target`` may be empty or missing."""
    because = f": {reason}" if reason else ""
    match status:
        case "found":
            return changes
        case "relaxed":
            return f"{changes} (relaxed{because})"
        case "already":
            known = target_sentence(outcome, target, verb="is already")
            return _end_sentence(f"No change needed{': ' if known else ''}{known}")
        case "not_reached":
            return _end_sentence(f"No answer within the time limit{because}")
        case "invalid_input":
            return _end_sentence(f"Cannot be explained{because}")
    return _end_sentence(f"No answer{because or ': no allowed row is plausible and has the target outcome'}")


def target_sentence(outcome: str, target: object, *, verb: str = "is") -> str:
    """Return the target outcome, such as "loan is granted"; empty if it is unknown."""
    return "" if is_missing_value(target) else f"{outcome} {verb} {format_value(target)}"


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
