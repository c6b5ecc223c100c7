"""Metrics for Prometheus: counts and durations, without any value of a row."""

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
    """Metrics of one service, in their own registry; ``waiting`` returns the number of rows in the queue."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "plausiflow_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        text = "Time from the start of a request to its response."
        self._seconds = Histogram(
            "plausiflow_request_seconds", text, ["route"], buckets=_SECONDS, registry=registry
        )
        self._rows = Counter("plausiflow_rows", "Rows answered.", ["route"], registry=registry)
        text = "Rows explained, by status."
        self._verdicts = Counter("plausiflow_verdicts", text, ["status"], registry=registry)
        text = "Rows answered together."
        self.batch_rows = Histogram("plausiflow_batch_rows", text, buckets=_ROWS, registry=registry)
        Gauge("plausiflow_queue_rows", "Rows in the queue.", registry=registry).set_function(waiting)

    def count_request(self, route: str, status: int, seconds: float, rows: int) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if rows:
            self._rows.labels(route).inc(rows)

    def count_verdicts(self, statuses: Iterable[str]) -> None:
        """Count explained rows."""
        for status in statuses:
            self._verdicts.labels(status).inc()

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
