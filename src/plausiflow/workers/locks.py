"""Files that one process at a time may hold."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plausiflow.errors import PlausiflowError

_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


class LockedError(PlausiflowError, RuntimeError):
    """Somebody else holds a lock that is not waited for."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which says who holds it; the system lets go of it when its owner dies.

    On a file system without locks nothing is held.

    Raises:
        LockedError: If another process holds it and ``wait`` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            raise LockedError(file.read() or "a process that has just started") from error
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
