"""Boosters of unknown origin are loaded in a child process first.

The checks of :mod:`plausiflow.persistence.tree_checks` cover every number that XGBoost and LightGBM are known
to index with. If a library crashes on something else, it crashes in the child process, and this process
raises an error. The trial takes about 0.2 seconds. It is done once for the same bytes: a booster that was
loaded in this process, or that this process wrote, is not tried again.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from multiprocessing import spawn
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow.persistence import trial_child

_SECONDS, _THREADS = 300.0, "4"  # an error in one of several threads ends a process, too
_proven: set[bytes] = set()


def try_in_child(library: str, shared_library: str, content: bytes, *, known: bool = False) -> None:
    """Load a booster in a child process, and predict with it, unless the same bytes were tried before.

    Args:
        library: ``"XGBoost"`` or ``"LightGBM"``.
        shared_library: The path of the library's shared library.
        content: The booster, as the library reads it.
        known: Whether this process wrote the booster, so that it needs no trial.

    Raises:
        InvalidInputError: The library crashed, ran out of memory or time, or reported an error.
    """
    digest = hashlib.sha256(content).digest()
    if not known and digest not in _proven:
        problem = _run(library, shared_library, content)
        if problem:
            raise InvalidInputError(
                f"{library} {problem} when it loaded the stored model in a child process, so the model is "
                "not loaded here. The file is damaged, or was made to do this. Use another copy, or train "
                "the model again and pass it with `model=`."
            )
    _proven.add(digest)


def _run(library: str, shared_library: str, content: bytes) -> str:
    """Return what went wrong, or an empty text."""
    command = [spawn.get_executable(), "-P", str(Path(trial_child.__file__)), library, shared_library]
    environment = os.environ | {"OMP_NUM_THREADS": _THREADS}
    try:
        ended = subprocess.run(
            command,
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {_SECONDS:g} seconds"
    except OSError as error:
        raise InvalidInputError(
            f"A stored model of {library} is loaded in a child process first, and none could be started: "
            f"{error}. Allow child processes, or pass the model with `model=`."
        ) from error
    if ended.returncode == 0:
        return ""
    if ended.returncode < 0:
        return f"crashed ({signal.Signals(-ended.returncode).name})"
    if ended.returncode == trial_child.OUT_OF_MEMORY:
        return "needed more memory than the size of the file allows"
    text = " ".join(ended.stderr.decode(errors="replace").split())
    return f"reported an error ({text[:200]})"
