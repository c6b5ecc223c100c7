"""Progress bars, on standard error and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int, str], None]
"""``advance(steps, text)``: so many steps further, and what to show behind the bar."""


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Advance]:
    """A bar that goes away when it is done; silent when standard error is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=total, shown="")
        yield lambda steps, text: bar.update(task, advance=steps, shown=text)
