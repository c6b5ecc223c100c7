"""The addresses of the service; the only module that knows the web framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pandas as pd
from fastapi import FastAPI, Request, Response

from plausiflow.explainer import Explainer
from plausiflow.service.core import Service
from plausiflow.service.guard import Guard
from plausiflow.service.metrics import CONTENT_TYPE
from plausiflow.service.openapi import document_of
from plausiflow.service.pages import INDEX, StaticFile, static_files
from plausiflow.service.refusals import GONE, Refusal, shown
from plausiflow.service.settings import ServiceSettings

JSON = "application/json"
SWALLOWED = 8
"""A body that is too large by up to this factor is read to its end, so that its sender learns why it is
refused; on a larger one the connection is closed."""
_CLOSE = {"Connection": "close"}


def create_app(
    explainers: Mapping[str, Explainer],
    *,
    token: str | None = None,
    settings: ServiceSettings | None = None,
    rows: Mapping[str, pd.DataFrame] | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """The application; its worker starts and ends with it.

    Args:
        explainers: Fitted, by the names that clients use.
        token: That clients must send under ``/v1`` and for ``/openapi.json``; nothing where they need none.
        settings: Limits.
        rows: Rows that people may start from, by the name of the explainer.
        hosts: Names by which the service may be called; nothing where any will do.

    Raises:
        InvalidInputError: Nothing to serve, a name that cannot stand in an address, or rows that do not fit.
        NotFittedError: An explainer is not fitted.
    """
    service = Service(explainers, settings or ServiceSettings(), rows)

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await asyncio.to_thread(service.batcher.close, service.settings.time_limit)

    app = FastAPI(title="plausiflow", docs_url=None, redoc_url=None, openapi_url=None, lifespan=alive)
    app.state.service = service
    app.add_middleware(Guard, service=service, token=token, hosts=hosts)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(404, _not_routed)
    app.add_exception_handler(405, _not_routed)
    _add_pages(app, service, document_of(service, needs_token=token is not None))
    _add_models(app, service)
    return app


def _add_pages(app: FastAPI, service: Service, document: object) -> None:
    """The page, health, counters and the description of all addresses."""

    @app.get("/")
    async def page() -> Response:
        return _file(static_files().get(INDEX))

    @app.get("/static/{name:path}")
    async def static(name: str) -> Response:
        return _file(static_files().get(name))

    @app.get("/healthz")
    async def health() -> Response:
        return _json({"status": "alive"})

    @app.get("/readyz")
    async def readiness() -> Response:
        if service.is_ready:
            return _json({"status": "ready"})
        return _json({"error": "The service is starting, ending, or stuck at a request."}, 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return _json(document)


def _add_models(app: FastAPI, service: Service) -> None:
    """What stands under ``/v1``; questions first, for ``{model}`` alone would match their addresses, too."""

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"models": list(service.models)})

    @app.post("/v1/models/{model}:predict")
    async def predict(model: str, request: Request) -> Response:
        return await _answer(service, "predict", model, request)

    @app.post("/v1/models/{model}:explain")
    async def explain(model: str, request: Request) -> Response:
        return await _answer(service, "explain", model, request)

    @app.post("/v1/models/{model}:map")
    async def draw(model: str, request: Request) -> Response:
        return await _answer(service, "map", model, request)

    @app.get("/v1/models/{model}")
    async def model(model: str) -> Response:
        if model.endswith((":predict", ":explain", ":map")):
            raise Refusal(405, "Send this question with POST.", {"Allow": "POST"})
        return _json(service.model(model).described)

    @app.get("/v1/models/{model}/rows")
    async def rows(model: str) -> Response:
        return _json({"rows": service.model(model).offered})


async def _answer(service: Service, verb: str, model: str, request: Request) -> Response:
    service.model(model)
    body = await _body(request, service.settings)
    reply = await service.answer(verb, model, body, request.receive)
    note = request.scope["plausiflow"]
    note.rows, note.together = reply.rows, reply.together
    return Response(reply.body, media_type=JSON)


async def _body(request: Request, settings: ServiceSettings) -> bytes:
    """The body of a request, as long as it is JSON, small and quick enough."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != JSON:
        text = f"The body must be JSON, with the header `Content-Type: {JSON}`; got {shown(said)}."
        raise Refusal(415, text)
    try:
        async with asyncio.timeout(settings.time_limit):
            body, ended = await _received(request, settings.max_body)
    except TimeoutError:
        raise Refusal(408, f"The body must come within {settings.time_limit:g} s.", _CLOSE) from None
    if len(body) > settings.max_body or not ended:
        text = f"A body may have {settings.max_body} bytes; this one has more. Send fewer rows at once."
        raise Refusal(413, text, {} if ended else _CLOSE)
    return body


async def _received(request: Request, most: int) -> tuple[bytes, bool]:
    """A body, or more than ``most`` bytes of a larger one, and whether its end has come."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > SWALLOWED * most:
        return b"", False
    kept, size, more = bytearray(), 0, True
    while more and size <= SWALLOWED * most:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(GONE, "The client went away.")
        size += len(message.get("body", b""))
        if len(kept) <= most:
            kept += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(kept), not more


def _file(found: StaticFile | None) -> Response:
    if found is None:
        raise Refusal(404, "There is no such page.")
    return Response(found.content, media_type=found.media_type)


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type=JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    made = _json({"error": error.text}, error.status)
    made.headers.update(error.headers)
    return made


async def _not_routed(request: Request, error: Exception) -> Response:
    """No such address, or not with this method."""
    status: int = getattr(error, "status_code", 404)
    text = "There is no such address; /openapi.json lists them."
    if status == 405:
        text = "This address does not take this method; /openapi.json lists what it takes."
    made = _json({"error": text}, status)
    made.headers.update(getattr(error, "headers", None) or {})
    return made
