"""What the commands for people's own tables share: options, and how their texts are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from plausiflow.constraints import Range
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.tables import SchemaWarning

Separator = Annotated[
    str, typer.Option("--separator", help="Between cells of CSV files: one character, or `tab`.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Of CSV files that are read, such as latin-1.")]
Count = Annotated[int, typer.Option("--k", help="How many different answers for each row.")]
LockedNames = Annotated[
    list[str] | None, typer.Option("--locked", help="Features that keep their values, as age,job.")
]
Bounds = Annotated[
    list[str] | None,
    typer.Option("--range", help="Bounds of a feature, as income=0:5000; may be repeated."),
]
MinProbability = Annotated[
    float | None, typer.Option("--min-probability", help="What the model must give the outcome at least.")
]
Relaxed = Annotated[bool, typer.Option("--relaxed", help="Where there is no answer, give the nearest miss.")]
SecondOpinion = Annotated[
    bool,
    typer.Option("--second-opinion/--no-second-opinion", help="Keep the margin that --confidence asks for."),
]
ModelFile = Annotated[
    Path | None, typer.Option("--model", help="The model, where it is not stored in the directory.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
_NOTES = (SchemaWarning, PlausibilityWarning)
POLICIES = ("opposite", "runner_up", "other")


@contextmanager
def notes_shown() -> Iterator[None]:
    """Show what the library warns of as notes, on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        for kind in _NOTES:
            warnings.simplefilter("always", kind)
        yield
    for text in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, _NOTES)):
        note(text)
    for warning in caught:
        if not issubclass(warning.category, _NOTES):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def note(text: str) -> None:
    """One line on standard error that is no error."""
    typer.secho(f"Note: {' '.join(text.split())}", err=True, fg=typer.colors.YELLOW)


def share_or_none(text: str, option: str) -> float | None:
    """A number, or nothing where the option says ``none``."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"{option} must be a share between 0 and 1, such as 0.95, or none; got {text!r}."
        ) from None


def range_of(text: str) -> Range:
    """A rule written as ``income=0:5000``, ``income=0:`` or ``income=:5000``."""
    name, equals, bounds = text.rpartition("=")
    pair = interval(bounds)
    if not name or not equals or pair is None:
        raise InvalidInputError(
            f"--range must be a column and its bounds, such as income=0:5000, income=0: or income=:5000; got "
            f"{text!r}."
        )
    return Range(name.strip(), *pair)


def interval(text: str) -> tuple[float | None, float | None] | None:
    """The bounds of ``lo:hi``, nothing where an end is open; nothing at all where this is no interval."""
    low, colon, high = (part.strip() for part in text.partition(":"))
    if not colon or not (low or high):
        return None
    try:
        return (float(low) if low else None), (float(high) if high else None)
    except ValueError:
        return None


def target_of(text: str, labels: Sequence[Any]) -> Any:  # noqa: ANN401  (what `explain` takes)
    """What is wanted, as ``explain`` takes it.

    Args:
        text: A label, a policy, or ``lo:hi`` for a number.
        labels: Of the model; none where it predicts a number.

    Raises:
        InvalidInputError: It is none of these.
    """
    if not labels:
        bounds = interval(text)
        if bounds is None:
            raise InvalidInputError(
                "--target must be the smallest and the largest number wanted, such as 100:150, 100: or :150: "
                f"the model predicts a number; got {text!r}."
            )
        return bounds
    for label in labels:
        if text in (str(label), str(label).strip()) or _same_number(text, label):
            return label
    lowered = {str(label).lower(): label for label in labels if isinstance(label, bool)}
    if text.lower() in lowered:
        return lowered[text.lower()]
    policy = text.replace("-", "_")
    if policy == "opposite" and len(labels) != 2:
        raise InvalidInputError(
            f"--target opposite needs two outcomes; the model has {len(labels)}: {_listed(labels)}. Use "
            "--target runner_up, other, or one of them."
        )
    if policy in POLICIES:
        return policy
    raise InvalidInputError(
        f"--target must be {', '.join(POLICIES)} or one of {_listed(labels)}; got {text!r}."
    )


def names_of(texts: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Names from options that may be repeated, or hold several separated by commas."""
    names = []
    for text in texts or ():
        names += [text] if text in known else [name.strip() for name in text.split(",") if name.strip()]
    return list(dict.fromkeys(names))


def size_of(folder: Path) -> str:
    """Of all files of a directory, in megabytes."""
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB"


def _same_number(text: str, label: object) -> bool:
    if isinstance(label, bool) or not isinstance(label, int | float):
        return False
    try:
        return float(text) == label
    except ValueError:
        return False


def _listed(labels: Sequence[Any]) -> str:
    return ", ".join(map(str, labels[:20])) + (" and more" if len(labels) > 20 else "")
