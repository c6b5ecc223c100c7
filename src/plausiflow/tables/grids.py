"""Numbers on a grid: whole multiples of a step such as 1, 0.5, 0.01 or 100.

In binary, 0.3 is not 3 × 0.1. Tables hold the float nearest to the decimal, as people and files write it;
computations use the multiple of the step.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from plausiflow.tables.features import Dtype

FloatArray: TypeAlias = npt.NDArray[np.float64]

MAX_DECIMALS = 6
KEPT, FEW = 0.99, 10
DRAWS, DRAWN = 64, 8
RARELY = 0.001
MOST_KNOWN = 5000


def float_dtype(dtype: Dtype) -> np.dtype[Any]:
    """Return the float type that numbers of a dtype are rounded to: itself if it is a float, else double."""
    own = getattr(dtype, "numpy_dtype", dtype)
    return own if isinstance(own, np.dtype) and own.kind == "f" else np.dtype(np.float64)


def round_to_grid(values: FloatArray, step: float | FloatArray, decimals: int) -> FloatArray:
    """Return the nearest multiples of a step, rounded to ``decimals``: 0.3, not 3 × 0.1; never -0.

    Example:
        >>> round_to_grid(np.array([0.28, -0.01]), 0.1, 1)
        array([0.3, 0. ])
    """
    return np.round(np.rint(values / step) * step, decimals) + 0.0


def without_single_precision(values: FloatArray) -> FloatArray:
    """Return numbers that were stored in single precision as their shortest decimals; others unchanged.

    Many statistics programs store so: 3.1 is then read as 3.0999999, with 15 digits.

    Example:
        >>> without_single_precision(np.array([3.0999999046325684, 0.221000000834465, 0.35]))
        array([3.1  , 0.221, 0.35 ])
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    stored = np.isclose(values, single.astype(np.float64), rtol=1e-14, atol=0)
    decimals = [float(str(value)) for value in single[stored]]
    values = values.copy()
    values[stored] = decimals
    return values


def find_common_grid(
    values: FloatArray, counts: npt.NDArray[np.int64], dtype: np.dtype[Any]
) -> tuple[float, int] | None:
    """Return the largest step that at least 99 % of the rows are multiples of, and their decimals.

    ``values`` are distinct, with their counts. Zeros do not count: they are multiples of every step. One odd
    value does not destroy a grid, but at least eleven values must be on it; otherwise this is the step of all
    values, or None. Candidates for the step are common divisors of a few rows, drawn at random.

    Example:
        >>> amounts = np.append(np.arange(1.0, 41.0) * 500, 1234.0)
        >>> find_common_grid(amounts, np.append(np.full(40, 5), 1), np.dtype(np.float64))
        (500.0, 0)
    """
    exact, some = find_grid(values, dtype), values != 0
    values, counts = values[some], counts[some]
    needed = KEPT * counts.sum()
    for decimals in range(MAX_DECIMALS + 1):
        factor = 10.0**decimals
        if not len(values) or np.abs(values).max() * factor > 2**50:
            return exact
        with np.errstate(over="ignore"):
            written = np.round(values, decimals).astype(dtype) == values
        if counts[written].sum() >= needed:
            break
    else:
        return exact
    whole = np.abs(np.rint(values * factor)).astype(np.int64)
    rng, share = np.random.default_rng(0), counts * written / counts[written].sum()
    drawn = rng.choice(len(whole), size=(DRAWS, DRAWN), p=share)
    finest = 2.0 ** min(np.finfo(dtype).nmant - 3, 45)
    for step in sorted(set(np.gcd.reduce(whole[drawn], axis=1).tolist()), reverse=True):
        kept = written & (whole % step == 0)
        enough = kept.sum() > FEW and counts[kept].sum() >= needed and whole.max() <= finest * step
        if enough and _beyond_chance(whole[written], step):
            return (step / factor, decimals) if exact is None or step / factor > exact[0] else exact
    return exact


def _beyond_chance(whole: npt.NDArray[np.int64], step: int) -> bool:
    """Return whether multiples of a step are more of the distinct values than on a finer grid by chance.

    Multiples of the next power of ten do not count: they are multiples of the step, too.
    """
    power = 10 ** int(np.floor(np.log10(step)))
    finer, coarser = int(np.gcd(step, power)), 10 * power
    rest = whole[(whole % finer == 0) & (whole % coarser != 0)]
    if step == power or coarser % step or not len(rest):
        return True
    chance = 1 - (coarser // step - 1) / (coarser // finer - 1)
    return bool(binom.cdf((rest % step != 0).sum(), len(rest), chance) <= RARELY)


def find_spacing(
    values: FloatArray, counts: npt.NDArray[np.int64], step: float, decimals: int
) -> tuple[float, float] | None:
    """Return spacing and offset of values such as 5, 15, 25, which are multiples of a smaller step, 5.

    At least 99 % of the rows and eleven distinct values are the offset plus a multiple of the spacing. If
    each distinct value were on it by chance, this would have a probability below one in a thousand.

    Example:
        >>> prices = np.arange(40) + 0.99
        >>> find_spacing(prices, np.ones(40, dtype=np.int64), 0.01, 2)
        (1.0, 0.99)
    """
    whole = np.rint(values / step)
    if not len(values) or np.abs(whole).max() >= 2**50:
        return None
    whole, share = whole.astype(np.int64), counts / counts.sum()
    drawn = whole[np.random.default_rng(0).choice(len(whole), size=(DRAWS, DRAWN), p=share)]
    gaps = np.gcd.reduce(np.abs(drawn - drawn[:, :1]), axis=1)
    for gap in sorted(set(gaps[gaps > 1].tolist()), reverse=True):
        rest = whole % gap
        first = int(rest[np.argmax(counts)])
        kept = rest == first
        by_chance = binom.cdf((~kept).sum(), len(whole) - 1, 1 - 1 / gap)
        if first and kept.sum() > FEW and share[kept].sum() >= KEPT and by_chance <= RARELY:
            return round(gap * step, decimals), round(first * step, decimals)
    return None


def find_known(values: FloatArray, counts: npt.NDArray[np.int64]) -> FloatArray:
    """Return the distinct values, ascending, if (nearly) all further rows would have one of them; else none.

    The share of further rows with a value that no row has is estimated by Good and Turing: the share of rows
    whose value occurs once. It must be below 1 %, also with one such row more.

    Example:
        >>> find_known(np.array([340.0, 80.0, 120.0]), np.array([90, 50, 200]))
        array([ 80., 120., 340.])
        >>> find_known(np.arange(5.0), np.ones(5, dtype=np.int64))
        array([], dtype=float64)
    """
    once = int((counts == 1).sum())
    if len(values) > MOST_KNOWN or once + 1 > (1 - KEPT) * counts.sum():
        return np.empty(0)
    return np.sort(values)


def decimals_of(step: float) -> int | None:
    """Return the number of decimals of a step, None if there are more than six."""
    return next((digits for digits in range(MAX_DECIMALS + 1) if round(step, digits) == step), None)


def find_grid(values: FloatArray, dtype: np.dtype[Any]) -> tuple[float, int] | None:
    """Return the largest step that all values are multiples of, and their decimals; None without a grid.

    Values may have at most six decimals. A grid must be coarser than rounding: the step must be at least
    2^-20 of the largest value in single precision, and 2^-45 in double precision.

    Example:
        >>> find_grid(np.array([0.5, 2.0, 3.5]), np.dtype(np.float64))
        (0.5, 1)
    """
    for decimals in range(MAX_DECIMALS + 1):
        factor = 10.0**decimals
        if np.abs(values).max() * factor > 2**50:
            return None
        with np.errstate(over="ignore"):
            rounded = np.round(values, decimals).astype(dtype)
        if (rounded == values).all():
            whole = np.abs(np.rint(values * factor)).astype(np.int64)
            step = int(np.gcd.reduce(whole))
            finest = 2.0 ** min(np.finfo(dtype).nmant - 3, 45)
            return (step / factor, decimals) if step and whole.max() <= finest * step else None
    return None
