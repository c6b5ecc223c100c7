"""What stands before every request: who may ask, and what every answer carries; and one line in the log.

It is a middleware of plain ASGI. An error that nobody expected ends here: the client gets its number, the log
gets where it happened.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from plausiflow.service.core import Service
from plausiflow.service.logs import LOGGER, log, trace_of
from plausiflow.service.refusals import GONE, Refusal

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SECURITY = (
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
GUARDED = ("/v1", "/openapi.json")
"""What needs the token: questions, and all that tells of models."""


@dataclass
class Note:
    """What is known of a request by the time it is answered.

    Attributes:
        id: In the answer's header and in the log.
        status: Of the answer.
        rows: How many rows it is about.
        together: How many rows were answered at once.
    """

    id: str
    status: int = GONE
    rows: int = 0
    together: int = 0


@dataclass(frozen=True, eq=False)
class Guard:
    """Lets requests through to an application.

    Attributes:
        app: The application.
        service: Whose counters count.
        token: That clients must show for all that tells of models; nothing where they need none.
        hosts: Names by which the service may be called; nothing where any will do. Without it, a page of
            another site could ask a service that has no token by giving its own name this address.
    """

    app: App
    service: Service
    token: str | None = None
    hosts: frozenset[str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, note = time.perf_counter(), Note(secrets.token_hex(8))
        scope["plausiflow"] = note
        begun = False

        async def answering(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun, note.status = True, message["status"]
                message["headers"] = [*message["headers"], *_headers(scope["path"], note.id)]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self.app(scope, receive, answering)
            else:
                await _send_json(answering, refusal)
        except Exception as error:
            LOGGER.error("error", extra={"fields": {"id": note.id, **trace_of(error)}})
            if begun:
                raise
            text = f"Something went wrong inside the service; its log has it under {note.id}."
            await _send_json(answering, Refusal(500, text))
        finally:
            self._note(scope, note, time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.hosts is not None and _host(headers.get(b"host", b"")) not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            return Refusal(421, f"This service answers to {names} only. Start it with a token to use others.")
        if self.token is None or not scope["path"].startswith(GUARDED):
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode()):
            return None
        text = "This service needs a token: send the header `Authorization: Bearer <token>`."
        return Refusal(401, text, {"WWW-Authenticate": "Bearer"})

    def _note(self, scope: Scope, note: Note, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        self.service.metrics.request(route, note.status, seconds, note.rows)
        line = {
            "id": note.id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": note.status,
            "ms": round(1000 * seconds, 1),
            "rows": note.rows,
            "batch": note.together,
        }
        log("request", line)


def _host(header: bytes) -> str:
    """The name in a Host header, without its port."""
    text = header.decode("latin-1").strip().lower()
    name, _, port = text.rpartition(":")
    return name if name and port.isdigit() else text


def _headers(path: str, number: str) -> Iterable[tuple[bytes, bytes]]:
    yield from ((name.lower().encode(), value.encode()) for name, value in SECURITY)
    yield b"x-request-id", number.encode()
    yield b"cache-control", b"no-cache" if path == "/" or path.startswith("/static/") else b"no-store"


async def _send_json(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.text}).encode()
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal.headers}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
