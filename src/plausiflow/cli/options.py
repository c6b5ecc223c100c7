"""Options that several commands share, and the functions that parse their values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from plausiflow.constraints import Range
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.models import DecisionWarning
from plausiflow.tables import SchemaWarning, to_python

Separator = Annotated[
    str, typer.Option("--separator", help="Separator of cells in CSV files: one character, or `tab`.")
]
Encoding = Annotated[
    str, typer.Option("--encoding", help="Encoding of the CSV files to read, such as latin-1.")
]
K = Annotated[int, typer.Option("--k", help="Number of different answers for each row.")]
LockedNames = Annotated[
    list[str] | None, typer.Option("--locked", help="Features that must not change, such as age,job.")
]
Ranges = Annotated[
    list[str] | None,
    typer.Option("--range", help="Bounds of a feature, such as income=0:5000; may be repeated."),
]
MinProbability = Annotated[
    float | None, typer.Option("--min-probability", help="Minimum probability of the target under the model.")
]
Relaxed = Annotated[
    bool, typer.Option("--relaxed", help="If there is no answer, return the row that comes closest to one.")
]
SecondOpinion = Annotated[
    bool,
    typer.Option("--second-opinion/--no-second-opinion", help="Keep the margin that --confidence asks for."),
]
Reasons = Annotated[
    bool, typer.Option("--reasons/--no-reasons", help="Find out why a row has no answer; takes longer.")
]
ModelFile = Annotated[
    Path | None, typer.Option("--model", help="The model, if it is not stored in the directory.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
_NOTES = (SchemaWarning, PlausibilityWarning, DecisionWarning)
POLICIES = ("opposite", "runner_up", "other")


@contextmanager
def warnings_as_notes() -> Iterator[set[str]]:
    """Print warnings of the library as notes on standard error; the set has their texts in the end."""
    printed: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        for kind in _NOTES:
            warnings.simplefilter("always", kind)
        yield printed
    for text in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, _NOTES)):
        print_note(text)
        printed.add(text)
    for warning in caught:
        if not issubclass(warning.category, _NOTES):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def print_note(text: str) -> None:
    """Print a line on standard error that is not an error."""
    typer.secho(f"Note: {' '.join(text.split())}", err=True, fg=typer.colors.YELLOW)


def parse_share(text: str, option: str) -> float | None:
    """Parse a number, or ``none``."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"{option} must be a share between 0 and 1, such as 0.95, or none; got {text!r}."
        ) from None


def parse_cutoffs(text: str | None, y: pd.Series) -> float | dict[Any, float] | None:
    """Parse a cut-off: ``0.3``, or ``granted=0.3`` for outcomes of ``y``, separated by commas."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        labels = [to_python(label) for label in y.dropna().unique()]
        pairs = [part.rpartition("=") for part in text.split(",")]
        return {parse_target(name.strip(), labels): float(cut) for name, _, cut in pairs}
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise InvalidInputError(str(error).replace("--target", "--decision-threshold")) from None
        raise InvalidInputError(
            "--decision-threshold must be a number between 0 and 1, such as 0.3, or cut-offs of outcomes, "
            f"such as granted=0.3; got {text!r}."
        ) from None


def parse_range(text: str) -> Range:
    """Parse a rule: ``income=0:5000``, ``income=0:`` or ``income=:5000``."""
    name, equals, bounds = text.rpartition("=")
    pair = parse_interval(bounds)
    if not name or not equals or pair is None:
        raise InvalidInputError(
            "--range must be a column and its bounds, such as income=0:5000, income=0: or income=:5000; got "
            f"{text!r}."
        )
    return Range(name.strip(), *pair)


def parse_interval(text: str) -> tuple[float | None, float | None] | None:
    """Parse ``lo:hi``; an open end is None. Return None if the text is not an interval."""
    low, colon, high = (part.strip() for part in text.partition(":"))
    if not colon or not (low or high):
        return None
    try:
        return (float(low) if low else None), (float(high) if high else None)
    except ValueError:
        return None


def parse_target(text: str, labels: Sequence[Any]) -> Any:  # noqa: ANN401  (what `explain` accepts)
    """Parse the target of ``explain``: a label, a policy, or ``lo:hi`` for a number.

    ``labels`` are the labels of the model; empty if it predicts a number.
    """
    if not labels:
        bounds = parse_interval(text)
        if bounds is None:
            raise InvalidInputError(
                "--target must be the smallest and the largest number wanted, such as 100:150, 100: or :150, "
                f"because the model predicts a number; got {text!r}."
            )
        return bounds
    for label in labels:
        if text in (str(label), str(label).strip()) or _is_same_number(text, label):
            return label
    booleans = {str(label).lower(): label for label in labels if isinstance(label, bool)}
    if text.lower() in booleans:
        return booleans[text.lower()]
    policy, listed = text.replace("-", "_"), ", ".join(map(str, labels[:20]))
    listed += " and more" if len(labels) > 20 else ""
    if policy == "opposite" and len(labels) != 2:
        raise InvalidInputError(
            f"--target opposite needs two outcomes; the model has {len(labels)}: {listed}. Use --target "
            "runner_up, other, or one of them."
        )
    if policy in POLICIES:
        return policy
    raise InvalidInputError(f"--target must be {', '.join(POLICIES)} or one of {listed}; got {text!r}.")


def parse_names(texts: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Parse names from an option that may be repeated, or contain several names separated by commas."""
    names = []
    for text in texts or ():
        names += [text] if text in known else [name.strip() for name in text.split(",") if name.strip()]
    return list(dict.fromkeys(names))


def _is_same_number(text: str, label: object) -> bool:
    if isinstance(label, bool) or not isinstance(label, int | float):
        return False
    try:
        return float(text) == label
    except ValueError:
        return False
