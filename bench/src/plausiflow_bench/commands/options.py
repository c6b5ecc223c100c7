"""What the benchmark commands share: options, how they are read, how rows are shown and kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from plausiflow_bench.study import PAPER_DATASETS, Row, Selection, write_json
from plausiflow_bench.tables import print_table

benchmark = typer.Typer(
    no_args_is_help=True, help="Measure: solvers, densities, tables and the published runs."
)

Names = Annotated[
    str, typer.Option("--datasets", help="Data sets, separated by commas; `plausiflow datasets` lists them.")
]
Models = Annotated[str, typer.Option("--classifiers", help="lr, mlp, node, separated by commas.")]
Folds = Annotated[str, typer.Option("--folds", help="Folds of the paper's five, for example 0,1.")]
Seed = Annotated[int, typer.Option("--seed", help="Of every model that is trained.")]
Rows = Annotated[int | None, typer.Option("--rows", help="Most test rows of each case; all if not given.")]
Reference = Annotated[
    Path | None,
    typer.Option("--reference", help="Folder of the published runs; default: $PLAUSIFLOW_REFERENCE."),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the rows to this file, a list of flat objects.")
]

ALL = ",".join(PAPER_DATASETS)
TableRows = Annotated[
    int | None, typer.Option("--rows", help="Most test rows of each table; all if not given.")
]
TrainingRows = Annotated[
    int | None, typer.Option("--train", help="Most training rows of each table, for a quick look.")
]
Page = Annotated[Path | None, typer.Option("--page", help="Put the table into this page, too.")]
Reuse = Annotated[
    list[Path] | None, typer.Option("--reuse", help="Rows of earlier runs, instead of a new one.")
]


def selected(names: str, models: str, folds: str, seed: int, rows: int | None) -> Selection:
    """The cases that the options name."""
    try:
        numbers = tuple(int(fold) for fold in split(folds))
    except ValueError as error:
        raise typer.BadParameter(f"--folds takes whole numbers like 0,1; got {folds!r}") from error
    if not split(names):
        raise typer.BadParameter("--datasets names none; `plausiflow datasets` lists them")
    return Selection(datasets=split(names), classifiers=split(models), folds=numbers, seed=seed, rows=rows)


def split(names: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def report(rows: Iterable[Row], columns: Sequence[str], title: str, json: Path | None) -> list[Row]:
    """Print rows as a table when all are there, and give them back; a file gets each as it comes."""
    kept: list[Row] = []
    for row in rows:
        kept.append(row)
        if json is not None:
            write_json(kept, json)
        if sys.stderr.isatty():
            named = [
                str(row[name])
                for name in ("dataset", "classifier", "fold", "solver", "method")
                if name in row
            ]
            typer.echo(f"done: {' '.join(named)}", err=True)
    print_table(kept, columns, title)
    if json is not None:
        write_json(kept, json)
        typer.echo(f"Rows: {json}")
    return kept
