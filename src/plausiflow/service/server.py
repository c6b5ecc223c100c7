"""``serve``: the service on an address until it gets a signal. The only module that imports uvicorn.

On SIGTERM or Ctrl+C it accepts no further connections, answers the requests it has accepted, and returns.
Clients have deadlines for what they send and read, and connections have the limits of
:mod:`plausiflow.service.connections`; uvicorn has neither.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, TextIO

import pandas as pd
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.service.app import create_app
from plausiflow.service.connections import ACCEPTED_AT_ONCE, ConnectionLimiter, allowed_requests
from plausiflow.service.errors import RequestError
from plausiflow.service.logs import log, log_loop_error, logging_to
from plausiflow.service.middleware import Receive, Scope, Send, send_error
from plausiflow.service.service import LATE_SECONDS
from plausiflow.service.settings import ServiceSettings
from plausiflow.service.tokens import check_token_text

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SEND_SECONDS = 5.0
"""Time for sending answers after the time limit of the last request, in seconds."""
BACKLOG = 2048
"""Connections that wait to be accepted."""
CLOSE_SECONDS = 1.0
"""Time for a client to read an error, or to finish a body at shutdown, in seconds."""


def serve(
    explainers: Mapping[str, Explainer],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    token: str | None = None,
    settings: ServiceSettings | None = None,
    rows: Mapping[str, pd.DataFrame] | None = None,
    targets: Mapping[str, object] | None = None,
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
        targets: The favourable outcome, which the page asks for, by the name of the explainer; without one,
            the page guesses and says so.
        logs: Stream for the logs, one JSON object per line; None for standard error.
        ready: Called with the address of the page as soon as the service accepts connections.

    Raises:
        InvalidInputError: The address cannot be used, other machines could use the service without a token,
            or an explainer cannot be served.
    """
    settings = settings or ServiceSettings()
    check_address(host, token, settings)
    hosts = LOOPBACK | {host.lower()} if token is None and not settings.allow_remote else None
    app = create_app(explainers, token=token, settings=settings, rows=rows, targets=targets, hosts=hosts)
    limiter = ConnectionLimiter(allowed_requests(settings.max_connections))
    config = uvicorn.Config(
        app,
        http=partial(HttpConnection, limiter=limiter, settings=settings),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=int(settings.time_limit + LATE_SECONDS + SEND_SECONDS) + 1,
    )
    server = Server(config)
    with _listening(host, port) as listener, logging_to(logs or sys.stderr), _stopping_on_signals(server):
        address = _page_address(listener)
        limits = {"connections": limiter.max_requests}
        log("listening", {"address": address, "models": list(explainers), **limits})
        ready(address)
        with _brief_garbage_collection():
            server.run(sockets=[listener])
        log("ended", {})


class Server(uvicorn.Server):
    """A server that accepts few connections at once, and logs errors of the event loop as JSON."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        await super().startup(sockets)
        for listener in sockets or ():
            # asyncio accepts as many connections at once as may wait. More may wait: nobody shall retry.
            listener.listen(BACKLOG)


class HttpConnection(H11Protocol):
    """A connection with deadlines for its client, and with errors in JSON."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: ConnectionLimiter,
        settings: ServiceSettings,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter, self._settings = limiter, settings
        self._handle, self.app = self.app, self._handle_request
        self._idle_since, self._is_lost = 0.0, False
        self._header_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    @property
    def awaits_body(self) -> bool:
        """Whether it has a request whose body is incomplete."""
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._expect_headers()
        if self._limiter.add(self):
            log("connection closed", {"open": self._limiter.open_connections}, logging.WARNING)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._is_lost = True
        self._limiter.remove(self)
        for timer in (self._header_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what has arrived; with complete headers, the deadline is met."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and self._header_timer is not None:
            self._header_timer.cancel()

    def on_response_complete(self) -> None:
        """Wait for the headers of the next request."""
        self._expect_headers()
        super().on_response_complete()

    def shutdown(self) -> None:
        """End after the response; a body that is incomplete gets only a little more time."""
        super().shutdown()
        if self.awaits_body:
            self._header_timer = self.loop.call_later(CLOSE_SECONDS, self._drop_without_body)

    def _drop_without_body(self) -> None:
        if self.awaits_body:
            self.drop()

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._send_timer = self.loop.call_later(self._settings.body_timeout, self.drop)

    def resume_writing(self) -> None:
        """Continue to send."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not valid HTTP."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            text = "The request must be valid HTTP/1.1, with headers of at most 16 kB."
            self.transport.write(_response(RequestError(400, text, code="invalid_http")))
        self._close()

    def _expect_headers(self) -> None:
        self._idle_since = self.loop.time()
        self._check_headers_in(self._settings.header_timeout)

    def _check_headers_in(self, seconds: float) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
        self._header_timer = self.loop.call_later(seconds, self._close_late)

    def _close_late(self) -> None:
        """Close a connection whose headers are late, but not while the client still reads a response."""
        left = self._settings.body_timeout - (self.loop.time() - self._idle_since)
        if self.transport.get_write_buffer_size() and left > 0:
            self._check_headers_in(left)
        elif self.transport.is_closing() or not self.conn.trailing_data[0]:
            self.drop()
        else:
            text = f"The headers must arrive within {self._settings.header_timeout:g} s."
            self.transport.write(_response(RequestError(408, text)))
            self._close()

    def _close(self) -> None:
        """Close the connection as soon as the client has read the error, or soon anyway."""
        self.transport.close()
        if self._header_timer is not None:
            self._header_timer.cancel()
        self._header_timer = self.loop.call_later(CLOSE_SECONDS, self.drop)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or refuse it if too many are handled."""
        if self._is_lost:
            return
        if not self._limiter.begin(self, scope["path"]):
            log("request refused", {"open": self._limiter.open_connections}, logging.WARNING)
            seconds, headers = self._settings.retry_after, {"Connection": "close"}
            text = f"The service has {self._limiter.max_requests} connections with requests, its limit. "
            text += f"Try again in {seconds} s."
            headers["Retry-After"] = str(seconds)
            await send_error(send, RequestError(503, text, headers, "too_many_connections"))
            return
        try:
            await self._handle(scope, receive, send)
        finally:
            self._limiter.end(self)


def _response(error: RequestError) -> bytes:
    """Return the response to a client that has sent no complete request."""
    body = json.dumps(error.body).encode()
    lines = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body


def check_address(host: str, token: str | None, settings: ServiceSettings) -> None:
    """Check that other machines can use the service only with a token, unless the settings allow it.

    Raises:
        InvalidInputError: They could use it without a token, or the token is too short.
    """
    if token is not None:
        check_token_text(token)
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
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Otherwise a body, which follows its headers, waits 40 ms until a browser confirms these. asyncio
        # does this only for sockets that were made with the number of the protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        raise InvalidInputError(
            f"The service cannot listen on {host} port {port}: {error}. Choose another `port`, or `host`."
        ) from None
    with listener:
        yield listener


@contextmanager
def _brief_garbage_collection() -> Iterator[None]:
    """Leave what is loaded out of garbage collections, which would stop every answer for up to a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


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
