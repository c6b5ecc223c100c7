"""Shared by the tests of metrics and verification: a model, its training rows, and five counterfactuals."""

import pytest
import torch

from measuring import NAN, Ramp
from plausiflow.core.metrics import Context
from plausiflow.core.verification import verify_counterfactuals
from plausiflow.models import LinearClassifier


class RampPanel:
    """Two judges with the ramp as density; what the strict one accepts, the other accepts too."""

    def passes(self, x, y):
        return Ramp().log_prob(x, y)[:, None] >= torch.tensor([10.0, 5.0], device=x.device)


@pytest.fixture
def classifier():
    """Class 1 where the first feature is largest and positive, 2 where the second is, 0 if neither."""
    return LinearClassifier.from_weights(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3))


@pytest.fixture
def context(classifier, device):
    x = torch.randn(90, 2, device=device)
    return Context(
        classifier=classifier,
        plausibility=Ramp(),
        judges=RampPanel(),
        x_train=x,
        y_train=torch.arange(90, device=device) % 3,
    )


@pytest.fixture
def five_rows(classifier, device):
    """Target reached; another class reached; class kept; none found; target reached that is not |1 - y|."""
    x = [[-1, -1], [-1, -1], [-1, -1], [-1, -1], [0, 2]]
    x_cf = [[1, -1], [-1, 2], [-1 + 5e-5, -2], [NAN, 0], [-1, -1]]
    return verify_counterfactuals(
        classifier=classifier,
        plausibility=Ramp(),
        x=torch.tensor(x, dtype=torch.float64, device=device),
        x_cf=torch.tensor(x_cf, dtype=torch.float64, device=device),
        y_target=torch.tensor([1, 1, 1, 1, 0], device=device),
        seconds=torch.tensor(0.5),
        cpu_seconds=torch.arange(5.0),
    )
