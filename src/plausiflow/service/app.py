"""The web application: routes, bodies and errors. The only module that imports FastAPI.

FastAPI validates bodies with :mod:`plausiflow.service.schemas` and writes ``/openapi.json`` from them. Each
model has its own routes, so that the document describes its features.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from plausiflow import __version__
from plausiflow.explainer import Explainer
from plausiflow.service import middleware, schemas
from plausiflow.service.errors import CLIENT_CLOSED, RequestError, format_value
from plausiflow.service.jobs import Job, explain_jobs, letter_jobs, map_jobs, parse_one_target, predict_jobs
from plausiflow.service.metrics import CONTENT_TYPE
from plausiflow.service.served_model import ServedModel
from plausiflow.service.service import Service
from plausiflow.service.settings import ServiceSettings
from plausiflow.service.strict_json import parse_json

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
JSON = "application/json"
READ_FACTOR = 8
"""A body of up to this many times the limit is read to its end, so that its sender gets the response."""
_CLOSE = {"Connection": "close"}


def create_app(
    explainers: Mapping[str, Explainer],
    *,
    token: str | None = None,
    settings: ServiceSettings | None = None,
    rows: Mapping[str, pd.DataFrame] | None = None,
    targets: Mapping[str, object] | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """Return the application; its worker threads start and end with it.

    Args:
        explainers: Fitted explainers, by the names that clients use.
        token: Token that clients must send for models and ``/openapi.json``; None if they need none.
        settings: Limits.
        rows: Example rows for the what-if page, by the name of the explainer.
        targets: The favourable outcome, which the page asks for, by the name of the explainer: a label, or a
            pair of bounds of a predicted number. Without one the page guesses, and says so.
        hosts: Host names under which clients may call the service; None for any name.

    Raises:
        InvalidInputError: There is no explainer, a name cannot be part of an address, or rows do not match.
        NotFittedError: An explainer is not fitted.
    """
    service = Service(explainers, settings or ServiceSettings(), rows, targets)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="plausiflow",
        version="1",
        description="Plausible counterfactual explanations, with the addresses of KServe's version 1, and "
        "health and metadata of version 2.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=_responses(405, 421),
    )
    app.state.service = service
    app.router.route_class = StrictRoute
    if hosts is not None:
        app.add_middleware(_check_host, hosts=hosts)
    app.add_middleware(middleware.RequestMiddleware, metrics=service.metrics, token=token)
    for kind in (RequestError, RequestValidationError, 404, 405):
        app.add_exception_handler(kind, _handle_error)
    _add_pages(app, service)
    # The middleware checks the token; this dependency describes it in the OpenAPI document.
    security = [] if token is None else [Security(HTTPBearer(scheme_name="token", auto_error=False))]
    _add_models(app, service, security)
    _add_version_2(app, service, security)
    return app


def _check_host(app: middleware.App, hosts: frozenset[str]) -> middleware.App:
    """Return middleware that checks the Host header, against DNS rebinding of a service without a token.

    Starlette refuses with status 400 in plain text; this service with 421 and JSON, like all its errors.
    """
    names = sorted(hosts)
    text = f"This service is available only as {', '.join(names)}. Start it with a token to use other names."

    async def handle(scope: middleware.Scope, receive: middleware.Receive, send: middleware.Send) -> None:
        async def accept(*_: object) -> None:
            await app(scope, receive, send)

        async def refuse(message: middleware.Message) -> None:
            if message["type"] == "http.response.start":
                await middleware.send_error(send, RequestError(421, text))

        await TrustedHostMiddleware(accept, names, www_redirect=False)(scope, receive, refuse)

    return handle


class StrictRoute(APIRoute):
    """A route with a body limit and strict JSON; FastAPI accepts any size, NaN and repeated names."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            if self.body_field is None:
                return await handle(request)
            body = await _read_body(request, request.app.state.service.settings)
            parse_json(body)
            first = iter([{"type": "http.request", "body": body}])

            async def receive() -> middleware.Message:
                return next(first, None) or await request.receive()

            return await handle(Request(request.scope, receive))

        return handle_strictly


async def _read_body(request: Request, settings: ServiceSettings) -> bytes:
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != JSON:
        came = format_value(media_type)
        raise RequestError(415, f"The body must be JSON with the header `Content-Type: {JSON}`; got {came}.")
    try:
        async with asyncio.timeout(settings.body_timeout):
            body, complete = await _receive(request, settings.max_body)
    except TimeoutError:
        raise RequestError(408, f"The body must arrive within {settings.body_timeout:g} s.", _CLOSE) from None
    if len(body) > settings.max_body or not complete:
        text = f"A body may have {settings.max_body} bytes; this one has more. Send fewer rows at once."
        raise RequestError(413, text, {} if complete else _CLOSE)
    return body


async def _receive(request: Request, limit: int) -> tuple[bytes, bool]:
    """Return a body, or more than ``limit`` bytes of a larger one, and whether it was read to its end."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > READ_FACTOR * limit:
        return b"", False
    kept, size, more = bytearray(), 0, True
    while more and size <= READ_FACTOR * limit:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestError(CLIENT_CLOSED, "The client closed the connection.")
        size += len(message.get("body", b""))
        if len(kept) <= limit:
            kept += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(kept), not more


def _add_pages(app: FastAPI, service: Service) -> None:
    """Add the what-if page, health and metrics."""
    # Two dozen small files: sent from memory, they arrive before the first paint.
    files = {
        path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in STATIC.iterdir()
        if path.suffix in MEDIA_TYPES
    }

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in files:
            raise RequestError(404, "There is no such page.")
        content, media_type = files[name]
        return Response(content, media_type=media_type)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return await static("index.html")

    async def health() -> Response:
        return _json({"status": "alive"})

    async def readiness() -> Response:
        await service.check_ready()
        return _json({"status": "ready"})

    _add_health(app, "/healthz", health, schemas.StatusBody)
    _add_health(app, "/readyz", readiness, schemas.StatusBody, (503,))
    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", response_class=Response, responses=text)
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)


def _add_health(
    app: FastAPI,
    path: str,
    endpoint: Callable[[], Coroutine[Any, Any, Response]],
    body: Any,  # noqa: ANN401
    statuses: Sequence[int] = (),
    security: Sequence[Any] = (),
) -> None:
    """Add an address for GET and HEAD, with its response and the statuses of its errors."""
    options: dict[str, Any] = {"response_model": body, "responses": _responses(*statuses)}
    app.add_api_route(path, endpoint, methods=["GET"], dependencies=security, **options)
    app.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)


def _add_version_2(app: FastAPI, service: Service, security: list[Any]) -> None:
    """Add health and metadata of KServe's version 2; predictions and explanations are those of version 1."""

    async def live() -> Response:
        return _json({"live": True})

    async def ready() -> Response:
        await service.check_ready()
        return _json({"live": True, "ready": True})

    async def server() -> Response:
        return _json({"name": app.title, "version": __version__, "extensions": []})

    _add_health(app, "/v2", server, schemas.ServerMetadata)
    _add_health(app, "/v2/health/live", live, schemas.ServerLive)
    _add_health(app, "/v2/health/ready", ready, schemas.ServerReady, (503,))
    for served in service.models.values():
        _add_version_2_of(app, service, served, security)


def _add_version_2_of(app: FastAPI, service: Service, served: ServedModel, security: list[Any]) -> None:
    at, name = f"/v2/models/{served.name}", served.name

    async def metadata() -> Response:
        return _json(served.metadata)

    async def ready() -> Response:
        await service.check_ready([name])
        return _json({"name": name, "ready": True})

    _add_health(app, at, metadata, schemas.ModelMetadata, (401,), security)
    _add_health(app, f"{at}/ready", ready, schemas.ModelReady, (401, 503), security)


def _add_models(app: FastAPI, service: Service, security: list[Any]) -> None:
    """Add the list of models and the routes of each model."""

    @app.get(
        "/v1/models", dependencies=security, responses=_responses(401), response_model=schemas.ModelNames
    )
    async def models() -> Response:
        return _json({"models": list(service.models)})

    for served in service.models.values():
        _add_model(app, service, served, security)


def _add_model(app: FastAPI, service: Service, served: ServedModel, security: list[Any]) -> None:
    at, types = f"/v1/models/{served.name}", schemas.build_schemas(served, service.settings)
    statuses = (400, 401, 408, 413, 415, 422, 500, 503, 504)
    get = partial(app.get, dependencies=security, responses=_responses(401))
    post = partial(app.post, dependencies=security, responses=_responses(*statuses))

    @get(at, summary="Model and features", response_model=dict[str, Any])
    async def describe() -> Response:
        return _json(served.description | {"ready": not service.health[served.name].is_failing})

    @get(f"{at}/rows", summary="Example rows", response_model=types.examples)
    async def examples() -> Response:
        return _json({"rows": served.examples})

    @post(f"{at}:predict", summary="Predict rows", response_model=types.predictions)
    async def predict(body: types.predict, request: Request) -> Response:  # type: ignore[name-defined]
        return await _answer(service, request, predict_jobs(served, body), "predictions")

    @post(f"{at}:explain", summary="Explain rows", response_model=schemas.ExplainResponse)
    async def explain(body: types.explain, request: Request) -> Response:  # type: ignore[name-defined]
        schemas.check_counterfactuals(body, service.settings.max_counterfactuals)
        return await _answer(service, request, explain_jobs(served, body), "explanations")

    @post(f"{at}:population", summary="Histograms of an outcome", response_model=schemas.PopulationResponse)
    async def population(body: types.population) -> Response:  # type: ignore[name-defined]
        target = parse_one_target(served, body.target)
        return _json(await asyncio.to_thread(served.populations.of, target))

    @post(f"{at}:letter", summary="Write a letter about a row", response_model=schemas.LetterResponse)
    async def letter(body: types.letter, request: Request) -> Response:  # type: ignore[name-defined]
        return await _answer(service, request, letter_jobs(served, body))

    @post(f"{at}:map", summary="Draw a map around a row", response_model=schemas.MapResponse)
    async def draw(body: types.map, request: Request) -> Response:  # type: ignore[name-defined]
        return await _answer(service, request, map_jobs(served, body))


async def _answer(service: Service, request: Request, jobs: list[Job], name: str | None = None) -> Response:
    """Run jobs; the response is a list under ``name``, or else the result of the only row."""
    texts, batch_rows = await service.run(jobs, request.receive)
    record: middleware.RequestRecord = request.scope["plausiflow"]
    record.rows, record.batch_rows = len(texts), batch_rows
    text = texts[0] if name is None else f'{{"{name}": [{", ".join(texts)}]}}'
    # Half of a surrogate pair, which UTF-8 cannot encode, becomes its JSON escape.
    return Response(text.encode("utf-8", errors="backslashreplace"), media_type=JSON)


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of errors."""
    return {status: {"model": schemas.ErrorBody} for status in statuses}


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, dict(headers or {}), JSON)


async def _handle_error(request: Request, error: Exception) -> Response:
    """Respond to an invalid request, an unknown address, or a method that an address does not support."""
    if isinstance(error, RequestValidationError):
        error = schemas.describe_errors(error.errors())
    if isinstance(error, RequestError):
        return _json(error.body, error.status, error.headers)
    status, headers = getattr(error, "status_code", 404), getattr(error, "headers", None)
    text = "This address does not support this method; /openapi.json lists all addresses and methods."
    if status == 404:
        models = (
            ", ".join(request.app.state.service.models) if request.url.path.startswith(("/v1", "/v2")) else ""
        )
        text = "There is no such address; /openapi.json lists all addresses."
        text += f" The models are: {models}." if models else ""
    return _json(RequestError(status, text).body, status, headers)
