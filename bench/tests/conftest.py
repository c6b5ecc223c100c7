"""Small models for the tests of the studies."""

from functools import partial

import pytest

from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow
from plausiflow.models import NODE, LinearClassifier, MLPClassifier
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.harness import selection
from plausiflow_bench.numeric import densities


@pytest.fixture
def quick(monkeypatch):
    """Small models and short searches, trained again for each test."""
    brief = Training(epochs=6, learning_rate=1e-2)
    monkeypatch.setattr(selection, "LinearClassifier", partial(LinearClassifier, training=brief))
    monkeypatch.setattr(selection, "MLPClassifier", partial(MLPClassifier, hidden=(8,), training=brief))
    monkeypatch.setattr(
        selection, "NODE", partial(NODE, n_trees=16, training=Training(epochs=30, learning_rate=5e-2))
    )
    small = partial(ConditionalFlow, transforms=2, hidden=(16,), training=brief)
    monkeypatch.setattr(selection, "ConditionalFlow", small)
    monkeypatch.setattr(densities, "ConditionalFlow", small)
    monkeypatch.setattr(PenaltyAdam, "paper", lambda *, binary_linear: PenaltyAdam(steps=20, keep="last"))
    caches = (selection.load_fold, selection.fit_classifier, selection.fit_thresholded_flow)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()
