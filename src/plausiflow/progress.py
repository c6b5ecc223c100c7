"""Progress bars, on standard error and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[int, str], None]
"""``advance(steps, text)`` moves the bar by a number of steps and shows a text after it."""

_bar_is_shown: ContextVar[bool] = ContextVar("bar_is_shown", default=False)


@contextmanager
def hide_progress() -> Iterator[None]:
    """Show no progress bars inside this context."""
    token = _bar_is_shown.set(True)
    try:
        yield
    finally:
        _bar_is_shown.reset(token)


@contextmanager
def progress_bar(label: str, total: int, *, show: bool = True) -> Iterator[Advance]:
    """Show a progress bar that disappears at the end.

    There is no bar if standard error is not a terminal, or inside another bar.
    """
    text, status = TextColumn("{task.description}"), TextColumn("{task.fields[status]}")
    left = TextColumn("left"), TimeRemainingColumn()
    columns = (text, BarColumn(), status, TimeElapsedColumn(), *left)
    hidden = not show or _bar_is_shown.get() or not sys.stderr.isatty()
    token = _bar_is_shown.set(_bar_is_shown.get() or not hidden)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
            task = bar.add_task(label, total=total, status="")
            yield lambda steps, text: bar.update(task, advance=steps, status=text)
    finally:
        _bar_is_shown.reset(token)
