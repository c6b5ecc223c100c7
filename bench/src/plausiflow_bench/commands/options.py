"""Options that the benchmark commands share, and the report of their rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from plausiflow_bench.harness.printing import print_table
from plausiflow_bench.harness.rows import Row, read_json, write_json
from plausiflow_bench.harness.selection import PAPER_DATASETS, Selection

benchmark = typer.Typer(
    no_args_is_help=True, help="Run a study: solvers, densities, tables, published runs, speed and scale."
)
SHARED_FOLDERS = {"PLAUSIFLOW_DATA": "data", "PLAUSIFLOW_REFERENCE": "reference"}


@benchmark.callback()
def find_shared_folders() -> None:
    """Set the folders of data and published runs, if they are in ``../shared`` and not set already."""
    for variable, name in SHARED_FOLDERS.items():
        folder = Path("..") / "shared" / name
        if variable not in os.environ and folder.is_dir():
            os.environ[variable] = str(folder.resolve())


Names = Annotated[
    str, typer.Option("--datasets", help="Data sets, separated by commas; see `plausiflow datasets`.")
]
Models = Annotated[str, typer.Option("--classifiers", help="Any of lr, mlp, node, separated by commas.")]
Folds = Annotated[str, typer.Option("--folds", help="The paper's folds, from 0 to 4, for example 0,1.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every model that is trained.")]
Rows = Annotated[
    int | None, typer.Option("--rows", help="Maximum number of test rows per case; default: all.")
]
ReferenceFolder = Annotated[
    Path | None,
    typer.Option("--reference", help="Folder of the published runs; default: $PLAUSIFLOW_REFERENCE."),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the rows to this file, as a list of flat objects.")
]

ALL_DATASETS = ",".join(PAPER_DATASETS)
TableRows = Annotated[
    int | None, typer.Option("--rows", help="Maximum number of test rows per table; default: all.")
]
TrainingRows = Annotated[
    int | None, typer.Option("--train", help="Maximum number of training rows per table.")
]
Page = Annotated[Path | None, typer.Option("--page", help="Also write the table into this page.")]
Reuse = Annotated[
    list[Path] | None, typer.Option("--reuse", help="Use the rows of earlier runs instead of a new run.")
]


def make_selection(names: str, models: str, folds: str, seed: int, rows: int | None) -> Selection:
    """Return the selection that the options name."""
    try:
        numbers = tuple(int(fold) for fold in split_names(folds))
    except ValueError as error:
        raise typer.BadParameter(f"--folds takes whole numbers such as 0,1; got {folds!r}") from error
    if not split_names(names):
        raise typer.BadParameter("--datasets is empty; `plausiflow datasets` lists the names")
    return Selection(
        datasets=split_names(names), classifiers=split_names(models), folds=numbers, seed=seed, rows=rows
    )


def split_names(names: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def run_study(
    rows: Iterable[Row],
    columns: Sequence[str],
    title: str,
    *,
    json: Path | None,
    reuse: list[Path] | None,
    page: Path | None,
    write_page: Callable[[list[Row], Path], None],
    figure: Path | None = None,
    draw_figure: Callable[[list[Row], Path], None] | None = None,
) -> None:
    """Report the rows of a study, or those of earlier runs; write its page and draw its figure if asked."""
    collected = report(read_json(*reuse) if reuse else rows, columns, title, json)
    if figure is not None and draw_figure is not None:
        draw_figure(collected, figure)
        typer.echo(f"Drawn: {figure}")
    if page is not None:
        write_page(collected, page)
        typer.echo(f"Written: {page}")


def report(rows: Iterable[Row], columns: Sequence[str], title: str, json: Path | None) -> list[Row]:
    """Print rows as a table, and return them; a JSON file is updated after each row."""
    collected: list[Row] = []
    for row in rows:
        collected.append(row)
        if json is not None:
            write_json(collected, json)
        if sys.stderr.isatty():
            named = [
                str(row[name])
                for name in ("dataset", "classifier", "fold", "solver", "method")
                if name in row
            ]
            typer.echo(f"done: {' '.join(named)}", err=True)
    print_table(collected, columns, title)
    if json is not None:
        write_json(collected, json)
        typer.echo(f"Rows: {json}")
    return collected
