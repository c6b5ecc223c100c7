"""``plausiflow benchmark versions``: this version beside an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plausiflow.workers import Inline, Processes
from plausiflow_bench.commands.options import (
    Json,
    Names,
    Page,
    Reuse,
    Seed,
    TableRows,
    TrainingRows,
    benchmark,
    report,
    split_names,
)
from plausiflow_bench.harness import runner
from plausiflow_bench.harness.rows import Row, read_json
from plausiflow_bench.tables import versions

TABLES = ",".join(versions.TABLES)


@benchmark.command("versions")
def benchmark_versions(
    python: Annotated[
        Path | None, typer.Option("--old-python", help="The interpreter that has the older plausiflow.")
    ] = None,
    old_name: Annotated[
        str, typer.Option("--old-name", help="Its name in the table, such as a commit; default: its version.")
    ] = "",
    names: Names = TABLES,
    models: Annotated[
        str, typer.Option("--models", help="Models, separated by commas: mlp, or trees such as xgb-100x6.")
    ] = versions.PERCEPTRON,
    seed: Seed = 0,
    rows: TableRows = versions.ROWS,
    train: TrainingRows = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Worker processes; each runs one version of one table.")
    ] = 1,
    folder: Annotated[Path, typer.Option("--folder", help="Where models and finished tasks are stored.")] = (
        Path("out/versions")
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the rows of the folder first.")] = False,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """This version beside an older one: the same model, rows, rules and targets, before fresh judges.

    A run that was stopped continues where it was. Example:
    plausiflow benchmark versions --old-python old/bin/python --datasets wine
    """
    failed = False
    if reuse:
        found = read_json(*reuse)
    elif python is None:
        raise typer.BadParameter("give --old-python, or rows of earlier runs with --reuse")
    else:
        selection = versions.VersionSelection(
            tables=split_names(names), models=split_names(models), rows=rows, train=train, seed=seed
        )
        found, failed = _run(
            selection, versions.OldVersion(python=python, name=old_name), folder, jobs, fresh
        )
    compared = report(versions.compare(found), versions.columns_of(found), "Versions", json)
    if page is not None:
        versions.write_page(compared, page)
        typer.echo(f"Written: {page}")
    if failed:
        raise typer.Exit(1)


def _run(
    selection: versions.VersionSelection, old: versions.OldVersion, folder: Path, jobs: int, fresh: bool
) -> tuple[list[Row], bool]:
    """Return the rows of the finished tasks, and whether any task failed."""
    described = old.describe()
    versions.write_inputs(selection, folder, fresh=fresh)
    outcome = runner.run(
        selection.tasks(),
        folder,
        versions.VersionWork(
            selection=selection,
            old=old,
            old_name=old.name or f"{described['version']}, code {described['code']}",
            folder=folder,
        ),
        executor=Inline() if jobs == 1 else Processes(workers=jobs, log=folder / "workers.log"),
        settings={"rows": selection.rows, "train": selection.train, "old_code": described["code"]},
        fresh=fresh,
    )
    typer.echo(str(outcome))
    return outcome.finished, bool(outcome.failed)
