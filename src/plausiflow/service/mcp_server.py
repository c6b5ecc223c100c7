"""A server of the Model Context Protocol over standard input and output: three tools for assistants.

The only module that imports the package ``mcp``. The protocol uses standard output, so logs go to standard
error.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from plausiflow import __version__
from plausiflow.errors import InvalidInputError, PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.service.errors import RequestError
from plausiflow.service.logs import log, logging_to
from plausiflow.service.service import Service
from plausiflow.service.settings import ServiceSettings
from plausiflow.service.tokens import check_token_text
from plausiflow.service.tools import Tools

TOKEN_VARIABLE = "PLAUSIFLOW_TOKEN"
"""Variable of the environment with the token of the client."""


def serve_mcp(
    name: str,
    explainer: Explainer,
    *,
    settings: ServiceSettings | None = None,
    target: object = None,
    token: str | None = None,
    environment: Mapping[str, str] | None = None,
    logs: TextIO | None = None,
) -> None:
    """Serve an explainer over standard input and output until the client closes them.

    Args:
        name: Name of the model.
        explainer: The fitted explainer.
        settings: Limits, those of the service.
        target: The favourable outcome.
        token: Token that the client must have in the variable ``PLAUSIFLOW_TOKEN`` of its environment.
        environment: The environment, if there is a token.
        logs: Stream for the logs; None for standard error.

    Raises:
        InvalidInputError: The token is too short, or the client does not have it.
    """
    check_token(token, environment or {})
    targets = {} if target is None else {name: target}
    service = Service({name: explainer}, settings or ServiceSettings(), None, targets)
    with logging_to(logs or sys.stderr):
        log("listening", {"transport": "stdio", "models": [name]})
        service.start()
        try:
            asyncio.run(_serve(Tools(service)))
        finally:
            service.close()
        log("ended", {})


def check_token(token: str | None, environment: Mapping[str, str]) -> None:
    """Raise unless the environment has the token."""
    if token is None:
        return
    check_token_text(token)
    given = environment.get(TOKEN_VARIABLE, "")
    if not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise InvalidInputError(
            f"This server needs its token in the variable {TOKEN_VARIABLE} of the environment; it is "
            f"{'another one' if given else 'not there'}. Set it in the configuration of the assistant."
        )


async def _serve(tools: Tools) -> None:
    server = make_server(tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def make_server(tools: Tools) -> Server[Any]:
    """Return a server of the protocol with the tools."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        shown = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.schema,
                annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for tool in tools.all()
        ]
        return types.ListToolsResult(tools=shown)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        start = time.perf_counter()
        result, failed = await _call(tools, params)
        milliseconds = round(1000 * (time.perf_counter() - start), 3)
        log("tool", {"tool": params.name, "failed": failed, "milliseconds": milliseconds})
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
        # Half of a surrogate pair, which UTF-8 cannot encode, becomes its JSON escape.
        text = text.encode("utf-8", errors="backslashreplace").decode()
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=content, structured_content=json.loads(text), is_error=failed)

    return Server(
        "plausiflow",
        version=__version__,
        instructions=tools.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call(tools: Tools, params: types.CallToolRequestParams) -> tuple[dict[str, Any], bool]:
    """Return the result of a tool or its error, and whether it is an error."""
    try:
        return await tools.call(params.name, params.arguments or {}), False
    except RequestError as error:
        return dict(error.body), True
    except PlausiflowError as error:
        log("error", {"tool": params.name, "error": str(error)})
        return RequestError(500, "The model failed; the log of the server has the error.").body, True
