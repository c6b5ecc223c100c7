"""Densities of mixed tables are levels times numbers, alone and as members of an ensemble."""

import itertools
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from plausiflow.core.protocols import Density
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities.members import stack
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.tables.layout import Block, Layout, Scale
from shaking import BRIEF, equal_states, every_setting, one_hot, shaken

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
    density = brief(MixedDensity.from_layout(layout, context, random_state=seed))
    return shaken(density.fit(*table(layout)), 0.3)


def test_a_layout_and_its_context_become_columns_and_noise():
    density = MixedDensity.from_layout(LAYOUT, ["age", "sex"], random_state=3)
    assert (density.width, density.numbers, density.groups) == (10, (0, 7), ((1, 4), (8, 10)))
    assert density.noise == pytest.approx((0.03, 0.02))  # 0.3 of a step of 0.1; no step on a log scale
    assert density.random_state == 3
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
            # A level that pins a number has no density: at the pin, the Gaussian in its place counts as one.
            levels = [column for start, stop in density.groups for column in range(start, stop)]
            added = x[0, levels] @ torch.tensor(density.levels_.offsets).to(x) if levels else 0.0
            log_prob = density.log_prob(x, torch.full((len(x),), y)) - added
            total += float(log_prob.exp().sum()) * cell
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
    again = brief(MixedDensity.from_layout(*SHAPES[shape])).load_state(state)
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
    density = brief(MixedDensity.from_layout(layout, random_state=4)).fit(x, y)
    training = replace(BRIEF, noise=(0.03, 0.02))
    flow = ConditionalFlow(transforms=2, hidden=(8,), training=training, random_state=5).fit(x, y)
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
    density = brief(MixedDensity.from_layout(layout))
    replace(density, training=replace(BRIEF, batch_size=256)).fit(*table(layout, n=n))
    assert sizes == [batch]


def test_a_misused_density_says_what_was_expected():
    with pytest.raises(InvalidInputError, match="needs at least one feature that may change"):
        MixedDensity.from_layout(LAYOUT, [block.name for block in LAYOUT.blocks])
    fresh = brief(MixedDensity.from_layout(LAYOUT))
    x, y = table()
    with pytest.raises(NotFittedError, match="has not been fitted"):
        fresh.log_prob(x, y)
    with pytest.raises(NotFittedError, match="has not been fitted"):
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
    with pytest.raises(InvalidInputError, match="must come from a density"):
        brief(MixedDensity.from_layout(LAYOUT)).load_state(other.state())
    before = density.state()
    with pytest.raises(InvalidInputError, match="must come from a density"):
        density.load_state(other.state())
    assert equal_states(density.state(), before)


def test_n_classes_covers_classes_that_the_rows_lack():
    x, _ = table()
    density = brief(MixedDensity.from_layout(LAYOUT)).fit(x, torch.zeros(120).long(), n_classes=3)
    assert torch.isfinite(density.log_prob(x, torch.full((120,), 2))).all()


# ---------------------------------------------------------------- members of an ensemble


def ensemble(**settings):
    base = brief(MixedDensity.from_layout(LAYOUT, ["age", "sex"]))
    return CrossFitEnsemble(members=2, base=base, random_state=1, **settings)


def test_an_ensemble_of_mixed_densities_scores_as_its_members_and_comes_back_from_its_state():
    x, y = table()
    fitted = ensemble().fit(x, y)
    own = torch.stack([member.log_prob(x, y) for member in fitted.flows_]) - fitted.thresholds_[:, y]
    torch.testing.assert_close(fitted.score(x, y), own.mean(dim=0), rtol=1e-8, atol=1e-8)
    again = ensemble().load_state(from_bytes(to_bytes(fitted.state())))
    assert torch.equal(again.score(x, y), fitted.score(x, y))
