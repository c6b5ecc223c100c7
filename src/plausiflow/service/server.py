"""``serve``: the service on an address until it gets a signal. The only module that imports uvicorn.

On SIGTERM or Ctrl+C it accepts no further connections, answers the requests it has accepted, and returns.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import pandas as pd
import uvicorn

from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.service.app import create_app
from plausiflow.service.logs import log, logging_to
from plausiflow.service.settings import ServiceSettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MIN_TOKEN_LENGTH = 16
SEND_SECONDS = 5.0
"""Time for sending answers after the time limit of the last request, in seconds."""


def serve(
    explainers: Mapping[str, Explainer],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    token: str | None = None,
    settings: ServiceSettings | None = None,
    rows: Mapping[str, pd.DataFrame] | None = None,
    logs: TextIO | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve explainers over HTTP until the process gets SIGTERM or SIGINT.

    Args:
        explainers: Fitted explainers, by the names that clients use.
        host: Address to listen on.
        port: Port to listen on; 0 selects a free one.
        token: Token that clients must send as ``Authorization: Bearer`` for ``/v1``.
        settings: Limits.
        rows: Example rows for the what-if page, by the name of the explainer.
        logs: Stream for the logs, one JSON object per line; None for standard error.
        ready: Called with the address of the page as soon as the service accepts connections.

    Raises:
        InvalidInputError: The address cannot be used, other machines could use the service without a token,
            or an explainer cannot be served.
    """
    settings = settings or ServiceSettings()
    check_address(host, token, settings)
    hosts = LOOPBACK | {host.lower()} if token is None and not settings.allow_remote else None
    app = create_app(explainers, token=token, settings=settings, rows=rows, hosts=hosts)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=int(settings.time_limit + SEND_SECONDS) + 1,
    )
    server = uvicorn.Server(config)
    with _listening(host, port) as listener, logging_to(logs or sys.stderr), _stopping_on_signals(server):
        address = _page_address(listener)
        log("listening", {"address": address, "models": list(explainers)})
        ready(address)
        server.run(sockets=[listener])
        log("ended", {})


def check_address(host: str, token: str | None, settings: ServiceSettings) -> None:
    """Check that other machines can use the service only with a token, unless the settings allow it.

    Raises:
        InvalidInputError: They could use it without a token, or the token is too short.
    """
    if token is not None and (
        len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise InvalidInputError(
            f"`token` must have {MIN_TOKEN_LENGTH} visible ASCII characters or more, without spaces; got "
            f"{len(token)}. Create one: python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
    if token is None and not settings.allow_remote and not _is_loopback(host):
        raise InvalidInputError(
            f"Other machines can reach `host` {host!r}, and there is no token. Give a token, listen on "
            "127.0.0.1, or allow requests without a token with `allow_remote`."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _page_address(listener: socket.socket) -> str:
    """Return the address of the what-if page."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise InvalidInputError(
            f"The service cannot listen on {host} port {port}: {error}. Choose another `port`, or `host`."
        ) from None
    with listener:
        yield listener


@contextmanager
def _stopping_on_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let signals stop the server only; uvicorn would send them to the process again after it has stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
