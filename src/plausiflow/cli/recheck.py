"""``plausiflow recheck``: do counterfactuals that were given out still hold?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.explain import load_explainer
from plausiflow.cli.options import Encoding, Force, ModelFile, Separator, parse_target
from plausiflow.cli.output_paths import check_files
from plausiflow.cli.table_files import Dialect, check_suffix, read_table, require_columns, write_table
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import ROW

EXAMPLES = (
    "plausiflow recheck saved.parquet --explainer credit-2027 --date issued --out write-to.csv",
    "plausiflow recheck saved.parquet --explainer credit-2027 --rows applications.csv --key number",
    "plausiflow recheck saved.parquet --explainer prices-2027 --target 250000:",
)


def recheck(
    saved: Annotated[Path, typer.Argument(help="Answers that `plausiflow explain --out` wrote.")],
    explainer: Annotated[Path, typer.Option("--explainer", help="Directory of the new explainer.")],
    rows: Annotated[
        Path | None, typer.Option("--rows", help="The rows before the change; rules are checked with them.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Column of both files that identifies rows; default: row.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="The outcome that was promised to all, such as 100: for a number."),
    ] = None,
    date: Annotated[str | None, typer.Option("--date", help="Column with the date of each answer.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the answers that no longer hold.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write shares and answers as JSON.")] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Check answers that were given out against a new model, density and rules.

    Prints the share that still holds, by age, with a 95 % interval, and can write the rows to write to.
    """
    inputs = {"the saved answers": saved, "the file of rows": rows, "the model": model}
    check_files({"--out": out, "--json": json}, inputs=inputs, force=force)
    if out is not None:
        check_suffix(out)
    dialect = Dialect(separator=separator, encoding=encoding)
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    table = read_table(saved, dialect, schema)
    told = ["target"] if target is None else []
    wanted = [*schema.names, "status", *told, *([date] if date else []), *([key] if key else [])]
    require_columns(wanted, list(table.columns), str(saved))
    table = table[table["status"].isin(["found", "relaxed"])]
    if len(table) == 0:
        raise InvalidInputError(
            f"{saved} must have answers with the status found or relaxed; got none. Name another file."
        )
    promised: Any
    if target is None:
        promised = [_label(text, loaded.model_.labels, saved) for text in table["target"]]
    else:
        promised = parse_target(target, loaded.model_.labels)
    before = None if rows is None else _before(table, read_table(rows, dialect, schema), key, rows)
    found = loaded.recheck(
        table[list(schema.names)],
        promised,
        before=None if before is None else before[list(schema.names)],
        issued=None if date is None else table[date],
    )
    found = replace(found, rows=found.rows.set_axis(_labels(table, key), axis=0))
    typer.echo(found.by_age.to_string(float_format="{:.3f}".format))
    typer.echo(f"{len(found.to_notify):,} answers no longer hold.")
    if out is not None:
        lost = table.loc[~found.rows["holds"].to_numpy()].assign(why=found.to_notify["reason"].to_numpy())
        write_table(lost, out, dialect)
        typer.echo(f"Written: {out}")
    if json is not None:
        with atomic_path(json) as temporary:
            found.to_json(temporary)
        typer.echo(f"Written: {json}")


def _labels(answers: pd.DataFrame, key: str | None) -> pd.Index:
    """Return the labels of the rows that answers belong to; those of the answers if there are none."""
    name = key or next((name for name in (f"plausiflow_{ROW}", ROW) if name in answers), None)
    return answers.index if name is None else pd.Index(answers[name])


def _label(text: object, labels: tuple[Any, ...], path: Path) -> Any:  # noqa: ANN401
    for label in labels:
        if label == text or str(label) == str(text):
            return label
    raise InvalidInputError(
        f"The column `target` of {path} must have outcomes of the model: {', '.join(map(str, labels))}; "
        f"got {text!r}. Name the outcome that was promised, or the interval of a number, with --target."
    )


def _before(answers: pd.DataFrame, rows: pd.DataFrame, key: str | None, path: Path) -> pd.DataFrame:
    """Return the row of each answer before the change."""
    if key is not None:
        require_columns([key], list(rows.columns), str(path))
        rows = rows.set_index(key, drop=False)
    name = key or (ROW if ROW in answers else f"plausiflow_{ROW}")
    index = pd.Index(rows.index.map(str))
    places = index.get_indexer(answers[name].map(str)) if index.is_unique else None
    if places is None or (places < 0).any():
        raise InvalidInputError(
            f"{path} must have one row for each answer; some are missing or repeated. "
            "Name the column that identifies rows with --key."
        )
    found: pd.DataFrame = rows.iloc[places].set_axis(answers.index, axis=0)
    return found
