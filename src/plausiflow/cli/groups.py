"""``plausiflow groups``: few actions of a saved explainer for the rows of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import pandas as pd
import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.explain import load_explainer, split_columns
from plausiflow.cli.options import (
    Encoding,
    Force,
    ModelFile,
    SecondOpinion,
    Separator,
    parse_target,
    print_note,
    warnings_as_notes,
)
from plausiflow.cli.output_paths import check_files
from plausiflow.cli.table_files import Dialect, check_suffix, read_table, write_table
from plausiflow.errors import InvalidInputError
from plausiflow.groups import Form, GroupExplanations

EXAMPLES = (
    "plausiflow groups credit rejected.csv --target granted --groups 5 --report actions.html",
    "plausiflow groups credit january.csv february.csv --form reach --json actions.json --out who.csv",
)


def groups(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[list[Path], typer.Argument(help="One or more .csv or .parquet files with rows.")],
    target: Annotated[
        str, typer.Option("--target", help="The wanted outcome: a label, opposite, runner_up, or lo:hi.")
    ] = "opposite",
    groups: Annotated[int, typer.Option("--groups", help="The largest number of actions.")] = 5,
    form: Annotated[
        str, typer.Option("--form", help="auto, shift, reach or direction: how actions move numbers.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write who takes which action, as a table.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report as one HTML file.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write actions and members as JSON.")] = None,
    second_opinion: SecondOpinion = True,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Find a few actions that help most rows, and who takes which.

    The actions are chosen on the rows of the first file. The rows of all files are assigned to them.
    """
    outputs = {"--out": out, "--report": report, "--json": json}
    inputs: dict[str, Path | None] = {f"the file {path}": path for path in rows}
    check_files(outputs, inputs=inputs | {"the model": model}, force=force)
    if out is not None:
        check_suffix(out)
    if form not in ("auto", *get_args(Form)):
        raise InvalidInputError(
            f"--form must be auto, {', '.join(get_args(Form))}; got {form!r}. Leave it out for auto."
        )
    dialect = Dialect(separator=separator, encoding=encoding)
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema, frames = loaded.encoder_.schema, []
    for path in rows:
        frame, _ = split_columns(read_table(path, dialect, schema), path, schema, loaded.outcome_, None)
        frames.append(frame if len(rows) == 1 else frame.set_axis([f"{path.name}:{i}" for i in frame.index]))
    with warnings_as_notes():
        result = loaded.explain_groups(
            frames[0],
            parse_target(target, loaded.model_.labels),
            groups=groups,
            form=form,  # type: ignore[arg-type]
            second_opinion=second_opinion,
        )
        if len(frames) > 1:
            result = result.assign(pd.concat(frames))
    _print_actions(result)
    if out is not None:
        write_table(result.to_frame(), out, dialect)
    for place, write in ((report, result.to_html), (json, result.to_json)):
        if place is not None:
            with atomic_path(place) as temporary:
                write(temporary)
    for written in filter(None, outputs.values()):
        typer.echo(f"Written: {written}")


def _print_actions(result: GroupExplanations) -> None:
    needed = int(result.explanations.is_needed.sum())
    covered = int((result.action > 0).sum())
    typer.echo(f"{len(result)} actions help {covered:,} of {needed:,} rows that need one.")
    for number, line in result.actions.iterrows():
        who = f"\n   who: {line['who']}" if line["who"] else ""
        typer.echo(f"{number}. {line['what']} ({_rows(line['members'])}, cost {line['cost']:.3f}){who}")
    for reason, count in result.uncovered["reason"].value_counts().items():
        print_note(f"{_rows(int(count))} without an action: {reason}.")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
