"""``plausiflow batch``: explain files of any size, in units that are done exactly once."""

from __future__ import annotations

import os
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plausiflow.cli.explain import load_explainer
from plausiflow.cli.model_files import read_model
from plausiflow.cli.options import (
    Encoding,
    K,
    LockedNames,
    MinProbability,
    ModelFile,
    Ranges,
    Reasons,
    Relaxed,
    SecondOpinion,
    Separator,
    parse_names,
    parse_range,
    parse_target,
    print_note,
)
from plausiflow.cli.table_files import Dialect
from plausiflow.errors import InvalidInputError
from plausiflow.persistence import DOCUMENT, read_folder
from plausiflow.workers import Executor, Processes, Ray

if TYPE_CHECKING:
    from plausiflow.batch import BatchSummary, ExplainerLocation

Engine = Literal["local", "ray"]
Device = Literal["cpu", "cuda"]
MAX_FAILURES_SHOWN = 5
EXAMPLES = (
    "plausiflow batch credit portfolio.parquet answers --target granted --key customer",
    'plausiflow batch credit portfolio answers --where "income < 2000" --jobs 8 --resume',
    "plausiflow batch credit portfolio answers --engine ray --address auto --gpus-per-worker 1",
)


def batch(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[Path, typer.Argument(help="A .parquet or .csv file, or a directory of such files.")],
    out: Annotated[Path, typer.Argument(help="Directory for the answers, in Parquet files.")],
    target: Annotated[
        str, typer.Option("--target", help="A label, opposite, runner_up, other, or lo:hi; as in `explain`.")
    ] = "opposite",
    engine: Annotated[
        Engine, typer.Option("--engine", help="Run worker processes on this machine, or use Ray.")
    ] = "local",
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Number of workers; default: the number of processors.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped; failed units are tried again.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Read only this many rows; --where selects among them.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Explain only some rows, such as 'income < 2000 and job == \"clerk\"'."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Column that identifies the rows.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="More columns to copy to the output, such as branch,date."),
    ] = None,
    rows_per_unit: Annotated[
        int, typer.Option("--rows-per-unit", help="Maximum number of rows in a unit and its output file.")
    ] = 10_000,
    k: K = 1,
    locked: LockedNames = None,
    ranges: Ranges = None,
    min_probability: MinProbability = None,
    relaxed: Relaxed = False,
    second_opinion: SecondOpinion = True,
    reasons: Reasons = True,
    model: ModelFile = None,
    device: Annotated[
        Device | None,
        typer.Option(
            "--device", help="Device of the search; default: cuda with --gpus-per-worker, else cpu."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of a Ray cluster, such as auto; default: start one here."),
    ] = None,
    gpus_per_worker: Annotated[
        float, typer.Option("--gpus-per-worker", help="With Ray: 1, or 0.5 if two workers share a GPU.")
    ] = 0.0,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
) -> None:
    """Explain every row of files of any size; a run that was stopped can be continued.

    Each row group of a Parquet file, or some thousand lines of a CSV file, is a unit. Its answers are written
    to one Parquet file, completely or not at all. The exit code is 0 if all units are done, and 3 if some
    failed: --resume tries them again.
    """
    from plausiflow.batch import BatchRequest, RowFilter, RowSelection, run_batch

    executor = _make_executor(engine, jobs, out, address, gpus_per_worker)
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    request = BatchRequest(
        target=parse_target(target, loaded.model_.labels),
        min_probability=min_probability,
        k=k,
        locked=tuple(parse_names(locked, loaded.encoder_.schema.names)),
        relaxed=relaxed,
        constraints=tuple(parse_range(text) for text in ranges or ()),
        second_opinion=second_opinion,
        diagnose=reasons,
        device=device or ("cuda" if gpus_per_worker else "cpu"),
    )
    selection = RowSelection(
        where=None if where is None else RowFilter(where),
        limit=limit,
        key=key,
        columns=tuple(parse_names(columns, ())),
        rows_per_unit=rows_per_unit,
        separator=Dialect(separator=separator, encoding=encoding).character,
        encoding=encoding,
    )
    location = _locate_explainer(explainer, model)
    del loaded
    try:
        summary = run_batch(
            location, rows, out, request=request, selection=selection, executor=executor, resume=resume
        )
    except KeyboardInterrupt:
        print_note("stopped. Finished units are kept: the same command with --resume continues the run.")
        raise typer.Exit(130) from None
    _print_summary(summary, out)


def _print_summary(summary: BatchSummary, out: Path) -> None:
    typer.echo(str(summary))
    for unit, reason in list(summary.damaged.items())[:MAX_FAILURES_SHOWN]:
        print_note(f"{unit}: its part was damaged ({reason}), and the unit was tried again.")
    for unit, reason in list(summary.failed.items())[:MAX_FAILURES_SHOWN]:
        print_note(f"{unit}: {reason}.")
    if len(summary.failed) > MAX_FAILURES_SHOWN:
        print_note(f"{len(summary.failed) - MAX_FAILURES_SHOWN:,} more failures are in {out / '_failed'}.")
    typer.echo(f"Written: {out}")
    if summary.failed:
        raise typer.Exit(3)


def _make_executor(
    engine: Engine, jobs: int | None, out: Path, address: str | None, gpus_per_worker: float
) -> Executor:
    if jobs is not None and jobs < 1:
        raise InvalidInputError(f"--jobs must be at least 1; got {jobs}.")
    if engine == "ray":
        return Ray(workers=jobs, address=address, gpus=gpus_per_worker)
    if address is not None or gpus_per_worker:
        raise InvalidInputError("--address and --gpus-per-worker are options of Ray. Add --engine ray.")
    return Processes(workers=jobs or os.cpu_count() or 1, log=out / "_workers.log")


def _locate_explainer(folder: Path, model: Path | None) -> ExplainerLocation:
    """Return where workers load the explainer, and its model if a file is given."""
    from plausiflow.batch import ExplainerLocation

    folder = folder.resolve()
    if model is None:
        return ExplainerLocation(folder=folder)
    model = model.resolve()
    labels = tuple(read_folder(folder).document["model"].get("labels", []))
    content = (model / DOCUMENT if model.is_dir() else model).read_bytes()
    return ExplainerLocation(
        folder=folder, model=partial(read_model, model, labels), model_id=sha256(content).hexdigest()
    )
