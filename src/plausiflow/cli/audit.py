"""``plausiflow audit``: does the burden fall equally on groups of rows?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.explain import load_explainer, split_columns
from plausiflow.cli.groups import read_tables
from plausiflow.cli.options import (
    Encoding,
    Force,
    ModelFile,
    Separator,
    parse_names,
    parse_target,
    warnings_as_notes,
)
from plausiflow.cli.output_paths import check_files
from plausiflow.cli.table_files import Dialect, require_columns
from plausiflow.errors import InvalidInputError

EXAMPLES = ("plausiflow audit credit rows.csv --by sex,age_group --target granted --json audit.json",)


def audit(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[list[Path], typer.Argument(help="One or more .csv or .parquet files with rows.")],
    by: Annotated[
        list[str], typer.Option("--by", help="Columns that define groups; they need not be features.")
    ],
    target: Annotated[
        str, typer.Option("--target", help="The wanted outcome: a label, opposite, runner_up, or lo:hi.")
    ] = "opposite",
    min_size: Annotated[int, typer.Option("--min-size", help="Smallest group that is tested.")] = 30,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a report with the comparison as one HTML file.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write all tables as JSON.")] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Compare groups of rows: who gets an answer, and what it costs them.

    With several columns, their intersections are compared, too. A difference is an association, not a cause.
    """
    inputs: dict[str, Path | None] = {f"the file {path}": path for path in rows}
    check_files({"--report": report, "--json": json}, inputs=inputs | {"the model": model}, force=force)
    if min_size < 2:
        raise InvalidInputError(
            f"--min-size must be a whole number, 2 or more; got {min_size}. Leave it out for 30."
        )
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    table = pd.concat(read_tables(rows, Dialect(separator=separator, encoding=encoding), schema, []))
    names = parse_names(by, list(table.columns))
    require_columns(names, list(table.columns), ", ".join(map(str, rows)))
    frame, _ = split_columns(table, rows[0], schema, loaded.outcome_, None, use="")
    with warnings_as_notes():
        result = loaded.explain(frame, parse_target(target, loaded.model_.labels), diagnose=False)
    found = result.audit({name: table[name].tolist() for name in names}, min_size=min_size)
    typer.echo(str(found))
    if report is not None:
        with atomic_path(report) as temporary:
            result.to_html(temporary, audit=found)
        typer.echo(f"Written: {report}")
    if json is not None:
        with atomic_path(json) as temporary:
            temporary.write_text(found.to_json(), encoding="utf-8", errors="backslashreplace")
        typer.echo(f"Written: {json}")
