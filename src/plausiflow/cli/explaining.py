"""``plausiflow explain``: answers for the rows of a file, by a saved explainer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.cli.model_files import read_model
from plausiflow.cli.places import check_files, placed
from plausiflow.cli.table_options import (
    Bounds,
    Count,
    Encoding,
    Force,
    LockedNames,
    MinProbability,
    ModelFile,
    Relaxed,
    SecondOpinion,
    Separator,
    names_of,
    note,
    notes_shown,
    range_of,
    target_of,
)
from plausiflow.cli.tables import Dialect, check_suffix, read_table, require_columns, write_table
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations, answer_table, whole_numbers
from plausiflow.persistence import read as read_contents
from plausiflow.tables import Schema

MOST_SHOWN = 8
EXAMPLES = (
    "plausiflow explain credit rows.csv --target granted --out answers.csv --report report.html",
    "plausiflow explain credit rows.csv --k 3 --locked job --range income=0:5000 --json answers.json",
)


def explain(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[Path, typer.Argument(help="A .csv or .parquet file with the columns of the table.")],
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="The outcome wanted: a label, opposite (of two), runner_up (the most probable "
            "other one), other (the cheapest other one), or lo:hi for a number.",
        ),
    ] = "opposite",
    out: Annotated[Path | None, typer.Option("--out", help="Answers as .csv or .parquet.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="One HTML file for people.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="All of it as JSON.")] = None,
    k: Count = 1,
    locked: LockedNames = None,
    ranges: Bounds = None,
    min_probability: MinProbability = None,
    relaxed: Relaxed = False,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds after which no further row is searched.")
    ] = None,
    second_opinion: SecondOpinion = True,
    key: Annotated[
        str | None, typer.Option("--key", help="Column that names the rows, instead of their number.")
    ] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Find for every row of a file the nearest plausible row that the model decides as wanted.

    Every row gets a verdict; one without an answer has a line that tells why. The exit code is 0 when all
    rows have one, whatever it is; 2 where what was given cannot be used.
    """
    start = time.monotonic()
    given = {"--out": out, "--report": report, "--json": json}
    check_files(given, inputs={"the file of rows": rows, "the model": model}, force=force)
    if out is not None:
        check_suffix(out)
    dialect = Dialect(separator=separator, encoding=encoding)
    bounds = [range_of(text) for text in ranges or ()]
    loaded = loaded_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    wanted = target_of(target, loaded.model_.labels)
    frame, extra = _rows(read_table(rows, dialect, schema), rows, schema, loaded.outcome_, key)
    with notes_shown():
        result = loaded.explain(
            frame,
            wanted,
            min_probability=min_probability,
            k=k,
            locked=names_of(locked, schema.names) or None,
            time_limit=time_limit,
            relaxed=relaxed,
            constraints=bounds,
            second_opinion=second_opinion,
        )
    _say(result, time.monotonic() - start)
    _write(result, extra, key, given, dialect)


def loaded_explainer(folder: Path, model: Path | None) -> Explainer:
    """The explainer, with the model of a file where one is named."""
    if model is None:
        try:
            return Explainer.load(folder)
        except InvalidInputError as error:  # the model must be given
            why = str(error).partition(" Give it:")[0]
            raise InvalidInputError(f"{why} Give it with --model.") from error
    labels = read_contents(folder).about["model"].get("labels", [])
    return Explainer.load(folder, model=read_model(model, labels))


def _rows(
    frame: pd.DataFrame, path: Path, schema: Schema, outcome: str, key: str | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows in the columns of the table, and columns to carry along."""
    columns = list(frame.columns)
    require_columns(schema.names, columns, str(path))
    features = [name for name in columns if name in schema.names]
    carried = [name for name in columns if name not in schema.names and name != outcome]
    if outcome in columns and outcome not in schema.names:
        note(f"the column `{outcome}` is what the model decides, and is not used.")
    if carried:
        note(f"no features, kept in --out as they are: {', '.join(carried)}.")
    if key is not None:
        require_columns([key], columns, str(path))
        if key in features and schema.feature(key).kind not in ("identifier", "constant"):
            raise InvalidInputError(
                f"--key must be a column that names rows; {key!r} is a feature that answers may change. Name "
                "another column, or leave it out: rows are numbered."
            )
        frame = frame.set_index(key, drop=False).rename_axis(None)
    return frame[features], frame[carried]


def _write(
    result: Explanations,
    extra: pd.DataFrame,
    key: str | None,
    given: dict[str, Path | None],
    dialect: Dialect,
) -> None:
    """Write what is asked for, and tell where it is."""
    out, report, json = given.values()
    if out is not None:
        table = answer_table(result, extra, key)
        write_table(whole_numbers(table, result.features) if out.suffix == ".csv" else table, out, dialect)
    for path, write in ((report, result.to_html), (json, result.to_json)):
        if path is not None:
            with placed(path) as beside:
                write(beside)
    for path in given.values():
        if path is not None:
            typer.echo(f"Written: {path}")
    if not any(given.values()):
        note("nothing was written: add --out answers.csv, --report report.html or --json answers.json.")


def _say(result: Explanations, seconds: float) -> None:
    """Verdicts, the features that change most often, and an example of each verdict that needs words."""
    console, summary = Console(), result.summary()
    title = f"{len(result):,} {'row' if len(result) == 1 else 'rows'} in {seconds:.1f} seconds"
    console.print(_counts(title, "verdict", summary.statuses, len(result)))
    counts = summary.features["changed"].groupby(level="feature", sort=False).sum()
    counts = counts[counts > 0].sort_values(ascending=False, kind="stable").head(MOST_SHOWN)
    if len(counts):
        found = int(result.is_found.sum())
        console.print(_counts("What changes", "feature", counts, found))
    status = result.verdicts["status"]
    for first in (status.to_numpy() == name for name in summary.statuses.index if name != "already"):
        label, sentence = result.sentences.index[first][0], result.sentences[first].iloc[0]
        console.print(f"Row {label}: {sentence}", markup=False, highlight=False)


def _counts(title: str, what: str, counts: pd.Series, total: int) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (what, "rows", "share"):
        table.add_column(column, justify="left" if column == what else "right")
    for name, count in counts.items():
        table.add_row(str(name), f"{count:,}", f"{count / total:.0%}")
    return table
