"""What the service answers when it does not do what it was asked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plausiflow.errors import PlausiflowError

LONGEST = 80
GONE = 499
"""Logged where the client went away; nobody gets it."""


@dataclass(eq=False)
class Refusal(PlausiflowError):
    """A request that gets no answer, with the HTTP status and a sentence that says why and what to do.

    Attributes:
        status: Of HTTP, 400 or above.
        text: The sentence.
        headers: Further headers of the answer.
    """

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def unusable(text: str) -> Refusal:
    """Refuses a body that is JSON, but not what was asked for."""
    return Refusal(422, text)


def shown(value: object) -> str:
    """What came, on one short line; of a list or an object only that it is one."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def like(name: str, known: Iterable[str]) -> str:
    """A hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(name[:LONGEST], list(known), n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""
