"""Clients of the service, good and bad ones at the same time."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from plausiflow_bench.serving.load import NAME, max_difference
from plausiflow_bench.soak.outcomes import Countdown, Outcomes

SECONDS = 60.0
"""A client that behaves gets a response within this time, or the request is lost."""
ROUNDING = 1e-9
EXPLAIN = f"/v1/models/{NAME}:explain"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class ServiceSoak:
    """The load on a server.

    Attributes:
        address: URL of the server.
        instances: Rows of the table as JSON objects.
        expected: The library's result for each.
        outcomes: Where outcomes are counted.
        countdown: When to stop.
    """

    address: str
    instances: Sequence[dict[str, Any]]
    expected: Sequence[Any]
    outcomes: Outcomes
    countdown: Countdown

    def run(self, clients: int) -> None:
        """Send requests with many concurrent clients until the time is over; every fourth client is bad."""
        threads = [
            threading.Thread(target=self._client, args=(number,), daemon=True) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.countdown.end - self.countdown.started + 2 * SECONDS)
            if thread.is_alive():
                self.outcomes.add("lost", "a client that never returned")

    def _client(self, number: int) -> None:
        draw = random.Random(number)
        bad: list[Callable[[random.Random], None]] = [
            self._malformed, self._wrong_path, self._disconnect, self._slow_headers, self._too_large,
        ]  # fmt: skip
        while not self.countdown.over:
            if number % 4 == 3:
                draw.choice(bad)(draw)
            elif draw.random() < 0.05:
                self._health()
            else:
                self._good(draw)

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=SECONDS)
        try:
            connection.request(method, path, body, JSON)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def _good(self, draw: random.Random) -> None:
        """Ask for one row or several; the answers must be those of the library."""
        places = [draw.randrange(len(self.instances)) for _ in range(draw.choice((1, 1, 1, 3)))]
        body = json.dumps({"instances": [self.instances[i] for i in places]}).encode()
        reply = self._request("POST", EXPLAIN, body)
        if reply is None:
            return self.outcomes.add("lost", f"no response for rows {places}")
        status, text = reply
        if status != 200:
            return self._judge_error(status, text, allowed=(503,))
        found = json.loads(text)["explanations"]
        right = len(found) == len(places) and all(
            max_difference({**own, "row": 0}, self.expected[i]) <= ROUNDING
            for own, i in zip(found, places, strict=False)
        )
        return self.outcomes.add("right" if right else "wrong", f"rows {places}: {text[:300]!r}")

    def _health(self) -> None:
        reply = self._request("GET", "/healthz", None)
        if reply is None:
            return self.outcomes.add("lost", "/healthz")
        return self.outcomes.add("right" if reply[0] == 200 else "wrong", f"/healthz: {reply}")

    def _malformed(self, draw: random.Random) -> None:
        good = json.dumps({"instances": [self.instances[0]]})
        cut = draw.randrange(1, len(good) - 1)
        bodies = [
            good[:cut],
            "[]",
            "null",
            '{"instances": 5}',
            '{"instances": [{"no such column": 1}]}',
            '{"instances": [' + "[" * 200 + "]" * 200 + "]}",
            '{"instances": [{"a": 1e999}]}',
            good[:-1] + ', "k": -1}',
            good[:-1] + ', "target": {}}',
        ]
        self._expect_error("POST", EXPLAIN, draw.choice(bodies).encode())

    def _wrong_path(self, draw: random.Random) -> None:
        paths = ["/v1/models/nobody:explain", "/..%2f..%2fetc/passwd", f"{EXPLAIN}/", "/v1/models/%00"]
        self._expect_error("POST", draw.choice(paths), b"{}")

    def _too_large(self, draw: random.Random) -> None:
        rows = [self.instances[0]] * 20_000
        self._expect_error("POST", EXPLAIN, json.dumps({"instances": rows}).encode())

    def _expect_error(self, method: str, path: str, body: bytes) -> None:
        reply = self._request(method, path, body)
        if reply is None:
            # A server may close the connection while a body that is too large is sent.
            return self.outcomes.add("clear" if len(body) > 2**20 else "lost", f"{path}: {body[:100]!r}")
        return self._judge_error(*reply, allowed=(*range(400, 500), 503))

    def _judge_error(self, status: int, text: bytes, *, allowed: tuple[int, ...]) -> None:
        try:
            clear = status in allowed and isinstance(json.loads(text), dict)
        except ValueError:
            clear = False
        self.outcomes.add("clear" if clear else "wrong", f"{status}: {text[:300]!r}")

    def _disconnect(self, draw: random.Random) -> None:
        """Send a request, and leave before the response."""
        with self._socket() as own:
            body = json.dumps({"instances": [self.instances[0]]}).encode()
            own.sendall(_head(len(body)) + body[: draw.randrange(len(body))])
        self.outcomes.add("clear")

    def _slow_headers(self, draw: random.Random) -> None:
        """Send half of a header, and wait until the server closes the connection."""
        with self._socket() as own:
            own.sendall(_head(10)[: draw.randrange(1, 30)])
            own.settimeout(min(SECONDS, max(1.0, self.countdown.end - self.countdown.started)))
            try:
                while own.recv(4096):
                    pass
            except TimeoutError:
                return self.outcomes.add("wrong", "a half-sent header was never answered")
            except OSError:
                pass
        return self.outcomes.add("clear")

    def _socket(self) -> socket.socket:
        parts = urlsplit(self.address)
        return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=SECONDS)


def _head(length: int) -> bytes:
    lines = [f"POST {EXPLAIN} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return ("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode()
