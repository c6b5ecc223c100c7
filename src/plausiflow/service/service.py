"""The service behind the web application: models and their health, the queues of jobs, and metrics."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pandas as pd

from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.service.batching import Batcher, DeadlinePassed, JobsRejected
from plausiflow.service.errors import CLIENT_CLOSED, RequestError
from plausiflow.service.health import ModelHealth
from plausiflow.service.jobs import Job, JobResult, late_job, predict_jobs
from plausiflow.service.metrics import Metrics
from plausiflow.service.schemas import PredictRequest
from plausiflow.service.served_model import ServedModel
from plausiflow.service.settings import ServiceSettings

SLOW_SHARE = 0.25
"""Share of the time limit; after a batch that takes longer, the next one is smaller."""
STUCK_FACTOR = 2.0
"""A thread that runs the same batch for this many time limits counts as stuck."""
OVERRUN_SECONDS = 1.0
"""Time for a search that has started to end after the time limit."""
LATE_SECONDS = 5.0
"""Time for the predictions of rows that are not reached."""
PROBE_SECONDS = 0.5
"""Longest time that a question whether the service is ready waits for a model that failed."""


class Service:
    """Served models, the threads that run jobs, and metrics; see ``create_app``.

    One thread explains rows and draws maps, the other predicts.
    """

    def __init__(
        self,
        explainers: Mapping[str, Explainer],
        settings: ServiceSettings,
        rows: Mapping[str, pd.DataFrame] | None = None,
        targets: Mapping[str, object] | None = None,
    ) -> None:
        rows, targets = rows or {}, targets or {}
        unknown = sorted({*rows, *targets} - set(explainers))
        if unknown or not explainers:
            raise InvalidInputError(
                "Serve one explainer or more, and rows and targets only for these; "
                f"got {', '.join(explainers) or 'none'}, and rows or targets for "
                f"{', '.join({**rows, **targets}) or 'none'}."
            )
        self.settings = settings
        self.models = {
            name: ServedModel(name, explainer, rows.get(name), targets.get(name))
            for name, explainer in explainers.items()
        }
        self.health = {name: ModelHealth() for name in explainers}
        self.metrics = Metrics(lambda: sum(batcher.waiting_rows for batcher in self.batchers))
        self.searches, self.predictions = self.batchers = (self._make_batcher(), self._make_batcher())

    def _make_batcher(self) -> Batcher:
        return Batcher(
            queue_rows=self.settings.queue_rows,
            batch_rows=self.settings.batch_rows,
            slow=SLOW_SHARE * self.settings.time_limit,
            wait=self.settings.batch_wait_ms / 1000,
            observe=self._observe,
        )

    def _observe(self, jobs: Sequence[Job], outcome: list[JobResult] | Exception) -> None:
        """Record a batch in the metrics and in the health of its model."""
        health = self.health[jobs[0].served.name]
        if not isinstance(outcome, Exception):
            self.metrics.batch_rows.observe(sum(job.size for job in jobs))
            if any(result.evaluated for result in outcome):
                health.record(failed=False)
        elif isinstance(outcome, ModelError):
            health.record(failed=True)

    def start(self) -> None:
        """Start the threads."""
        for batcher in self.batchers:
            batcher.start()

    def close(self) -> None:
        """Accept no more jobs, finish those in the queues, and end the threads."""
        for batcher in self.batchers:
            batcher.close(self.settings.time_limit)

    @property
    def is_ready(self) -> bool:
        """Whether the service accepts requests, answers them, and every model works."""
        return self._answers and not any(health.is_failing for health in self.health.values())

    @property
    def _answers(self) -> bool:
        stuck = STUCK_FACTOR * self.settings.time_limit
        return all(batcher.is_open and batcher.busy_seconds() < stuck for batcher in self.batchers)

    async def check_ready(self, names: Collection[str] | None = None) -> None:
        """Raise a RequestError if the service or one of these models (by default all) is not ready.

        A model that failed is tried with a typical row, at most once a second.
        """
        if not self._answers:
            text = "The service is starting, shutting down, or stuck in a request."
            raise RequestError(503, text, code="not_ready")
        failing = [name for name in names or self.models if self.health[name].is_failing]
        probes = [probe for name in failing for probe in self._probe(name)]
        await asyncio.gather(*(asyncio.to_thread(probe.wait, PROBE_SECONDS) for probe in probes))
        failing = [name for name in failing if self.health[name].is_failing]
        if failing:
            text = f"These models fail: {', '.join(failing)}. The log has the errors."
            raise RequestError(503, text, code="model_error")

    def _probe(self, name: str) -> list[threading.Event]:
        """Let a model that failed predict a typical row, unless it just did; return an event for the end."""
        served, health, ended = self.models[name], self.health[name], threading.Event()
        if not health.begin_probe():
            return []

        def end(future: Future[JobResult]) -> None:
            health.end_probe(failed=future.exception() is not None)
            ended.set()

        try:
            jobs = predict_jobs(served, PredictRequest(instances=[served.description["typical"]]))
            for future in self.predictions.submit(jobs, self.settings.time_limit):
                future.add_done_callback(end)
        except JobsRejected:
            health.end_probe(failed=True)
            ended.set()
        return [ended]

    async def run(
        self, jobs: Sequence[Job], disconnected: Callable[[], Awaitable[object]]
    ) -> tuple[list[str], int]:
        """Run the jobs of one request; ``disconnected`` returns when the client has closed the connection.

        Returns the JSON of each row, and the number of rows in the largest batch that ran some of them.
        Raises a RequestError if the queue is full, the time is over, or the library refuses the request.
        """
        closed = asyncio.ensure_future(disconnected())
        try:
            results = await self._results(jobs, closed)
        except JobsRejected as reason:
            seconds = self.settings.retry_after
            text = f"The service accepts no requests now: {reason}. Try again in {seconds} s."
            raise RequestError(503, text, {"Retry-After": str(seconds)}) from None
        except (RequestError, ModelError):
            raise
        except PlausiflowError as error:
            text = str(error).replace(":\n- ", ": ").replace("\n- ", "; ")
            raise RequestError(422, text) from None
        finally:
            closed.cancel()
        self.metrics.count_verdicts(status for result in results for status in result.statuses)
        texts = [""] * sum(job.size for job in jobs)
        for job, result in zip(jobs, results, strict=True):
            for position, text in zip(job.positions, result.texts, strict=True):
                texts[position] = text
        return texts, max(result.batch_rows for result in results)

    async def _results(self, jobs: Sequence[Job], closed: asyncio.Future[Any]) -> list[JobResult]:
        """Return the results of jobs; those that are not done in time are replaced by their late jobs."""
        limit = self.settings.time_limit
        batcher = self.predictions if jobs[0].is_prediction else self.searches
        results = await _finished(batcher.submit(jobs, limit), closed, limit)
        late = [i for i, result in enumerate(results) if result is None]
        if late and jobs[0].if_late is not None:
            futures = self.predictions.submit([late_job(jobs[i]) for i in late], LATE_SECONDS)
            for i, result in zip(late, await _finished(futures, closed, LATE_SECONDS), strict=True):
                results[i] = result
        if any(result is None for result in results):
            text = f"The answer took longer than {limit:g} s, the limit of this service. Send fewer rows, or "
            raise RequestError(504, text + "try again when the service is less busy.")
        return [result for result in results if result is not None]


async def _finished(
    futures: Sequence[Future[JobResult]], closed: asyncio.Future[Any], seconds: float
) -> list[JobResult | None]:
    """Return the results of jobs, None for those that are not finished in time.

    A job that has not started by then, or when the client closes the connection, is cancelled; one that has
    started gets a little more time.
    """
    results = [asyncio.wrap_future(future) for future in futures]
    try:
        await _wait(results, closed, seconds)
        for future in futures:
            future.cancel()  # does nothing if it has started
        await _wait(results, closed, OVERRUN_SECONDS)
        return [_result(result) for result in results]
    finally:
        for result in results:
            if not result.cancel() and not result.cancelled():
                result.exception()  # otherwise asyncio warns of an exception that was never retrieved


async def _wait(results: Sequence[asyncio.Future[Any]], closed: asyncio.Future[Any], seconds: float) -> None:
    """Wait until all results are there or the time is over; raise if the client closes the connection."""
    end = time.monotonic() + seconds
    while pending := [result for result in results if not result.done()]:
        left = end - time.monotonic()
        if left <= 0:
            return
        await asyncio.wait([closed, *pending], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if closed.done():
            raise RequestError(CLIENT_CLOSED, "The client closed the connection.")


def _result(result: asyncio.Future[JobResult]) -> JobResult | None:
    """Return a result, or None if it is not there in time."""
    if not result.done() or result.cancelled():
        return None
    if isinstance(result.exception(), DeadlinePassed):
        return None
    return result.result()
