"""How candidates are scored: against the bar of their own row, whole or by their numbers alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from plausiflow.core.training import Training
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.densities.row_scores import RowScores, assembled, columns_index
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
    base = replace(MixedDensity.of(LAYOUT, ["age", "sex"]), transforms=2, hidden=(8,), training=brief)
    base = replace(base, levels_training=brief)
    given_ = ContextThreshold.of(LAYOUT, immutable=["age", "sex"]) if context else None
    ensemble = CrossFitEnsemble(members=3, base=base, context=given_).fit(x, y)
    ensemble.margin_ = torch.tensor([0.2, 0.7])
    return ensemble, x[:30], (y[:30] + 1) % 2


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("settings", [{}, {"left_out": True}, {"margin": torch.tensor([0.5, 0.1])}])
def test_candidates_are_held_against_the_bar_of_their_own_row(context, settings):
    ensemble, x, y = fitted(context)
    if "left_out" in settings:
        settings = {"left_out": torch.arange(30) % 3}
    guide = RowScores(ensemble, x, y, **settings)
    rows = torch.randint(30, (80,))
    x_cf = random_rows(LAYOUT, 80, 5)
    scores = ensemble.member_scores(x_cf, y[rows])
    if "left_out" in settings:
        scores = torch.stack([scores[m] for m in range(3)])
        out = F.one_hot(settings["left_out"][rows], 3).T.bool()
        mean = torch.where(out, 0.0, scores).sum(dim=0) / 2
    else:
        mean = scores.mean(dim=0)
    bar = settings.get("margin", ensemble.margin_)[y[rows]]
    if context:
        bar = bar + ensemble.context(x[rows], y[rows])  # of the row, not of the candidate
    torch.testing.assert_close(guide.score(x_cf, rows), mean - bar)


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("columns", [[0], [0, 4]])
def test_the_score_of_numbers_alone_is_the_score_of_the_whole_candidate(context, columns):
    ensemble, x, y = fitted(context)
    guide = RowScores(ensemble, x, y, left_out=torch.arange(30) % 3)
    rows, x_cf = torch.randint(30, (50,)), random_rows(LAYOUT, 50, 6)
    which = torch.randint(50, (20,))
    numbers = torch.rand(20, len(columns), requires_grad=True)
    score, slope = guide.of_numbers(x_cf, rows, columns)
    quick = score(numbers, which)
    plain = guide.score(assembled(x_cf[which], columns_index(columns, x), numbers), rows[which])
    torch.testing.assert_close(quick, plain, rtol=1e-10, atol=1e-10)
    found, expected = (torch.autograd.grad(part.sum(), numbers)[0] for part in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert (slope is None) == (len(columns) == 2)  # where more moves than the flow models there is a graph
    if slope is not None:
        value, gradient = slope(numbers.detach(), which)
        torch.testing.assert_close(value, plain.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8)


def test_any_other_plausibility_is_asked_for_its_own_score():
    made = setup(applicants())
    x, rows = made.x[:20], torch.arange(40) % 20
    y = torch.arange(20) % 2
    guide = RowScores(made.finder.plausibility, x, y)
    expected = made.finder.plausibility.score(made.x[:40], y[rows])
    assert torch.equal(guide.score(made.x[:40], rows), expected)
    assert torch.equal(
        guide.of_numbers(made.x[:40], rows, [0])[0](made.x[:40, :1], torch.arange(40)), expected
    )


def test_assembled_rows_hold_the_numbers_and_leave_the_rest():
    x, numbers = torch.rand(5, 4), torch.rand(5, 2, requires_grad=True)
    found = assembled(x, torch.tensor([3, 1]), numbers)
    assert torch.equal(found[:, [3, 1]], numbers)
    assert torch.equal(found[:, [0, 2]], x[:, [0, 2]])
    assert torch.autograd.grad(found.sum(), numbers)[0].eq(1).all()
    assert torch.equal(assembled(x, columns_index([], x), x[:, :0]), x)
