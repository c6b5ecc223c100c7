"""``plausiflow benchmark serving``: the service under load.

An explainer is fitted to a table, saved, and served by a separate process on this machine. Many clients send
requests with single rows, each as soon as it has its last response: first to a server that explains rows in
batches, then to one that explains them one by one. Every response is compared with the library's result. Then
there are more clients than the queue accepts. Finally the server is terminated under load: it must answer
every request that it has accepted.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.serving.load import (
    NAME,
    TIME_LIMIT,
    LoadReply,
    ServerProcess,
    max_difference,
    run_server,
    send_requests,
)
from plausiflow_bench.tables.cases import TableSelection

CLIENTS, REQUESTS, ROWS, TRAINING = 64, 2000, 200, 1000
SHORT_QUEUE = 8
"""Rows that may wait in the scenario with too many clients."""
COLUMNS = (
    "dataset", "method", "clients", "requests", "answered", "refused", "errors", "lost", "throughput",
    "ratio", "p50_ms", "p95_ms", "batch", "difference",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark serving --page` -->"


@dataclass(frozen=True, kw_only=True)
class ServingSelection(TableSelection):
    """The table that is served, and the load.

    Attributes:
        clients: The number of concurrent clients.
        requests: The number of requests in total.
        alone: The number of requests when rows are explained one by one. None means ``requests``.
    """

    tables: tuple[str, ...] = ("loans",)
    rows: int | None = ROWS
    train: int | None = TRAINING
    clients: int = CLIENTS
    requests: int = REQUESTS
    alone: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"clients": self.clients, "requests": self.requests, "alone": self.alone or 1}
        wrong = [f"`{name}` must be at least 1; got {count}" for name, count in counts.items() if count < 1]
        if wrong:
            raise InvalidInputError("; ".join(wrong) + ".")


def run(selection: ServingSelection) -> Iterator[Row]:
    """Yield one row per scenario: together, one by one, too many clients, termination."""
    for table in selection.tables:
        case = selection.case(table, judges=1)
        rows = case.test.x.reset_index(drop=True)
        bodies = [{"instances": [row]} for row in _instances(rows)]
        written = json.loads(case.explainer.explain(rows).to_json())["rows"]
        library = [{**row, "row": 0} for row in written]
        load = LoadTest(bodies, library, selection)
        with tempfile.TemporaryDirectory() as folder:
            case.explainer.save(Path(folder) / NAME)
            for row in load.rows(Path(folder)):
                yield case.with_provenance(row, selection.seed)


@dataclass(frozen=True)
class LoadTest:
    """The scenarios of the study.

    Attributes:
        bodies: Bodies of requests with one row each.
        library: The library's result for each body.
        selection: The load.
    """

    bodies: list[dict[str, Any]]
    library: list[Any]
    selection: ServingSelection

    def rows(self, folder: Path) -> Iterator[Row]:
        """Yield the row of each scenario; ``folder`` has the saved explainer."""
        n, alone = self.selection.requests, self.selection.alone or self.selection.requests
        with run_server(folder / NAME) as server:
            together = self._measure_load("together", server, n)
        yield together
        with run_server(folder / NAME, "--batch-rows", "1") as server:
            one = self._measure_load("one by one", server, alone)
        yield one | {"ratio": float(together["throughput"]) / float(one["throughput"])}
        with run_server(folder / NAME, "--queue-rows", str(SHORT_QUEUE), "--max-rows", "1") as server:
            crowded = self._measure_load("too many", server, n)
            again = send_requests(server.address, self.bodies[:1], 1, 1)
        crowded["errors"] = int(crowded["errors"]) + sum(reply.status != 200 for reply in again)
        yield crowded
        yield self._measure_termination(folder)

    def _measure_load(self, method: str, server: ServerProcess, requests: int) -> Row:
        start = time.monotonic()
        replies = send_requests(server.address, self.bodies, requests, self.selection.clients)
        seconds = time.monotonic() - start
        return self._measure(method, replies, seconds) | {"batch": server.batch()}

    def _measure_termination(self, folder: Path) -> Row:
        """Measure a server that is terminated when a quarter of the responses has arrived."""
        with run_server(folder / NAME) as server:
            quarter = self.selection.requests // 4

            def end(answered: int) -> None:
                if answered == quarter:
                    server.process.terminate()

            start = time.monotonic()
            clients = self.selection.clients
            replies = send_requests(server.address, self.bodies, self.selection.requests, clients, end)
            code = server.process.wait(TIME_LIMIT)
            row = self._measure("ended", replies, time.monotonic() - start)
            lost = server.accepted - {reply.request_id for reply in replies if reply.status == 200}
        return row | {"lost": len(lost), "errors": 0 if code == 0 else code}

    def _measure(self, method: str, replies: Sequence[LoadReply], seconds: float) -> Row:
        right = [reply for reply in replies if reply.status == 200]
        waits = 1000 * np.array([reply.seconds for reply in right])
        answers = [(reply.answer, self.library[reply.body]) for reply in right]
        return {
            "method": method,
            "clients": self.selection.clients,
            "requests": len(replies),
            "answered": len(right),
            "refused": sum(reply.status == 503 for reply in replies),
            "errors": sum(reply.status not in (0, 200, 503) for reply in replies),
            "lost": sum(reply.status == 0 for reply in replies),
            "throughput": len(right) / seconds,
            "p50_ms": round(float(np.quantile(waits, 0.5))) if right else math.nan,
            "p95_ms": round(float(np.quantile(waits, 0.95))) if right else math.nan,
            "difference": max((max_difference(*pair) for pair in answers), default=math.nan),
        }


def _instances(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """Return the rows of a table as clients send them."""
    return rows.astype(object).where(rows.notna(), None).to_dict(orient="records")


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
