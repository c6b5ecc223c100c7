"""``plausiflow serve``: serve saved explainers over HTTP, with the what-if page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import pandas as pd
import typer

from plausiflow.cli.explain import load_explainer
from plausiflow.cli.options import POLICIES, Encoding, Separator, parse_target
from plausiflow.cli.table_files import Dialect, read_table, require_columns
from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.service import ServiceSettings

Value = TypeVar("Value")

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
        typer.Option("--rows", help="Rows that the page offers as a start; one file for each directory."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", help="Models that are not stored in the directories; one file for each."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            help="The favourable outcome, which the page asks for: a label, or lo:hi for a number; one for "
            "each directory. Default: guessed, and the page says so.",
        ),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", help="Maximum rows of one request.")
    ] = DEFAULTS.max_rows,
    max_counterfactuals: Annotated[
        int, typer.Option("--max-counterfactuals", help="Maximum counterfactuals of one request, rows × k.")
    ] = DEFAULTS.max_counterfactuals,
    max_body: Annotated[
        int, typer.Option("--max-body", help="Maximum bytes of one request.")
    ] = DEFAULTS.max_body,
    queue_rows: Annotated[
        int, typer.Option("--queue-rows", help="Maximum rows that wait; further requests are refused.")
    ] = DEFAULTS.queue_rows,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", help="Maximum rows that are explained together.")
    ] = DEFAULTS.batch_rows,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", help="Seconds of a request; rows without an answer are not_reached."),
    ] = DEFAULTS.time_limit,
    header_timeout: Annotated[
        float, typer.Option("--header-timeout", help="Seconds for the headers of a request to arrive.")
    ] = DEFAULTS.header_timeout,
    body_timeout: Annotated[
        float, typer.Option("--body-timeout", help="Seconds for the body of a request to arrive.")
    ] = DEFAULTS.body_timeout,
    max_connections: Annotated[
        int, typer.Option("--max-connections", help="Maximum connections with requests.")
    ] = DEFAULTS.max_connections,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
) -> None:
    """Serve explainers: the what-if page for people, and an HTTP interface for programs (KServe V1).

    Each explainer has the name of its directory. Other machines are served only with a token.
    """
    run, check_address = _import_server()
    settings = ServiceSettings(
        max_rows=max_rows,
        max_counterfactuals=max_counterfactuals,
        max_body=max_body,
        queue_rows=queue_rows,
        batch_rows=batch_rows,
        time_limit=time_limit,
        header_timeout=header_timeout,
        body_timeout=body_timeout,
        max_connections=max_connections,
        allow_remote=allow_remote,
    )
    dialect, token = Dialect(separator=separator, encoding=encoding), read_token(token_file)
    check_address(host, token, settings)
    names = service_names(explainers)
    models, tables = _values_by_name("--model", model, names), _values_by_name("--rows", rows, names)
    targets = _values_by_name("--target", target, names)
    folders = dict(zip(names, explainers, strict=True))
    loaded = {name: load_explainer(folder, models.get(name)) for name, folder in folders.items()}
    run(
        loaded,
        host=host,
        port=port,
        token=token,
        settings=settings,
        targets={name: parse_favourable(text, loaded[name]) for name, text in targets.items()},
        rows={name: _read_rows(path, dialect, loaded[name]) for name, path in tables.items()},
        ready=lambda address: typer.echo(f"Serving {', '.join(names)} at {address} (Ctrl+C ends it)"),
    )


def _import_server() -> tuple[Callable[..., None], Callable[[str, str | None, ServiceSettings], None]]:
    """Import the server and its check of the address, which need an extra."""
    try:
        from plausiflow.service import check_address
        from plausiflow.service import serve as run
    except ImportError as error:
        if error.name is None or error.name.startswith("plausiflow"):
            raise
        raise MissingExtraError(error.name, "serve", "Serving explainers") from error
    return run, check_address


def read_token(path: Path | None) -> str | None:
    """Return the token in a file; None without a file."""
    if path is None:
        return None
    if not path.is_file():
        raise InvalidInputError(
            f"There is no file {path}. Make one: python -c 'import secrets; print(secrets.token_urlsafe())' "
            f"> {path}"
        )
    return path.read_text(encoding="utf-8", errors="replace").strip()


def service_names(folders: Sequence[Path]) -> list[str]:
    """Return the names of the directories."""
    names = [Path(os.path.abspath(folder)).name for folder in folders]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise InvalidInputError(
            f"Directories must have different names, because clients use them; {', '.join(duplicates)} is "
            "given twice. Rename one."
        )
    return names


def _values_by_name(option: str, values: Sequence[Value] | None, names: Sequence[str]) -> dict[str, Value]:
    """Return the values of an option by explainer: none, or one for each."""
    if values and len(values) != len(names):
        raise InvalidInputError(
            f"{option} must be given once for each of the {len(names)} directories, in their order, or not "
            f"at all; got {len(values)}."
        )
    return dict(zip(names, values or (), strict=False))


def parse_favourable(text: str, explainer: Explainer) -> object:
    """Return the favourable outcome that the user named."""
    assert explainer.model_ is not None
    target = parse_target(text, explainer.model_.labels)
    if isinstance(target, str) and target in POLICIES and target not in explainer.model_.labels:
        raise InvalidInputError(f"--target must name an outcome; got {text!r}. It is asked for every row.")
    return target


def _read_rows(path: Path, dialect: Dialect, explainer: Explainer) -> pd.DataFrame:
    assert explainer.encoder_ is not None
    schema = explainer.encoder_.schema
    frame = read_table(path, dialect, schema)
    require_columns(schema.names, list(frame.columns), str(path))
    return frame[list(schema.names)]
