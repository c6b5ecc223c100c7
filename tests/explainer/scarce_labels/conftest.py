"""Shared by the tests of few labels: a density that was fitted without any."""

import pytest
import torch

from plausiflow.densities import CrossFitEnsemble
from scarce import BASE, gaussians, outcome


@pytest.fixture(scope="session")
def by_bayes(default_dtype):
    """Fitted without any label."""
    x, y = gaussians(900)
    return CrossFitEnsemble(members=3, base=BASE, outcome=outcome, random_state=1).fit(x, torch.zeros_like(y))
