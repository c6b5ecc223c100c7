"""Checks of settings that a user gave; one error lists every problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from plausiflow.errors import InvalidInputError


def to_float(value: object) -> float:
    """Convert a number to a float; anything else becomes NaN, so that every comparison is false."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def is_whole(value: object) -> bool:
    """Return whether a value is an integer; a boolean is not."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def raise_unless(requirements: Mapping[str, tuple[str, bool]], settings: Mapping[str, object]) -> None:
    """Raise an error that lists every unmet requirement; each one is a description, and whether it is met."""
    problems = [
        f"`{name}` must be {what}; got {settings[name]!r}"
        for name, (what, is_met) in requirements.items()
        if not is_met
    ]
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
