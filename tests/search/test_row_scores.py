"""How candidates are scored: against the threshold of their own row, whole or by their numbers alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from plausiflow.core import MovingColumns, Training
from plausiflow.densities import CrossFitEnsemble, row_scores
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.tables.layout import Block, Layout
from searching import UNIT, applicants, random_rows, setup

LAYOUT = Layout(
    (
        Block(name="income", number=0, scale=UNIT),
        Block(name="job", levels=range(1, 4)),
        Block(name="age", number=4, scale=UNIT),
        Block(name="sex", levels=range(5, 7)),
    )
)


def fitted(context):
    """A small ensemble of a mixed table, given age and sex, with a margin."""
    x, y = random_rows(LAYOUT, 160, 3), torch.arange(160) % 2
    brief = Training(epochs=1, batch_size=64)
    base = MixedDensity.from_layout(LAYOUT, ["age", "sex"])
    base = replace(base, transforms=2, hidden=(8,), training=brief, levels_training=brief)
    given_ = ContextThreshold.from_layout(LAYOUT, immutable=["age", "sex"]) if context else None
    ensemble = CrossFitEnsemble(members=3, base=base, context=given_).fit(x, y)
    ensemble.margin_ = torch.tensor([0.2, 0.7])
    return ensemble, x[:30], (y[:30] + 1) % 2


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"left_out": True}, {"margin": torch.tensor([0.5, 0.1])}, {"with_margin": False}]
)
def test_candidates_are_compared_with_the_threshold_of_their_own_row(context, settings):
    ensemble, x, y = fitted(context)
    if "left_out" in settings:
        settings = {"left_out": torch.arange(30) % 3}
    scores = ensemble.for_rows(x, y, **settings)
    rows = torch.randint(30, (80,))
    x_cf = random_rows(LAYOUT, 80, 5)
    members = ensemble.member_scores(x_cf, y[rows])
    if "left_out" in settings:
        out = F.one_hot(settings["left_out"][rows], 3).T.bool()
        mean = torch.where(out, 0.0, members).sum(dim=0) / 2
    else:
        mean = members.mean(dim=0)
    threshold = settings.get("margin", ensemble.margin_)[y[rows]] * settings.get("with_margin", True)
    if context:
        threshold = threshold + ensemble.context(x[rows], y[rows])  # of the row, not of the candidate
    torch.testing.assert_close(scores.score(x_cf, rows), mean - threshold)
    torch.testing.assert_close(scores.threshold[rows], threshold, check_dtype=False)
    some = torch.tensor([3, 3, 7])
    torch.testing.assert_close(scores.at(some).score(x_cf[:3], torch.arange(3)), scores.score(x_cf[:3], some))


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("columns", [[0], [0, 4]])
def test_the_score_of_numbers_alone_is_the_score_of_the_whole_candidate(context, columns):
    ensemble, x, y = fitted(context)
    scores = ensemble.for_rows(x, y, left_out=torch.arange(30) % 3)
    rows, x_cf = torch.randint(30, (50,)), random_rows(LAYOUT, 50, 6)
    which = torch.randint(50, (20,))
    numbers = torch.rand(20, len(columns), requires_grad=True)
    moving = MovingColumns.of(x_cf, columns)
    score, value_and_grad = scores.of_columns(moving, rows)
    threshold = scores.threshold[rows[which]]
    quick = score(numbers, which) - threshold
    plain = scores.score(moving.encoded(numbers, which), rows[which])
    torch.testing.assert_close(quick, plain, rtol=1e-10, atol=1e-10)
    found, expected = (torch.autograd.grad(part.sum(), numbers)[0] for part in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert (value_and_grad is None) == (len(columns) == 2)  # more columns move than the flow models
    if value_and_grad is not None:
        value, gradient = value_and_grad(numbers.detach(), which)
        torch.testing.assert_close(value - threshold, plain.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("left_out", [False, True])
def test_single_precision_rules_out_only_candidates_that_are_not_plausible(left_out):
    ensemble, x, y = fitted(context=True)
    scores = ensemble.for_rows(x, y, left_out=torch.arange(30) % 3 if left_out else None)
    rows, x_cf = torch.randint(30, (400,)), random_rows(LAYOUT, 400, 7)
    score, may = scores.score(x_cf, rows), scores.may_be_plausible(x_cf, rows)
    assert may[score >= 0].all()
    assert not may[score < -0.2].any()
    assert 0 < may.sum() < 400


def test_a_density_that_accepts_every_row_has_a_gradient_of_zero():
    x = torch.rand(6, 3)
    scores = row_scores(AlwaysPlausible(), x, torch.zeros(6, dtype=torch.long))
    score, value_and_grad = scores.of_columns(MovingColumns.of(x, [0, 2]), torch.arange(6))
    value, gradient = value_and_grad(x[:4, :2], torch.arange(4))
    assert torch.equal(value, torch.ones(4))
    assert torch.equal(score(x[:4, :2], torch.arange(4)), value)
    assert torch.equal(gradient, torch.zeros(4, 2))


def test_any_other_plausibility_is_called_as_it_is():
    made = setup(applicants())
    x, rows = made.x[:20], torch.arange(40) % 20
    y = torch.arange(20) % 2
    scores = row_scores(made.engine.plausibility, x, y)
    expected = made.engine.plausibility.score(made.x[:40], y[rows])
    assert torch.equal(scores.score(made.x[:40], rows), expected)
    score, value_and_grad = scores.of_columns(MovingColumns.of(made.x[:40], [0]), rows)
    assert torch.equal(score(made.x[:40, :1], torch.arange(40)), expected)
    assert value_and_grad is None


def test_moving_columns_put_values_into_their_columns_and_leave_the_rest():
    x, values = torch.rand(5, 4), torch.rand(5, 2, requires_grad=True)
    moving = MovingColumns.of(x, [3, 1])
    found = moving.encoded(values, torch.arange(5))
    assert torch.equal(found[:, [3, 1]], values)
    assert torch.equal(found[:, [0, 2]], x[:, [0, 2]])
    assert torch.equal(moving.gradient(found), values)
    assert MovingColumns(x).encoded(values, torch.arange(5)) is values
