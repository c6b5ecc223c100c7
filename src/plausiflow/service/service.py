"""The service behind the web application: models, the queue of jobs, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pandas as pd

from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.service.batching import Batcher, JobsRejected
from plausiflow.service.errors import CLIENT_CLOSED, RequestError
from plausiflow.service.jobs import Job, JobResult
from plausiflow.service.metrics import Metrics
from plausiflow.service.served_model import ServedModel
from plausiflow.service.settings import ServiceSettings

SLOW_SHARE = 0.25
"""Share of the time limit; after a batch that takes longer, the next one is smaller."""
STUCK_FACTOR = 2.0
"""A thread that runs the same batch for this many time limits counts as stuck."""


class Service:
    """Served models, the thread that runs jobs, and metrics; see ``create_app``."""

    def __init__(
        self,
        explainers: Mapping[str, Explainer],
        settings: ServiceSettings,
        rows: Mapping[str, pd.DataFrame] | None = None,
    ) -> None:
        rows = rows or {}
        unknown = sorted(set(rows) - set(explainers))
        if unknown or not explainers:
            raise InvalidInputError(
                "Serve one explainer or more, and rows only for these; "
                f"got {', '.join(explainers) or 'none'}, and rows for {', '.join(rows) or 'none'}."
            )
        self.settings = settings
        self.models = {
            name: ServedModel(name, explainer, rows.get(name)) for name, explainer in explainers.items()
        }
        self.metrics = Metrics(lambda: self.batcher.waiting_rows)
        self.batcher = Batcher(
            queue_rows=settings.queue_rows,
            batch_rows=settings.batch_rows,
            slow=SLOW_SHARE * settings.time_limit,
            wait=settings.batch_wait_ms / 1000,
            observe=self.metrics.batch_rows.observe,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the service accepts requests and answers them."""
        return self.batcher.is_open and self.batcher.busy_seconds() < STUCK_FACTOR * self.settings.time_limit

    async def run(
        self, jobs: Sequence[Job], disconnected: Callable[[], Awaitable[object]]
    ) -> tuple[list[str], int]:
        """Run the jobs of one request; ``disconnected`` returns when the client has closed the connection.

        Returns the JSON of each row, and the number of rows in the largest batch that ran some of them.
        Raises a RequestError if the queue is full, the time is over, or the library refuses the request.
        """
        limit = self.settings.time_limit
        try:
            futures = self.batcher.submit(jobs, limit)
            async with asyncio.timeout(limit):
                results = await _unless_disconnected(futures, disconnected)
        except JobsRejected as reason:
            seconds = self.settings.retry_after
            text = f"The service accepts no requests now: {reason}. Try again in {seconds} s."
            raise RequestError(503, text, {"Retry-After": str(seconds)}) from None
        except TimeoutError:
            text = f"The answer took longer than {limit:g} s, the limit of this service. Send fewer rows, or "
            raise RequestError(504, text + "try again when the service is less busy.") from None
        except (RequestError, ModelError):
            raise
        except PlausiflowError as error:
            text = str(error).replace(":\n- ", ": ").replace("\n- ", "; ")
            raise RequestError(422, text) from None
        self.metrics.count_verdicts(status for result in results for status in result.statuses)
        texts = [""] * sum(job.size for job in jobs)
        for job, result in zip(jobs, results, strict=True):
            for position, text in zip(job.positions, result.texts, strict=True):
                texts[position] = text
        return texts, max(result.batch_rows for result in results)


async def _unless_disconnected(
    futures: Sequence[Future[JobResult]], disconnected: Callable[[], Awaitable[object]]
) -> list[JobResult]:
    """Return the results, or cancel jobs that have not started if the client closes the connection."""
    results = [asyncio.wrap_future(future) for future in futures]
    closed = asyncio.ensure_future(disconnected())
    pending: set[asyncio.Future[Any]] = {closed, *results}
    try:
        while not all(result.done() for result in results):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                raise RequestError(CLIENT_CLOSED, "The client closed the connection.")
        return [result.result() for result in results]
    finally:
        closed.cancel()
        for result in results:
            if not result.cancel() and not result.cancelled():
                result.exception()  # otherwise asyncio warns of an exception that was never retrieved
