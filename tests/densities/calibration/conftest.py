"""Shared by the tests of the calibrated margin: few rows, any distance, and a trained ensemble."""

import pytest

from calibrating import fresh
from plausiflow.densities import calibration


@pytest.fixture(autouse=True)
def any_distance(monkeypatch):
    """Three members of 40 rows are uncertain, and a margin that is enough is far: allow it here."""
    monkeypatch.setattr(calibration, "STANDARD_ERRORS", 0.0)
    monkeypatch.setattr(calibration, "EXCHANGE", 50.0)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(calibration, "ROWS", 60)
    monkeypatch.setattr(calibration, "ROWS_OF_CLASS", 30)


@pytest.fixture
def ensemble():
    return fresh()
