"""``plausiflow benchmark serving``: the service under load.

An explainer is fitted to a table, saved, and served by a process of its own on this machine. Many clients
ask about single rows at once, each as soon as it has its last answer: first with rows explained together,
then one after the other. Every answer is held against the library's own. Then there are more clients than the
queue has room for, and at last the server is told to end in the middle of its work: what it has accepted must
be answered.
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
from plausiflow_bench.cases import TableSelection, what_ran, write_section
from plausiflow_bench.load import NAME, TIME_LIMIT, Reply, Server, ask, difference, serving
from plausiflow_bench.study import Row
from plausiflow_bench.tables import markdown

CLIENTS, REQUESTS, ROWS, TRAINING = 64, 2000, 200, 1000
SCARCE = 8
"""Rows that may wait where there are too many clients."""
COLUMNS = (
    "dataset", "method", "clients", "requests", "answered", "refused", "errors", "lost", "throughput",
    "ratio", "p50_ms", "p95_ms", "batch", "difference",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark serving --page` -->"


@dataclass(frozen=True, kw_only=True)
class LoadSelection(TableSelection):
    """Which table is served, and how much is asked of the service.

    Attributes:
        clients: That ask at once.
        requests: All of them together.
        alone: Requests where rows are explained one after the other; none means as many.
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


def run(selection: LoadSelection) -> Iterator[Row]:
    """One row for each way to be asked: together, one after the other, too often, and until the end."""
    for table in selection.tables:
        case = selection.case(table, judges=1)
        rows = case.test.x.reset_index(drop=True)
        questions = [{"instances": [row]} for row in _instances(rows)]
        written = json.loads(case.explainer.explain(rows).to_json())["rows"]
        library = [{**row, "row": 0} for row in written]
        load = _Load(questions, library, selection)
        with tempfile.TemporaryDirectory() as folder:
            case.explainer.save(Path(folder) / NAME)
            for row in load.rows(Path(folder)):
                yield case.identified(row, selection.seed)


@dataclass(frozen=True)
class _Load:
    questions: list[dict[str, Any]]
    library: list[Any]
    selection: LoadSelection

    def rows(self, folder: Path) -> Iterator[Row]:
        n, alone = self.selection.requests, self.selection.alone or self.selection.requests
        with serving(folder / NAME) as server:
            together = self._asked("together", server, n)
        yield together
        with serving(folder / NAME, "--batch-rows", "1") as server:
            one = self._asked("one by one", server, alone)
        yield one | {"ratio": float(together["throughput"]) / float(one["throughput"])}
        with serving(folder / NAME, "--queue-rows", str(SCARCE), "--max-rows", "1") as server:
            crowded = self._asked("too many", server, n)
            again = ask(server.address, self.questions[:1], 1, 1)
        crowded["errors"] = int(crowded["errors"]) + sum(reply.status != 200 for reply in again)
        yield crowded
        yield self._ended(folder)

    def _asked(self, method: str, server: Server, requests: int) -> Row:
        start = time.monotonic()
        replies = ask(server.address, self.questions, requests, self.selection.clients)
        seconds = time.monotonic() - start
        return self._measured(method, replies, seconds) | {"batch": server.batch()}

    def _ended(self, folder: Path) -> Row:
        """A server that is told to end when a quarter of the answers is there."""
        with serving(folder / NAME) as server:
            quarter = self.selection.requests // 4

            def end(answered: int) -> None:
                if answered == quarter:
                    server.process.terminate()

            start = time.monotonic()
            clients = self.selection.clients
            replies = ask(server.address, self.questions, self.selection.requests, clients, end)
            code = server.process.wait(TIME_LIMIT)
            row = self._measured("ended", replies, time.monotonic() - start)
            lost = server.accepted - {reply.number for reply in replies if reply.status == 200}
        return row | {"lost": len(lost), "errors": 0 if code == 0 else code}

    def _measured(self, method: str, replies: Sequence[Reply], seconds: float) -> Row:
        right = [reply for reply in replies if reply.status == 200]
        waits = 1000 * np.array([reply.seconds for reply in right])
        answers = [(reply.answer, self.library[reply.question]) for reply in right]
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
            "difference": max((difference(*pair) for pair in answers), default=math.nan),
        }


def _instances(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of a table as clients write them."""
    return rows.astype(object).where(rows.notna(), None).to_dict(orient="records")


def write_page(rows: list[Row], path: Path) -> None:
    """Put the study of the service between its marks in a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)}")
