"""``plausiflow fit --suggest-rules``: write proposed rules for a person to confirm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from plausiflow.atomic import atomic_path
from plausiflow.cli.model_files import read_model
from plausiflow.cli.options import print_note
from plausiflow.cli.output_paths import check_files
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.suggestions import suggest_rules

OPTION = "--suggest-rules"


def check_suggestions(path: Path, inputs: Mapping[str, Path | None], *, force: bool) -> None:
    """Raise unless the proposed rules can be written."""
    if path.suffix != ".toml":
        raise InvalidInputError(
            f"{OPTION} writes a file that ends in .toml; got {path}. Use another name, such as rules.toml."
        )
    files = {name: given for name, given in inputs.items() if given is None or given.is_file()}
    check_files({OPTION: path}, inputs=files, force=force)


def load_model(path: Path, labels: Sequence[Any]) -> Any:  # noqa: ANN401
    """Load the model to propose rules for."""
    return Explainer.load(path).model if path.is_dir() else read_model(path, labels)


def write_suggestions(path: Path, x: pd.DataFrame, model: object, data: Path) -> None:
    """Write the proposed rules, print them, and print the command that uses them."""
    suggested = suggest_rules(x, model)
    with atomic_path(path) as temporary:
        text = suggested.to_toml(f"{len(x):,} rows of {data.name}")
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    for suggestion in suggested:
        typer.echo(f"Proposed: {suggestion}")
    for note in suggested.notes:
        print_note(note)
    typer.echo(f"Written: {path}. Confirm every line, change it or delete it.")
    typer.echo(f"Next: {next_command(sys.argv[1:], path)}")


def next_command(words: Sequence[str], path: Path) -> str:
    """Return the same command with the file as its rules."""
    kept = list(words)
    for place, word in enumerate(kept):
        if word == OPTION or word.startswith(f"{OPTION}="):
            kept[place : place + 1 + (word == OPTION)] = ["--rules", str(path)]
            break
    return shlex.join(["plausiflow", *kept])
