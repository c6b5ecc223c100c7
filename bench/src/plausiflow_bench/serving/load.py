"""A server in a separate process, and many concurrent clients that send it requests."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plausiflow.errors import PlausiflowError

NAME = "served"
TIME_LIMIT = 600.0
"""Seconds; when rows are explained one by one, the last of many clients waits long."""
RETRY_SECONDS = 0.1
"""Seconds that a client waits after a refusal."""


@dataclass(frozen=True)
class LoadReply:
    """The result of one request.

    Attributes:
        body: Position of the request's body.
        status: HTTP status, or 0 if there was no response.
        seconds: Time until the response.
        request_id: The id that the server gave the request.
        answer: The explanation of the row.
    """

    body: int
    status: int
    seconds: float
    request_id: str = ""
    answer: Any = None


@dataclass(frozen=True)
class ServerProcess:
    """A server in a separate process.

    Attributes:
        process: The process.
        address: URL of the server.
        log: File with the server's log lines.
    """

    process: subprocess.Popen[bytes]
    address: str
    log: Path

    @property
    def accepted(self) -> set[str]:
        """Ids of the requests for explanations that the server did not refuse."""
        lines = map(json.loads, self.log.read_text().splitlines())
        explained = [line for line in lines if str(line.get("path")).endswith(":explain")]
        return {str(line["id"]) for line in explained if line["status"] != 503}

    def batch(self) -> float:
        """Return the mean number of rows that were explained together."""
        text = _get(self.address, "/metrics").decode()
        total, calls = (
            float(re.findall(rf"^plausiflow_batch_rows_{what} (\S+)$", text, re.MULTILINE)[0])
            for what in ("sum", "count")
        )
        return total / calls


@contextmanager
def run_server(folder: Path, *options: str) -> Iterator[ServerProcess]:
    """Run ``plausiflow serve`` on a free port of this machine, and terminate it at the end."""
    program = "from plausiflow.cli import app; app()"
    command = [sys.executable, "-c", program, "serve", str(folder), "--port", "0"]
    log = folder.parent / f"log{time.monotonic_ns()}.jsonl"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--time-limit", str(TIME_LIMIT), *options], stderr=file, stdout=subprocess.DEVNULL
        )
    try:
        yield ServerProcess(process, _wait_for_address(process, log), log)
    finally:
        process.terminate()
        process.wait(TIME_LIMIT)


def _wait_for_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server listens, and return its address."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.05)
    raise PlausiflowError(f"The server ended with {process.returncode}: {log.read_text()[-500:]}")


def send_requests(
    address: str,
    bodies: Sequence[dict[str, Any]],
    requests: int,
    clients: int,
    on_reply: Callable[[int], None] = lambda answered: None,
) -> list[LoadReply]:
    """Send requests with many concurrent clients, each as soon as it has its last response.

    Args:
        address: URL of the server.
        bodies: Bodies of requests, sent in order and repeatedly.
        requests: The number of requests.
        clients: The number of clients. Each has one connection and stops if the connection fails.
        on_reply: Called with the number of replies after each reply.
    """
    encoded = [json.dumps(body).encode() for body in bodies]
    numbers, replies, lock = iter(range(requests)), list[LoadReply](), threading.Lock()

    def client() -> None:
        connection = HTTPConnection(urlsplit(address).netloc, timeout=TIME_LIMIT)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            position = number % len(encoded)
            reply = _send(connection, position, encoded[position])
            with lock:
                replies.append(reply)
                on_reply(len(replies))
            if reply.status == 0:
                break
            if reply.status == 503:
                time.sleep(RETRY_SECONDS)
        connection.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def _send(connection: HTTPConnection, position: int, body: bytes) -> LoadReply:
    start = time.monotonic()
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", f"/v1/models/{NAME}:explain", body, headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, HTTPException):
        return LoadReply(position, 0, time.monotonic() - start)
    answer = json.loads(text)["explanations"][0] if response.status == 200 else None
    request_id = response.getheader("X-Request-Id", "")
    return LoadReply(position, response.status, time.monotonic() - start, request_id, answer)


def _get(address: str, path: str) -> bytes:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=TIME_LIMIT)
    connection.request("GET", path)
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def max_difference(found: Any, expected: Any) -> float:  # noqa: ANN401
    """Return the largest difference of numbers in two JSON values, or infinity for any other difference."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        return max((max_difference(found[name], expected[name]) for name in found), default=0.0)
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return max((max_difference(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (found, expected))
    if numbers:
        return float(abs(found - expected))
    return 0.0 if found == expected and type(found) is type(expected) else math.inf
