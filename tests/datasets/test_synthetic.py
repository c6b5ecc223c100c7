"""The numeric loans: their rows against the distribution that they are drawn from."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.datasets import load_dataset
from plausiflow.datasets.synthetic import FEATURES, POPULATIONS, draw
from plausiflow.errors import InvalidInputError


def moments(k):
    """Mean and covariance of class k, from its kinds'."""
    population = POPULATIONS[k]
    mean = population.shares @ population.means
    spread = population.means - mean
    within = population.cholesky @ population.cholesky.transpose(0, 2, 1)
    between = spread[:, :, None] * spread[:, None, :]
    return mean, np.einsum("s,sde->de", population.shares, within + between)


@pytest.mark.parametrize("k", [0, 1])
def test_the_rows_of_a_class_have_its_mean_and_covariance(k):
    x, y = draw(n=100_000, seed=3)
    rows = x.to_numpy()[y == k]
    mean, covariance = moments(k)
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose((rows.mean(axis=0) - mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(np.cov(rows.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.03)


def test_no_value_makes_no_sense():
    x, _ = draw(n=100_000, seed=1)
    assert (x > 0).all().all()
    assert (x["debt_ratio"] < 1).all()
    assert x["credit_score"].between(300, 850).all()
    assert (x["age"] >= 18).all()
    assert (x["age"] - x["years_employed"] >= 14).all()


def test_the_catalogue_has_the_rows_of_seed_zero():
    listed, (x, y) = load_dataset("loans"), draw(n=5000, seed=0)
    pd.testing.assert_frame_equal(listed.x, x)
    assert np.array_equal(listed.y, y)
    assert np.isclose(x, draw(n=5000, seed=1)[0]).mean() < 0.01
    assert listed.source == "generated"
    assert "5000 rows drawn with NumPy's default_rng(0)" in listed.provenance
    assert listed.feature_names == FEATURES
    assert listed.class_names == ("rejected", "granted")


def test_shares_are_shares_and_no_kind_is_missing():
    for population in POPULATIONS:
        assert population.shares.sum() == pytest.approx(1)
        assert len({kind.name for kind in population.kinds}) == len(population.kinds)


def test_no_rows_are_refused():
    with pytest.raises(InvalidInputError, match="`n` must be at least 1; got 0"):
        draw(n=0, seed=0)
