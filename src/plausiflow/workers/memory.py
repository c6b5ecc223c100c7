"""Memory of this process: how much it uses, and how the C library keeps what is freed.

Searches allocate and free tensors of a few megabytes again and again. By default glibc maps each one from the
system, which clears every page: sixteen workers on sixteen cores spent a third of their time on that.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_KEPT_BYTES = 256 * 2**20


def keep_memory() -> bool:
    """Let this process keep freed memory, up to 256 MiB; return whether the C library supports it."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(name, _KEPT_BYTES) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)
    )


def memory_used() -> tuple[int, int]:
    """Return the peak and the current memory of this process in bytes; zeros outside Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0, 0
    entries = dict(line.split(":", 1) for line in lines if ":" in line)
    peak, current = (1024 * int(entries.get(name, "0 kB").split()[0]) for name in ("VmHWM", "VmRSS"))
    return peak, current
