"""``plausiflow audit``: does the burden fall equally on groups of rows?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.explain import load_explainer, split_columns
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
from plausiflow.cli.table_files import Dialect, read_table, require_columns

EXAMPLES = ("plausiflow audit credit rows.csv --by sex,age_group --target granted --json audit.json",)


def audit(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[Path, typer.Argument(help="A .csv or .parquet file with rows.")],
    by: Annotated[
        list[str], typer.Option("--by", help="Columns that define groups; they need not be features.")
    ],
    target: Annotated[
        str, typer.Option("--target", help="The wanted outcome: a label, opposite, runner_up, or lo:hi.")
    ] = "opposite",
    min_size: Annotated[int, typer.Option("--min-size", help="Smallest group that is tested.")] = 30,
    json: Annotated[Path | None, typer.Option("--json", help="Write all tables as JSON.")] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Compare groups of rows: who gets an answer, and what it costs them.

    With several columns, their intersections are compared, too. A difference is an association, not a cause.
    """
    check_files({"--json": json}, inputs={"the file of rows": rows, "the model": model}, force=force)
    loaded = load_explainer(explainer, model)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    table = read_table(rows, Dialect(separator=separator, encoding=encoding), schema)
    names = parse_names(by, list(table.columns))
    require_columns(names, list(table.columns), str(rows))
    frame, _ = split_columns(table, rows, schema, loaded.outcome_, None)
    with warnings_as_notes():
        result = loaded.explain(frame, parse_target(target, loaded.model_.labels), diagnose=False)
    found = result.audit({name: table[name].tolist() for name in names}, min_size=min_size)
    typer.echo(str(found))
    if json is not None:
        with atomic_path(json) as temporary:
            temporary.write_text(found.to_json(), encoding="utf-8", errors="backslashreplace")
        typer.echo(f"Written: {json}")
