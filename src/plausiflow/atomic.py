"""Files and directories that are written whole or not at all, whenever the process ends.

The content goes to a temporary name beside the final one, is flushed to disk and then takes the final name in
one step. A directory that is already there is exchanged with the new one: Linux and macOS have a call for
this. Elsewhere, and on file systems without it, the old directory is moved aside first, so that for a moment
the final name does not exist.

A process that is killed leaves only temporary names, which start with a dot and end in ``.tmp`` or ``.old``.
:func:`remove_leftovers` and :func:`recover` clean up after it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_CURRENT_FOLDER, _EXCHANGE = -100, 2  # AT_FDCWD, and RENAME_EXCHANGE of Linux, which is RENAME_SWAP of macOS
_CANNOT_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to ``path`` when the block ends without an error.

    The block creates a file or a directory under the temporary path. An existing file or directory is
    replaced in one step, where the system can, and is still there if the block or the rename fails.

    Args:
        path: The final path. Its parent directories are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, "tmp")
    try:
        yield temporary
        for written in (temporary, *temporary.rglob("*")):
            _flush(written)
        _replace(temporary, path)
        _flush(path.parent)
    finally:
        _remove(temporary)  # after an exchange, this is the old content


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


def leftovers(path: Path) -> list[Path]:
    """Return the temporary files and directories of a path, the newest first.

    They belong to processes that were killed, or that are writing now.
    """
    form = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}\.(tmp|old)")
    try:
        found = [entry for entry in os.scandir(path.parent) if form.fullmatch(entry.name)]
        found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns, reverse=True)
    except OSError:  # a process that is writing now has just finished, or the names cannot be read
        return []
    return [Path(entry.path) for entry in found]


def recover(path: Path) -> None:
    """Remove what killed processes left of a path; no other process may be writing it.

    If a process was killed after it had moved the old content aside, the old content is restored.
    """
    for leftover in leftovers(path):
        if leftover.suffix == ".old" and not os.path.lexists(path):
            leftover.rename(path)
        else:
            _remove(leftover)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.{end}")


def _replace(temporary: Path, path: Path) -> None:
    """Give the temporary content its final name; what was there is removed, or has the temporary name."""
    if path.is_symlink() or not path.is_dir():
        os.replace(temporary, path)
    elif not exchange(temporary, path):
        previous = _beside(path, "old")
        path.rename(previous)
        try:
            os.replace(temporary, path)
        except BaseException:
            previous.rename(path)
            raise
        _remove(previous)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; return False where the system or the file system cannot."""
    call = _exchange_call()
    if call is None:
        return False
    if call(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))


@cache
def _exchange_call() -> Callable[[bytes, bytes], int] | None:
    """Return the function of the C library that exchanges two names, or None."""
    if sys.platform.startswith("linux"):
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is not None:
            return lambda first, second: rename(_CURRENT_FOLDER, first, _CURRENT_FOLDER, second, _EXCHANGE)
    elif sys.platform == "darwin":
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renamex_np", None)
        if rename is not None:
            return lambda first, second: rename(first, second, _EXCHANGE)
    return None


def _remove(path: Path) -> None:
    """Remove a file or a directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
