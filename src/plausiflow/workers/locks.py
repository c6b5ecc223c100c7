"""Lock files that one process at a time may hold."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from plausiflow.errors import PlausiflowError

_LOCKS_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class LockedError(PlausiflowError, RuntimeError):
    """Another process holds the lock; the message names it."""


@contextmanager
def hold_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which names its holder; the system releases it when the holder dies.

    On a file system that does not support locks, no lock is held.

    Raises:
        LockedError: Another process holds the lock, and ``wait`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    held: list[int] = []  # The name is written through the lock's own descriptor: on NFS, closing another
    # descriptor of the same file would release the lock.
    lock = FileLock(path, blocking=wait, on_acquired=held.append)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(path.read_text() or "a process that has just started") from error
    except OSError as error:
        if error.errno not in _LOCKS_UNSUPPORTED:
            raise
    holder = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}"
    try:
        for descriptor in held:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        for descriptor in held:
            os.ftruncate(descriptor, 0)
        lock.release()
