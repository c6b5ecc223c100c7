"""Whether what a user set is as it must be; everything that is wrong is said at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from plausiflow.errors import InvalidInputError


def number(value: object) -> float:
    """A number as a float; NaN, which compares with nothing, where it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def is_whole(value: object) -> bool:
    """Is a whole number; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def raise_unless(fine: Mapping[str, tuple[str, bool]], given: Mapping[str, object]) -> None:
    """Raise for all settings that are not as asked: what each must be, and whether it is."""
    problems = [
        f"`{name}` must be {what}; got {given[name]!r}" for name, (what, is_so) in fine.items() if not is_so
    ]
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
