"""Files and directories that are written whole or not at all, whenever the process ends.

The content goes to a temporary name beside the final one, is flushed to disk and then renamed. A process that
is killed in between leaves only the temporary name, which starts with a dot and ends in ``.tmp``.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to ``path`` when the block ends without an error.

    The block creates a file or a directory under the temporary path. An existing file is replaced in one
    step. An existing directory is moved aside first, and restored if the rename fails.

    Args:
        path: The final path. Its parent directories are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, previous = (path.with_name(f".{path.name}.{uuid.uuid4().hex}.{end}") for end in ("tmp", "old"))
    try:
        yield temporary
        for written in (temporary, *temporary.rglob("*")):
            _flush(written)
        if path.is_dir():
            path.rename(previous)
        os.replace(temporary, path)
        _flush(path.parent)
    finally:
        if previous.exists() and not path.exists():
            previous.rename(path)
        temporary.unlink(missing_ok=True) if temporary.is_file() else shutil.rmtree(temporary, True)
        shutil.rmtree(previous, ignore_errors=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write bytes to a file."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove the temporary files of killed processes; no other process may be writing.

    Args:
        folder: The directory, without its subdirectories.
        name: Only files whose final name starts with this.
    """
    for path in folder.glob(f".{name}*.tmp"):
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
