"""ASGI middleware for every request: token, security headers, unexpected errors, and a line in the log."""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from plausiflow.errors import ModelError
from plausiflow.service.errors import CLIENT_CLOSED, RequestError
from plausiflow.service.logs import REQUEST, describe_error, log
from plausiflow.service.metrics import Metrics

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_CSP = "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
SECURITY_HEADERS = {
    "content-security-policy": f"default-src 'self'; {_CSP}",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
PROTECTED = ("/v1", "/v2/models", "/openapi.json")
"""Addresses that need the token, because they use or describe models."""


@dataclass
class RequestRecord:
    """The record of a request for the log and the metrics."""

    id: str  # identifier in the log and in the header `X-Request-Id`
    status: int = CLIENT_CLOSED
    rows: int = 0  # number of rows in the request
    batch_rows: int = 0  # number of rows that were answered together with them


@dataclass(frozen=True, eq=False)
class RequestMiddleware:
    """Middleware that authenticates requests, records them, and adds headers to responses."""

    app: App
    metrics: Metrics
    token: str | None = None  # token for protected addresses; None if they need none

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, record = time.perf_counter(), RequestRecord(secrets.token_hex(8))
        scope["plausiflow"] = record
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, record.status = True, message["status"]
                is_page = scope["path"] == "/" or scope["path"].startswith("/static/")
                added = {"x-request-id": record.id, "cache-control": "no-cache" if is_page else "no-store"}
                message["headers"] = [*message["headers"], *_encode(SECURITY_HEADERS | added)]
            await send(message)

        try:
            if self._is_authorized(scope):
                await self.app(scope, receive, send_with_headers)
            else:
                text = "This service needs a token: send the header `Authorization: Bearer <token>`."
                await send_error(send_with_headers, RequestError(401, text, {"WWW-Authenticate": "Bearer"}))
        except Exception as error:
            failed, code = (
                ("model", "model_error") if isinstance(error, ModelError) else ("service", "internal_error")
            )
            log("error", {"id": record.id, "code": code, **describe_error(error)}, logging.ERROR)
            if started:
                raise
            text = f"The {failed} failed; the log of the service has the details under the id {record.id}."
            await send_error(send_with_headers, RequestError(500, text, code=code))
        finally:
            self._record(scope, record, time.perf_counter() - start)

    def _is_authorized(self, scope: Scope) -> bool:
        """Return whether the request has the token; unlike a FastAPI dependency, before its body is read."""
        if self.token is None or not scope["path"].startswith(PROTECTED):
            return True
        headers = {name.lower(): value for name, value in scope["headers"]}
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self.token.encode())

    def _record(self, scope: Scope, record: RequestRecord, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "unknown")
        route = re.sub("^/(v[12])/models/[^/:]+", r"/\1/models/{model}", path)
        self.metrics.count_request(route, record.status, seconds, record.rows)
        line = {
            "id": record.id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": record.status,
            "ms": round(1000 * seconds, 1),
            "rows": record.rows,
            "batch": record.batch_rows,
        }
        log(REQUEST, line)


async def send_error(send: Send, error: RequestError) -> None:
    """Send a response with an error."""
    body = json.dumps(error.body).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    await send({"type": "http.response.start", "status": error.status, "headers": _encode(headers)})
    await send({"type": "http.response.body", "body": body})


def _encode(headers: MutableMapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
