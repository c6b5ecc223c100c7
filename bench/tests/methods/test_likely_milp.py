"""The program like that of LiCE against a fine grid, and its likelihood against a plain loop."""

import math

import numpy as np
import pytest
import torch

from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow_bench.methods import LikelyMilp
from plausiflow_bench.methods.likely_milp import HistogramNetwork


def rows(n=300, d=2, seed=0):
    """Return two clouds in the upper right for class 1, one in the lower left for class 0."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    centre = (
        torch.where(y[:, None] == 1, 0.75, 0.25)
        + 0.15 * ((torch.arange(n) // 2 % 2)[:, None] - 0.5) * y[:, None]
    )
    return (centre + 0.07 * torch.randn(n, d, generator=generator)).clamp(0, 1), y


def model(d=2):
    return LinearClassifier.from_weights(torch.ones(1, d) * 4.0, torch.tensor([-2.0 * d]))


def plain_log_likelihood(network, point):
    """The largest term of the sum, cell by cell."""
    terms = []
    for k, weight in enumerate(network.log_weights):
        total = weight
        for j, value in enumerate(point):
            ends = network.edges[j]
            b = max(i for i in range(len(ends) - 1) if ends[i] <= value or i == 0)
            total += network.log_density[k, j, b]
        terms.append(total)
    return max(terms)


def test_the_answer_is_the_closest_one_of_a_fine_grid():
    x, y = rows()
    method = LikelyMilp(classifier=model(), bins=6, clusters=3).fit(x, y)
    network = method.networks_[1]
    steps = [np.linspace(ends[0], ends[-1] - 1e-9, 601) for ends in network.edges]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*steps)], axis=1)
    lead = 4.0 * grid.sum(axis=1) - 4.0
    fine = grid[(network.log_likelihood(grid) >= network.threshold) & (lead >= method.margin)]
    own = x[y == 0][:6]
    found = method.explain(own, 1)
    assert found.found.all()
    assert found.valid.all()
    best = np.abs(fine[None] - own.numpy()[:, None]).sum(axis=2).min(axis=1)
    cost = (found.x_cf - own).abs().sum(dim=1).numpy()
    step = max(axis[1] - axis[0] for axis in steps)
    assert (cost <= best + 1e-6).all()
    assert (cost >= best - 2 * step - 1e-6).all()


def test_answers_are_likely_and_the_density_costs_something():
    x, y = rows(d=4)
    own = x[y == 0][:5]
    likely = LikelyMilp(classifier=model(4), quantile=0.5).fit(x, y)
    any_row = LikelyMilp(classifier=model(4), quantile=0.0).fit(x, y)
    found, closer = likely.explain(own, 1), any_row.explain(own, 1)
    network = likely.networks_[1]
    assert (network.log_likelihood(found.x_cf.numpy()) >= network.threshold - 1e-9).all()
    assert ((closer.x_cf - own).abs().sum(dim=1) <= (found.x_cf - own).abs().sum(dim=1) + 1e-9).all()
    assert ((closer.x_cf - own).abs().sum() < (found.x_cf - own).abs().sum()).item()


def test_the_likelihood_is_that_of_a_plain_loop_and_integrates_to_one():
    x, _ = rows(200)
    network = HistogramNetwork.learn(x.numpy(), clusters=1, bins=5, quantile=0.5, seed=0)
    points = x.numpy()[:20]
    expected = [plain_log_likelihood(network, point) for point in points]
    np.testing.assert_allclose(network.log_likelihood(points), expected, rtol=1e-12)
    widths = np.diff(network.edges, axis=1)
    assert math.isclose((np.exp(network.log_density[0, 0]) * widths[0]).sum(), 1.0)
    assert network.log_likelihood(np.array([[5.0, 5.0]])) == -np.inf
    below = (network.log_likelihood(x.numpy()) < network.threshold).mean()
    assert 0.3 < below <= 0.5


def test_what_it_cannot_answer_is_not_found():
    x, y = rows()
    never = LinearClassifier.from_weights(torch.zeros(1, 2), torch.tensor([-3.0]))
    assert not LikelyMilp(classifier=never).fit(x, y).explain(x[:3], 1).found.any()
    other = MLPClassifier(hidden=(4,)).fit(x, y)
    assert "linear classifier" in LikelyMilp(classifier=other).fit(x, y).explain(x[:2]).reason
    with pytest.raises(NotFittedError):
        LikelyMilp(classifier=model()).explain(x[:2])
    with pytest.raises(InvalidInputError, match="`bins` must be at least 2"):
        LikelyMilp(classifier=model(), bins=1)
