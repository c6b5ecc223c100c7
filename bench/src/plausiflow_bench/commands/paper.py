"""``plausiflow benchmark paper``: the paper's whole evaluation."""

from __future__ import annotations

import json as json_
import os
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from plausiflow.atomic import write_atomically
from plausiflow.workers import Executor, Inline, Processes, Ray
from plausiflow_bench.commands.options import (
    ALL_DATASETS,
    Folds,
    Json,
    Models,
    Names,
    ReferenceFolder,
    Rows,
    Seed,
    benchmark,
    make_selection,
    split_names,
)
from plausiflow_bench.harness import runner
from plausiflow_bench.harness.rows import write_json
from plausiflow_bench.numeric import figures
from plausiflow_bench.paper.page import describe_run, write_html, write_latex, write_page
from plausiflow_bench.paper.selection import DEFAULT_METHODS, STUDIES, PaperSelection, cost
from plausiflow_bench.paper.tables import Results, load_published_metrics
from plausiflow_bench.paper.work import PaperWork

Engine = Literal["processes", "inline", "ray"]


@benchmark.command("paper")
def benchmark_paper(
    names: Names = ALL_DATASETS,
    models: Models = "lr,mlp,node",
    methods: Annotated[str, typer.Option("--methods", help="Methods, separated by commas.")] = ",".join(
        DEFAULT_METHODS
    ),
    studies: Annotated[str, typer.Option("--studies", help="Tables, separated by commas.")] = ",".join(
        STUDIES
    ),
    folds: Folds = "0,1,2,3,4",
    seed: Seed = 0,
    rows: Rows = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One fold of three data sets, logistic regression.")
    ] = False,
    folder: Annotated[Path, typer.Option("--folder", help="Where rows and fitted models are stored.")] = Path(
        "out/paper"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the rows of the folder first.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Worker processes; default: the number of processors.")
    ] = None,
    engine: Annotated[Engine, typer.Option("--engine", help="Where tasks run.")] = "processes",
    page: Annotated[Path | None, typer.Option("--page", help="Write this Markdown page.")] = None,
    latex: Annotated[Path | None, typer.Option("--latex", help="Write the tables as LaTeX.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one HTML file.")] = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Draw the paper's figure 1 here.")] = None,
    json: Json = None,
    reference: ReferenceFolder = None,
) -> None:
    """Every table and figure of the paper: six methods, seven data sets, three classifiers, five folds.

    A run that was stopped continues where it was; finished tasks are not repeated. Example:
    plausiflow benchmark paper --quick --page out/benchmark.md
    """
    base = make_selection(names, models, folds, seed, rows)
    selection = PaperSelection(**vars(base), methods=split_names(methods), studies=split_names(studies))
    selection = selection.quick() if quick else selection
    start = time.monotonic()
    if fresh:
        (folder / "wall_seconds.json").unlink(missing_ok=True)
    try:
        outcome = runner.run(
            selection.tasks(),
            folder,
            PaperWork(folder=folder / "models", rows=rows),
            executor=_executor(engine, jobs, folder),
            settings={"rows": rows},
            cost=cost,
            fresh=fresh,
        )
    except KeyboardInterrupt:
        typer.echo("Stopped. Finished tasks are stored: run the same command to continue.", err=True)
        raise typer.Exit(130) from None
    wall = _wall_seconds(folder, time.monotonic() - start, resumed=outcome.earlier > 0)
    typer.echo(str(outcome))
    results = Results(outcome.finished, load_published_metrics(reference))
    typer.echo(describe_run(results.rows, wall))
    if figure is not None:
        figures.figure_1(figure, seed=seed)
    if page is not None:
        beside = "" if figure is None else os.path.relpath(figure, page.parent)
        write_page(results, page, wall_seconds=wall, figure=beside)
    if latex is not None:
        write_latex(results, latex)
    if html is not None:
        write_html(results, html, wall_seconds=wall)
    if json is not None:
        write_json(outcome.rows, json)
    for path in (page, latex, html, figure, json):
        if path is not None:
            typer.echo(f"Written: {path}")
    if outcome.failed:
        raise typer.Exit(1)


def _wall_seconds(folder: Path, seconds: float, *, resumed: bool) -> float | None:
    """Return the duration of the run with its earlier parts, or None if one of them was killed."""
    path = folder / "wall_seconds.json"
    if resumed:
        if not path.exists():
            return None
        seconds += float(json_.loads(path.read_text()))
    write_atomically(path, json_.dumps(seconds).encode())
    return seconds


def _executor(engine: Engine, jobs: int | None, folder: Path) -> Executor:
    if jobs is not None and jobs < 1:
        raise typer.BadParameter(f"--jobs must be at least 1; got {jobs}")
    if engine == "inline":
        return Inline()
    if engine == "ray":
        return Ray(workers=jobs)
    return Processes(workers=jobs or os.cpu_count() or 1, log=folder / "workers.log")
