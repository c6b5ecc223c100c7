"""``plausiflow letter``: a letter for each row of a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.explain import load_explainer, split_columns
from plausiflow.cli.options import (
    Encoding,
    Force,
    LockedNames,
    ModelFile,
    Separator,
    parse_names,
    parse_target,
    print_note,
    warnings_as_notes,
)
from plausiflow.cli.output_paths import make_folder
from plausiflow.cli.table_files import Dialect, read_table
from plausiflow.explanations import Explanations
from plausiflow.letters import FORMATS, LANGUAGES, check_template, read_catalogue

EXAMPLES = (
    "plausiflow letter credit rows.csv --target granted --out letters",
    "plausiflow letter credit rows.csv --target granted --language de --format html --out letters",
)
_NAME_CHARACTERS = 80
_NOT_IN_NAMES = re.compile(r"[^\w-]+")


def letter(
    explainer: Annotated[Path, typer.Argument(help="Directory that `plausiflow fit` saved.")],
    rows: Annotated[Path, typer.Argument(help="A .csv or .parquet file with the columns of the table.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the letters, one file for each row.")],
    target: Annotated[
        str, typer.Option("--target", help="The wanted outcome: a label, opposite, runner_up, or lo:hi.")
    ] = "opposite",
    language: Annotated[
        str,
        typer.Option(
            "--language", help=f"{', '.join(LANGUAGES)}, or a file of your own messages that ends in .toml."
        ),
    ] = "en",
    template: Annotated[
        Path | None, typer.Option("--template", help="A Jinja2 template of your own for the letter.")
    ] = None,
    format: Annotated[Literal["text", "html"], typer.Option("--format", help="text or html.")] = "text",
    locked: LockedNames = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Column that identifies the rows, instead of their number.")
    ] = None,
    model: ModelFile = None,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Write a letter for each row: what would change its decision, and how sure that is.

    A letter is a suggestion. It is not legal advice and does not take the place of a required notice.
    """
    read_catalogue(language)
    check_template(template, format)
    loaded = load_explainer(explainer, model)
    make_folder("--out", out, force=force)
    assert loaded.encoder_ is not None
    assert loaded.model_ is not None
    schema = loaded.encoder_.schema
    parsed_target = parse_target(target, loaded.model_.labels)
    table = read_table(rows, Dialect(separator=separator, encoding=encoding), schema)
    frame, _ = split_columns(table, rows, schema, loaded.outcome_, key, use="")
    with warnings_as_notes():
        result = loaded.explain(frame, parsed_target, locked=parse_names(locked, schema.names) or None)
    for i, name in enumerate(_file_names(result, FORMATS[format])):
        with atomic_path(out / name) as temporary:
            text = result.letter(i, template, language, format)
            temporary.write_text(text, encoding="utf-8", newline="\n")
    count = f"{len(result):,} letter{'' if len(result) == 1 else 's'}"
    typer.echo(f"{count}, {int((result.best >= 0).sum()):,} with a suggestion. Written: {out}")
    if not len(result):
        print_note(f"{rows} has no rows.")


def _file_names(result: Explanations, suffix: str) -> list[str]:
    """Return a file name for each row, made of its label; equal names get a number."""
    names, seen = [], set[str]()
    for position, label in enumerate(result.rows.index.to_flat_index()):
        text = _NOT_IN_NAMES.sub("_", str(label)).strip("_")[:_NAME_CHARACTERS] or str(position)
        name, number = f"letter-{text}", 1
        while name.lower() in seen:
            number += 1
            name = f"letter-{text}-{number}"
        seen.add(name.lower())
        names.append(name + suffix)
    return names
