"""A script that loads a booster of unknown origin and predicts with it, to see whether its library crashes.

It is run in a child process by :mod:`plausiflow.persistence.trial_load`, as a file: it imports only the
standard library and calls the C library of XGBoost or LightGBM directly, which takes a tenth of a second
instead of the seconds that their Python packages need. Arguments: the name of the library and the path of its
shared library. The booster comes on standard input. An error of the library goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from pathlib import Path
from typing import Any

REFUSED, OUT_OF_MEMORY = 3, 4
"""Exit codes: the library reports an error; the library needs more memory than it may use."""
_VALUES = (0.0, 1.0, -1.0, 0.5, 3.0, 1e30, -1e30, math.nan)  # each row holds one of these in all columns
_SLACK = 300 << 20


def limit_memory(size: int) -> None:
    """Allow four times the size of the booster and 300 MB beyond what is in use, and no core dump."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except OSError:  # not Linux: without a limit
        return
    resource.setrlimit(resource.RLIMIT_DATA, (used + 4 * size + _SLACK, resource.RLIM_INFINITY))


def require(code: int, message: Any) -> None:  # noqa: ANN401  (a function of a C library)
    """End the process with the message of the library if a call failed."""
    if code != 0:
        message.restype = ctypes.c_char_p
        text = (message() or b"").decode(errors="replace")
        sys.stderr.write(text[:2000])
        sys.exit(OUT_OF_MEMORY if "bad_alloc" in text or "allocat" in text else REFUSED)


def try_xgboost(library: ctypes.CDLL, content: bytes) -> None:
    """Load, predict and write as plausiflow does."""
    booster, count, dimension = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    shape, values = ctypes.POINTER(ctypes.c_uint64)(), ctypes.POINTER(ctypes.c_float)()
    error = library.XGBGetLastError
    require(library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(booster)), error)
    require(library.XGBoosterLoadModelFromBuffer(booster, content, ctypes.c_uint64(len(content))), error)
    require(library.XGBoosterGetNumFeature(booster, ctypes.byref(count)), error)
    rows = rows_of(ctypes.c_float, count.value)
    described = {
        "data": [ctypes.addressof(rows), True],
        "shape": [len(_VALUES), count.value],
        "typestr": "<f4",
        "version": 3,
    }
    settings: dict[str, Any] = {"type": 0, "training": False, "iteration_begin": 0, "iteration_end": 0}
    settings |= {"strict_shape": True, "missing": math.nan}
    outputs = (ctypes.byref(shape), ctypes.byref(dimension), ctypes.byref(values))
    texts = (json.dumps(described).encode(), json.dumps(settings).encode())
    require(library.XGBoosterPredictFromDense(booster, *texts, None, *outputs), error)
    length, text = ctypes.c_uint64(), ctypes.c_char_p()
    written = (ctypes.byref(length), ctypes.byref(text))
    require(library.XGBoosterSaveModelToBuffer(booster, b'{"format": "ubj"}', *written), error)


def try_lightgbm(library: ctypes.CDLL, content: bytes) -> None:
    """Load, predict and dump as plausiflow does."""
    booster, rounds, count, length = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int64()
    error = library.LGBM_GetLastError
    loaded = (ctypes.byref(rounds), ctypes.byref(booster))
    require(library.LGBM_BoosterLoadModelFromString(content, *loaded), error)
    require(library.LGBM_BoosterGetNumFeature(booster, ctypes.byref(count)), error)
    size = (len(_VALUES), 0, 0, -1)  # rows, normal prediction, from the first round, all rounds
    require(library.LGBM_BoosterCalcNumPredict(booster, *size, ctypes.byref(length)), error)
    outputs, rows = (ctypes.c_double * length.value)(), rows_of(ctypes.c_double, count.value)
    form = (1, len(_VALUES), count.value, 1, 0, 0, -1)  # doubles, rows, columns, by row, then as above
    made = (ctypes.byref(length), outputs)
    require(library.LGBM_BoosterPredictForMat(booster, rows, *form, b"", *made), error)
    for number in range(rounds.value):
        text = (ctypes.c_int64(0), ctypes.byref(length), None)
        require(library.LGBM_BoosterDumpModel(booster, number, 1, 0, *text), error)


def rows_of(kind: Any, n_features: int) -> Any:  # noqa: ANN401  (a C type, a C array)
    """Return one row for each value, as a C array."""
    return (kind * (len(_VALUES) * n_features))(*(value for value in _VALUES for _ in range(n_features)))


if __name__ == "__main__":
    name, path = sys.argv[1:]
    booster_content, shared = sys.stdin.buffer.read(), ctypes.CDLL(path)
    limit_memory(len(booster_content))
    try:
        {"XGBoost": try_xgboost, "LightGBM": try_lightgbm}[name](shared, booster_content)
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
