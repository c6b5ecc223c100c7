"""Processes that tests start, kill and wait for."""

import os
import time
import warnings


def forked(function) -> int:
    """Call a function in a forked process, which needs no imports; return the process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        function()
        os._exit(0)
    finally:
        os._exit(1)


def wait_for(condition) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + 300  # far more than needed, so that a bug does not hang the tests
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
