"""``plausiflow benchmark soak``: bad clients, kills, damaged files and odd tables."""

from __future__ import annotations

from typing import Annotated

import typer

from plausiflow_bench.commands.options import Json, Page, Reuse, Seed, benchmark, report, split_names
from plausiflow_bench.harness.rows import read_json
from plausiflow_bench.soak import study


@benchmark.command("soak")
def benchmark_soak(
    minutes: Annotated[float, typer.Option("--minutes", help="Time of all parts together.")] = study.MINUTES,
    clients: Annotated[
        int, typer.Option("--clients", help="Concurrent clients of the service.")
    ] = study.CLIENTS,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", help="Rows of the batch runs.")
    ] = study.BATCH_ROWS,
    parts: Annotated[
        str, typer.Option("--parts", help=f"Any of {', '.join(study.PARTS)}, separated by commas.")
    ] = ",".join(study.PARTS),
    seed: Seed = 0,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """A bounded soak; it fails if anything was wrong or lost.

    Example: plausiflow benchmark soak --minutes 2
    """
    selection = study.SoakSelection(
        minutes=minutes, clients=clients, batch_rows=batch_rows, parts=split_names(parts), seed=seed
    )
    rows = report(read_json(*reuse) if reuse else study.run(selection), study.COLUMNS, "Soak", json)
    for example in filter(None, (str(row["examples"]) for row in rows)):
        typer.echo(example)
    if page is not None:
        study.write_page(rows, page)
        typer.echo(f"Written: {page}")
    if study.failures(rows):
        raise typer.Exit(1)
