"""What the tests of WACH share: linear models with random weights, and training rows around their rows."""

import numpy as np
import torch

from plausiflow.models import LinearClassifier


def linear_problem(d, n=60, classes=2, seed=0):
    """A linear model with random weights and rows in the unit cube; a sigmoid model for two classes."""
    rng = np.random.default_rng(seed + d)
    weight, x = 4 * rng.standard_normal((1 if classes == 2 else classes, d)), rng.random((n, d))
    bias = -np.median(x @ weight.T, axis=0)
    return LinearClassifier.from_weights(weight, bias), torch.from_numpy(x)


def train(x):
    """Training rows that make the rows' unit cube the box, with both classes."""
    corners = torch.stack([torch.zeros(x.shape[1]), torch.ones(x.shape[1])]).to(x)
    return torch.cat([x, corners]), torch.arange(len(x) + 2) % 2
