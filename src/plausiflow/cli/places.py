"""Files that a command writes: checked before the work, put in their place when they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from plausiflow.errors import InvalidInputError

DOCUMENT = "explainer.json"


@contextmanager
def placed(path: Path) -> Iterator[Path]:
    """A name beside the place of a file, to write to; the file gets its place when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_files(given: Mapping[str, Path | None], *, inputs: Mapping[str, Path | None], force: bool) -> None:
    """Raise unless files can be written where options say.

    Args:
        given: By option.
        inputs: Files that are read, which must not be written over.
        force: Whether files that exist are replaced.
    """
    read = {path.resolve(): name for name, path in inputs.items() if path is not None}
    seen: dict[Path, str] = {}
    for option, path in given.items():
        if path is None:
            continue
        own = path.resolve()
        if own in read:
            raise InvalidInputError(f"{option} {path} is {read[own]} itself. Give another name.")
        if own in seen:
            raise InvalidInputError(f"{seen[own]} and {option} are both {path}. Give two names.")
        if path.is_dir():
            raise InvalidInputError(f"{option} {path} is a directory; a file is expected. Give a name in it.")
        if path.exists() and not force:
            raise InvalidInputError(
                f"{option} {path} exists already. Give another name, or --force to replace it."
            )
        _check_parent(option, path)
        seen[own] = option


def check_directory(option: str, path: Path, *, force: bool) -> None:
    """Raise unless an explainer can be saved to a directory; only another explainer is ever replaced."""
    _check_parent(option, path)
    if not path.exists():
        return
    if not path.is_dir():
        raise InvalidInputError(f"{option} {path} is a file; a directory is expected. Give another name.")
    names = sorted(entry.name for entry in path.iterdir())
    if names and DOCUMENT not in names:
        raise InvalidInputError(
            f"{option} {path} holds {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}, and no "
            "saved explainer. Give another name: nothing else is replaced."
        )
    if names and not force:
        raise InvalidInputError(
            f"{option} {path} holds an explainer already. Give another name, or --force to replace it."
        )


def _check_parent(option: str, path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInputError(f"{option} {path} cannot be written: {parent} cannot be written to.")
