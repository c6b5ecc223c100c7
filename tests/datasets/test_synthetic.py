"""The loans: their density against SciPy's, their rows against their density."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import Covariance, multivariate_normal
from sklearn.linear_model import LogisticRegression

from plausiflow.core.protocols import Density
from plausiflow.datasets import load
from plausiflow.datasets.synthetic import CLASSES, FEATURES, POPULATIONS, loans, true_state
from plausiflow.errors import InvalidInputError
from plausiflow_bench.true_density import true_density


@pytest.fixture(scope="module")
def data():
    return loans()


@pytest.fixture(scope="module")
def fold(data):
    return data.fold(0)


def exact(x, k):
    """SciPy's log-density of class k at rows in original units."""
    population = POPULATIONS[k]
    parts = [
        multivariate_normal(mean, Covariance.from_cholesky(factor)).logpdf(x)
        for mean, factor in zip(population.means, population.cholesky, strict=True)
    ]
    return logsumexp(np.stack(parts), axis=0, b=population.shares[:, None])


def moments(k):
    """Mean and covariance of class k, from its kinds'."""
    population = POPULATIONS[k]
    mean = population.shares @ population.means
    spread = population.means - mean
    within = population.cholesky @ population.cholesky.transpose(0, 2, 1)
    between = spread[:, :, None] * spread[:, None, :]
    return mean, np.einsum("s,sde->de", population.shares, within + between)


@pytest.mark.parametrize("k", [0, 1])
def test_the_density_equals_scipys_in_original_units(data, k):
    x = data.x.to_numpy()[:500].copy()
    log_prob = true_density().log_prob(torch.from_numpy(x), torch.full((500,), k))
    np.testing.assert_allclose(log_prob.numpy(), exact(x, k), rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [0, 1])
def test_the_scaled_density_differs_by_the_log_of_the_product_of_ranges(fold, k):
    scaled = fold.x_test.double()
    y = torch.full((len(scaled),), k)
    x = scaled * fold.range + fold.minimum
    jacobian = float(fold.range.log().sum())
    log_prob = true_density(fold).log_prob(scaled, y)
    torch.testing.assert_close(log_prob, true_density().log_prob(x, y) + jacobian, rtol=0, atol=1e-8)
    np.testing.assert_allclose(log_prob.numpy(), exact(x.numpy(), k) + jacobian, rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [0, 1])
def test_the_scaled_density_integrates_to_one(fold, k):
    mean, covariance = moments(k)
    wide = multivariate_normal(
        (mean - fold.minimum.numpy()) / fold.range.numpy(),
        2 * covariance / np.outer(fold.range, fold.range),
        seed=0,
    )
    points = wide.rvs(100_000)
    log_prob = true_density(fold).log_prob(torch.from_numpy(points), torch.full((len(points),), k))
    assert np.exp(log_prob.numpy() - wide.logpdf(points)).mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("k", [0, 1])
def test_the_rows_of_a_class_have_its_mean_and_covariance(k):
    data = loans(n=100_000, seed=3)
    rows = data.x.to_numpy()[data.y == k]
    mean, covariance = moments(k)
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose((rows.mean(axis=0) - mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(np.cov(rows.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.03)


def test_a_linear_model_comes_close_to_the_best_possible_accuracy_but_not_to_it(fold):
    linear = LogisticRegression(max_iter=1000).fit(fold.x_train.numpy(), fold.y_train.numpy())
    linear = linear.score(fold.x_test.numpy(), fold.y_test.numpy())
    density = true_density(fold)
    x = fold.x_test.double()
    log_probs = torch.stack([density.log_prob(x, torch.full_like(fold.y_test, k)) for k in (0, 1)])
    best = float((log_probs.argmax(dim=0) == fold.y_test).double().mean())
    assert 0.85 <= linear <= 0.92
    assert linear < best < 0.96


def test_no_value_makes_no_sense():
    x = loans(n=100_000, seed=1).x
    assert (x > 0).all().all()
    assert (x["debt_ratio"] < 1).all()
    assert x["credit_score"].between(300, 850).all()
    assert (x["age"] >= 18).all()
    assert (x["age"] - x["years_employed"] >= 14).all()


def test_the_same_seed_gives_the_same_rows(data):
    pd.testing.assert_frame_equal(data.x, loans().x)
    assert np.array_equal(data.y, loans().y)
    assert np.isclose(data.x, loans(seed=1).x).mean() < 0.01


def test_the_catalogue_has_the_same_loans(data):
    listed = load("loans")
    pd.testing.assert_frame_equal(listed.x, data.x)
    assert np.array_equal(listed.y, data.y)
    for name in ("name", "class_names", "target", "provenance", "source"):
        assert getattr(listed, name) == getattr(data, name)


def test_the_provenance_tells_seed_and_rows():
    data = loans(n=50, seed=7)
    assert data.source == "generated"
    assert "50 rows drawn with NumPy's default_rng(7)" in data.provenance
    assert data.feature_names == FEATURES
    assert data.class_names == CLASSES


def test_shares_are_shares_and_no_kind_is_missing():
    for population in POPULATIONS:
        assert population.shares.sum() == pytest.approx(1)
        assert len({kind.name for kind in population.kinds}) == len(population.kinds)


@pytest.mark.parametrize("dtype_", [torch.float32, torch.float64])
def test_the_true_density_follows_its_inputs_dtype_and_has_gradients(fold, dtype_):
    density = true_density(fold)
    assert isinstance(density, Density)
    x = fold.x_test.to(dtype_).requires_grad_()
    log_prob = density.log_prob(x, fold.y_test)
    assert log_prob.dtype == dtype_
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).any(dim=1).all()


def test_a_fold_of_other_data_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"one of the loans, with the features income, .*; got alcohol"
    ):
        true_state(load("wine").fold(0))


def test_no_rows_are_refused():
    with pytest.raises(InvalidInputError, match="`n` must be at least 1; got 0"):
        loans(n=0)
