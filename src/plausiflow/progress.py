"""Progress bars, on standard error and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int, str], None]
"""``advance(steps, text)``: so many steps further, and what to show behind the bar."""

_shown: ContextVar[bool] = ContextVar("a bar is on the screen", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """No bars within: for work that nobody watches."""
    token = _shown.set(True)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def progress_bar(label: str, total: int, *, show: bool = True) -> Iterator[Advance]:
    """A bar that goes away when it is done.

    Silent when standard error is not a terminal, and inside another bar: a terminal can show one.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
    )
    hidden = not show or _shown.get() or not sys.stderr.isatty()
    token = _shown.set(_shown.get() or not hidden)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
            task = bar.add_task(label, total=total, shown="")
            yield lambda steps, text: bar.update(task, advance=steps, shown=text)
    finally:
        _shown.reset(token)
