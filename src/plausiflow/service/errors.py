"""Errors that the service sends to clients, and helpers that word them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plausiflow.errors import PlausiflowError

MAX_LENGTH = 80
CLIENT_CLOSED = 499
"""Status in the log when the client closed the connection; it is never sent."""
CODES = {
    400: "invalid_json",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    422: "invalid_request",
    CLIENT_CLOSED: "client_closed",
    500: "internal_error",
    503: "overloaded",
    504: "timeout",
}
"""Error codes in the JSON of a response, by status."""


@dataclass(eq=False)
class RequestError(PlausiflowError):
    """A request that the service does not answer, with an HTTP status of 400 or above."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str = ""  # for programs; by default that of the status

    @property
    def body(self) -> dict[str, str]:
        """The JSON of the response."""
        return {"error": self.text, "code": self.code or CODES[self.status]}

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
