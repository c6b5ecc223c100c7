"""Logs of the service: one JSON object per line, without any value of a row.

The message of an exception or of a warning may quote cells, so the log has its type and the lines of code it
passed instead. Each request has one line. Other events that repeat are logged a few times a second, and then
counted: whoever can connect can cause them, and must not fill the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

LOGGER = logging.getLogger("plausiflow.service")
_OTHERS = (logging.getLogger("uvicorn"), logging.getLogger("asyncio"))
REQUEST = "request"
MAX_FRAMES = 30
MAX_LINES = 10
"""Lines of the same event in one second, except those of requests."""
MAX_EVENTS = 1000
"""Events whose lines are counted apart."""


class JsonFormatter(logging.Formatter):
    """A formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time, the level, the event and its fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_error(record.exc_info[1])
        suppressed = getattr(record, "suppressed", 0)
        return json.dumps(line | ({"suppressed": suppressed} if suppressed else {}), default=str)


@dataclass
class _Window:
    start: float
    lines: int = 0
    suppressed: int = 0


class RateLimit(logging.Filter):
    """A filter that passes at most ``MAX_LINES`` lines of an event in one second, and counts the others.

    The next line of the event has their number as ``suppressed``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[object, ...], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        if record.name == LOGGER.name and record.msg == REQUEST:
            return True
        error = record.exc_info[0] if record.exc_info else getattr(record, "fields", {}).get("error")
        key, now = (record.name, record.msg, error), time.monotonic()
        if len(self._windows) >= MAX_EVENTS and key not in self._windows:
            self._windows.clear()
        window = self._windows.setdefault(key, _Window(now))
        if now - window.start >= 1:
            record.suppressed = window.suppressed
            self._windows[key] = window = _Window(now)
        window.lines += 1
        window.suppressed += window.lines > MAX_LINES
        return window.lines <= MAX_LINES


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return the type of an error, of its causes, and where it was raised, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    trace = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    causes, cause = list[str](), error.__cause__
    while cause is not None and len(causes) < MAX_FRAMES:
        causes.append(type(cause).__name__)
        cause = cause.__cause__
    return {"error": type(error).__name__, **({"causes": causes} if causes else {}), "trace": trace}


def log(event: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
    """Log an event with its fields."""
    LOGGER.log(level, event, extra={"fields": fields})


def log_loop_error(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log an error that no task handles, such as too many open files; a handler of the event loop."""
    error = context.get("exception")
    log(str(context["message"]), {} if error is None else describe_error(error), logging.ERROR)


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    """Write the logs of the service and of its server, and warnings, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RateLimit())
    loggers = (LOGGER, *_OTHERS)
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    show_before = warnings.showwarning
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    warnings.showwarning = _log_warning
    try:
        yield
    finally:
        warnings.showwarning = show_before
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    log("warning", {"warning": category.__name__, "at": f"{filename}:{lineno}"}, logging.WARNING)
