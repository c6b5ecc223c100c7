"""Shared by the tests of the calibrated margin: few rows, a small allowance, and a trained ensemble."""

import pytest

from calibrating import fresh
from plausiflow.densities import calibration


@pytest.fixture(autouse=True)
def small_allowance(monkeypatch):
    """Thresholds of 40 rows have large standard errors: with the usual allowance no margin is enough here."""
    monkeypatch.setattr(calibration, "ALLOWANCE", 0.5)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(calibration, "ROWS", 60)
    monkeypatch.setattr(calibration, "ROWS_OF_CLASS", 30)


@pytest.fixture
def ensemble():
    return fresh()
