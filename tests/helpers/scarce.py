"""What the tests of few labels share: two Gaussians whose true posterior is known, and small densities."""

import torch
from torch.distributions import MultivariateNormal

from plausiflow import LinearClassifier
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow

TRAINING = Training(epochs=40, batch_size=128, learning_rate=5e-3, noise=0.01)
BASE = ConditionalFlow(transforms=2, hidden=(16,), training=TRAINING)
BRIEF = Training(epochs=3, batch_size=64, learning_rate=1e-2)
MEANS, WIDTH = torch.tensor([[0.4, 0.56], [0.6, 0.46]], dtype=torch.float64), 0.12


def gaussians(n, seed=0):
    """Rows of two Gaussians of equal width, equally many of each."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return MEANS[y] + WIDTH * torch.randn(n, 2, generator=generator), y


def truth(x, y):
    """The true log-density of the class."""
    return MultivariateNormal(MEANS[y], WIDTH**2 * torch.eye(2)).log_prob(x)


def exact_classifier():
    """The posterior of the two Gaussians, a logistic regression."""
    weight = (MEANS[1] - MEANS[0]) / WIDTH**2
    bias = (MEANS[0].square().sum() - MEANS[1].square().sum()) / (2 * WIDTH**2)
    return LinearClassifier.from_weights(weight[None], bias[None])


def outcome(x):
    return exact_classifier().logits(x).log_softmax(dim=1)
