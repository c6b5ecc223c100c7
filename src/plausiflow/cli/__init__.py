"""The command line: ``plausiflow demo``, ``plausiflow datasets``, ``plausiflow benchmark ...``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.cli import benchmarks, paper, table_benchmarks
from plausiflow.cli.options import Seed, benchmark
from plausiflow.data import catalog, tables
from plausiflow.demo import run as run_demo
from plausiflow.errors import PlausiflowError

__all__ = ["app", "benchmarks", "paper", "table_benchmarks"]


class _Commands(typer.core.TyperGroup):
    """Shows our own errors as one line with their remedy, not as a trace."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except PlausiflowError as error:
            if ctx.params.get("debug"):
                raise
            typer.secho(f"plausiflow: {error}", err=True, fg=typer.colors.RED)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Counterfactual explanations that could be real: the closest row that a model decides otherwise, "
    "and that is dense under a normalizing flow of the data.\n\nStart with: plausiflow demo",
    pretty_exceptions_enable=False,
)
app.add_typer(benchmark, name="benchmark")


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
) -> None:
    """Counterfactual explanations that could be real."""
    # Small batches: a second thread would mostly spin, and be counted where processor seconds are compared.
    torch.set_num_threads(1)
    # Files beside a checkout need no settings; the environment's own word comes first.
    for variable, folder in (("PLAUSIFLOW_DATA", "data"), ("PLAUSIFLOW_REFERENCE", "reference")):
        beside = Path("..") / "shared" / folder
        if variable not in os.environ and beside.is_dir():
            os.environ[variable] = str(beside.resolve())


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the CSV file and the picture.")] = Path(
        "out"
    ),
    seed: Seed = 0,
) -> None:
    """Explain a bundled example.

    Train a model and a flow, find a counterfactual for every test row, print what changes.
    """
    run_demo(out, seed=seed)


@app.command()
def datasets() -> None:
    """List the data sets: their size, where they come from, and whether they are on this machine."""
    console = Console()
    kinds = {
        "Data sets: numbers, in the paper's folds": catalog.describe(),
        "Tables: as people have them": tables.describe_tables(),
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
