"""Densities of mixed tables: levels, flows of some columns given others, and their product."""

import itertools
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from plausiflow.data.layout import Block, Layout, Scale
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities import levels as levels_module
from plausiflow.densities import members as members_module
from plausiflow.densities.levels import ConditionalLevels, StackedLevels
from plausiflow.densities.members import member_from, settings_of, stack
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.protocols import Density
from plausiflow.training import Training, train

BRIEF = Training(epochs=1, batch_size=64)


def shaken(fitted, scale=0.5):
    """The same object with random weights, far from what a short training gives."""
    state = fitted.state()
    fixed = ("shape", "mean", "sd", "base")
    for name, value in state.items():
        if value.is_floating_point() and not any(part in name for part in fixed):
            state[name] = scale * torch.randn(value.shape, dtype=torch.float64)
    return fitted.load_state(state)


def one_hot(*sizes, n=60):
    """Random levels, one-hot, one block after the other."""
    return torch.cat([F.one_hot(torch.randint(size, (n,)), size).double() for size in sizes], dim=1)


def every_setting(x, groups):
    """Copies of one row ``(1, d)``, one for each combination of levels."""
    combinations = list(itertools.product(*[range(start, stop) for start, stop in groups]))
    rows = x.repeat(len(combinations), 1)
    for start, stop in groups:
        rows[:, start:stop] = 0
    for row, columns in zip(rows, combinations, strict=True):
        row[list(columns)] = 1
    return rows


def equal_states(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------- levels

# Columns 0, 1: a block; 2: context; 3 to 5: a block; 6: context; 7 to 8: a block.
GROUPS, GIVEN = ((0, 2), (3, 6), (7, 9)), (2, 6)


def level_rows(n=60):
    return torch.cat(
        [one_hot(2, n=n), torch.rand(n, 1), one_hot(3, n=n), torch.rand(n, 1), one_hot(2, n=n)], 1
    )


def random_levels(groups=GROUPS, given=GIVEN, seed=0, **settings):
    levels = ConditionalLevels(groups=groups, given=given, hidden=20, training=BRIEF, seed=seed, **settings)
    return shaken(levels.fit(level_rows(), torch.arange(60) % 3))


@pytest.mark.parametrize(
    ("groups", "given"),
    [
        (GROUPS, GIVEN),
        (GROUPS[::-1], GIVEN),
        (((3, 6),), ()),
        (((3, 6), (0, 2)), (2, 6, 7, 8)),
        (((3, 4), (0, 2)), ()),  # a block of one level
    ],
)
def test_probabilities_of_all_levels_sum_to_one_whatever_is_given(groups, given):
    levels = random_levels(groups, given)
    for row, y in zip(level_rows(5), torch.tensor([0, 1, 2, 0, 1]), strict=True):
        rows = every_setting(row[None], groups)
        total = levels.log_prob(rows, y.expand(len(rows))).exp().sum()
        torch.testing.assert_close(total, torch.tensor(1.0), rtol=1e-12, atol=0)


def test_what_is_given_matters_and_so_does_the_class():
    levels = random_levels()
    x, y = level_rows(), torch.arange(60) % 3
    for column in GIVEN:
        moved = x.clone()
        moved[:, column] += 0.5
        assert ((levels.log_prob(moved, y) - levels.log_prob(x, y)).abs() > 1e-6).all()
    assert ((levels.log_prob(x, (y + 1) % 3) - levels.log_prob(x, y)).abs() > 1e-6).all()


@pytest.mark.parametrize("groups", [GROUPS, GROUPS[::-1]])
def test_a_block_sees_all_blocks_before_it_and_none_after_it(groups, monkeypatch):
    levels = random_levels(groups)
    monkeypatch.setattr(levels_module, "block_log_prob", lambda logits, *_: logits)
    row, y = level_rows(1), torch.tensor([1])
    sees = torch.autograd.functional.jacobian(lambda x: levels.log_prob(x, y)[0], row)[:, 0]
    ends = np.cumsum([0, *(stop - start for start, stop in groups)])
    for i, j in itertools.product(range(3), repeat=2):
        part = sees[ends[i] : ends[i + 1], groups[j][0] : groups[j][1]]
        assert (part != 0).all() if j < i else not part.any()
    assert (sees[:, list(GIVEN)] != 0).all()


def test_stacked_levels_equal_the_networks_one_by_one():
    members = [random_levels(seed=seed) for seed in range(3)]
    x, y = level_rows().requires_grad_(), torch.arange(60) % 3
    together = StackedLevels(members)(x, y)
    alone = torch.stack([member.log_prob(x, y) for member in members])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    weights = torch.randn(3, 60)
    found, expected = (torch.autograd.grad((weights * part).sum(), x)[0] for part in (together, alone))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def drawn_table(n):
    """Rows (context, a, b, class) of a known distribution; p(a | y, context) and p(b | a, y)."""
    generator = np.random.default_rng(3)
    y, context = generator.integers(2, size=n), generator.integers(2, size=n)
    p_a = np.array([[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [[0.3, 0.4, 0.3], [0.5, 0.45, 0.05]]])
    p_b = np.array([[[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]], [[0.3, 0.7], [0.6, 0.4], [0.05, 0.95]]])
    a = (generator.random(n)[:, None] > p_a[y, context].cumsum(axis=1)).sum(axis=1)
    b = (generator.random(n) > p_b[y, a, 0]).astype(int)
    return pd.DataFrame({"context": context, "a": a, "b": b, "y": y}), p_a, p_b


def test_learned_probabilities_are_the_frequencies_of_the_table():
    frame, p_a, p_b = drawn_table(6000)
    parts = [F.one_hot(torch.tensor(frame[name].to_numpy()), k).double() for name, k in (("a", 3), ("b", 2))]
    x = torch.cat([torch.tensor(frame[["context"]].to_numpy(float)), *parts], dim=1)
    training = replace(levels_module.LEVELS_TRAINING, epochs=40)
    levels = ConditionalLevels(groups=((1, 4), (4, 6)), given=(0,), training=training)
    levels.fit(x, torch.tensor(frame["y"].to_numpy()))
    counts = frame.groupby(["y", "context", "a", "b"]).size()
    for y, context in itertools.product(range(2), repeat=2):
        row = torch.tensor([[float(context), 0, 0, 0, 0, 0]])
        rows = every_setting(row, levels.groups)
        found = levels.log_prob(rows, torch.full((6,), y)).exp().reshape(3, 2)
        true = torch.tensor(p_a[y, context][:, None] * p_b[y])
        table = counts[y, context].unstack(fill_value=0).to_numpy()
        torch.testing.assert_close(found, true, rtol=0, atol=0.05)
        torch.testing.assert_close(found, torch.tensor(table / table.sum()), rtol=0, atol=0.03)


def test_levels_keep_the_precision_of_the_rows_and_pass_gradients_to_what_is_given():
    levels = random_levels()
    for precision in (torch.float32, torch.float64):
        x, y = level_rows().to(precision).requires_grad_(), torch.arange(60) % 3
        found = levels.log_prob(x, y)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert found.dtype == gradient.dtype == precision
        assert gradient[:, list(GIVEN)].all()
        assert torch.equal(levels.log_prob(x, y), found)


def test_the_same_seed_gives_the_same_levels_and_their_state_brings_them_back():
    x, y = level_rows(), torch.arange(60) % 3
    settings = {"groups": GROUPS, "given": GIVEN, "hidden": 12, "training": BRIEF}
    one, same, other = (ConditionalLevels(**settings, seed=seed).fit(x, y) for seed in (1, 1, 2))
    assert equal_states(one.state(), same.state())
    assert not equal_states(one.state(), other.state())
    again = ConditionalLevels(**settings).load_state(from_bytes(to_bytes(one.state())))
    assert torch.equal(again.log_prob(x, y), one.log_prob(x, y))
    assert (again.n_features_, again.n_classes_) == (9, 3)


def test_misused_levels_say_what_was_expected():
    for groups in ((), ((0, 2), (3, 3)), ((4, 2),)):
        with pytest.raises(InvalidInputError, match="`groups` must name at least one block of columns"):
            ConditionalLevels(groups=groups)
    fresh = ConditionalLevels(groups=GROUPS, given=GIVEN, hidden=20)
    with pytest.raises(NotFittedError, match="have not been fitted"):
        fresh.log_prob(level_rows(), torch.zeros(60).long())
    with pytest.raises(NotFittedError, match="there is no state"):
        fresh.state()
    levels = random_levels()
    for settings in ({"hidden": 21}, {"given": (2,)}, {"groups": GROUPS[:2]}):
        with pytest.raises(InvalidInputError, match="other groups, given columns or units"):
            replace(fresh, **settings).load_state(levels.state())
    with pytest.raises(ShapeError, match=r"`x` must have shape \(n, 9\)"):
        levels.log_prob(level_rows()[:, :8], torch.zeros(60).long())
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        levels.log_prob(level_rows(), torch.full((60,), 3))
    with pytest.raises(ShapeError, match="one class per row"):
        fresh.fit(level_rows(), torch.zeros(59).long())


# ---------------------------------------------------------------- flows of some columns, given others


def conditional(own, architecture="maf", seed=0, width=4):
    """A flow of the columns ``own`` given the others, with random weights."""
    given = tuple(column for column in range(width) if column not in own)
    flow = ConditionalFlow(
        architecture=architecture, transforms=3, hidden=(10, 10), given=given, training=BRIEF, seed=seed
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
    flows = [shaken(replace(base, seed=seed).fit(x, y)) for seed in range(2)]
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

    train(module, loss, x, torch.zeros(n).long(), settings=Training(epochs=3, noise=noise), seed=0, label="")
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


# ---------------------------------------------------------------- categories times numbers

LAYOUT = Layout(
    (
        Block(name="income", number=0, scale=Scale(minimum=0, maximum=10, step=1.0)),
        Block(name="job", levels=range(1, 4)),
        Block(name="age", number=4, scale=Scale(minimum=18, maximum=68)),
        Block(name="sex", levels=range(5, 7)),
        Block(
            name="gain",
            number=7,
            scale=Scale(minimum=0, maximum=5000, step=1.0, log=True),
            levels=range(8, 10),
            pinned=(None, 0.0),
            closed=(False, False),
        ),
    )
)


def table(layout=LAYOUT, n=120):
    """Random encoded rows of a layout."""
    x = torch.zeros(n, layout.width)
    for block in layout.blocks:
        if block.number is not None:
            x[:, block.number] = torch.rand(n)
        if len(block.levels):
            x[:, list(block.levels)] = one_hot(len(block.levels), n=n)
    return layout.with_codes(x, layout.codes(x)), torch.arange(n) % 2


def brief(density):
    return replace(density, transforms=2, hidden=(8,), training=BRIEF, levels_training=BRIEF)


def only(*names):
    """The layout of some features alone."""
    blocks, start = [], 0
    for block in (LAYOUT.block(name) for name in names):
        number = None if block.number is None else start
        first = start + (number is not None)
        levels = range(first, first + len(block.levels)) if len(block.levels) else range(0)
        blocks.append(replace(block, number=number, levels=levels))
        start += len(block.columns)
    return Layout(tuple(blocks))


SHAPES = {
    "mixed": (LAYOUT, ()),
    "mixed, given age and sex": (LAYOUT, ("age", "sex")),
    "categories only": (only("job", "sex"), ()),
    "categories, given a number": (only("job", "age"), ("age",)),
    "numbers only": (only("income", "age"), ()),
    "numbers, given a category": (only("income", "age", "sex"), ("sex",)),
    "one category": (only("job"), ()),
    "one number": (only("age"), ()),
    "one number, given the rest": (LAYOUT, ("income", "job", "sex", "gain")),
    "one category and one number": (only("sex", "age"), ()),
    "one number with states": (only("gain"), ()),
}


def mixed(shape, seed=0):
    layout, context = SHAPES[shape]
    density = brief(MixedDensity.of(layout, context, seed=seed))
    return shaken(density.fit(*table(layout)), 0.3)


def test_a_layout_and_its_context_become_columns_and_noise():
    density = MixedDensity.of(LAYOUT, ["age", "sex"], seed=3)
    assert (density.width, density.numbers, density.groups) == (10, (0, 7), ((1, 4), (8, 10)))
    assert density.noise == pytest.approx((0.03, 0.02))  # 0.3 of a step of 0.1; no step on a log scale
    assert density.seed == 3
    density.fit(*table())
    assert density.levels_.given == (4, 5, 6)
    assert density.flow_.given == (1, 2, 3, 4, 5, 6, 8, 9)
    assert density.flow_.training.noise == pytest.approx((0.03, *[0.0] * 6, 0.02, 0.0, 0.0))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "mixed"])
def test_mass_over_all_levels_and_numbers_is_one_whatever_is_given(shape):
    density = mixed(shape)
    points = torch.linspace(-8, 9, 2001 if len(density.numbers) == 1 else 161)
    grid = torch.tensor(list(itertools.product(points.tolist(), repeat=len(density.numbers))))
    cell = float(points[1] - points[0]) ** len(density.numbers)
    for y, row in enumerate(table(SHAPES[shape][0], n=2)[0]):
        total = 0.0
        for setting in every_setting(row[None], density.groups):
            x = setting.repeat(len(grid), 1)
            x[:, list(density.numbers)] = grid
            total += float(density.log_prob(x, torch.full((len(x),), y)).exp().sum()) * cell
        assert total == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_table_keeps_the_contract_of_a_density(shape):
    density, (x, y) = mixed(shape), table(SHAPES[shape][0], n=40)
    assert isinstance(density, Density)
    found = density.log_prob(x, y)
    assert found.shape == (40,)
    assert torch.isfinite(found).all()
    assert density.log_prob(x.float(), y).dtype == torch.float32
    alone = torch.cat([density.log_prob(row[None], k[None]) for row, k in zip(x, y, strict=True)])
    torch.testing.assert_close(alone, found, rtol=1e-12, atol=1e-12)
    assert density.log_prob(x[:0], y[:0]).shape == (0,)
    state = from_bytes(to_bytes(density.state()))
    again = brief(MixedDensity.of(*SHAPES[shape])).load_state(state)
    assert torch.equal(again.log_prob(x, y), found)


@pytest.mark.parametrize("shape", SHAPES)
def test_members_of_every_shape_side_by_side_equal_them_one_by_one(shape):
    members = [mixed(shape, seed=seed) for seed in range(2)]
    x, y = table(SHAPES[shape][0], n=40)
    together = stack(members)
    assert isinstance(together, StackedMixed)
    alone = torch.stack([member.log_prob(x, y) for member in members])
    torch.testing.assert_close(together(x, y), alone, rtol=1e-10, atol=1e-10)


def test_gradients_reach_the_numbers_through_the_flow_alone():
    density = mixed("mixed, given age and sex")
    x, y = table(n=10)
    numbers = list(density.numbers)
    for part, expected in ((density.levels_, False), (density.flow_, True)):
        (gradient,) = torch.autograd.grad(part.log_prob(x.requires_grad_(), y).sum(), x)
        assert bool(gradient[:, numbers].all()) == bool(gradient[:, numbers].any()) == expected


def test_numbers_without_levels_or_context_are_a_plain_flow():
    layout = only("income", "age")
    x, y = table(layout)
    density = brief(MixedDensity.of(layout, seed=4)).fit(x, y)
    training = replace(BRIEF, noise=(0.03, 0.02))
    flow = ConditionalFlow(transforms=2, hidden=(8,), training=training, seed=5).fit(x, y)
    torch.testing.assert_close(density.log_prob(x, y), flow.log_prob(x, y), rtol=0, atol=0)


@pytest.mark.parametrize(("n", "batch"), [(120, 64), (2000, 256)])
def test_few_rows_are_trained_in_small_batches(n, batch, monkeypatch):
    sizes = []
    fit = ConditionalFlow.fit

    def noted(self, *rows, **settings):
        sizes.append(self.training.batch_size)
        return fit(self, *rows, **settings)

    monkeypatch.setattr(ConditionalFlow, "fit", noted)
    layout = only("age")
    density = brief(MixedDensity.of(layout))
    replace(density, training=replace(BRIEF, batch_size=256)).fit(*table(layout, n=n))
    assert sizes == [batch]


def test_a_misused_density_says_what_was_expected():
    with pytest.raises(InvalidInputError, match="needs at least one feature that may change"):
        MixedDensity.of(LAYOUT, [block.name for block in LAYOUT.blocks])
    fresh = brief(MixedDensity.of(LAYOUT))
    x, y = table()
    with pytest.raises(NotFittedError, match="has not been fitted"):
        fresh.log_prob(x, y)
    with pytest.raises(NotFittedError, match="there is no state"):
        fresh.state()
    for wrong in (x[:, :9], torch.cat([x, x[:, :1]], dim=1)):
        with pytest.raises(ShapeError, match=r"`x` must have shape \(n, 10\), rows as encoded"):
            fresh.fit(wrong, y)
    density = mixed("mixed")
    with pytest.raises(ShapeError, match=r"`x` must have shape \(n, 10\)"):
        density.log_prob(x[:, :9], y)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        density.log_prob(x, y + 1)


@pytest.mark.parametrize("shape", ["numbers only", "categories only", "one number, given the rest"])
def test_the_state_of_a_density_of_other_columns_is_an_error_and_changes_nothing(shape):
    density, other = mixed("mixed"), mixed(shape)
    with pytest.raises(InvalidInputError, match="does not fit"):
        brief(MixedDensity.of(LAYOUT)).load_state(other.state())
    before = density.state()
    with pytest.raises(InvalidInputError, match="does not fit"):
        density.load_state(other.state())
    assert equal_states(density.state(), before)


def test_n_classes_covers_classes_that_the_rows_lack():
    x, _ = table()
    density = brief(MixedDensity.of(LAYOUT)).fit(x, torch.zeros(120).long(), n_classes=3)
    assert torch.isfinite(density.log_prob(x, torch.full((120,), 2))).all()


# ---------------------------------------------------------------- members of an ensemble


@pytest.mark.parametrize("kind", ["flow", "mixed"])
def test_settings_survive_json_exactly(kind):
    member = (
        ConditionalFlow(hidden=(8, 4), given=(1,), training=Training(noise=(0.1, 0.0)), seed=9)
        if kind == "flow"
        else replace(MixedDensity.of(LAYOUT, ["age"], seed=7), hidden=(5, 6), training=Training(epochs=3))
    )
    settings = settings_of(member)
    again = member_from(json.loads(json.dumps(settings)))
    assert settings["kind"] == kind
    assert type(again) is type(member)
    assert asdict(again) == asdict(member)
    assert repr(again) == repr(member)


class Worker:
    """A process that does at once, in this one, what a worker would do."""

    def __init__(self, command, **_):
        self.folder, self.member = command[-2:]
        self.returncode = 0

    def communicate(self):
        members_module.main(members_module.Path(self.folder), int(self.member))
        return None, ""


def ensemble(**settings):
    base = brief(MixedDensity.of(LAYOUT, ["age", "sex"]))
    return CrossFitEnsemble(members=2, base=base, seed=1, **settings)


def test_what_a_worker_is_told_and_writes_back_is_all_there_is_to_know(monkeypatch):
    x, y = table()
    here = ensemble(workers=1).fit(x, y)
    monkeypatch.setattr(members_module.subprocess, "Popen", Worker)
    elsewhere = ensemble(workers=2).fit(x, y)
    assert equal_states(here.state(), elsewhere.state())


@pytest.mark.slow
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_members_trained_in_worker_processes_equal_those_trained_here_bit_for_bit(precision):
    x, y = table()
    here, elsewhere = (ensemble(workers=workers).fit(x.to(precision), y) for workers in (1, 2))
    assert equal_states(here.state(), elsewhere.state())
    assert torch.equal(here.score(x, y), elsewhere.score(x, y))


def test_an_ensemble_of_mixed_densities_scores_as_its_members_and_comes_back_from_its_state():
    x, y = table()
    fitted = ensemble().fit(x, y)
    own = torch.stack([member.log_prob(x, y) for member in fitted.flows_]) - fitted.thresholds_[:, y]
    torch.testing.assert_close(fitted.score(x, y), own.mean(dim=0), rtol=1e-8, atol=1e-8)
    again = ensemble().load_state(from_bytes(to_bytes(fitted.state())))
    assert torch.equal(again.score(x, y), fitted.score(x, y))
