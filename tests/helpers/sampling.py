"""Parameters of tests: values that differ in code path always run, the other ones with the slow tests."""

from collections.abc import Iterable

import pytest


def slow_unless(quick: Iterable[object], values: Iterable[object]) -> list[object]:
    """Return all values for ``pytest.mark.parametrize``; those that are not in ``quick`` are marked slow."""
    always = list(quick)
    return [value if value in always else pytest.param(value, marks=pytest.mark.slow) for value in values]


def slow(*values: object) -> object:
    """Return one entry for ``pytest.mark.parametrize`` that only the slow tests run."""
    return pytest.param(*values, marks=pytest.mark.slow)
