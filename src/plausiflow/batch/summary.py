"""The progress of a run, and its summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from plausiflow.batch.output_folder import RowCounts
from plausiflow.batch.plan import BatchPlan, Unit
from plausiflow.progress import progress_bar


@dataclass(frozen=True, kw_only=True)
class BatchSummary:
    """The result of a run.

    Attributes:
        counts: Counts of the rows in all parts, those of earlier runs included.
        units: Number of units.
        units_before: Number of units that were finished before this run.
        new_rows: Rows in the parts that this run wrote.
        failed: Why units have no part, by unit.
        damaged: Units whose part was not as it was written, with the reason; they were tried again.
        seconds: Duration of this run.
        memory: Peak memory of a worker in bytes, and how much of it came after the explainer was loaded.
    """

    counts: RowCounts
    units: int
    units_before: int
    new_rows: int
    failed: Mapping[str, str] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    seconds: float
    memory: tuple[int, int] = (0, 0)

    @property
    def rate(self) -> float:
        """Rows per second of this run, without rows that the filter left out."""
        return self.new_rows / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        statuses = ", ".join(f"{count:,} {status}" for status, count in self.counts.statuses.items())
        parts = _count(self.units - len(self.failed), "part")
        text = f"{self.counts.rows:,} rows{f' ({statuses})' if statuses else ''} in {parts}; "
        text += f"{self.new_rows:,} rows now, in {self.seconds:,.0f} seconds ({self.rate:,.0f} a second)"
        if self.memory[0]:
            peak, beyond = (round(size / 2**20) for size in self.memory)
            text += f"; a worker used {peak:,} MiB, {beyond:,} beyond the loaded explainer"
        return text + (f"; {_count(len(self.failed), 'unit')} failed" if self.failed else "")


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@contextmanager
def unit_progress(plan: BatchPlan, left: Sequence[Unit], show: bool) -> Iterator[Callable[[Unit], None]]:
    """Show a progress bar of rows; yield a function to call with each unit that has ended."""
    start, total = time.monotonic(), plan.n_rows
    done, rest = 0, sum(unit.rows.n_rows for unit in left)
    with progress_bar("Rows", total, show=show) as advance:
        advance(total - rest, f"{total - rest:,}/{total:,}")

        def add(unit: Unit) -> None:
            nonlocal done
            done += unit.rows.n_rows
            rate = done / max(time.monotonic() - start, 1e-9)
            time_left = format_duration((rest - done) / max(rate, 1e-9))
            text = f"{total - rest + done:,}/{total:,}, {rate:,.0f} a second, about {time_left} left"
            advance(unit.rows.n_rows, text)

        yield add


def format_duration(seconds: float) -> str:
    """Return a duration in its largest unit.

    Example:
        >>> format_duration(5400)
        '1.5 h'
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
