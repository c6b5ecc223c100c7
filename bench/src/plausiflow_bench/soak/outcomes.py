"""What became of everything that a soak tried."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from plausiflow_bench.harness.rows import Row

MOST_EXAMPLES = 5


@dataclass
class Outcomes:
    """Counts of outcomes, which several threads may add to.

    Attributes:
        part: Name of the part of the soak.
        right: Right answers.
        clear: Clear errors: they say what is wrong, in the form that callers expect.
        wrong: Wrong answers, raw exceptions and crashes.
        lost: Requests, rows or files without any outcome.
        examples: Descriptions of the first things that were wrong or lost.
    """

    part: str
    right: int = 0
    clear: int = 0
    wrong: int = 0
    lost: int = 0
    examples: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, kind: str, example: str = "") -> None:
        """Count one outcome: ``right``, ``clear``, ``wrong`` or ``lost``."""
        with self._lock:
            setattr(self, kind, getattr(self, kind) + 1)
            if kind in ("wrong", "lost") and len(self.examples) < MOST_EXAMPLES:
                self.examples.append(f"{self.part}: {example}")

    def row(self, seconds: float) -> Row:
        """Return the counts as a row of a table."""
        counts: Row = {name: getattr(self, name) for name in ("right", "clear", "wrong", "lost")}
        tried = sum(int(count) for count in counts.values())
        return {"part": self.part, "tried": tried, **counts, "seconds": seconds}


class Countdown:
    """A bounded time.

    Example:
        >>> Countdown(0.0).over
        True
    """

    def __init__(self, seconds: float) -> None:
        self.started = time.monotonic()
        self.end = self.started + seconds

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() >= self.end

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started
