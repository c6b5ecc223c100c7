"""What Prometheus is told: counts and times, never what stands in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one service, in a registry of its own.

    Args:
        waiting: Tells how many rows wait.
    """

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "plausiflow_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "plausiflow_request_seconds",
            "From a request's arrival to its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._rows = Counter("plausiflow_rows", "Rows answered.", ["route"], registry=registry)
        self._verdicts = Counter(
            "plausiflow_verdicts", "Rows explained, by verdict.", ["status"], registry=registry
        )
        self._batch = Histogram(
            "plausiflow_batch_rows", "Rows answered together.", buckets=_ROWS, registry=registry
        )
        queue = Gauge("plausiflow_queue_rows", "Rows that wait.", registry=registry)
        queue.set_function(waiting)

    def batch(self, rows: int) -> None:
        """So many rows were answered together."""
        self._batch.observe(rows)

    def request(self, route: str, status: int, seconds: float, rows: int) -> None:
        """A request was answered."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if rows:
            self._rows.labels(route).inc(rows)

    def verdicts(self, statuses: Iterable[str]) -> None:
        """Rows were explained."""
        for status in statuses:
            self._verdicts.labels(status).inc()

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
