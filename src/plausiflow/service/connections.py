"""Limits of connections, so that slow clients leave room for others and for health checks.

A connection is idle while its client has sent no complete headers, and has a request from then on until the
response. The number of requests is limited, and all connections may be a few more. So there is always an idle
connection to close when a further one comes: the oldest, because a client that means to send a request does
so at once. A request on one connection too many replaces one whose body is incomplete, or is refused; a
health check never is.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from plausiflow.errors import InvalidInputError

HEALTH = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
"""Addresses that are answered on any number of connections."""
RESERVED = 32
"""Connections beyond those with ordinary requests."""
ACCEPTED_AT_ONCE = 16
"""Connections that are accepted before others can be closed."""
SPARE_FILES = 128
"""Files for connections that are being accepted and closed, for logs and for models."""


class Connection(Protocol):
    """An open connection."""

    @property
    def awaits_body(self) -> bool:
        """Whether it has a request whose body is incomplete."""
        ...

    def drop(self) -> None:
        """Close it at once."""
        ...


@dataclass(frozen=True)
class ConnectionLimiter:
    """Open connections, and which of them to close or refuse."""

    max_requests: int
    _idle: OrderedDict[Connection, None] = field(default_factory=OrderedDict, init=False)  # oldest first
    _requests: dict[Connection, int] = field(default_factory=dict, init=False)  # number of their requests

    @property
    def open_connections(self) -> int:
        """Number of open connections."""
        return len(self._idle) + len(self._requests)

    def add(self, connection: Connection) -> bool:
        """Add a connection; return whether the oldest idle one had to be closed for it."""
        self._idle[connection] = None
        if self.open_connections <= self.max_requests + RESERVED:
            return False
        oldest, _ = self._idle.popitem(last=False)
        oldest.drop()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._idle.pop(connection, None)
        self._requests.pop(connection, None)

    def begin(self, connection: Connection, path: str) -> bool:
        """Begin a request; return False if it must be refused."""
        if path not in HEALTH and len(self._requests) >= self.max_requests:
            slowest = next((other for other in self._requests if other.awaits_body), None)
            if slowest is None or slowest is connection:
                return False
            self.remove(slowest)
            slowest.drop()
        self._idle.pop(connection, None)
        self._requests[connection] = self._requests.get(connection, 0) + 1
        return True

    def end(self, connection: Connection) -> None:
        """End a request; its connection is idle again, and the youngest."""
        left = self._requests.pop(connection, 0) - 1  # -1 if the connection is closed
        if left > 0:
            self._requests[connection] = left
        elif left == 0:
            self._idle[connection] = None


def allowed_requests(max_connections: int) -> int:
    """Return the number of connections with requests that the limit of open files allows.

    Raises:
        InvalidInputError: The limit of open files is too low for a service.
    """
    files = _file_limit()
    if files is None:
        return max_connections
    taken = _open_files() + SPARE_FILES + RESERVED
    if files < taken + RESERVED:
        raise InvalidInputError(
            f"The service needs {taken + RESERVED} open files or more; the limit is {files}. Raise it, for "
            "example with `ulimit -n 1024`."
        )
    return min(max_connections, files - taken)


def _file_limit() -> int | None:
    """Return the largest number of open files; None if there is no limit."""
    try:
        import resource
    except ImportError:  # only Unix has it
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _open_files() -> int:
    return len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else SPARE_FILES
