"""Logs of the service: one JSON object per line, without any value of a row.

The message of an exception may quote cells, so the log has its type and the lines of code it passed instead.
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


class JsonFormatter(logging.Formatter):
    """A formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time, the level, the event and its fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_error(record.exc_info[1])
        return json.dumps(line, default=str)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return the type of an error and where it was raised, without its message."""
    frames = traceback.extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "trace": [f"{f.filename}:{f.lineno} {f.name}" for f in frames]}


def log(event: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
    """Log an event with its fields."""
    LOGGER.log(level, event, extra={"fields": fields})


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service and of its server to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
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
