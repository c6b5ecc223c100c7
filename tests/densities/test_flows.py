"""Flows against their Jacobians."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import norm

from estimating import BRIEF, awkward, fitted_on, flow, rows, score_and_gradient
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow
from plausiflow.densities.flows import ARCHITECTURES, _autoregressive
from plausiflow.errors import InvalidInputError, NotFittedError, TrainingError

UNTRAINED = Training(epochs=1, learning_rate=0.0)


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


def test_the_log_density_is_that_of_the_latent_plus_the_log_determinant(architecture):
    density = fitted_on(architecture, 3)
    x, y = rows(3, n=9)
    module = density._frozen(x)
    for row, k, found in zip(x, y, density.log_prob(x, y), strict=True):
        transform = module.flow(F.one_hot(k, 3).to(row)).transform

        def latent(row, transform=transform):
            return transform((row - module.mean) / module.sd)

        jacobian = torch.autograd.functional.jacobian(latent, row)
        expected = norm.logpdf(latent(row).numpy()).sum() + np.linalg.slogdet(jacobian.numpy())[1]
        assert found.item() == pytest.approx(expected, abs=1e-8)


def test_the_transform_can_be_undone(architecture):
    x, y = rows(3)
    transform = fitted_on(architecture, 3)._frozen(x).flow(F.one_hot(y, 3).to(x)).transform
    torch.testing.assert_close(transform.inv(transform(x)), x, rtol=0, atol=1e-6)


def test_the_frozen_copy_scores_as_the_module_that_was_trained(architecture):
    x, y = rows(3)
    density = fitted_on(architecture, 3)
    torch.testing.assert_close(density.log_prob(x, y), density._frozen.module(x, y), rtol=0, atol=1e-10)


def test_training_raises_the_likelihood(architecture):
    x, y = rows(3)
    untrained = flow(architecture, UNTRAINED).fit(x, y)
    assert fitted_on(architecture, 3).log_prob(x, y).mean() > untrained.log_prob(x, y).mean() + 0.2


@pytest.mark.parametrize("training", [BRIEF, UNTRAINED], ids=["trained", "untrained"])
def test_the_seed_decides_the_weights(architecture, training):
    first, again, other = (
        flow(architecture, training, random_state=seed).fit(*rows(2, n=60)).state() for seed in (0, 0, 1)
    )
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert any(not torch.equal(value, other[name]) for name, value in first.items() if "weight" in name)


def test_log_prob_leaves_the_trained_module_alone(architecture):
    density = copy.deepcopy(fitted_on(architecture, 3))
    module = density._frozen.module
    score_and_gradient(density, *rows(3, precision=torch.float32))
    assert all(
        weight.requires_grad and weight.grad is None and weight.dtype == torch.float64
        for weight in module.parameters()
    )


def test_inputs_are_standardised_by_the_rows_trained_on_with_a_floor(architecture):
    x, y = awkward()
    state = flow(architecture, Training(epochs=1, validation=0.0), sd_floor=0.05).fit(x, y).state()
    np.testing.assert_allclose(state["flow.mean"].numpy(), x.numpy().mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(state["flow.sd"].numpy(), np.sqrt(x.numpy().var(axis=0) + 0.05**2), atol=1e-12)


def test_the_number_of_transforms_can_be_chosen(architecture):
    few, usual = (
        flow(architecture, BRIEF, transforms=count).fit(*rows(2, n=60)).state() for count in (2, None)
    )
    assert len(few) < len(usual)


def test_a_layer_that_was_built_before_has_the_weights_of_a_new_one():
    density, before = ConditionalFlow(random_state=3), torch.random.get_rng_state()
    _autoregressive.cache_clear()
    first, again = density.build_network(5, 2), density.build_network(5, 2)
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, tensor in first.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert again.state_dict()[name].data_ptr() != tensor.data_ptr() or tensor.numel() == 0


def test_an_unknown_architecture_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        InvalidInputError, match=r"`architecture` must be one of maf, nsf, realnvp, nice; got 'glow'"
    ):
        ConditionalFlow(architecture="glow")


def test_a_flow_whose_training_failed_is_not_fitted():
    density = flow("maf", Training(epochs=2))
    x, y = rows(2, n=60)
    with pytest.raises(TrainingError):
        density.fit(x * 1e300, y)
    with pytest.raises(NotFittedError):
        density.log_prob(x, y)
