"""A small table of loans, and an explainer that is fitted to it, for the studies of mixed tables."""

from dataclasses import replace
from functools import lru_cache, partial

import pytest

from benchmarking import FEW_LOANS
from plausiflow.core.training import Training
from plausiflow.datasets.tables import loans_table
from plausiflow.densities import mixed as density
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier
from plausiflow.search import fit as fitting
from plausiflow.search.mixed import MixedSearch
from plausiflow_bench.tables import cases, mixed


@pytest.fixture(scope="session")
def fitted():
    """A cache of fitted cases for all modules of this folder, separate from the library's cache."""
    return lru_cache(cases.fit_case.__wrapped__)


@pytest.fixture(scope="module", autouse=True)
def quick(default_dtype, fitted):
    """300 loans, densities with a very short training, short searches; fitted once for all modules."""
    table = replace(loans_table(n=300), study=(220, 80))
    brief = Training(epochs=4, learning_rate=1e-2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "load_table", lambda name: table)
        patch.setattr(cases, "Explainer", partial(Explainer, confidence=None))
        patch.setattr(
            cases,
            "MLPClassifier",
            lambda hidden, random_state: MLPClassifier(hidden=(8,), random_state=random_state),
        )
        patch.setattr(fitting, "MixedSearch", partial(MixedSearch, bank_rows=2, flips=False, finalists=1))
        patch.setattr(density, "FLOW_TRAINING", brief)
        patch.setattr(density, "LEVELS_TRAINING", brief)
        patch.setattr(cases, "fit_case", fitted)
        yield


@pytest.fixture(scope="module")
def case(quick):
    return FEW_LOANS.case("loans")


@pytest.fixture(scope="module")
def rows(quick):
    return {row["method"]: row for row in mixed.run(FEW_LOANS)}
