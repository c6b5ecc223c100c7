"""Shared by the tests of the explainer: a small table, explainers in closed form, and short trainings."""

from dataclasses import replace

import pytest

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.densities import mixed
from plausiflow.search import engine as finder
from searching import ORDERS, applicants


@pytest.fixture(scope="module")
def quickly_trained():
    """Densities are trained for a few epochs only: what they know does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
            patch.setattr(mixed, name, replace(getattr(mixed, name), epochs=8))
        yield


@pytest.fixture(scope="session")
def frame():
    return applicants(200)


@pytest.fixture(scope="session")
def by_income(frame):
    """Only the income decides, everything is plausible, and nothing is forbidden."""
    return stand_in(frame, push={"income": 4.0}, orders=ORDERS)


@pytest.fixture(scope="module")
def no_reasons_asked():
    """Which rule blocks is not looked for: it takes most of the time, and other tests ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finder, "RULES_ASKED", 0)
        yield


@pytest.fixture(scope="session")
def explainer():
    """Only categories may change, so that there is nothing to solve."""
    return stand_in(
        applicants(120, missing=True),
        [Immutable("age", "income", "savings", "gain")],
        push={"income": 1.0, "job": 2.0, "owns": 2.0, "school": 2.0},
        orders=ORDERS,
    )
