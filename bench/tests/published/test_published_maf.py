"""The published flow against its published log-densities."""

import numpy as np
import pytest
import torch

from estimating import score_and_gradient
from plausiflow.core import Density
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow_bench import PublishedMAF, PublishedRun
from plausiflow_bench.harness.selection import PAPER_DATASETS


@pytest.fixture(scope="module")
def published_moons(reference_directory):
    reference = PublishedRun.load("moons", reference_directory)
    return PublishedMAF(reference.maf_arrays), reference


@pytest.mark.paper
@pytest.mark.parametrize("dataset", PAPER_DATASETS)
def test_the_published_flow_gives_the_published_log_densities(dataset, reference_directory):
    reference = PublishedRun.load(dataset, reference_directory)
    density = PublishedMAF(reference.maf_arrays)
    with torch.no_grad():
        log_prob = density.log_prob(reference.x_train, reference.y_train)
    torch.testing.assert_close(log_prob, reference.maf_log_prob_train, rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_the_published_flow_keeps_the_contract(published_moons, precision):
    density, reference = published_moons
    x, y = reference.x_train[:20].to(precision), reference.y_train[:20]
    assert isinstance(density, Density)
    log_prob, gradient = score_and_gradient(density, x, y)
    assert log_prob.dtype == gradient.dtype == precision
    assert torch.isfinite(gradient).all()
    alone = torch.cat([density.log_prob(x[i : i + 1], y[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(log_prob, alone, rtol=0, atol=1e-8 if precision == torch.float64 else 1e-4)


def test_the_published_flow_integrates_to_one(published_moons):
    density, _ = published_moons
    axis = torch.linspace(-4.0, 5.0, 451, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    for k in range(2):
        with torch.no_grad():
            values = density.log_prob(grid, torch.full((len(grid),), k)).exp().reshape(len(axis), len(axis))
        assert torch.trapezoid(torch.trapezoid(values, axis), axis).item() == pytest.approx(1, abs=1e-2)


def test_the_published_flow_refuses_to_be_fitted(published_moons):
    density, reference = published_moons
    with pytest.raises(InvalidInputError, match=r"weights and cannot be fitted\. Use ConditionalFlow"):
        density.fit(reference.x_train, reference.y_train)


def test_the_published_flow_names_the_shape_it_wants(published_moons):
    with pytest.raises(
        ShapeError, match=r"`x` must have shape \(n, 2\), as when this density was fitted; got \(4, 3\)"
    ):
        published_moons[0].log_prob(torch.rand(4, 3), torch.zeros(4).long())


def test_foreign_arrays_are_no_published_flow():
    with pytest.raises(
        InvalidInputError, match=r"weights of the published flow.*got \['bias', 'weight'\].*_maf.npz"
    ):
        PublishedMAF({"weight": np.zeros((2, 2)), "bias": np.zeros(2)})


def test_reading_the_published_flow_leaves_the_global_generator_alone(published_moons):
    before = torch.get_rng_state()
    PublishedMAF(published_moons[1].maf_arrays)
    assert torch.equal(torch.get_rng_state(), before)
