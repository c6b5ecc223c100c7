"""The command line: ``plausiflow fit``, ``explain``, ``batch``, ``serve``, ``demo``, ``benchmark ...``.

Exit codes: 0 done; 2 what was given cannot be used, told on one line of standard error; 3 some parts of the
input of ``batch`` failed; 1 anything else; 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.cli import batching, explaining, fitting, serving
from plausiflow.datasets import describe, describe_tables
from plausiflow.demo import run as run_demo
from plausiflow.errors import MissingExtraError, PlausiflowError
from plausiflow.workers import keep_memory

__all__ = ["app"]


_UsageError: Any = typer.BadParameter.__bases__[0]


@contextmanager
def _one_line(debug: bool = False) -> Iterator[None]:
    """Show an error as one line with its remedy, not as a trace.

    Also one that nobody raised on purpose: a trace says little to people who do not write code.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt as interrupt:
        _end("stopped; a file is written whole or not at all.", 130, interrupt)
    except _UsageError as error:
        text = error.format_message()
        if "\n" in text:  # the whole help, for want of a command
            raise
        path = getattr(error.ctx, "command_path", "plausiflow")
        _end(f"{text.rstrip('.')}. See: {path} --help", 2, error)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, PlausiflowError | OSError):
            _end(str(error), 2, error)
        text = f"unexpected {type(error).__name__}: {error}".rstrip(".")
        advice = "This is a bug. Run `plausiflow --debug ...` and report what it prints."
        _end(f"{text}. {advice}", 1, error)


def _end(text: str, code: int, error: BaseException) -> NoReturn:
    line = " ".join(text.replace(":\n- ", ": ").replace("\n- ", "; ").split())
    typer.secho(f"plausiflow: {line}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code) from error


class _Commands(typer.core.TyperGroup):
    """Shows errors as one line."""

    def make_context(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        with _one_line():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        with _one_line(bool(ctx.params.get("debug"))):
            return super().invoke(ctx)


app = typer.Typer(
    name="plausiflow",
    cls=_Commands,
    no_args_is_help=True,
    help="Counterfactual explanations that could be real: the closest row that a model decides otherwise, "
    "and that is dense under a normalizing flow of the data.\n\nStart with: plausiflow demo. For your own "
    "table: plausiflow fit --help",
    pretty_exceptions_enable=False,
)
for module, command in (
    (fitting, fitting.fit),
    (explaining, explaining.explain),
    (batching, batching.batch),
    (serving, serving.serve),
):
    app.command(epilog="\n\n".join(("Examples:", *module.EXAMPLES)))(command)
for entry in entry_points(group="plausiflow.commands"):
    app.add_typer(entry.load(), name=entry.name)


@app.callback()
def main(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the trace of an error; the exit code is then 1.")
    ] = False,
) -> None:
    """Counterfactual explanations that could be real."""
    # Small batches: a second thread would mostly spin, and be counted where processor seconds are compared.
    torch.set_num_threads(1)
    keep_memory()


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the CSV file and the picture.")] = Path(
        "out"
    ),
    seed: Annotated[int, typer.Option("--seed", help="Of every model that is trained.")] = 0,
) -> None:
    """Explain a bundled example.

    Train a model and a flow, find a counterfactual for every test row, print what changes.
    """
    run_demo(out, seed=seed)


if "benchmark" not in {entry.name for entry in entry_points(group="plausiflow.commands")}:

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def benchmark() -> None:
        """Run a study; needs the package `plausiflow-bench`."""
        raise MissingExtraError("plausiflow-bench", None, "`plausiflow benchmark`")


@app.command()
def datasets() -> None:
    """List the data sets: their size, where they come from, and whether they are on this machine."""
    console = Console()
    kinds = {
        "Data sets: numbers, in the paper's folds": describe(),
        "Tables: as people have them": describe_tables(),
    }
    for title, frame in kinds.items():
        table = Table(title=title, title_justify="left")
        shown = [str(column) for column in frame.columns if column != "source"]
        for column in shown:
            table.add_column(column, no_wrap=column == "name", overflow="fold")
        for values in frame[shown].itertuples(index=False):
            table.add_row(
                *("yes" if value is True else "no" if value is False else str(value) for value in values)
            )
        console.print(table)
        for name, source in zip(frame["name"], frame["source"], strict=True):
            console.print(f"{name}: {source}", markup=False, highlight=False)
