"""``plausiflow benchmark batch``: the study of batch runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from plausiflow_bench import batch as batch_study
from plausiflow_bench.commands.options import Json, Page, Reuse, Seed, benchmark, report, split
from plausiflow_bench.study import read_json

Device = Literal["cpu", "cuda"]


@benchmark.command("batch")
def benchmark_batch(
    rows: Annotated[
        int, typer.Option("--rows", help="Rows that one worker explains, and then two.")
    ] = batch_study.ROWS,
    many: Annotated[
        int, typer.Option("--many", help="Rows that --workers explain once; 0 leaves it out.")
    ] = batch_study.MANY,
    workers: Annotated[int, typer.Option("--workers", help="That explain these many rows.")] = 2,
    kills: Annotated[
        int, typer.Option("--kills", help="Explain them again, killed so often, and compare all bytes.")
    ] = 0,
    engines: Annotated[str, typer.Option("--engines", help="Separated by commas.")] = "local,ray",
    device: Annotated[Device, typer.Option("--device", help="Where workers search.")] = "cpu",
    seed: Seed = 0,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Keep files there; a run that was stopped goes on.")
    ] = None,
    price: Annotated[
        float, typer.Option("--price", help="Of a core for an hour, for the estimate of the page.")
    ] = batch_study.PRICE,
    json: Json = None,
    page: Page = None,
    reuse: Reuse = None,
) -> None:
    """Batch runs: rows a second with one worker and with two, here and on Ray, and what memory they take.

    Example: plausiflow benchmark batch --rows 20000 --many 0 --engines local
    """
    selection = batch_study.BatchSelection(
        rows=rows, many=many, workers=workers, kills=kills, engines=split(engines), device=device,
        seed=seed, folder=folder,
    )  # fmt: skip
    kept = report(
        read_json(*reuse) if reuse else batch_study.run(selection),
        batch_study.COLUMNS,
        "Batch runs",
        json,
    )
    if page is not None:
        batch_study.write_page(kept, page, price)
