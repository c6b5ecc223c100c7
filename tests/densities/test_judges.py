"""Judges: independent, honest about rows they have not seen, and counted by the metrics."""

import math
from dataclasses import replace

import pytest
import torch

from plausiflow.core.metrics import Context, evaluate, judged, judged_worst, real_rows
from plausiflow.core.protocols import Panel
from plausiflow.core.training import Training
from plausiflow.core.verification import verify_counterfactuals
from plausiflow.densities import ConditionalFlow, Judges
from plausiflow.densities.judges import HELD_OUT, split_by_class_share
from plausiflow.densities.thresholds import Thresholded
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.models import LinearClassifier

BASE = ConditionalFlow(transforms=2, hidden=(16,), training=Training(epochs=15, learning_rate=1e-2))
BRIEF = replace(BASE, training=Training(epochs=1))


def table(n, seed):
    """Two Gaussian classes in the plane."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return torch.randn(n, 2, generator=generator) * 0.1 + 0.3 + 0.4 * y[:, None], y


@pytest.fixture(scope="module")
def judges():
    return Judges(base=BASE).fit(*table(1500, seed=0))


class Verdicts:
    """A panel whose verdicts are written down: bits of a row's first entry, turned around for class 0."""

    def passes(self, x, y):
        bits = (x[:, :1].long() >> torch.arange(3, device=x.device)) % 2 == 1
        return bits == (y[:, None] == 1)


def test_a_verdict_is_one_bool_per_row_and_judge_without_gradient(judges):
    x, y = table(40, seed=1)
    assert isinstance(judges, Panel)
    verdicts = judges.passes(x.requires_grad_(), y)
    assert verdicts.shape == (40, 3)
    assert verdicts.dtype == torch.bool
    assert judges.passes(x[:0], y[:0]).shape == (0, 3)
    alone = torch.cat([judges.passes(x[i : i + 1], y[i : i + 1]) for i in range(40)])
    assert torch.equal(alone, verdicts)


def test_a_verdict_on_single_precision_rows_is_given_in_double_precision(judges):
    x, y = table(500, seed=2)
    x = x.float()
    assert torch.equal(judges.passes(x, y), judges.passes(x.double(), y))


def test_about_half_of_fresh_real_rows_pass_each_judge(judges):
    x, y = table(2000, seed=3)
    for k in (0, 1):
        shares = judges.passes(x[y == k], y[y == k]).double().mean(dim=0)
        assert ((shares > 0.35) & (shares < 0.65)).all()


def test_a_point_far_away_passes_no_judge(judges):
    x, y = table(200, seed=4)
    assert not judges.passes(x + 5, y).any()
    assert not judges.passes(x * 1e4, y).any()


def test_a_row_is_judged_under_the_class_that_is_asked_for(judges):
    x, y = table(200, seed=5)
    assert not judges.passes(x, 1 - y).any(dim=1).double().mean() > 0.02


def test_a_lower_quantile_lets_more_rows_pass(judges):
    x, y = table(500, seed=6)
    mild = Judges(count=1, quantile=0.1, base=BASE).fit(*table(1500, seed=0))
    assert mild.passes(x, y).double().mean() > 0.8
    assert (mild.log_delta_[0] < judges.log_delta_[0]).all()


def test_the_same_seed_gives_the_same_judges_and_another_one_others():
    x, y = table(400, seed=0)
    first, again, other = (
        Judges(count=2, base=replace(BRIEF, random_state=base), random_state=seed).fit(x, y).log_delta_
        for base, seed in ((0, 1000), (5, 1000), (0, 2000))
    )
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).any()
    assert not torch.isclose(first[0], first[1]).any()


def test_no_judge_is_the_flow_that_guides(judges):
    x, y = table(50, seed=0)
    assert [flow.random_state for flow in judges.flows_] == [777_000, 777_001, 777_002]
    guiding = replace(BASE, random_state=0).fit(*table(1500, seed=0)).log_prob(x, y)
    for flow in judges.flows_:
        assert not torch.allclose(flow.log_prob(x, y), guiding, atol=1e-3)


def test_each_judge_is_trained_on_its_own_four_fifths_of_each_class():
    x, y = table(400, seed=0)
    judges = Judges(base=BRIEF).fit(x, y)
    _, used = judges.untrained(y)
    trained = [(x[own], y[own]) for own in used]
    for flow, (part, _) in zip(judges.flows_, trained, strict=True):
        torch.testing.assert_close(flow.frozen(part).mean, part.mean(dim=0))
    rows = [{tuple(row) for row in part.tolist()} for part, _ in trained]
    assert [classes.bincount().tolist() for _, classes in trained] == [[160, 160]] * 3
    assert rows[0] != rows[1] != rows[2] != rows[0]
    for flow, (part, _), log_delta in zip(judges.flows_, trained, judges.log_delta_, strict=True):
        unseen = torch.tensor([tuple(row) not in set(map(tuple, part.tolist())) for row in x.tolist()])
        expected = Thresholded(density=flow).fit(x[unseen], y[unseen]).log_delta_
        torch.testing.assert_close(log_delta, expected)


def test_a_class_with_few_held_out_rows_pools_them_over_the_judges():
    x, y = table(400, seed=0)
    y = torch.where(torch.arange(400) < 10, 2, y)
    log_delta = Judges(base=BRIEF).fit(x, y).log_delta_
    assert log_delta.shape == (3, 3)
    assert len(log_delta[:, 2].unique()) == 1
    assert len(log_delta[:, 0].unique()) == 3


@pytest.mark.slow
def test_with_few_rows_pooled_thresholds_are_nearer_to_those_of_many_new_rows():
    errors = {"own": [], "pooled": []}
    for seed in range(2):
        (x, y), (new, classes) = table(142, seed=seed), table(6000, seed=seed + 10)
        judges = Judges(count=6).fit(x, y)
        for j, flow in enumerate(judges.flows_):
            held, _ = split_by_class_share(y, HELD_OUT, judges.random_state + j)
            own, true = (
                torch.stack([flow.log_prob(a[b == k], b[b == k]).median() for k in range(2)])
                for a, b in ((x[held].double(), y[held]), (new.double(), classes))
            )
            errors["own"].append(own - true)
            errors["pooled"].append(judges.log_delta_[j] - true)
    size = {name: torch.stack(parts).pow(2).mean().sqrt() for name, parts in errors.items()}
    assert size["pooled"] < 0.8 * size["own"]


def test_a_class_without_held_out_rows_takes_those_of_all_classes():
    x, y = table(400, seed=0)
    y = torch.where(torch.arange(400) < 2, 3, y)
    log_delta = Judges(base=BRIEF).fit(x, y).log_delta_
    assert log_delta.shape == (3, 4)
    assert torch.equal(log_delta[:, 2], log_delta[:, 3])
    assert len(log_delta[:, 3].unique()) == 3
    assert (log_delta[:, 3] <= log_delta[:, :2].amax(dim=1)).all()
    assert (log_delta[:, 3] >= log_delta[:, :2].amin(dim=1)).all()


def test_a_table_too_small_to_hold_rows_out_is_judged_on_its_own_rows():
    x, y = table(3, seed=0)
    assert torch.isfinite(Judges(count=1, base=BRIEF).fit(x, y).log_delta_).all()


def test_the_state_round_trips(judges):
    x, y = table(300, seed=7)
    again = Judges(base=BASE).load_state(judges.state())
    assert torch.equal(again.passes(x, y), judges.passes(x, y))
    assert torch.equal(again.log_delta_, judges.log_delta_)


def test_misuse_is_refused_with_a_remedy(judges):
    x, y = table(10, seed=0)
    with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)` with training rows first"):
        Judges().passes(x, y)
    with pytest.raises(NotFittedError, match="have not been fitted"):
        Judges().state()
    with pytest.raises(InvalidInputError, match=r"`count` must be at least 1; got 0; `quantile` .* got 2"):
        Judges(count=0, quantile=2)
    with pytest.raises(InvalidInputError, match=r"that of 2 judges, as `count` says; got 3"):
        Judges(count=2, base=BASE).load_state(judges.state())
    with pytest.raises(ShapeError, match=r"shape \(n, 2\)"):
        judges.passes(x[:, :1], y)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        judges.passes(x, y + 2)
    with pytest.raises(ShapeError, match="one class per row"):
        Judges().fit(x, y[:3])


def test_texts_show_settings_only(judges):
    assert repr(judges) == f"Judges(count=3, quantile=0.5, base={BASE!r}, context=None, random_state=777000)"


@pytest.fixture
def classifier():
    return LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))


@pytest.fixture
def four_rows(classifier):
    """Verdicts 110, 011 (class 0: bits 100 turned around), nothing found, and 010, judge by judge."""
    x_cf = torch.tensor([[3.0, 0.0], [1.0, 0.0], [math.nan, 0.0], [2.0, 0.0]])
    y_target = torch.tensor([1, 0, 1, 1])
    return verify_counterfactuals(
        classifier=classifier, plausibility=None, x=-torch.ones(4, 2), x_cf=x_cf, y_target=y_target
    )


def context_of(classifier, panel):
    x, y = table(20, seed=0)
    return Context(classifier=classifier, judges=panel, x_train=x, y_train=y)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_judged_is_the_mean_over_judges_and_worst_the_strictest_judges(four_rows, classifier, variant):
    context = context_of(classifier, Verdicts())
    values = evaluate(four_rows, context, variant=variant, names=["judged", "judged_worst"])
    assert values == pytest.approx({"judged": (2 + 2 + 1) / 9, "judged_worst": 1 / 3})
    per_row = judged(four_rows, context)
    torch.testing.assert_close(
        per_row, torch.tensor([2 / 3, 2 / 3, math.nan, 1 / 3]).to(per_row), equal_nan=True
    )
    worst = judged_worst(four_rows, context)
    torch.testing.assert_close(worst, torch.tensor([1, 0, math.nan, 0]).to(worst), equal_nan=True)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_without_judges_nothing_is_judged(four_rows, classifier, variant):
    names = ["judged", "judged_worst"]
    values = evaluate(four_rows, context_of(classifier, None), variant=variant, names=names)
    assert all(math.isnan(value) for value in values.values())


def test_real_rows_are_the_yardstick(judges, classifier):
    x, y = table(400, seed=8)
    rows = real_rows(x, y, classifier=classifier)
    assert torch.equal(rows.x_cf, x)
    assert torch.equal(rows.y_target, y)
    values = evaluate(
        rows, context_of(classifier, judges), names=["coverage", "l2", "judged", "judged_worst"]
    )
    passes = judges.passes(x, y).double()
    assert values == pytest.approx(
        {
            "coverage": 1,
            "l2": 0,
            "judged": float(passes.mean()),
            "judged_worst": float(passes.mean(dim=0).min()),
        }
    )
