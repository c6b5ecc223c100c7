"""Flows of some columns given the others, and noise for each column."""

import math
from dataclasses import replace

import pytest
import torch

from plausiflow.core.training import Training, train
from plausiflow.densities import ConditionalFlow
from plausiflow.densities.members import stack
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import InvalidInputError
from shaking import BRIEF, shaken

# ---------------------------------------------------------------- flows of some columns, given others


def conditional(own, architecture="maf", seed=0, width=4):
    """A flow of the columns ``own`` given the others, with random weights."""
    given = tuple(column for column in range(width) if column not in own)
    flow = ConditionalFlow(
        architecture=architecture,
        transforms=3,
        hidden=(10, 10),
        given=given,
        training=BRIEF,
        random_state=seed,
    )
    flow.fit(torch.rand(80, width), torch.arange(80) % 2)
    return shaken(flow, 0.1 if architecture == "nsf" else 0.3)


@pytest.mark.parametrize(
    ("own", "architecture"),
    [([2], "maf"), ([0], "nsf"), ([1, 3], "maf"), ([0, 2], "nsf"), ([0, 3], "realnvp"), ([1, 2], "nice")],
)
def test_the_density_of_own_columns_integrates_to_one_whatever_is_given(own, architecture):
    flow = conditional(own, architecture)
    points = torch.linspace(-6, 7, 2001 if len(own) == 1 else 301)
    grid = torch.cartesian_prod(*[points] * len(own)).reshape(-1, len(own))
    cell = float(points[1] - points[0]) ** len(own)
    for y, row in enumerate(torch.rand(2, 4)):
        x = row.repeat(len(grid), 1)
        x[:, own] = grid
        total = flow.log_prob(x, torch.full((len(x),), y)).exp().sum() * cell
        assert float(total) == pytest.approx(1, abs=2e-3)


def test_given_columns_move_the_density_and_gradients_reach_both_kinds_of_columns():
    flow = conditional([1, 3])
    x, y = torch.rand(6, 4, requires_grad=True), torch.arange(6) % 2
    (gradient,) = torch.autograd.grad(flow.log_prob(x, y).sum(), x)
    assert gradient.all()
    assert torch.autograd.gradcheck(lambda rows: flow.log_prob(rows, y), x)


@pytest.mark.slow
def test_a_flow_learns_how_a_number_depends_on_what_is_given():
    """A line and Gaussian noise: the log-density is known."""
    context, y = torch.rand(1500, 1), torch.arange(1500) % 2
    centre = 0.2 + 0.5 * context[:, 0] * y
    x = torch.stack([centre + 0.05 * torch.randn(1500), context[:, 0]], dim=1)
    training = Training(epochs=60, batch_size=128, learning_rate=1e-2)
    flow = ConditionalFlow(transforms=2, hidden=(16,), given=(1,), training=training).fit(x[:1000], y[:1000])
    truth = torch.distributions.Normal(centre[1000:], 0.05).log_prob(x[1000:, 0])
    assert float((truth - flow.log_prob(x[1000:], y[1000:])).mean()) < 0.06


@pytest.mark.parametrize("own", [[2], [0, 3], [0, 1, 2, 3]])
def test_stacked_flows_with_given_columns_equal_zukos_one_by_one(own):
    flows = [conditional(own, seed=seed) for seed in range(3)]
    x, y = torch.rand(30, 4, requires_grad=True), torch.arange(30) % 2
    stacked = StackedMAF(flows)
    together, alone = stacked(x, y), torch.stack([flow.frozen(x)(x, y) for flow in flows])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)
    weights = torch.randn(3, 30)
    found, expected = (torch.autograd.grad((weights * part).sum(), x)[0] for part in (together, alone))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    split = stacked.log_prob(x[:, own], stacked.conditions(x, y))
    torch.testing.assert_close(split, together, rtol=1e-12, atol=1e-12)


def test_conditions_are_the_same_wherever_the_own_numbers_are():
    stacked = StackedMAF([conditional([0, 3], seed=seed) for seed in range(2)])
    x, y = torch.rand(10, 4), torch.arange(10) % 2
    moved = x.clone()
    moved[:, [0, 3]] = torch.rand(10, 2)
    assert torch.equal(stacked.conditions(moved, y), stacked.conditions(x, y))
    assert stacked.conditions(x, y).shape == (3, 2, 10, 10)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_members_with_one_number_and_nothing_given_are_stacked_too(n_classes):
    x, y = torch.rand(60, 1), torch.arange(60) % n_classes
    base = ConditionalFlow(transforms=2, hidden=(8,), training=BRIEF)
    flows = [shaken(replace(base, random_state=seed).fit(x, y)) for seed in range(2)]
    together = stack(flows)
    assert isinstance(together, StackedMAF)
    torch.testing.assert_close(together(x, y), torch.stack([flow.frozen(x)(x, y) for flow in flows]))


@pytest.mark.parametrize("given", [(0, 1, 2, 3), (4,), (-1,), (1, 1)])
def test_given_columns_must_be_there_and_leave_something(given):
    flow = ConditionalFlow(given=given, training=BRIEF)
    with pytest.raises(InvalidInputError, match="`given` must name different columns below 4"):
        flow.fit(torch.rand(20, 4), torch.zeros(20).long())


# ---------------------------------------------------------------- noise for each column


def seen_in_training(noise, n=200):
    """Batches that a training with this noise gives the loss, and the rows."""
    x, batches = torch.rand(n, 3, generator=torch.Generator().manual_seed(0)), []
    module = torch.nn.Linear(3, 1)

    def loss(rows, _):
        batches.append((module.training, rows.detach()))
        return module(rows)[:, 0] ** 2

    train(
        module,
        loss,
        x,
        torch.zeros(n).long(),
        settings=Training(epochs=3, noise=noise),
        random_state=0,
        label="",
    )
    return x, batches


def test_each_column_gets_its_own_noise_and_held_out_rows_none():
    x, batches = seen_in_training((0.0, 0.1, 0.5), n=4000)
    for training, rows in batches:
        nearest = torch.isin(rows[:, 0], x[:, 0])
        assert nearest.all()
        if not training:
            assert torch.isin(rows, x).all()
    noisy = torch.cat([rows for training, rows in batches if training])
    order = {value: row for row, value in enumerate(x[:, 0].tolist())}
    own = x[[order[value] for value in noisy[:, 0].tolist()]]
    spread = (noisy - own).std(dim=0)
    torch.testing.assert_close(spread, torch.tensor([0.0, 0.1, 0.5]), rtol=0.03, atol=0)


def test_one_noise_for_all_equals_the_same_noise_for_each():
    (_, one), (_, each) = seen_in_training(0.2), seen_in_training((0.2, 0.2, 0.2))
    assert all(torch.equal(*(part[1] for part in pair)) for pair in zip(one, each, strict=True))


@pytest.mark.parametrize("noise", [(0.1, -0.1, 0.0), (0.1, math.nan, 0.0), -1.0])
def test_noise_that_is_negative_or_no_number_is_an_error(noise):
    with pytest.raises(InvalidInputError, match="`noise` must be at least 0; got"):
        Training(noise=noise)


@pytest.mark.parametrize("noise", [(), (0.1,), (0.1, 0.1)])
def test_noise_for_another_number_of_columns_is_an_error(noise):
    with pytest.raises(InvalidInputError, match="one for each of the 3 columns; got"):
        seen_in_training(noise)
