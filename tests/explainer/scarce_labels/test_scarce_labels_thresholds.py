"""A density without labels in use: thresholds of rows by their probability, searches, margins, files."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from plausiflow.core import MovingColumns
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.calibration import calibrate
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.mixed import MixedDensity
from plausiflow.densities.thresholds import effective_rows, lower_quantile, weighted_quantile
from plausiflow.errors import InvalidInputError
from plausiflow.tables.layout import Block, Layout
from scarce import BASE, BRIEF, gaussians, outcome
from searching import UNIT

# ---------------------------------------------------------------- thresholds of rows by their probability


values = st.lists(st.floats(-5, 5), min_size=1, max_size=30)


@given(values, st.data(), st.floats(0, 1))
def test_a_weighted_quantile_is_that_of_rows_repeated(own, data, q):
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(own), max_size=len(own)))
    found = weighted_quantile(torch.tensor(own), torch.tensor(counts).double(), q)
    assert float(found) == np.quantile(np.repeat(own, counts), q, method="lower")


@given(values, st.floats(0, 1), st.sampled_from([1.0, 0.5, 2.0**-20]))
def test_equal_weights_of_any_size_give_the_plain_quantile(own, q, weight):
    rows = torch.tensor(own)
    assert weighted_quantile(rows, torch.full_like(rows, weight), q) == lower_quantile(rows, q)


def test_rows_that_count_nothing_are_not_seen():
    rows, weights = torch.tensor([9.0, 1.0, 2.0, -9.0, 3.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    assert [float(weighted_quantile(rows, weights, q)) for q in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert effective_rows(weights) == 3.0
    assert effective_rows(torch.tensor([0.2, 0.2])) == pytest.approx(2.0)


def test_thresholds_are_what_labels_would_have_given(by_bayes):
    x, y = gaussians(900)
    part = split_by_class(torch.zeros_like(y), 3, random_state=1)
    with torch.no_grad():
        own = by_bayes.member_log_probs(x, y)[part, torch.arange(900)]
    for m in range(3):
        for k in range(2):
            expected = np.median(own[(part == m) & (y == k)].numpy())
            found, error = float(by_bayes.thresholds_[m, k]), float(by_bayes.errors_[m, k])
            assert abs(found - expected) < 3 * error
            assert 0 < error < 0.3


def test_about_half_of_new_rows_of_a_class_are_plausible(by_bayes):
    x, y = gaussians(2000, seed=7)
    passes = (by_bayes.score(x, y) >= 0).double()
    for k in range(2):
        assert float(passes[y == k].mean()) == pytest.approx(0.5, abs=0.06)
    beyond = (by_bayes.score(x, y) >= by_bayes.max_margin_[y]).double()
    assert float(beyond.mean()) == pytest.approx(0.1, abs=0.05)


def test_whole_weights_of_a_context_threshold_are_rows_repeated():
    x, y = torch.rand(200, 2), torch.arange(200) % 2
    scores, counts = torch.randn(200) + x[:, 0], torch.randint(3, (200,))
    weighted = ContextThreshold(numbers=(0,)).fit(x, y, scores, counts.double())
    again = torch.repeat_interleave(torch.arange(200), counts)
    repeated = ContextThreshold(numbers=(0,)).fit(x[again], y[again], scores[again])
    torch.testing.assert_close(weighted.state(), repeated.state(), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- searches, margins, files


LAYOUT = Layout(
    (
        Block(name="income", number=0, scale=UNIT),
        Block(name="job", levels=range(1, 4)),
        Block(name="age", number=4, scale=UNIT),
    )
)


def table(n, seed):
    generator = torch.Generator().manual_seed(seed)
    job = torch.nn.functional.one_hot(torch.randint(3, (n,), generator=generator), 3).double()
    numbers = torch.rand(n, 2, generator=generator)
    return torch.cat([numbers[:, :1], job, numbers[:, 1:]], dim=1)


def of_table(x):
    return torch.stack([2 * x[:, 0] + x[:, 1], 1 - x[:, 4] + x[:, 3]], dim=1).log_softmax(dim=1)


@pytest.mark.parametrize("columns", [[0], [0, 4]])
def test_the_score_of_numbers_alone_is_the_score_of_the_whole_candidate(columns):
    base = replace(MixedDensity.from_layout(LAYOUT, ["age"]), transforms=2, hidden=(8,), training=BRIEF)
    base = replace(base, levels_training=BRIEF)
    context = ContextThreshold.from_layout(LAYOUT, immutable=["age"])
    x = table(160, 3)
    made = CrossFitEnsemble(members=2, base=base, context=context, outcome=of_table)
    made.fit(x, torch.zeros(160).long())
    assert made.rule_.given == base.given == (4,)
    scores = made.for_rows(x[:30], torch.arange(30) % 2, left_out=torch.arange(30) % 2)
    rows, x_cf, which = torch.randint(30, (50,)), table(50, 5), torch.randint(50, (20,))
    numbers = torch.rand(20, len(columns), requires_grad=True)
    moving = MovingColumns.of(x_cf, columns)
    excess, value_and_grad = scores.of_columns(moving, rows)
    assert value_and_grad is None  # Bayes' rule needs an autograd graph
    quick = excess(numbers, which) - scores.threshold[rows[which]]
    plain = scores.score(moving.encoded(numbers, which), rows[which])
    torch.testing.assert_close(quick, plain, rtol=1e-10, atol=1e-10)
    found, expected = (torch.autograd.grad(part.sum(), numbers)[0] for part in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_margins_are_calibrated_by_members_left_out(by_bayes):
    made, (x, _) = copy.deepcopy(by_bayes), gaussians(300)

    def validity(x, y):
        return outcome(x).gather(1, y[:, None])[:, 0] - math.log(0.5)

    def search(x, y_target, scores, bank):  # any real row of the class that is plausible without the member
        return torch.stack([bank[int(k)][i % len(bank[int(k)])] for i, k in enumerate(y_target)])

    found = calibrate(
        made, x, outcome(x).argmax(dim=1), validity=validity, search=search, confidence=0.9, n_rows=80
    )
    assert found.margin.shape == (2,)
    assert (found.passed >= 0.9).all()
    assert torch.equal(made.margin_, found.margin)


def test_what_was_learned_comes_back_from_a_file(by_bayes):
    x, y = gaussians(30, seed=6)
    again = CrossFitEnsemble(members=3, base=BASE, outcome=outcome, random_state=1)
    again.load_state(from_bytes(to_bytes(by_bayes.state())))
    assert torch.equal(again.score(x, y), by_bayes.score(x, y))
    assert torch.equal(again.log_prob(x, y), by_bayes.log_prob(x, y))
    with pytest.raises(InvalidInputError, match="`outcome`"):
        CrossFitEnsemble(members=3, base=BASE, random_state=1).load_state(by_bayes.state())
