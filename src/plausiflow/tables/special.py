"""Find the special values of a number: values that stand for a state and not for an amount.

Examples are -1 or 999 for "never", -9 for "unknown", 0 in a column of amounts, or any other value that so
many rows have that it is an atom of the distribution. Under a smooth distribution, neighbouring values are
about equally common. So a value is special if its count is far above what other values predict:

1. *Apart*: up to four values at one end of the column are special if each has at least five rows and the rest
   does not lead up to them. There are three signs of that: the gap to the rest is more than four times the
   largest gap between the ten nearest values; they are negative and the rest is not; each is at least four
   times as common as each of the ten nearest values. Two signs are enough, or a gap of more than the span of
   the rest.
2. *Atoms*: the most common values, up to four, are special if each has at least five rows and 3 % of them,
   and is at least four times as common as every other value.

At least eleven other distinct values must remain. So a column whose values are all common (ages), or of which
many are round (amounts in thousands), has no special value, and repeated extremes of a sample have none: a
value with five rows next to values with one each has a probability below one in a thousand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from plausiflow.tables.grids import FloatArray

MOST = 4
ROWS, SHARE = 5, 0.03
TIMES = 4
NEAREST = 10
OTHERS = 11
EXACT = 2**53
"""Floats represent all whole numbers below it; larger ones are not special."""

Counts = npt.NDArray[np.int64]


def find_special(values: FloatArray, counts: Counts) -> tuple[float, ...]:
    """Return the special values among distinct values with these counts, ascending.

    Example:
        >>> days = np.append(np.arange(1.0, 31.0), 999.0)
        >>> find_special(days, np.append(np.full(30, 7), 20))
        (999.0,)
    """
    order = np.argsort(values)
    values, counts = values[order] + 0.0, counts[order]
    low = _number_apart(values, counts, negative=True)
    high = _number_apart(-values[::-1], counts[::-1], negative=False)
    special = np.zeros(len(values), dtype=bool)
    special[:low], special[len(values) - high :] = True, True
    if (~special).sum() < OTHERS:
        special[:] = False
    special[_atoms(counts, special)] = True
    return tuple(values[special & (np.abs(values) < EXACT)].tolist())


def _number_apart(values: FloatArray, counts: Counts, *, negative: bool) -> int:
    """Return how many of the smallest of ascending values are apart from the rest, at most four.

    ``negative``: whether a negative value next to others is a sign of that.
    """
    for k in range(min(MOST, len(values) - OTHERS), 0, -1):
        rest, own = values[k:], counts[:k]
        if own.min() < ROWS:
            continue
        gap, nearest = rest[0] - values[k - 1], rest[:NEAREST]
        signs = [
            gap > TIMES * np.diff(nearest).max(),
            negative and values[k - 1] < 0 <= rest[0],
            own.min() >= TIMES * counts[k:][:NEAREST].max(),
        ]
        if sum(signs) >= 2 or gap > rest[-1] - rest[0]:
            return k
    return 0


def _atoms(counts: Counts, special: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the positions of the atoms among the values that are not special yet."""
    places = np.flatnonzero(~special)
    ranked = places[np.argsort(-counts[places], kind="stable")]
    least = max(ROWS, SHARE * counts.sum())
    for k in range(min(MOST, len(ranked) - OTHERS), 0, -1):
        if counts[ranked[k - 1]] >= max(least, TIMES * counts[ranked[k]]):
            return ranked[:k]
    return ranked[:0]
