"""The content of a letter: sentences in the language of the reader, without any markup."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LetterChange:
    """One change: the ``feature``, its values ``before`` and ``after``, and all that as a ``text``."""

    feature: str
    before: str
    after: str
    text: str


@dataclass(frozen=True, kw_only=True)
class LetterContent:
    """Everything that a template may show; each text is a whole sentence or a heading.

    Attributes:
        language: Code of the language, such as ``en``.
        title: What the letter is about.
        reference: The label of the row.
        date: When the result was made; empty if unknown.
        now: The decision now.
        verdict: What would change it, or why there is no suggestion.
        needed_heading: Heading of ``needed``; empty without changes.
        needed: The changes that the decision needs.
        along_heading: Heading of ``along``; empty without such changes.
        along: Changes that go along with them, so that the whole stays realistic.
        certainty: How sure the suggestion is.
        notes: What the letter is not.
        status: Verdict of the row, such as ``found``.
        reason: Reason of the verdict, in English; empty if unknown.
        row: Label of the row.
        outcome: Name of what the model predicts.
        predicted: The outcome that the model predicts.
        target: The target outcome.
    """

    language: str
    title: str
    reference: str
    date: str
    now: str
    verdict: str
    needed_heading: str
    needed: tuple[LetterChange, ...]
    along_heading: str
    along: tuple[LetterChange, ...]
    certainty: tuple[str, ...]
    notes: tuple[str, ...]
    status: str
    reason: str
    row: str
    outcome: str
    predicted: str
    target: str
