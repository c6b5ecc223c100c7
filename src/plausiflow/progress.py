"""Progress on standard error: a bar on a terminal, a line in a notebook, and lines of a log if asked for.

``verbose=None`` shows a bar on a terminal and one line that is written again in a notebook; ``True`` also
writes lines to a log, and ``False`` shows nothing. What takes less than a second shows no line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Advance = Callable[[int, str], None]
"""``advance(steps, text)`` moves the bar by a number of steps and shows a text after it."""
Form: TypeAlias = Literal["none", "bar", "line", "lines"]

FIRST, EVERY = 1.0, {"line": 0.5, "lines": 5.0}
"""Seconds before the first line, and between lines."""

_bar_is_shown: ContextVar[bool] = ContextVar("bar_is_shown", default=False)
_verbose: ContextVar[bool | None] = ContextVar("verbose", default=None)


@contextmanager
def hide_progress() -> Iterator[None]:
    """Show no progress inside this context."""
    token = _bar_is_shown.set(True)
    try:
        yield
    finally:
        _bar_is_shown.reset(token)


@contextmanager
def verbosity(verbose: bool | None) -> Iterator[None]:
    """Show more or less progress inside this context; None changes nothing."""
    token = _verbose.set(_verbose.get() if verbose is None else verbose)
    try:
        yield
    finally:
        _verbose.reset(token)


def progress_form() -> Form:
    """Return how progress is shown now."""
    if _bar_is_shown.get() or _verbose.get() is False:
        return "none"
    if sys.stderr.isatty():
        return "bar"
    if in_notebook():
        return "line"
    return "lines" if _verbose.get() else "none"


def say(text: str) -> None:
    """Write a line to standard error, if progress is shown."""
    if progress_form() != "none":
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(label: str, total: int, *, show: bool = True) -> Iterator[Advance]:
    """Show progress that disappears at the end, except for the lines of a log.

    There is none inside another bar.
    """
    form = progress_form() if show else "none"
    token = _bar_is_shown.set(_bar_is_shown.get() or form != "none")
    try:
        if form in ("line", "lines"):
            lines = _ProgressText(label, total, form)
            yield lines.advance
            lines.end()
            return
        text, status = TextColumn("{task.description}"), TextColumn("{task.fields[status]}")
        left = TextColumn("left"), TimeRemainingColumn()
        columns = (text, BarColumn(), _PaceColumn(), status, TimeElapsedColumn(), *left)
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=form == "none") as bar:
            task = bar.add_task(label, total=total, status="")
            yield lambda steps, text: bar.update(task, advance=steps, status=text)
    finally:
        _bar_is_shown.reset(token)


class _PaceColumn(ProgressColumn):
    """How many steps are done, of how many, and how many a second."""

    def render(self, task: Task) -> Text:
        return Text(
            describe_pace(int(task.completed), int(task.total or 0), task.finished_speed or task.speed)
        )


def describe_pace(done: int, total: int, speed: float | None) -> str:
    """Return how far something is, such as ``1,200 of 4,700, 350 a second``.

    Example:
        >>> describe_pace(1200, 4700, 349.7), describe_pace(0, 5, None), describe_pace(3, 5, 0.25)
        ('1,200 of 4,700, 350 a second', '0 of 5', '3 of 5, 15 a minute')
    """
    text = f"{done:,} of {total:,}"
    if not speed:
        return text
    pace = f"{speed:,.0f} a second" if speed >= 10 else f"{speed:.2g} a second" if speed >= 1 else ""
    return f"{text}, {pace or f'{60 * speed:.2g} a minute'}"


def duration(seconds: float) -> str:
    """Return a duration in words, such as ``40 s`` or ``3 min``."""
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"


class _ProgressText:
    """Progress as text: one line that is written again, or a new line every few seconds."""

    def __init__(self, label: str, total: int, form: Form) -> None:
        self.label, self.total, self.form = label, total, form
        self.done, self.width, self.begun = 0, 0, time.monotonic()
        self.next = self.begun + FIRST

    def advance(self, steps: int, text: str) -> None:
        """Count steps, and write a line if it is time for one."""
        self.done, now = self.done + steps, time.monotonic()
        if now < self.next or self.done == 0:
            return
        self.next = now + EVERY[self.form]
        seconds = now - self.begun
        left = seconds * max(0, self.total - self.done) / self.done
        status = f", {text}" if text else ""
        pace = describe_pace(self.done, self.total, self.done / seconds if seconds > 0 else None)
        self._write(f"{self.label}: {pace}{status}, about {duration(left)} left")

    def end(self) -> None:
        """Remove the line that is written again."""
        if self.form == "line" and self.width:
            self._write("")

    def _write(self, line: str) -> None:
        if self.form == "lines":
            print(line, file=sys.stderr, flush=True)
            return
        print("\r" + line.ljust(self.width), end="" if line else "\r", file=sys.stderr, flush=True)
        self.width = len(line)


def in_notebook() -> bool:
    """Return whether a notebook shows what is written."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules
