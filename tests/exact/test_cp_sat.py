"""The solver of proofs, where it cannot be used."""

import builtins
import importlib.util

import pytest

from plausiflow.errors import MissingExtraError
from plausiflow.exact import cp_sat


@pytest.fixture(autouse=True)
def _forget():
    cp_sat.is_installed.cache_clear()
    yield
    cp_sat.is_installed.cache_clear()


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not cp_sat.is_installed()
    with pytest.raises(MissingExtraError, match=r"plausiflow\[certify\]"):
        cp_sat.Program()


def test_a_solver_that_cannot_be_loaded_is_not_used_and_the_error_says_what_to_do(monkeypatch):
    pytest.importorskip("ortools", reason="needs OR-tools")
    original = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("ortools"):
            raise ImportError("undefined symbol")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert not cp_sat.is_installed()
    with pytest.raises(cp_sat.UnloadableSolverError, match=r"undefined symbol.*Put `import ortools"):
        cp_sat.Program()
