"""How far a run is while it goes on, and what it has to show at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from plausiflow.batch.outputs import Tally
from plausiflow.batch.units import Plan, Unit
from plausiflow.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run has to show.

    Attributes:
        tally: What the parts hold, those of earlier runs among them.
        units: How many there are.
        earlier: How many had their part before.
        rows_now: Rows in the parts that were written now.
        failed: Why units have no part, by what they are.
        seconds: That this run took.
        memory: Most bytes that a worker had at once, and beyond those with the explainer loaded.
    """

    tally: Tally
    units: int
    earlier: int
    rows_now: int
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds: float
    memory: tuple[int, int] = (0, 0)

    @property
    def rate(self) -> float:
        """Rows a second that were done now; those that a condition left out count nowhere."""
        return self.rows_now / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        statuses = ", ".join(f"{count:,} {status}" for status, count in self.tally.statuses.items())
        done = self.units - len(self.failed)
        told = f"{self.tally.rows:,} rows{f' ({statuses})' if statuses else ''} in {_counted(done, 'part')}; "
        told += f"{self.rows_now:,} rows now, in {self.seconds:,.0f} seconds ({self.rate:,.0f} a second)"
        if self.memory[0]:
            most, beyond = (round(size / 2**20) for size in self.memory)
            told += f"; a worker used {most:,} MiB, {beyond:,} beyond the loaded explainer"
        return told + (f"; {_counted(len(self.failed), 'unit')} failed" if self.failed else "")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


@contextmanager
def shown(plan: Plan, left: Sequence[Unit], progress: bool) -> Iterator[Callable[[Unit], None]]:
    """``show(unit)`` puts a unit that has ended on the bar."""
    start, total = time.monotonic(), plan.rows
    now, rest = 0, sum(unit.piece.rows for unit in left)
    with progress_bar("Rows", total, show=progress) as advance:
        advance(total - rest, f"{total - rest:,}/{total:,}")

        def show(unit: Unit) -> None:
            nonlocal now
            now += unit.piece.rows
            rate = now / max(time.monotonic() - start, 1e-9)
            done, time_left = total - rest + now, (rest - now) / max(rate, 1e-9)
            advance(
                unit.piece.rows,
                f"{done:,}/{total:,}, {rate:,.0f} a second, about {in_words(time_left)} left",
            )

        yield show


def in_words(seconds: float) -> str:
    """A duration in its largest unit.

    Example:
        >>> in_words(5400)
        '1.5 h'
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
