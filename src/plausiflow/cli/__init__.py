"""The command line: ``plausiflow fit``, ``explain``, ``batch``, ``serve``, ``mcp`` and others.

Other packages add commands through the entry point group ``plausiflow.commands``: ``plausiflow-bench`` adds
``benchmark``.

Exit codes: 0 success; 2 invalid input, explained in one line on standard error; 3 some units of ``batch``
failed; 1 any other error; 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.cli import audit, batch, explain, fit, groups, letter, mcp, recheck, serve
from plausiflow.cli.output_paths import make_folder
from plausiflow.datasets import describe_datasets, describe_tables
from plausiflow.demo import run as run_demo
from plausiflow.errors import MissingExtraError, PlausiflowError
from plausiflow.workers import keep_memory

__all__ = ["app"]

GROUP = "plausiflow.commands"
KNOWN_PACKAGES = {"benchmark": "plausiflow-bench"}
"""Packages that add commands, by command."""
_UsageError: Any = typer.BadParameter.__bases__[0]


class CommandError(PlausiflowError, RuntimeError):
    """A command of another package cannot be loaded."""


@contextmanager
def _errors_in_one_line(debug: bool = False) -> Iterator[None]:
    """Print an error as one line with its remedy instead of a traceback, which helps only programmers."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt as interrupt:
        _exit("stopped; every file is complete or absent.", 130, interrupt)
    except _UsageError as error:
        text = error.format_message()
        if not text.strip() or "\n" in text:  # the whole help, because the command is missing
            if text.strip():
                typer.echo(text)
            raise typer.Exit from error
        path = getattr(error.ctx, "command_path", "plausiflow")
        end = "" if text.endswith(("?", "!")) else "."
        _exit(f"{text.rstrip('.')}{end} See: {path} --help", 2, error)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, PlausiflowError | OSError):
            _exit(str(error), 2, error)
        text = f"unexpected {type(error).__name__}: {error}".rstrip(".")
        advice = "This is a bug. Run `plausiflow --debug ...` and report what it prints."
        _exit(f"{text}. {advice}", 1, error)


def _exit(text: str, code: int, error: BaseException) -> NoReturn:
    line = " ".join(text.replace(":\n- ", ": ").replace("\n- ", "; ").split())
    typer.secho(f"plausiflow: {line}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code) from error


class _Commands(typer.core.TyperGroup):
    """A group of commands that prints errors in one line."""

    def make_context(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        with _errors_in_one_line():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        with _errors_in_one_line(bool(ctx.params.get("debug"))):
            return super().invoke(ctx)


def main(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; the exit code is then 1.")
    ] = False,
) -> None:
    """Find plausible counterfactual explanations."""
    # Batches are small: a second thread would mostly wait, and distort comparisons of processor time.
    torch.set_num_threads(1)
    keep_memory()


def demo(
    out: Annotated[Path, typer.Option("--out", help="Directory for the report and other files.")] = Path(
        "out"
    ),
    seed: Annotated[int, typer.Option("--seed", help="Random seed of every trained model.")] = 0,
) -> None:
    """Explain a bundled example.

    Train a model on loan applications, find a counterfactual for every rejected one, print the changes,
    write a report, and save the explainer for the what-if page.
    """
    make_folder("--out", out, force=True)
    called = shutil.which("plausiflow") is None and Path(sys.argv[0]).name == "plausiflow"
    run_demo(out, random_state=seed, program=sys.argv[0] if called else "plausiflow")


def datasets() -> None:
    """List the data sets: their size, their source, and whether they are on this machine."""
    console = Console()
    kinds = {
        "Data sets: numbers, in the paper's folds": describe_datasets(),
        "Tables: numbers and categories": describe_tables(),
    }
    for title, frame in kinds.items():
        table = Table(title=title, title_justify="left")
        columns = [str(column) for column in frame.columns if column != "source"]
        for column in columns:
            table.add_column(column, no_wrap=column == "name", overflow="fold")
        for values in frame[columns].itertuples(index=False):
            table.add_row(*({True: "yes", False: "no"}[v] if isinstance(v, bool) else str(v) for v in values))
        console.print(table)
        for name, source in zip(frame["name"], frame["source"], strict=True):
            console.print(f"{name}: {source}", markup=False, highlight=False)


def create_app(plugins: Iterable[EntryPoint]) -> typer.Typer:
    """Return the command line; a plugin that cannot be loaded becomes a command that reports why."""
    app = typer.Typer(
        name="plausiflow",
        cls=_Commands,
        no_args_is_help=True,
        help="Plausible counterfactual explanations: the closest row that a model decides as wanted and that "
        "is likely under a normalizing flow of the data.\n\nStart with: plausiflow demo. For your own table: "
        "plausiflow fit --help",
        pretty_exceptions_enable=False,
    )
    app.callback()(main)
    for command, examples in (
        (fit.fit, fit.EXAMPLES),
        (explain.explain, explain.EXAMPLES),
        (letter.letter, letter.EXAMPLES),
        (groups.groups, groups.EXAMPLES),
        (audit.audit, audit.EXAMPLES),
        (recheck.recheck, recheck.EXAMPLES),
        (batch.batch, batch.EXAMPLES),
        (serve.serve, serve.EXAMPLES),
        (mcp.mcp, mcp.EXAMPLES),
    ):
        app.command(epilog="\n\n".join(("Examples:", *examples)))(command)
    app.command()(demo)
    app.command()(datasets)
    missing = dict(KNOWN_PACKAGES)
    for entry in plugins:
        missing.pop(entry.name, None)
        try:
            app.add_typer(_load_command(entry), name=entry.name)
        except Exception as error:  # importing another package may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
            package = f"`{entry.dist.name}`" if entry.dist else f"that provides {entry.value}"
            text = f"`plausiflow {entry.name}` cannot be loaded: {reason}. Reinstall the package {package}."
            _add_failing_command(app, entry.name, CommandError(text))
    for name, package in missing.items():
        _add_failing_command(app, name, MissingExtraError(package, None, f"`plausiflow {name}`"))
    return app


def _load_command(entry: EntryPoint) -> typer.Typer:
    command = entry.load()
    if not isinstance(command, typer.Typer):
        raise TypeError(f"{entry.value} must be a typer.Typer; got {type(command).__name__}")
    return command


def _add_failing_command(app: typer.Typer, name: str, error: PlausiflowError) -> None:
    """Add a command that raises an error, whatever its arguments are."""

    def fail() -> None:
        raise error

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=f"Not available: {error}", context_settings=anything, add_help_option=False)(fail)


app = create_app(entry_points(group=GROUP))
