"""Checks of the paths that a command writes to, before its work starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.persistence import DOCUMENT

FORMATS = {"--report": (".html", ".htm"), "--json": (".json",)}
"""Suffixes of the files that an option writes; those of tables are checked by their commands."""


def check_files(
    outputs: Mapping[str, Path | None], *, inputs: Mapping[str, Path | None], force: bool
) -> None:
    """Raise unless ``outputs``, by option, can be written; inputs must not be overwritten."""
    read = {path.resolve(): name for name, path in inputs.items() if path is not None}
    seen: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        resolved = path.resolve()
        if resolved in read:
            raise InvalidInputError(f"{option} {path} is {read[resolved]} itself. Use another name.")
        if resolved in seen:
            raise InvalidInputError(f"{seen[resolved]} and {option} are both {path}. Use two names.")
        if path.is_dir():
            raise InvalidInputError(f"{option} {path} is a directory; a file is expected. Add a file name.")
        if path.exists() and not force:
            raise InvalidInputError(
                f"{option} {path} exists already. Use another name, or --force to replace it."
            )
        _check_parent(option, path)
        seen[resolved] = option
    for option, path in outputs.items():
        if path is not None:
            _check_format(option, path)


def check_directory(option: str, path: Path, *, force: bool) -> None:
    """Raise unless an explainer can be saved to a directory; only another explainer is ever replaced."""
    _check_parent(option, path)
    if not path.exists():
        return
    if not path.is_dir():
        raise InvalidInputError(f"{option} {path} is a file; a directory is expected. Use another name.")
    names = sorted(entry.name for entry in path.iterdir())
    if names and DOCUMENT not in names:
        raise InvalidInputError(
            f"{option} {path} contains {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}, and no "
            "saved explainer. Use another name: only an explainer is ever replaced."
        )
    if names and not force:
        raise InvalidInputError(
            f"{option} {path} contains an explainer already. Use another name, or --force to replace it."
        )


def _check_format(option: str, path: Path) -> None:
    """Raise unless a file has a suffix of its format, and the package that writes it is installed."""
    known = FORMATS.get(option)
    if known is not None and path.suffix.lower() not in known:
        raise InvalidInputError(
            f"{option} writes a file that ends in {' or '.join(known)}; got {path}. Use another name."
        )
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingExtraError("pyarrow", "files", "Writing Parquet files")


def _check_parent(option: str, path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInputError(f"{option} {path} cannot be written: {parent} is not a writable directory.")


def make_folder(option: str, path: Path, *, force: bool) -> None:
    """Make a directory for files, or raise; one that has files is only used with ``force``."""
    _check_parent(option, path)
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"{option} {path} is a file; a directory is expected. Use another name.")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise InvalidInputError(
            f"{option} {path} contains files already. Use another name, or --force to write to it."
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"{option} {path} cannot be made: {error.strerror or error}. Use another name."
        ) from error
    if not os.access(path, os.W_OK):
        raise InvalidInputError(f"{option} {path} cannot be written to. Use another name.")


def free_path(path: Path) -> Path:
    """Return a path that does not exist: this one, or one with a number.

    Example:
        >>> free_path(Path("no_such_file.csv"))
        PosixPath('no_such_file.csv')
    """
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
