"""The limits of the service, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields

from plausiflow.validation import is_whole, number, raise_unless


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """How much the service takes on.

    Attributes:
        max_rows: Most rows of one request; more are answered with 413.
        max_body: Most bytes of one request's body; more are answered with 413.
        max_map: Most cells along one side of a map.
        queue_rows: Most rows that wait; a request that finds no room is answered with 503 at once. What waits
            must be done within ``time_limit``, or it waits in vain.
        batch_rows: Most rows that are explained together; 1 explains every row alone. They are fewer where
            they would take more than a quarter of ``time_limit``.
        batch_wait_ms: Longest wait for more rows to be explained together; it is never more than a tenth of
            the time that the last ones took, and ends where no more come.
        time_limit: Seconds after which a request is answered with 504, or has rows that were not reached.
        retry_after: Seconds after which a client that got 503 is told to come back.
        max_connections: Most open connections; a request on a further one is answered with 503.
        allow_remote: Whether other machines may be served without a token.
    """

    max_rows: int = 100
    max_body: int = 1_000_000
    max_map: int = 80
    queue_rows: int = 256
    batch_rows: int = 64
    batch_wait_ms: float = 500.0
    time_limit: float = 30.0
    retry_after: int = 1
    max_connections: int = 1024
    allow_remote: bool = False

    def __post_init__(self) -> None:
        counts = {
            name: ("a whole number, 1 or more", is_whole(getattr(self, name)) and getattr(self, name) >= 1)
            for name in (
                *("max_rows", "max_body", "queue_rows", "batch_rows", "retry_after", "max_connections"),
            )
        }
        fine = counts | {
            "max_map": ("a whole number, 2 or more", is_whole(self.max_map) and self.max_map >= 2),
            "queue_rows": (
                "a whole number, at least `max_rows`",
                is_whole(self.queue_rows) and number(self.queue_rows) >= number(self.max_rows),
            ),
            "batch_wait_ms": ("milliseconds, 0 or more", number(self.batch_wait_ms) >= 0),
            "time_limit": ("seconds, more than 0", 0 < number(self.time_limit) < float("inf")),
            "allow_remote": ("True or False", isinstance(self.allow_remote, bool)),
        }
        raise_unless(fine, {field.name: getattr(self, field.name) for field in fields(self)})
