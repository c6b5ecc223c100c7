"""Numbers on a grid: whole multiples of a step such as 1, 0.5, 0.01 or 100.

A decimal such as 0.3 is not 3 × 0.1 in binary. A number is *written* as the float nearest to its decimals, as
people and files write it, and *computed with* as a multiple of the step.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from plausiflow.tables.features import Dtype

FloatArray: TypeAlias = npt.NDArray[np.float64]

MAX_DECIMALS = 6


def float_dtype(dtype: Dtype) -> np.dtype[Any]:
    """The floats that numbers of a dtype are rounded to: its own if it is a float, else double."""
    own = getattr(dtype, "numpy_dtype", dtype)
    return own if isinstance(own, np.dtype) and own.kind == "f" else np.dtype(np.float64)


def round_to_grid(values: FloatArray, step: float, decimals: int) -> FloatArray:
    """The nearest multiples of a step, as written with so many decimals: 0.3, not 3 × 0.1; never -0.

    Example:
        >>> round_to_grid(np.array([0.28, -0.01]), 0.1, 1)
        array([0.3, 0. ])
    """
    return np.round(np.rint(values / step) * step, decimals) + 0.0


def find_grid(values: FloatArray, held_in: np.dtype[Any]) -> tuple[float, int] | None:
    """The largest step that all values are whole multiples of, and their decimals, six at most.

    Nothing where there is none, or where so fine a grid could not be told from rounding: a step must stay
    above the 2^-20-th part of the largest value in single precision, the 2^-45-th in double.

    Example:
        >>> find_grid(np.array([0.5, 2.0, 3.5]), np.dtype(np.float64))
        (0.5, 1)
    """
    for decimals in range(MAX_DECIMALS + 1):
        factor = 10.0**decimals
        if np.abs(values).max() * factor > 2**50:
            return None
        with np.errstate(over="ignore"):
            rounded = np.round(values, decimals).astype(held_in)
        if (rounded == values).all():
            whole = np.abs(np.rint(values * factor)).astype(np.int64)
            step = int(np.gcd.reduce(whole))
            finest = 2.0 ** min(np.finfo(held_in).nmant - 3, 45)
            return (step / factor, decimals) if step and whole.max() <= finest * step else None
    return None
