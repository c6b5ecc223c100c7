"""Shared by the tests of the explainer: a small table, explainers in closed form, and short trainings."""

from dataclasses import replace

import pytest

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.densities import mixed
from plausiflow.search import diagnose
from searching import ORDERS, applicants


@pytest.fixture(scope="module")
def quickly_trained():
    """Densities are trained for a few epochs only: their quality does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
            patch.setattr(mixed, name, replace(getattr(mixed, name), epochs=8))
        yield


@pytest.fixture(scope="session")
def frame():
    return applicants(200)


@pytest.fixture(scope="session")
def by_income(frame):
    """Only the income decides, every row is plausible, and there are no rules."""
    return stand_in(frame, push={"income": 4.0}, orders=ORDERS)


@pytest.fixture(scope="module")
def no_reasons_asked():
    """Blocking rules are not looked for: that takes most of the time, and other tests do it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnose, "MOST_RULES", 0)
        yield


@pytest.fixture(scope="session")
def explainer():
    """Only categories may change, so that no numbers have to be solved."""
    return stand_in(
        applicants(120, missing=True),
        [Immutable("age", "income", "savings", "gain")],
        push={"income": 1.0, "job": 2.0, "owns": 2.0, "school": 2.0},
        orders=ORDERS,
    )
