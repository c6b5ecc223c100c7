"""``plausiflow groups``: few actions of a saved explainer for the rows of files."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from plausiflow.cli.table_files import Dialect, check_suffix, read_table, require_columns, write_table
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import whole_floats_to_integers
from plausiflow.groups import Form, GroupExplanations
from plausiflow.tables import Schema

EXAMPLES = (
    "plausiflow groups credit rejected.csv --target granted --groups 5 --report actions.html",
    "plausiflow groups credit january.csv february.csv --form reach --json actions.json --out who.csv",
    "plausiflow groups credit rejected.csv --target granted --groups 10 --mean-cost 0.3 --save actions.json",
    "plausiflow groups credit february.csv --use actions.json --out who.csv",
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
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="The most that a row's changes may cost.")
    ] = None,
    mean_cost: Annotated[
        float | None, typer.Option("--mean-cost", help="The most that the changes may cost on average.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write who takes which action, as a table.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the actions as a file for --use, without rows.")
    ] = None,
    use: Annotated[
        Path | None, typer.Option("--use", help="Assign rows to the actions of a file of --save.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report as one HTML file.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write actions and members as JSON.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Column that identifies the rows, instead of their number.")
    ] = None,
    second_opinion: SecondOpinion = True,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Find a few actions that help most rows, and who takes which.

    The actions are chosen on the rows of the first file. The rows of all files are assigned to them. With
    --use, the actions of an earlier run are not chosen again.
    """
    outputs = {"--out": out, "--save": save, "--report": report, "--json": json}
    inputs: dict[str, Path | None] = {f"the file {path}": path for path in rows}
    check_files(outputs, inputs=inputs | {"the model": model, "--use": use}, force=force)
    if use is not None:
        _check_fixed(target, groups, form, max_cost, mean_cost)
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
    schema = loaded.encoder_.schema
    tables = read_tables(rows, dialect, schema, [key] if key else [])
    copied = "not used" if out is None else "copied to --out"
    frame, extra = split_columns(pd.concat(tables), rows[0], schema, loaded.outcome_, key, copied)
    first = tables[0][list(frame.columns)].set_axis(frame.index[: len(tables[0])], axis=0)
    with warnings_as_notes():
        if use is not None:
            result = loaded.load_groups(use).assign(frame)
        else:
            result = loaded.explain_groups(
                first,
                parse_target(target, loaded.model_.labels),
                groups=groups,
                form=form,  # type: ignore[arg-type]
                max_cost=max_cost,
                mean_cost=mean_cost,
                second_opinion=second_opinion,
            )
            if len(tables) > 1:
                result = result.assign(frame)
    _print_actions(result)
    if out is not None:
        table = result.to_frame(extra, key)
        if out.suffix == ".csv":
            table = whole_floats_to_integers(table, result.explanations.features)
        write_table(table, out, dialect)
    if save is not None:
        result.save(save, rows=False)
    for place, write in ((report, result.to_html), (json, result.to_json)):
        if place is not None:
            with atomic_path(place) as temporary:
                write(temporary)
    for written in filter(None, outputs.values()):
        typer.echo(f"Written: {written}")


def _check_fixed(
    target: str, groups: int, form: str, max_cost: float | None, mean_cost: float | None
) -> None:
    """Refuse options that a file of --use has already decided."""
    given = {
        "--target": target != "opposite",
        "--groups": groups != 5,
        "--form": form != "auto",
        "--max-cost": max_cost is not None,
        "--mean-cost": mean_cost is not None,
    }
    if any(given.values()):
        names = ", ".join(name for name, is_given in given.items() if is_given)
        raise InvalidInputError(
            f"--use takes the actions, the outcome and the limits of a file; got also {names}. Leave them "
            "out, or choose actions again without --use."
        )


def read_tables(
    paths: Sequence[Path], dialect: Dialect, schema: Schema, others: Sequence[str]
) -> list[pd.DataFrame]:
    """Read files with the features and some other columns; labels of rows have the name of their file."""
    tables = []
    for path in paths:
        table = read_table(path, dialect, schema)
        require_columns([*schema.names, *others], list(table.columns), str(path))
        tables.append(table if len(paths) == 1 else table.set_axis([f"{path.name}:{i}" for i in table.index]))
    return tables


def _print_actions(result: GroupExplanations) -> None:
    needed = int(result.explanations.is_needed.sum())
    covered = int((result.action > 0).sum())
    helps = "1 action helps" if len(result) == 1 else f"{len(result)} actions help"
    limit = "" if math.isinf(result.limit) else f", at a cost of at most {result.limit:.3g} each"
    typer.echo(f"{helps} {covered:,} of {needed:,} rows that need one{limit}.")
    for number, line in result.actions.iterrows():
        who = f"\n   who: {line['who']}" if line["who"] else ""
        cost = f", cost {line['cost']:.3f}" if line["members"] else ""
        typer.echo(f"{number}. {line['what']} ({_rows(line['members'])}{cost}){who}")
    for reason, count in result.uncovered["reason"].value_counts().items():
        print_note(f"{_rows(int(count))} without an action: {reason}.")


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
