"""``plausiflow explain``: answers of a saved explainer for the rows of a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from plausiflow.atomic import atomic_path
from plausiflow.cli.model_files import read_model
from plausiflow.cli.options import (
    Encoding,
    Force,
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
    warnings_as_notes,
)
from plausiflow.cli.output_paths import check_files
from plausiflow.cli.table_files import Dialect, check_suffix, read_table, require_columns, write_table
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations, answer_table, whole_floats_to_integers
from plausiflow.persistence import read_folder
from plausiflow.tables import Schema

MAX_FEATURES_SHOWN = 8
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
            help="The wanted outcome: a label, opposite (of two), runner_up (the most probable other one), "
            "other (the cheapest other one), or lo:hi for a number.",
        ),
    ] = "opposite",
    out: Annotated[Path | None, typer.Option("--out", help="Write the answers as .csv or .parquet.")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report as one HTML file.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the complete result as JSON.")] = None,
    k: K = 1,
    locked: LockedNames = None,
    ranges: Ranges = None,
    min_probability: MinProbability = None,
    relaxed: Relaxed = False,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds after which no further row is searched.")
    ] = None,
    second_opinion: SecondOpinion = True,
    reasons: Reasons = True,
    key: Annotated[
        str | None, typer.Option("--key", help="Column that identifies the rows, instead of their number.")
    ] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In --out answers.csv, put ' before text that a spreadsheet program may run as a formula.",
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Find for every row of a file the closest plausible row with the wanted outcome.

    Every row gets a verdict; a row without an answer gets a line with the reason. The exit code is 0 if all
    rows have a verdict, and 2 if the input is invalid.
    """
    start = time.monotonic()
    outputs = {"--out": out, "--report": report, "--json": json}
    check_files(outputs, inputs={"the file of rows": rows, "the model": model}, force=force)
    if out is not None:
        check_suffix(out)
    if escape_formulas and (out is None or out.suffix != ".csv"):
        raise InvalidInputError(
            f"--escape-formulas needs --out with a .csv file; got {out}. Other files do not need it."
        )
    dialect = Dialect(separator=separator, encoding=encoding)
    constraints = [parse_range(text) for text in ranges or ()]
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    parsed_target = parse_target(target, loaded.model_.labels)
    table = read_table(rows, dialect, schema)
    frame, extra = split_columns(table, rows, schema, loaded.outcome_, key)
    with warnings_as_notes():
        result = loaded.explain(
            frame,
            parsed_target,
            min_probability=min_probability,
            k=k,
            locked=parse_names(locked, schema.names) or None,
            time_limit=time_limit,
            relaxed=relaxed,
            constraints=constraints,
            second_opinion=second_opinion,
            diagnose=reasons,
        )
    _print_summary(result, time.monotonic() - start)
    _write_outputs(result, extra, key, outputs, dialect, escape_formulas)


def load_explainer(folder: Path, model: Path | None) -> Explainer:
    """Load an explainer, with the model of a file if one is given."""
    if not folder.is_dir():
        got = "is a file" if folder.exists() else "does not exist"
        raise InvalidInputError(
            f"{folder} {got}; the directory of a saved explainer is expected. Make one: plausiflow fit TABLE "
            "--target COLUMN --out DIRECTORY"
        )
    if model is None:
        try:
            return Explainer.load(folder)
        except InvalidInputError as error:
            reason, not_stored, _ = str(error).partition(" Pass it:")
            if not not_stored:
                raise
            raise InvalidInputError(f"{reason} Pass it with --model.") from error
    labels = read_folder(folder).document["model"].get("labels", [])
    return Explainer.load(folder, model=read_model(model, labels))


def split_columns(
    frame: pd.DataFrame,
    path: Path,
    schema: Schema,
    outcome: str,
    key: str | None,
    use: str = "copied to --out",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the features, and the other columns; a note says how these are used, if ``use`` has a text."""
    columns = list(frame.columns)
    require_columns(schema.names, columns, str(path))
    known = {*schema.names}
    features = [name for name in columns if name in known]
    others = [name for name in columns if name not in known and name != outcome]
    if outcome in columns and outcome not in known:
        print_note(f"the column `{outcome}` is what the model decides, and is not used.")
    if others and use:
        print_note(f"not features, {use}: {', '.join(others)}.")
    if key is not None:
        require_columns([key], columns, str(path))
        if key in features and schema.feature(key).kind not in ("identifier", "constant"):
            raise InvalidInputError(
                f"--key must be a column that identifies rows; {key!r} is a feature that answers may change. "
                "Name another column, or leave --key out to number the rows."
            )
        frame = frame.set_index(key, drop=False).rename_axis(None)
    return frame[features], frame[others]


def _write_outputs(
    result: Explanations,
    extra: pd.DataFrame,
    key: str | None,
    outputs: dict[str, Path | None],
    dialect: Dialect,
    formulas_escaped: bool,
) -> None:
    """Write the files, and print their paths."""
    out, report, json = outputs.values()
    if out is not None:
        table = answer_table(result, extra, key)
        if out.suffix == ".csv":
            table = whole_floats_to_integers(table, result.features)
        write_table(table, out, dialect, formulas_escaped=formulas_escaped)
    for path, write in ((report, result.to_html), (json, result.to_json)):
        if path is not None:
            with atomic_path(path) as temporary:
                write(temporary)
    for path in filter(None, outputs.values()):
        typer.echo(f"Written: {path}")
    if not any(outputs.values()):
        print_note("no file was written. Add --out answers.csv, --report report.html or --json answers.json.")


def _print_summary(result: Explanations, seconds: float) -> None:
    """Print the verdicts, the features that change most often, and an example of each verdict."""
    console, summary = Console(), result.summary()
    title = f"{len(result):,} {'row' if len(result) == 1 else 'rows'} in {seconds:.1f} seconds"
    console.print(_count_table(title, "verdict", summary.statuses, len(result)))
    counts = summary.features["changed"].groupby(level="feature", sort=False).sum()
    counts = counts[counts > 0].sort_values(ascending=False, kind="stable").head(MAX_FEATURES_SHOWN)
    if len(counts):
        console.print(_count_table("What changes", "feature", counts, int(result.is_found.sum())))
    status = result.verdicts["status"]
    for rows in (status.to_numpy() == name for name in summary.statuses.index if name != "already"):
        label, sentence = result.sentences.index[rows][0], result.sentences[rows].iloc[0]
        console.print(f"Row {label}: {sentence}", markup=False, highlight=False)


def _count_table(title: str, heading: str, counts: pd.Series, total: int) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (heading, "rows", "share"):
        table.add_column(column, justify="left" if column == heading else "right")
    for name, count in counts.items():
        table.add_row(str(name), f"{count:,}", f"{count / total:.0%}")
    return table
