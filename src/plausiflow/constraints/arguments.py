"""Checks of the arguments of rules: names, numbers and kinds of features."""

from __future__ import annotations

import sys

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Feature, to_python


def not_a_number(feature: Feature) -> str:
    """Return the problem of a feature that has no numbers."""
    kinds = {"boolean": "a boolean of texts", "identifier": "an identifier", "ordered": "an ordered category"}
    return f"`{feature.name}` is {kinds.get(feature.kind, f'a {feature.kind}')}, not a number"


def check_name(rule: str, name: object) -> str:
    """Return the name of a feature, which must be a text."""
    if not isinstance(name, str):
        raise InvalidInputError(f"{rule} takes the name of a feature, a text; got {name!r}.")
    return name


def check_number(what: str, value: object) -> float | int:
    """Return a finite number; NumPy scalars become Python numbers."""
    number = to_python(value)
    valid = isinstance(number, int | float) and not isinstance(number, bool)
    if not valid or not abs(number) <= sys.float_info.max:
        raise InvalidInputError(f"{what} must be a finite number; got {value!r}.")
    return number  # type: ignore[no-any-return]
