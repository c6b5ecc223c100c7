"""Kernel densities and Gaussian mixtures equal those of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from estimating import rows, score_and_gradient
from plausiflow.densities import GMM, KDE
from plausiflow.errors import InvalidInputError


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("bandwidth", [0.05, 0.1, 1.0])
def test_kde_equals_that_of_scikit_learn(d, bandwidth):
    x, y = rows(d)
    asked = torch.rand(240, d, dtype=torch.float64)
    log_prob = KDE(bandwidth=bandwidth).fit(x, y).log_prob(asked, y)
    for k in range(3):
        theirs = KernelDensity(bandwidth=bandwidth, rtol=1e-12).fit(x[y == k].numpy())
        np.testing.assert_allclose(
            log_prob[y == k].numpy(), theirs.score_samples(asked[y == k].numpy()), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("components", [1, 3])
def test_gmm_equals_that_of_scikit_learn(d, components):
    x, y = rows(d)
    asked = torch.rand(240, d, dtype=torch.float64)
    log_prob = GMM(components=components, regularisation=1e-3, random_state=5).fit(x, y).log_prob(asked, y)
    for k in range(3):
        theirs = GaussianMixture(components, reg_covar=1e-3, random_state=5, max_iter=500).fit(
            x[y == k].numpy()
        )
        np.testing.assert_allclose(
            log_prob[y == k].numpy(), theirs.score_samples(asked[y == k].numpy()), rtol=1e-8, atol=1e-8
        )


def test_the_gradient_of_a_kde_is_finite_on_its_own_rows():
    x, y = rows(2)
    log_prob, gradient = score_and_gradient(KDE(bandwidth=0.01).fit(x, y), x, y)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()


def test_a_kde_keeps_no_hold_of_the_rows_it_was_given():
    x, y = rows(2)
    density, asked = KDE().fit(x, y), x.clone()
    before = density.log_prob(asked, y)
    x.zero_()
    assert torch.equal(density.log_prob(asked, y), before)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_a_bandwidth_that_is_not_positive_is_an_error(bandwidth):
    with pytest.raises(InvalidInputError, match=f"`bandwidth` must be positive; got {bandwidth}"):
        KDE(bandwidth=bandwidth)


def test_a_mixture_without_components_is_an_error():
    with pytest.raises(InvalidInputError, match="`components` must be at least 1; got 0"):
        GMM(components=0)
