"""``plausiflow benchmark batch``: the study of batch runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from plausiflow_bench.batch import study
from plausiflow_bench.commands.options import Json, Page, Reuse, Seed, benchmark, run_study, split_names

Device = Literal["cpu", "cuda"]


@benchmark.command("batch")
def benchmark_batch(
    rows: Annotated[
        int, typer.Option("--rows", help="Rows for the comparison of one worker with two.")
    ] = study.ROWS,
    many: Annotated[
        int, typer.Option("--many", help="Rows for the large run with --workers; 0 skips it.")
    ] = study.MANY,
    workers: Annotated[int, typer.Option("--workers", help="Workers of the large run.")] = 2,
    kills: Annotated[
        int,
        typer.Option("--kills", help="Repeat the large run, kill it this many times, and compare all bytes."),
    ] = 0,
    engines: Annotated[
        str, typer.Option("--engines", help="Any of local, ray, separated by commas.")
    ] = "local,ray",
    device: Annotated[Device, typer.Option("--device", help="Device of the search.")] = "cpu",
    seed: Seed = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Store files here, so that a stopped run can be continued."),
    ] = None,
    price: Annotated[
        float, typer.Option("--price", help="Price of a core for an hour, for the estimate on the page.")
    ] = study.PRICE,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Batch runs: rows per second with one worker and with two, locally and on Ray, and their memory.

    Example: plausiflow benchmark batch --rows 20000 --many 0 --engines local
    """
    selection = study.BatchSelection(
        rows=rows, many=many, workers=workers, kills=kills, engines=split_names(engines), device=device,
        seed=seed, folder=folder,
    )  # fmt: skip
    run_study(
        study.run(selection), study.COLUMNS, "Batch runs",
        json=json, reuse=reuse, page=page, write_page=partial(study.write_page, price=price),
    )  # fmt: skip
