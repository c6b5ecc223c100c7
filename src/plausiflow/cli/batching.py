"""``plausiflow batch``: answers for files of any size, in pieces that are done exactly once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plausiflow.cli.explaining import loaded_explainer
from plausiflow.cli.model_files import read_model
from plausiflow.cli.table_options import (
    Bounds,
    Count,
    Encoding,
    LockedNames,
    MinProbability,
    ModelFile,
    Relaxed,
    SecondOpinion,
    Separator,
    names_of,
    note,
    range_of,
    target_of,
)
from plausiflow.cli.tables import Dialect
from plausiflow.errors import InvalidInputError
from plausiflow.persistence import DOCUMENT, read_folder
from plausiflow.workers import Executor, Processes, Ray

if TYPE_CHECKING:
    from plausiflow.batch import BatchSummary, ExplainerLocation

Engine = Literal["local", "ray"]
Device = Literal["cpu", "cuda"]
SHOWN = 5
"""Failures that are told; all are in the output."""
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
        str,
        typer.Option("--target", help="A label, opposite, runner_up, other, or lo:hi; as in `explain`."),
    ] = "opposite",
    engine: Annotated[Engine, typer.Option("--engine", help="Worker processes here, or Ray.")] = "local",
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Workers; default: as many as there are processors.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped; try again what failed.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only the first rows, so many; --where chooses among them.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only some rows, such as 'income < 2000 and job == \"clerk\"'."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Column that names the rows.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--columns", help="More columns to carry along, as branch,date.")
    ] = None,
    rows_per_unit: Annotated[
        int, typer.Option("--rows-per-unit", help="Most rows of a unit, and so of an output file.")
    ] = 10_000,
    k: Count = 1,
    locked: LockedNames = None,
    ranges: Bounds = None,
    min_probability: MinProbability = None,
    relaxed: Relaxed = False,
    second_opinion: SecondOpinion = True,
    model: ModelFile = None,
    device: Annotated[
        Device | None, typer.Option("--device", help="Where workers search; cuda where they are given GPUs.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="Of a Ray cluster, such as auto; default: started here.")
    ] = None,
    gpus_per_worker: Annotated[
        float, typer.Option("--gpus-per-worker", help="On Ray: 1, or 0.5 where two workers share one.")
    ] = 0.0,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
) -> None:
    """Explain every row of files of any size; a run that is stopped goes on where it was.

    Each row group of a Parquet file, or some thousand lines of a CSV file, is a unit, which becomes one
    Parquet file in the output, whole or not at all. The exit code is 0 when all units are done, and 3 when
    some failed: --resume tries them again.
    """
    from plausiflow.batch import BatchRequest, RowFilter, RowSelection, run_batch

    executor = _executor(engine, jobs, out, address, gpus_per_worker)
    labels, names = _known(explainer, model)
    request = BatchRequest(
        target=target_of(target, labels),
        min_probability=min_probability,
        k=k,
        locked=tuple(names_of(locked, names)),
        relaxed=relaxed,
        constraints=tuple(range_of(text) for text in ranges or ()),
        second_opinion=second_opinion,
        device=device or ("cuda" if gpus_per_worker else "cpu"),
    )
    selection = RowSelection(
        where=None if where is None else RowFilter(where),
        limit=limit,
        key=key,
        columns=tuple(names_of(columns, ())),
        rows_per_unit=rows_per_unit,
        separator=Dialect(separator=separator, encoding=encoding).character,
        encoding=encoding,
    )
    saved = _saved(explainer, model)
    try:
        summary = run_batch(
            saved, rows, out, request=request, selection=selection, executor=executor, resume=resume
        )
    except KeyboardInterrupt:
        note("stopped. What is done is kept: the same command with --resume goes on from there.")
        raise typer.Exit(130) from None
    _say(summary, out)


def _known(folder: Path, model: Path | None) -> tuple[tuple[Any, ...], Sequence[str]]:
    """The outcomes and the features of an explainer."""
    loaded = loaded_explainer(folder, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    return loaded.model_.labels, loaded.encoder_.schema.names


def _say(summary: BatchSummary, out: Path) -> None:
    """What was done, and what failed; the exit code tells programs."""
    typer.echo(str(summary))
    for place, reason in list(summary.failed.items())[:SHOWN]:
        note(f"{place}: {reason}.")
    if len(summary.failed) > SHOWN:
        note(f"{len(summary.failed) - SHOWN:,} more failures are told in {out / '_failed'}.")
    typer.echo(f"Written: {out}")
    if summary.failed:
        raise typer.Exit(3)


def _executor(
    engine: Engine, jobs: int | None, out: Path, address: str | None, gpus_per_worker: float
) -> Executor:
    if jobs is not None and jobs < 1:
        raise InvalidInputError(f"--jobs must be at least 1; got {jobs}.")
    if engine == "ray":
        return Ray(workers=jobs, address=address, gpus=gpus_per_worker)
    if address is not None or gpus_per_worker:
        raise InvalidInputError("--address and --gpus-per-worker are for Ray. Add --engine ray.")
    return Processes(workers=jobs or os.cpu_count() or 1, log=out / "_workers.log")


def _saved(folder: Path, model: Path | None) -> ExplainerLocation:
    """Where workers load the explainer, and its model where a file is named."""
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
