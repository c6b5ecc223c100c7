"""``plausiflow mcp``: offer a saved explainer to an assistant through the Model Context Protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from plausiflow.cli.explain import load_explainer
from plausiflow.cli.serve import DEFAULTS, parse_favourable, read_token, service_names
from plausiflow.errors import MissingExtraError
from plausiflow.service import ServiceSettings

EXAMPLES = ("plausiflow mcp credit", "plausiflow mcp credit --target granted --token-file token.txt")


def mcp(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="The model, if it is not stored in the directory.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The favourable outcome: a label, or lo:hi for a number.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="File with a token; the assistant must set PLAUSIFLOW_TOKEN to the same."
        ),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", help="Maximum rows of one call.")
    ] = DEFAULTS.max_rows,
    max_counterfactuals: Annotated[
        int, typer.Option("--max-counterfactuals", help="Maximum counterfactuals of one call, rows × k.")
    ] = DEFAULTS.max_counterfactuals,
    max_body: Annotated[
        int, typer.Option("--max-body", help="Maximum bytes of the arguments of one call.")
    ] = DEFAULTS.max_body,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds of a call; rows without an answer are not_reached.")
    ] = DEFAULTS.time_limit,
) -> None:
    """Offer three tools to an assistant: predict, explain, and what-if with locks.

    The assistant starts this command, and talks to it over standard input and output (Model Context
    Protocol). The limits are those of `serve`.
    """
    try:
        from plausiflow.service import serve_mcp
    except ImportError as error:
        if error.name is None or error.name.startswith("plausiflow"):
            raise
        raise MissingExtraError(error.name, "mcp", "Tools for assistants") from error
    (name,) = service_names([explainer])
    loaded = load_explainer(explainer, model)
    serve_mcp(
        name,
        loaded,
        settings=ServiceSettings(
            max_rows=max_rows,
            max_counterfactuals=max_counterfactuals,
            max_body=max_body,
            time_limit=time_limit,
            queue_rows=max(max_rows, DEFAULTS.queue_rows),
        ),
        target=None if target is None else parse_favourable(target, loaded),
        token=read_token(token_file),
        environment=os.environ,
    )
