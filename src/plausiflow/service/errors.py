"""Errors that the service sends to clients, and helpers that word them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plausiflow.errors import PlausiflowError

MAX_LENGTH = 80
CLIENT_CLOSED = 499
"""Status in the log when the client closed the connection; it is never sent."""


@dataclass(eq=False)
class RequestError(PlausiflowError):
    """A request that the service does not answer, with an HTTP status of 400 or above."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def format_value(value: object) -> str:
    """Return a JSON value as one short line; only the length of a list or an object."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"


def format_values(values: Iterable[object], limit: int = 20) -> str:
    """Return the first ``limit`` values, separated by commas."""
    texts = [format_value(value) for value in values]
    return ", ".join(texts[:limit]) + (" and more" if len(texts) > limit else "")


def suggest(name: object, known: Iterable[object]) -> str:
    """Return a hint at the known name that is most similar to ``name``, or an empty text."""
    names = [text for text in known if isinstance(text, str)]
    close = difflib.get_close_matches(name[:MAX_LENGTH], names, n=1) if isinstance(name, str) else []
    return f"; did you mean {format_value(close[0])}?" if close else ""
