"""Thresholds that depend on immutable and monotone features: quantiles by group, number and floor."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from plausiflow.core.training import Training
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities import context as context_module
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.errors import NotFittedError
from plausiflow.tables.layout import Block, Layout, Scale


def one_hot(size, n):
    """Random levels, one-hot."""
    return F.one_hot(torch.randint(size, (n,)), size).double()


def groups_table(n=3000, classes=2):
    """Levels of a group (columns 0 to 2), a number (3) and another category (4, 5)."""
    x = torch.cat([one_hot(3, n), torch.rand(n, 1), one_hot(2, n)], dim=1)
    return x, torch.arange(n) % classes


GROUP = Block(name="group", levels=range(3))
NUMBER = Block(name="number", number=3, scale=Scale(minimum=0, maximum=1))
GIVEN_LAYOUT = Layout((GROUP, NUMBER, Block(name="other", levels=range(4, 6))))
MEDIANS = torch.tensor([[0.0, 2.0, -3.0], [1.0, -1.0, 0.5]])


def test_without_immutable_features_there_is_no_context_threshold():
    assert ContextThreshold.from_layout(GIVEN_LAYOUT) is None


def test_rules_become_columns():
    ordered = replace(GROUP, name="education", levels=range(6, 9), ordered=True)
    layout = Layout((*GIVEN_LAYOUT.blocks, ordered, replace(NUMBER, name="debt", number=9)))
    threshold = ContextThreshold.from_layout(
        layout, immutable=["group", "number"], rising=["education", "number"], falling=["debt"]
    )
    assert (threshold.numbers, threshold.levels) == ((3,), (0, 1, 2))
    assert (threshold.floors, threshold.ceilings) == (((6, 9),), ())
    assert (threshold.number_floors, threshold.number_ceilings) == ((), (9,))


@pytest.mark.parametrize("quantile", [0.5, 0.2])
def test_the_threshold_of_a_group_is_the_quantile_of_its_scores(quantile):
    x, y = groups_table()
    group = x[:, :3].argmax(dim=1)
    scores = MEDIANS[y, group] + torch.randn(3000)
    threshold = replace(ContextThreshold.from_layout(GIVEN_LAYOUT, immutable=["group"]), quantile=quantile)
    threshold.fit(x[:2000], y[:2000], scores[:2000])
    passes = scores[2000:] >= threshold(x[2000:], y[2000:])
    shift = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(quantile))
    for k, g in itertools.product(range(2), range(3)):
        row = F.one_hot(torch.tensor([[g]]), 3).double()[0]
        row = torch.cat([row, torch.zeros(1, 3)], dim=1)
        assert float(threshold(row, torch.tensor([k]))) == pytest.approx(
            float(MEDIANS[k, g] + shift), abs=0.25
        )
        own = (group[2000:] == g) & (y[2000:] == k)
        assert float(passes[own].double().mean()) == pytest.approx(1 - quantile, abs=0.13)


def test_the_threshold_follows_an_immutable_number():
    x, y = groups_table()
    curve = 3 * (x[:, 3] - 0.4) ** 2 + x[:, 3]
    threshold = ContextThreshold.from_layout(GIVEN_LAYOUT, immutable=["number"]).fit(
        x, y, curve + 0.2 * torch.randn(3000)
    )
    torch.testing.assert_close(threshold(x, y), curve, rtol=0, atol=0.15)


def test_what_may_change_does_not_move_the_threshold():
    x, y = groups_table(200)
    threshold = ContextThreshold.from_layout(GIVEN_LAYOUT, immutable=["group"]).fit(x, y, torch.randn(200))
    moved = x.clone()
    moved[:, 3] = torch.rand(200)
    moved[:, 4:] = moved[:, 4:].flip(1)
    assert torch.equal(threshold(moved, y), threshold(x, y))


@pytest.mark.parametrize("falling", [False, True])
def test_a_floor_asks_for_the_quantile_of_the_rows_that_are_still_in_reach(falling):
    """Levels 0 to 2 with an order: who may not fall below a level can reach it and all above."""
    x, y = groups_table(classes=1)
    group = x[:, :3].argmax(dim=1)
    scores = torch.tensor([0.0, 1.0, 0.2])[group] + torch.randn(3000)
    layout = Layout((replace(GROUP, ordered=True), *GIVEN_LAYOUT.blocks[1:]))
    names = {"falling" if falling else "rising": ["group"]}
    threshold = ContextThreshold.from_layout(layout, **names).fit(x, y, scores)
    for level in range(3):
        reach = group <= level if falling else group >= level
        row = torch.cat([F.one_hot(torch.tensor([level]), 3).double(), torch.zeros(1, 3)], dim=1)
        expected = float(scores[reach].median())
        assert float(threshold(row, torch.tensor([0]))) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("falling", [False, True])
def test_a_floor_of_a_number_asks_more_where_only_good_rows_are_in_reach(falling):
    x, y = groups_table(classes=1)
    scores = (1 - x[:, 3] if falling else x[:, 3]) * 4
    names = {"falling" if falling else "rising": ["number"]}
    threshold = ContextThreshold.from_layout(GIVEN_LAYOUT, **names).fit(x, y, scores)
    rows = torch.zeros(5, 6)
    rows[:, 3] = torch.linspace(0.9, 0.3, 5) if falling else torch.linspace(0.1, 0.7, 5)
    found = threshold(rows, torch.zeros(5).long())
    assert (found.diff() > 0).all()
    assert float(found[-1] - found[0]) > 0.5


def test_a_class_whose_rows_are_all_out_of_reach_still_has_a_threshold(monkeypatch):
    monkeypatch.setattr(context_module, "COPIES", 1)
    monkeypatch.setattr(context_module, "STEPS", 5)
    x, y = groups_table(60, classes=1)
    x[:, :3] = F.one_hot(torch.tensor(2), 3).double()
    x[-1, :3] = F.one_hot(torch.tensor(0), 3).double()
    y[-1] = 1  # one row, at the lowest level: hardly a floor that is drawn is below it
    layout = Layout((replace(GROUP, ordered=True, levels=range(3)), *GIVEN_LAYOUT.blocks[1:]))
    for seed in range(10):
        threshold = replace(ContextThreshold.from_layout(layout, rising=["group"]), random_state=seed)
        found = threshold.fit(x, y, torch.randn(60))(x, torch.ones(60).long())
        assert torch.isfinite(found).all()


def test_a_threshold_is_reproducible_and_comes_back_from_its_state():
    x, y = groups_table(300)
    scores = torch.randn(300)
    layout = Layout((replace(GROUP, ordered=True), *GIVEN_LAYOUT.blocks[1:]))
    fresh = ContextThreshold.from_layout(layout, immutable=["number"], rising=["group"])
    with pytest.raises(NotFittedError, match="This threshold has not been fitted"):
        fresh(x, y)
    one, same, other = (replace(fresh, random_state=seed).fit(x, y, scores) for seed in (0, 0, 1))
    assert torch.equal(one.state(), same.state())
    assert not torch.equal(one.state(), other.state())
    again = replace(fresh).load_state(one.state())
    assert torch.equal(again(x, y), one(x, y))
    assert torch.equal(again(x.float(), y), one(x.float(), y))
    assert again(x.float(), y).dtype == torch.float32


def test_with_a_threshold_for_its_group_half_of_each_group_is_plausible():
    """A rare, wide group beside a common, narrow one: against the class median it hardly ever passes."""
    n = 2400
    wide = torch.arange(n) % 6 == 0
    number = 0.5 + torch.where(wide, 0.2, 0.03) * torch.randn(n)
    x = torch.stack([(~wide).double(), wide.double(), number], dim=1)
    y = torch.arange(n) // 6 % 2
    layout = Layout((replace(GROUP, levels=range(2)), replace(NUMBER, number=2)))
    base = replace(MixedDensity.from_layout(layout, ["group"]), transforms=2, hidden=(16,))
    base = replace(base, training=Training(epochs=15, learning_rate=1e-2))
    shares = {}
    for context in (None, ContextThreshold.from_layout(layout, immutable=["group"])):
        fitted = CrossFitEnsemble(members=2, base=base, context=context).fit(x[:1200], y[:1200])
        passes = fitted.score(x[1200:], y[1200:]) >= 0
        shares[context is None] = [float(passes[wide[1200:] == g].double().mean()) for g in (False, True)]
    assert shares[True][1] < 0.1
    assert shares[False] == pytest.approx([0.5, 0.5], abs=0.12)
