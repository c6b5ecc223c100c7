"""Helpers of the service tests: a small explainer, clients, and servers in separate processes."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import httpx
import pandas as pd

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.explainer import Explainer
from plausiflow.service import ServiceSettings
from plausiflow.service.app import create_app
from plausiflow.service.server import serve
from processes import forked, wait_for
from searching import ORDERS, applicants

NAME = "people"
AT = f"/v1/models/{NAME}"


@cache
def people() -> tuple[Explainer, pd.DataFrame]:
    """Return a closed-form explainer and its rows: numbers, categories, a boolean, and missing values."""
    frame = applicants(120, missing=True)
    push = {"income": 3.0, "savings": 2.0, "school": 1.0}
    return stand_in(frame, [Immutable("age")], push=push, radius=2.0, orders=ORDERS), frame


def instances(frame: pd.DataFrame) -> list[dict]:
    """Return rows as JSON objects with all digits."""
    plain = frame.astype(object).where(frame.notna(), None)
    return json.loads(json.dumps(plain.to_dict(orient="records")))


class Client:
    """A client of an application in the same process; ``with`` starts and ends its worker thread."""

    def __init__(self, explainers=None, *, settings=None, token=None, rows=None, targets=None, hosts=None):
        explainers = {NAME: people()[0]} if explainers is None else explainers
        self.app = create_app(
            explainers,
            settings=settings or ServiceSettings(),
            token=token,
            rows=rows,
            targets=targets,
            hosts=hosts,
        )
        self.service = self.app.state.service
        self._runner = asyncio.Runner()

    def __enter__(self):
        self._life = self.app.router.lifespan_context(self.app)
        self._runner.run(self._life.__aenter__())
        return self

    def __exit__(self, *error):
        self._runner.run(self._life.__aexit__(*error))
        self._runner.close()

    def request(self, method: str, path: str, **options) -> httpx.Response:
        """Send a request and return its response."""
        return self.together([(method, path, options)])[0]

    def together(self, requests) -> list[httpx.Response]:
        """Send several requests at once."""

        async def ask():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await asyncio.gather(
                    *(client.request(method, path, **options) for method, path, options in requests)
                )

        return self._runner.run(ask())

    def get(self, path: str, **options) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body=None, **options) -> httpx.Response:
        """Send a body as JSON, or ``content`` as it is."""
        if "content" in options:
            options.setdefault("headers", {"Content-Type": "application/json"})
            return self.request("POST", path, **options)
        return self.request("POST", path, json=body, **options)

    def explain(self, rows, target="opposite", **parameters) -> list[dict]:
        """Return the explanations of rows."""
        body = {"instances": rows, "target": target, "parameters": parameters}
        answer = self.post(f"{AT}:explain", body)
        assert answer.status_code == 200, answer.text
        return answer.json()["explanations"]


@dataclass
class Running:
    """A server in a separate process.

    Attributes:
        pid: Its process.
        address: Address of its page.
        log: Its log file, one JSON object per line.
        code: Its exit code after it has ended.
    """

    pid: int
    address: str
    log: Path
    code: int | None = field(default=None)

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def lines(self, event: str = "request") -> list[dict]:
        """Return the log lines of an event."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["event"] == event]


@contextmanager
def running(folder: Path, explainers=None, **options) -> Iterator[Running]:
    """Run a server on a free port; it ends with the block."""
    explainers = {NAME: people()[0]} if explainers is None else explainers
    log, place = folder / "log.jsonl", folder / "address"

    def on_ready(address: str) -> None:
        place.with_suffix(".new").write_text(address)
        place.with_suffix(".new").rename(place)

    def run() -> None:
        with log.open("w", buffering=1) as file:
            serve(explainers, port=0, logs=file, ready=on_ready, **options)

    server = Running(forked(run), "", log)
    try:
        wait_for(place.exists)
        server.address = place.read_text()
        yield server
    finally:
        if server.code is None:
            server.terminate()
            server.wait()
