"""Linear models with random weights and their rows, for the tests of WACH."""

import numpy as np
import torch

from plausiflow.models import LinearClassifier


def linear_problem(d, n=60, classes=2, seed=0):
    """Return a linear model (sigmoid for two classes) with random weights, and rows in the unit cube."""
    rng = np.random.default_rng(seed + d)
    weight, x = 4 * rng.standard_normal((1 if classes == 2 else classes, d)), rng.random((n, d))
    bias = -np.median(x @ weight.T, axis=0)
    return LinearClassifier.from_weights(weight, bias), torch.from_numpy(x)


def train(x):
    """Return training rows of both classes whose range is the unit cube."""
    corners = torch.stack([torch.zeros(x.shape[1]), torch.ones(x.shape[1])]).to(x)
    return torch.cat([x, corners]), torch.arange(len(x) + 2) % 2
