"""Probabilities of levels, given columns and a class, and each block given those before it."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from plausiflow.densities import levels as levels_module
from plausiflow.densities.levels import ConditionalLevels, StackedLevels
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from shaking import BRIEF, equal_states, every_setting, one_hot, shaken

# Columns 0, 1: a block; 2: context; 3 to 5: a block; 6: context; 7 to 8: a block.
GROUPS, GIVEN = ((0, 2), (3, 6), (7, 9)), (2, 6)


def level_rows(n=60):
    return torch.cat(
        [one_hot(2, n=n), torch.rand(n, 1), one_hot(3, n=n), torch.rand(n, 1), one_hot(2, n=n)], 1
    )


def random_levels(groups=GROUPS, given=GIVEN, seed=0, **settings):
    levels = ConditionalLevels(
        groups=groups, given=given, hidden=20, training=BRIEF, random_state=seed, **settings
    )
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
    one, same, other = (ConditionalLevels(**settings, random_state=seed).fit(x, y) for seed in (1, 1, 2))
    assert equal_states(one.state(), same.state())
    assert not equal_states(one.state(), other.state())
    again = ConditionalLevels(**settings).load_state(from_bytes(to_bytes(one.state())))
    assert torch.equal(again.log_prob(x, y), one.log_prob(x, y))
    assert (again.n_features_, again.n_classes_) == (9, 3)


def test_misused_levels_say_what_was_expected():
    for groups in ((), ((0, 2), (3, 3)), ((4, 2),)):
        with pytest.raises(InvalidInputError, match="`groups` must have at least one range of columns"):
            ConditionalLevels(groups=groups)
    fresh = ConditionalLevels(groups=GROUPS, given=GIVEN, hidden=20)
    with pytest.raises(NotFittedError, match="have not been fitted"):
        fresh.log_prob(level_rows(), torch.zeros(60).long())
    with pytest.raises(NotFittedError, match="have not been fitted"):
        fresh.state()
    levels = random_levels()
    for settings in ({"hidden": 21}, {"given": (2,)}, {"groups": GROUPS[:2]}):
        with pytest.raises(InvalidInputError, match="same groups, given columns and hidden units"):
            replace(fresh, **settings).load_state(levels.state())
    with pytest.raises(ShapeError, match=r"`x` must have shape \(n, 9\)"):
        levels.log_prob(level_rows()[:, :8], torch.zeros(60).long())
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        levels.log_prob(level_rows(), torch.full((60,), 3))
    with pytest.raises(ShapeError, match="one class per row"):
        fresh.fit(level_rows(), torch.zeros(59).long())
