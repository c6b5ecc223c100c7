"""``plausiflow serve``: saved explainers over HTTP, and the what-if page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from plausiflow.cli.explaining import loaded_explainer
from plausiflow.cli.table_options import Encoding, Separator
from plausiflow.cli.tables import Dialect, read_table, require_columns
from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.service import ServiceSettings

DEFAULTS = ServiceSettings()
EXAMPLES = (
    "plausiflow serve credit --rows rows.csv",
    "plausiflow serve credit mortgage --host 0.0.0.0 --token-file token.txt",
)


def serve(
    explainers: Annotated[list[Path], typer.Argument(help="Directories that `plausiflow fit` saved.")],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token that clients must send.")
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Serve other machines without a token.")
    ] = False,
    rows: Annotated[
        list[Path] | None,
        typer.Option("--rows", help="Rows to start from on the page; one file for each directory."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", help="Models that are not stored; one file for each directory."),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", help="Most rows of one request.")
    ] = DEFAULTS.max_rows,
    max_body: Annotated[
        int, typer.Option("--max-body", help="Most bytes of one request.")
    ] = DEFAULTS.max_body,
    queue_rows: Annotated[
        int, typer.Option("--queue-rows", help="Most rows that wait; beyond, requests are refused.")
    ] = DEFAULTS.queue_rows,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", help="Most rows that are explained together.")
    ] = DEFAULTS.batch_rows,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds after which a request is given up.")
    ] = DEFAULTS.time_limit,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
) -> None:
    """Serve explainers: a page to ask what if, and an interface for programs (KServe V1).

    Each explainer has the name of its directory. Only this machine is served unless a token is asked for.
    """
    run, check_reach = _server()
    settings = ServiceSettings(
        max_rows=max_rows,
        max_body=max_body,
        queue_rows=queue_rows,
        batch_rows=batch_rows,
        time_limit=time_limit,
        allow_remote=allow_remote,
    )
    dialect, token = Dialect(separator=separator, encoding=encoding), _token(token_file)
    check_reach(host, token, settings)
    names = _names(explainers)
    models, tables = (
        _one_each(option, given, names) for option, given in (("--model", model), ("--rows", rows))
    )
    loaded = {
        name: loaded_explainer(folder, models.get(name))
        for name, folder in zip(names, explainers, strict=True)
    }
    run(
        loaded,
        host=host,
        port=port,
        token=token,
        settings=settings,
        rows={name: _rows(path, dialect, loaded[name]) for name, path in tables.items()},
        ready=lambda address: typer.echo(f"Serving {', '.join(names)} at {address} (Ctrl+C ends it)"),
    )


def _server() -> tuple[Callable[..., None], Callable[[str, str | None, ServiceSettings], None]]:
    """The server and its check of the address; what they need is installed with an extra."""
    try:
        from plausiflow.service import check_reach
        from plausiflow.service import serve as run
    except ImportError as error:
        if error.name is None or error.name.startswith("plausiflow"):
            raise
        raise MissingExtraError(error.name, "serve", "Serving explainers") from error
    return run, check_reach


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise InvalidInputError(
            f"There is no file {path}. Make one: python -c 'import secrets; print(secrets.token_urlsafe())' "
            f"> {path}"
        )
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _names(folders: Sequence[Path]) -> list[str]:
    """What explainers are called: like their directories."""
    names = [Path(os.path.abspath(folder)).name for folder in folders]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"Directories must have different names, which clients use; {', '.join(twice)} is there twice. "
            "Rename one."
        )
    return names


def _one_each(option: str, given: Sequence[Path] | None, names: Sequence[str]) -> dict[str, Path]:
    """Files by explainer; none, or one for each."""
    if given and len(given) != len(names):
        raise InvalidInputError(
            f"{option} must be given once for each of the {len(names)} directories, in their order, or not "
            f"at all; got {len(given)}."
        )
    return dict(zip(names, given or (), strict=False))


def _rows(path: Path, dialect: Dialect, explainer: Explainer) -> pd.DataFrame:
    assert explainer.encoder_ is not None
    schema = explainer.encoder_.schema
    frame = read_table(path, dialect, schema)
    require_columns(schema.names, list(frame.columns), str(path))
    return frame[list(schema.names)]
