"""Logs of the service: one JSON object a line, with nothing in it that stands in a row.

Messages of exceptions may quote cells, so an error is logged with its type and the lines of code it passed,
and without its message.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

LOGGER = logging.getLogger("plausiflow.service")
_SERVER = logging.getLogger("uvicorn")


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The time, the event, and the fields that were given with it."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= trace_of(record.exc_info[1])
        return json.dumps(line, default=str)


def trace_of(error: BaseException) -> dict[str, Any]:
    """The type of an error and where it came from, without its message."""
    places = traceback.extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "trace": [f"{p.filename}:{p.lineno} {p.name}" for p in places]}


def log(event: str, fields: Mapping[str, Any]) -> None:
    """Log an event and what is known of it."""
    LOGGER.info(event, extra={"fields": fields})


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service, and those of its server, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    loggers = (LOGGER, _SERVER)
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
