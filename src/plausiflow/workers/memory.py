"""The memory of a process of our own: kept for what comes next, not given back to the system at once.

Searches take and release tensors of a few megabytes again and again. The C library by default maps each anew,
which clears every page: sixteen workers on sixteen cores spent a third of their time on that.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT = 256 * 2**20
"""Bytes: pieces up to this size are kept, and so much of what is free in all."""


def keep_memory() -> bool:
    """Let this process keep what it releases; false where the C library knows no such wish."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(name, KEPT) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
