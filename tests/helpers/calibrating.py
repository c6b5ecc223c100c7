"""What the tests of the calibrated margin share: a table, a model of it, and an ensemble trained once."""

import copy
from functools import cache

import torch

from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.models import LinearClassifier

TRAINING = Training(epochs=60, batch_size=64, learning_rate=1e-2, noise=0.02)
BASE = ConditionalFlow(transforms=2, hidden=(16,), training=TRAINING)


def table(n=240, seed=0):
    """Two Gaussian classes in the plane, side by side."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    noise = torch.randn(n, 2, generator=generator)
    return torch.stack([0.3 + 0.4 * y + 0.1 * noise[:, 0], 0.5 + 0.15 * noise[:, 1]], dim=1), y


def line(at=0.5):
    """A model that decides by the first feature."""
    return LinearClassifier.from_weights(torch.tensor([[20.0, 0.0]]), torch.tensor([-20.0 * at]))


@cache
def trained():
    return CrossFitEnsemble(members=3, base=BASE).fit(*table())


def fresh():
    """The trained ensemble with a cap that its members reach without any one of them, too."""
    ensemble = copy.deepcopy(trained())
    ensemble.max_margin_ = 0.85 * ensemble.max_margin_
    return ensemble


def disagreeing(ensemble, k):
    """Member by member another threshold for class ``k``: nothing that satisfies two satisfies the third."""
    ensemble.thresholds_ = ensemble.thresholds_.clone()
    ensemble.thresholds_[:, k] += torch.tensor([0.0, 0.0, 50.0], dtype=torch.float64)
    ensemble.thresholds_[0, k] -= 50.0
    return ensemble
