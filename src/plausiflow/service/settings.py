"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from plausiflow.validation import is_whole, raise_unless, to_float


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Limits of the service.

    Attributes:
        max_rows: Maximum number of rows in one request; more rows get status 413.
        max_counterfactuals: Maximum number of counterfactuals of one request, rows × ``k``; more get status
            413.
        max_body: Maximum number of bytes in the body of one request; more bytes get status 413.
        max_map: Maximum number of cells along one side of a map.
        queue_rows: Maximum number of rows in the queue of explanations, and in that of predictions. A request
            that does not fit gets status 503 at once. The service must be able to explain this many rows
            within ``time_limit``.
        batch_rows: Maximum number of rows that are explained together; 1 explains each row alone. The service
            uses fewer rows if a batch takes more than a quarter of ``time_limit``.
        batch_wait_ms: Longest time in milliseconds that a batch waits for more rows. It also never waits
            longer than a tenth of the previous batch took, and it stops waiting when no rows arrive.
        time_limit: Seconds for a request, with its time in the queue. Rows that are not explained by then
            have the status ``not_reached``; predictions and maps get status 504.
        header_timeout: Seconds for the headers of a request, from the start of the connection or the end of
            the previous response; then the connection is closed.
        body_timeout: Seconds for the body of a request, which then gets status 408, and for a client to read
            a response, before the connection is closed.
        retry_after: Seconds in the header ``Retry-After`` of a response with status 503.
        max_connections: Maximum number of connections with a request; a request on a further one gets status
            503, unless it asks for the health of the service. It is lowered to what the operating system's
            limit of open files allows.
        allow_remote: Whether other machines may use the service without a token.
    """

    max_rows: int = 100
    max_counterfactuals: int = 1000
    max_body: int = 1_000_000
    max_map: int = 80
    queue_rows: int = 256
    batch_rows: int = 64
    batch_wait_ms: float = 500.0
    time_limit: float = 30.0
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    retry_after: int = 1
    max_connections: int = 1024
    allow_remote: bool = False

    def __post_init__(self) -> None:
        counts = ("max_rows", "max_body", "queue_rows", "batch_rows", "retry_after", "max_connections")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        text = "a whole number, 1 or more"
        fine = {name: (text, is_whole(values[name]) and values[name] >= 1) for name in counts}
        fine |= {
            "max_map": ("a whole number, 2 or more", is_whole(self.max_map) and self.max_map >= 2),
            "queue_rows": (
                "a whole number, at least `max_rows`",
                is_whole(self.queue_rows) and to_float(self.queue_rows) >= to_float(self.max_rows),
            ),
            "max_counterfactuals": (
                "a whole number, at least `max_rows`",
                is_whole(self.max_counterfactuals)
                and to_float(self.max_counterfactuals) >= to_float(self.max_rows),
            ),
            "batch_wait_ms": ("milliseconds, 0 or more", to_float(self.batch_wait_ms) >= 0),
            **{
                name: ("seconds, more than 0", 0 < to_float(values[name]) < float("inf"))
                for name in ("time_limit", "header_timeout", "body_timeout")
            },
            "allow_remote": ("True or False", isinstance(self.allow_remote, bool)),
        }
        raise_unless(fine, values)
