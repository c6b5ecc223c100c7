"""Many clients at once, and a server in a process of its own that they ask for explanations."""

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
"""Seconds: one row after the other, the last of many clients waits long."""
PATIENCE = 0.1
"""Seconds that a client waits when it was refused."""


@dataclass(frozen=True)
class Reply:
    """What became of one request.

    Attributes:
        question: Its place among the questions.
        status: Of HTTP; 0 where there was no answer.
        seconds: Until it was there.
        number: That the server gave it.
        answer: The explanation of its row.
    """

    question: int
    status: int
    seconds: float
    number: str = ""
    answer: Any = None


@dataclass(frozen=True)
class Server:
    """A server in a process of its own.

    Attributes:
        process: That runs it.
        address: Of its page.
        log: Its lines.
    """

    process: subprocess.Popen[bytes]
    address: str
    log: Path

    @property
    def accepted(self) -> set[str]:
        """Numbers of the requests for explanations that it did not turn away."""
        lines = map(json.loads, self.log.read_text().splitlines())
        asked = [line for line in lines if str(line.get("path")).endswith(":explain")]
        return {str(line["id"]) for line in asked if line["status"] != 503}

    def batch(self) -> float:
        """How many rows were explained together, on average."""
        text = _get(self.address, "/metrics").decode()
        total, calls = (
            float(re.findall(rf"^plausiflow_batch_rows_{what} (\S+)$", text, re.MULTILINE)[0])
            for what in ("sum", "count")
        )
        return total / calls


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """``plausiflow serve`` on a free port of this machine; it has ended in the end."""
    program = "from plausiflow.cli import app; app()"
    command = [sys.executable, "-c", program, "serve", str(folder), "--port", "0"]
    log = folder.parent / f"log{time.monotonic_ns()}.jsonl"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--time-limit", str(TIME_LIMIT), *options], stderr=file, stdout=subprocess.DEVNULL
        )
    try:
        yield Server(process, _listening(process, log), log)
    finally:
        process.terminate()
        process.wait(TIME_LIMIT)


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address of a server, as soon as it has one."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.05)
    raise PlausiflowError(f"The server ended with {process.returncode}: {log.read_text()[-500:]}")


def ask(
    address: str,
    questions: Sequence[dict[str, Any]],
    requests: int,
    clients: int,
    told: Callable[[int], None] = lambda answered: None,
) -> list[Reply]:
    """Ask for explanations with many clients at once, each as soon as it has its last answer.

    Args:
        address: Of the server.
        questions: Bodies of requests, one after the other and again.
        requests: How many.
        clients: How many at once; each has a connection, and ends where it gets none.
        told: Told the number of answers, after each.
    """
    bodies = [json.dumps(question).encode() for question in questions]
    numbers, replies, lock = iter(range(requests)), list[Reply](), threading.Lock()

    def client() -> None:
        connection = HTTPConnection(urlsplit(address).netloc, timeout=TIME_LIMIT)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            place = number % len(bodies)
            reply = _asked(connection, place, bodies[place])
            with lock:
                replies.append(reply)
                told(len(replies))
            if reply.status == 0:
                break
            if reply.status == 503:
                time.sleep(PATIENCE)
        connection.close()

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return replies


def _asked(connection: HTTPConnection, place: int, body: bytes) -> Reply:
    start = time.monotonic()
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", f"/v1/models/{NAME}:explain", body, headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, HTTPException):
        return Reply(place, 0, time.monotonic() - start)
    answer = json.loads(text)["explanations"][0] if response.status == 200 else None
    number = response.getheader("X-Request-Id", "")
    return Reply(place, response.status, time.monotonic() - start, number, answer)


def _get(address: str, path: str) -> bytes:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=TIME_LIMIT)
    connection.request("GET", path)
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def difference(found: Any, expected: Any) -> float:  # noqa: ANN401
    """The largest difference between numbers of two JSON values; infinite where anything else differs."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        return max((difference(found[name], expected[name]) for name in found), default=0.0)
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return max((difference(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (found, expected))
    if numbers:
        return float(abs(found - expected))
    return 0.0 if found == expected and type(found) is type(expected) else math.inf
