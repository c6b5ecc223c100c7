"""``serve``: the service on an address, until it is told to end; the only module that knows the server.

When it gets SIGTERM, or Ctrl+C, it takes no further connections, answers what it has accepted, and returns.
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
SHORTEST_TOKEN = 16
LAST_WORDS = 5.0
"""Seconds for sending answers, after the time limit of the last request."""


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
        explainers: Fitted, by the names that clients use.
        host: Address to listen on.
        port: To listen on; 0 takes a free one.
        token: That clients must send under ``/v1`` as ``Authorization: Bearer``.
        settings: Limits.
        rows: Rows that people may start from on the page, by the name of the explainer.
        logs: Where logs go, one JSON object a line; standard error unless given.
        ready: Called with the address of the page as soon as connections are taken.

    Raises:
        InvalidInputError: The address cannot be used, others could reach it without a token, or there is
            something wrong with what is to be served.
    """
    settings = settings or ServiceSettings()
    check_reach(host, token, settings)
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
        timeout_graceful_shutdown=int(settings.time_limit + LAST_WORDS) + 1,
    )
    server = uvicorn.Server(config)
    with _listening(host, port) as listener, logging_to(logs or sys.stderr), _ended_by_signals(server):
        address = address_of(listener)
        log("listening", {"address": address, "models": list(explainers)})
        ready(address)
        server.run(sockets=[listener])
        log("ended", {})


def check_reach(host: str, token: str | None, settings: ServiceSettings) -> None:
    """Refuse to let other machines ask without a token, unless that is wanted.

    Raises:
        InvalidInputError: They could; or the token is no token.
    """
    if token is not None and (
        len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise InvalidInputError(
            f"`token` must be {SHORTEST_TOKEN} visible ASCII characters or more, without spaces; got "
            f"{len(token)} characters. Make one: python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
    if token is None and not settings.allow_remote and not _is_loopback(host):
        raise InvalidInputError(
            f"`host` {host!r} can be reached by other machines, and there is no token. Give a token, listen "
            "on 127.0.0.1, or allow everybody to ask with `allow_remote`."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address_of(listener: socket.socket) -> str:
    """The address of the page."""
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
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Signals end the server, not the process, to which the server would pass them on when it is done."""
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
