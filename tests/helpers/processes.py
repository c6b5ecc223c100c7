"""Processes that tests start, kill and wait for."""

import os
import time
import warnings


def forked(function) -> int:
    """The number of a process that calls the function and ends, without the second that an import takes."""
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
    """Until the condition holds."""
    given_up = time.monotonic() + 300  # far more than it takes anywhere: a bug does not hang the tests
    while not condition():
        assert time.monotonic() < given_up
        time.sleep(0.005)
