"""Whether a model works: failures in a row, and how the service learns that it works again."""

from __future__ import annotations

import math
import threading
import time

MAX_FAILURES = 3
"""Failures in a row after which a model is not ready."""
PROBE_INTERVAL = 1.0
"""Shortest time between two predictions that find out whether a failing model works again, in seconds."""


class ModelHealth:
    """Failures of one model in a row.

    A model that fails is tried again when somebody asks whether the service is ready: a load balancer that
    sends no requests to a service that is not ready still asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._last_probe, self._is_probed = -math.inf, False

    @property
    def is_failing(self) -> bool:
        """Whether the model has failed repeatedly, and not worked since."""
        return self._failures >= MAX_FAILURES

    def record(self, *, failed: bool) -> None:
        """Record that the model failed, or that it worked."""
        with self._lock:
            self._failures = self._failures + 1 if failed else 0

    def begin_probe(self) -> bool:
        """Return whether to try the model now; :meth:`end_probe` must follow."""
        with self._lock:
            now = time.monotonic()
            if not self.is_failing or self._is_probed or now - self._last_probe < PROBE_INTERVAL:
                return False
            self._last_probe, self._is_probed = now, True
            return True

    def end_probe(self, *, failed: bool) -> None:
        """Record the result of a probe."""
        with self._lock:
            self._is_probed = False
            self._failures = self._failures if failed else 0
