"""What the service does with a request, whatever framework brought it: questions in, JSON out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pandas as pd

from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.service.asking import drawing, explaining, predicting
from plausiflow.service.batching import Batcher, Closed, QueueFull
from plausiflow.service.bodies import parsed
from plausiflow.service.metrics import Metrics
from plausiflow.service.models import Served
from plausiflow.service.refusals import GONE, Refusal, shown, unusable
from plausiflow.service.settings import ServiceSettings
from plausiflow.service.work import Answer, Work

LONG = 0.25
"""Share of the time limit; where a batch takes longer, the next is smaller."""
STUCK = 2.0
"""Time limits after which a thread that is still at the same works is called stuck."""

_VERBS: dict[str, tuple[Callable[[Served, object, ServiceSettings], list[Work]], str]] = {
    "predict": (predicting, "predictions"),
    "explain": (explaining, "explanations"),
    "map": (drawing, ""),
}


@dataclass(frozen=True)
class Reply:
    """The answer to a question.

    Attributes:
        body: JSON.
        rows: How many rows it is about.
        together: How many rows were answered at once with the largest part of them.
    """

    body: bytes
    rows: int
    together: int


class Service:
    """Explainers, the thread that asks them, and counters.

    Args:
        explainers: By name.
        settings: Limits.
        rows: Rows that people may start from, by the name of the explainer.

    Raises:
        InvalidInputError: A name cannot stand in an address, or rows are no rows of the table.
        NotFittedError: An explainer is not fitted.
    """

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
            name: Served(name, explainer, rows.get(name)) for name, explainer in explainers.items()
        }
        self.metrics = Metrics(lambda: self.batcher.waiting_rows)
        self.batcher: Batcher[Work, Answer] = Batcher(
            lambda works, seconds: type(works[0]).answered(works, seconds),
            queue_rows=settings.queue_rows,
            batch_rows=settings.batch_rows,
            long=LONG * settings.time_limit,
            wait=settings.batch_wait_ms / 1000,
            observe=self.metrics.batch,
        )

    @property
    def is_ready(self) -> bool:
        """Whether work is taken on and gets done."""
        return self.batcher.is_open and self.batcher.busy_for() < STUCK * self.settings.time_limit

    def model(self, name: str) -> Served:
        """The explainer of this name.

        Raises:
            Refusal: There is none.
        """
        if name not in self.models:
            raise Refusal(404, f"There is no model {shown(name)}; there are: {', '.join(self.models)}.")
        return self.models[name]

    async def answer(self, verb: str, name: str, body: bytes, gone: Callable[[], Awaitable[object]]) -> Reply:
        """Answer ``predict``, ``explain`` or ``map``.

        Args:
            verb: Which of them.
            name: Of the model.
            body: Of the request.
            gone: Ends when the client has gone away.

        Raises:
            Refusal: There is no answer.
        """
        served = self.model(name)
        read, what = _VERBS[verb]
        works = read(served, parsed(body), self.settings)
        answers = await self._answers(works, gone)
        self.metrics.verdicts(status for answer in answers for status in answer.statuses)
        rows, together = sum(work.size for work in works), max(answer.together for answer in answers)
        texts = [""] * rows
        for work, answer in zip(works, answers, strict=True):
            for place, text in zip(work.positions, answer.texts, strict=True):
                texts[place] = text
        joined = f'{{"{what}": [{", ".join(texts)}]}}' if what else texts[0]
        # Half a character, which UTF-8 cannot hold, becomes the escape that JSON has for it.
        return Reply(joined.encode("utf-8", errors="backslashreplace"), rows, together)

    async def _answers(self, works: Sequence[Work], gone: Callable[[], Awaitable[object]]) -> list[Answer]:
        settings = self.settings
        try:
            futures = self.batcher.submit(works, settings.time_limit)
        except QueueFull:
            raise self._busy(f"{self.batcher.waiting_rows} rows wait already") from None
        except Closed:
            raise self._busy("it is shutting down") from None
        try:
            async with asyncio.timeout(settings.time_limit):
                return await _unless_gone(futures, gone)
        except TimeoutError:
            raise Refusal(
                504,
                f"The answer took longer than {settings.time_limit:g} s, the limit of this service. Ask "
                "about fewer rows at once, or again when it is less busy.",
            ) from None
        except (Refusal, ModelError):
            raise
        except PlausiflowError as error:
            raise unusable(str(error).replace(":\n- ", ": ").replace("\n- ", "; ")) from None

    def _busy(self, why: str) -> Refusal:
        seconds = self.settings.retry_after
        text = f"The service takes on no more now: {why}. Try again in {seconds} s."
        return Refusal(503, text, {"Retry-After": str(seconds)})


async def _unless_gone(
    futures: Sequence[Future[Answer]], gone: Callable[[], Awaitable[object]]
) -> list[Answer]:
    """The results; where the client goes away before, what has not begun is not done."""
    answers = [asyncio.wrap_future(future) for future in futures]
    left = asyncio.ensure_future(gone())
    everything: set[asyncio.Future[Any]] = {left, *answers}
    try:
        while not all(answer.done() for answer in answers):
            _, everything = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                raise Refusal(GONE, "The client went away.")
        return [answer.result() for answer in answers]
    finally:
        left.cancel()
        for answer in answers:
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # asyncio complains of errors that nobody looked at
