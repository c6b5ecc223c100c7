"""Densities that are trained together: as good as alone, and each knows only its own rows."""

import math

import pytest
import torch

from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, Judges, MixedDensity, OneCycle
from plausiflow.densities import one_cycle as module
from plausiflow.densities.learn import fit_with_judges
from plausiflow.densities.levels import ConditionalLevels
from plausiflow.densities.one_cycle import _limit_gradients
from plausiflow.densities.stacked_training import (
    FlowStack,
    LevelsStack,
    fit_flows,
    fit_levels,
)
from plausiflow.errors import InvalidInputError, TrainingError
from shaking import one_hot


def gaussian(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return 0.5 + 0.1 * torch.randn(n, d, generator=generator) + 0.2 * y[:, None], y


def halves(n, members):
    """Each member has another half of the rows."""
    part = torch.arange(n) // 2 % 2
    return torch.stack([part == m % 2 for m in range(members)])


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("given", [(), (0,)])
def test_a_stack_gives_the_log_densities_of_its_members(d, given):
    x, y = gaussian(60, d + len(given))
    flows = [ConditionalFlow(transforms=2, hidden=(8, 6), given=given, random_state=m) for m in range(3)]
    networks = [flow.build_network(x.shape[1], 2).to(x) for flow in flows]
    stack = FlowStack(networks, flows[0].log_scale_bound)
    for flow, network in zip(flows, networks, strict=True):
        flow.adopt_network(network, x.shape[1], 2)
    split = stack.split_columns(x, y)
    together = stack.log_prob(*(part.expand(3, -1, -1) for part in split), None)
    alone = torch.stack([flow.log_prob(x, y) for flow in flows])
    # The stack leaves out the constant of the latent's density.
    latent = 0.5 * d * math.log(2 * math.pi)
    torch.testing.assert_close(together - latent, alone, rtol=1e-8, atol=1e-8)


def test_a_stack_of_levels_gives_their_log_probabilities():
    x, y = torch.cat([one_hot(3, n=40), one_hot(4, n=40), torch.rand(40, 1)], dim=1), torch.arange(40) % 2
    own = [ConditionalLevels(groups=((0, 3), (3, 7)), given=(7,), random_state=m) for m in range(2)]
    networks = [levels.build_network(2).to(x) for levels in own]
    stack = LevelsStack(networks)
    split = stack.split_columns(x, y)
    together = stack.log_prob(*(part.expand(2, -1, -1) for part in split), None)
    for levels, network in zip(own, networks, strict=True):
        levels.adopt_network(network, 8, 2)
    alone = torch.stack([levels.log_prob(x, y) for levels in own])
    torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_trained_together_they_reach_the_closed_form_of_a_gaussian():
    (x, y), (new, new_y) = gaussian(2000, 2), gaussian(2000, 2, seed=1)
    flows = [ConditionalFlow(training=Training(noise=0.0), random_state=m) for m in range(3)]
    fit_flows(flows, x, y, halves(2000, 3), 2, OneCycle(), "")
    best = -2 * (math.log(0.1) + 0.5 + 0.5 * math.log(2 * math.pi))
    for flow in flows:
        assert flow.log_prob(new, new_y).mean() == pytest.approx(best, abs=0.08)


def test_trained_together_levels_reach_the_frequencies():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(3000) % 2
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    x = torch.nn.functional.one_hot(torch.multinomial(weights[y], 1, generator=generator)[:, 0], 3).float()
    own = [ConditionalLevels(groups=((0, 3),), random_state=m) for m in range(2)]
    fit_levels(own, x, y, halves(3000, 2), 2, OneCycle(), "")
    for levels in own:
        for k in range(2):
            found = levels.log_prob(torch.eye(3), torch.full((3,), k)).exp()
            torch.testing.assert_close(found, weights[k], atol=0.08, rtol=0)


def test_a_member_does_not_depend_on_the_rows_of_another():
    x, y = gaussian(400, 2)
    used, other = halves(400, 2), x.clone()
    other[used[1]] += 0.3  # rows of the second member only
    fitted = []
    for rows in (x, other):
        flows = [ConditionalFlow(training=Training(epochs=3), random_state=m) for m in range(2)]
        fit_flows(flows, rows, y, used, 2, OneCycle(), "")
        fitted.append(flows[0].log_prob(x, y))
    torch.testing.assert_close(*fitted)


def test_few_rows_are_not_learned_by_heart(monkeypatch):
    (x, y), (new, new_y) = gaussian(120, 12), gaussian(500, 12, seed=1)

    def members():
        flows = [ConditionalFlow(random_state=m) for m in range(3)]
        fit_flows(flows, x, y, torch.rand(3, 120, generator=torch.Generator().manual_seed(2)) < 0.75, 2,
                  OneCycle(), "")  # fmt: skip
        return torch.stack([flow.log_prob(new, new_y) for flow in flows]).mean()

    checked = members()
    monkeypatch.setattr(module, "SMALL_GAP", math.inf)
    monkeypatch.setattr(module, "_medians", lambda *_: (0.0, 0.0))
    assert checked > members() + 1


def test_gradients_are_limited_member_by_member_and_dropped_if_they_are_not_finite():
    parameters = [torch.zeros(3, 4, requires_grad=True), torch.zeros(3, 2, 2, requires_grad=True)]
    parameters[0].grad = torch.tensor([[3.0, 0, 0, 0], [30.0, 0, 0, 0], [math.nan, 1, 1, 1]])
    parameters[1].grad = torch.zeros(3, 2, 2)
    parameters[1].grad[:, 0, 0] = torch.tensor([4.0, 40.0, 1.0])
    _limit_gradients(parameters, 5.0)
    norms = [p.grad.flatten(1).square().sum(dim=1) for p in parameters]
    torch.testing.assert_close(sum(norms).sqrt(), torch.tensor([5.0, 5.0, 0.0]))


def test_a_loss_that_is_not_a_number_is_an_error_with_a_remedy():
    x, y = gaussian(60, 2)
    flows = [ConditionalFlow(random_state=m) for m in range(2)]
    with pytest.raises(TrainingError, match="scale columns"):
        fit_flows(flows, x * math.nan, y, halves(60, 2), 2, OneCycle(epochs=2), "")


def test_an_ensemble_and_judges_that_are_trained_together_are_those_of_their_own_rows():
    x, y = gaussian(300, 2)
    base = ConditionalFlow(training=Training(epochs=2))
    ensemble = fit_with_judges(CrossFitEnsemble(members=2, base=base), judges := Judges(base=base), x, y,
                               n_classes=2)  # fmt: skip
    _, used = judges.untrained(y)
    for flow, own in zip(judges.flows_, used, strict=True):
        torch.testing.assert_close(flow.frozen(x).mean, x[own].mean(dim=0))
    assert judges.passes(x, y).double().mean() == pytest.approx(0.5, abs=0.1)
    assert (ensemble.score(x, y) >= 0).double().mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_numbers_without_a_value_add_nothing_after_a_common_training():
    n = 600
    x, y = torch.zeros(n, 3), torch.arange(n) % 2
    generator = torch.Generator().manual_seed(0)
    absent = torch.rand(n, generator=generator) < 0.3
    x[:, 0] = torch.where(absent, 0.0, torch.rand(n, generator=generator))
    x[:, 1], x[:, 2] = (~absent).float(), absent.float()
    base = MixedDensity(width=3, numbers=(0,), groups=((1, 3),), pinned=((0, 2),), noise=(0.02,))
    member = CrossFitEnsemble(members=2, base=base).fit(x, y).flows_[0]
    chance = member.log_prob(x[absent][:1], y[absent][:1]).exp()
    assert float(chance) == pytest.approx(0.3, abs=0.08)


def test_wrong_settings_are_named():
    with pytest.raises(
        InvalidInputError, match=r"`epochs` must be .*`learning_rate` must be .*`weight_decay`"
    ):
        OneCycle(epochs=0, learning_rate=-1.0, weight_decay=math.nan)
