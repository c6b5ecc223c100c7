"""The calibrated margin: enough for a member left out, never too much; a warning where it cannot be."""

import copy
import math
import warnings
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from calibrating import disagreeing, fresh, line, table
from plausiflow.core.frozen import Frozen
from plausiflow.core.prediction import predict
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.calibration import STEPS, PlausibilityWarning, calibrate
from plausiflow.methods import PPCEF
from plausiflow.solvers import SQP


class Counting:
    """A solver that counts its searches and their rows."""

    def __init__(self):
        self.calls, self.rows = 0, []

    def solve(self, problem, starts=None):
        self.calls += 1
        self.rows.append(len(problem.x))
        return SQP().solve(problem, starts)


class Stand(SQP):
    """An SQP that passes every search on to another solver."""

    def __init__(self, solver):
        super().__init__()
        object.__setattr__(self, "own", solver)

    def solve(self, problem, starts=None):
        return self.own.solve(problem, starts)


def calibrated(
    ensemble, confidence=0.95, *, classifier=None, solver=None, random_state=0, quiet=True, x=None
):
    x = table()[0] if x is None else x
    classifier = classifier or line()
    method = PPCEF(classifier=classifier, plausibility=ensemble, solver=Stand(solver) if solver else SQP())
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", PlausibilityWarning)
        return calibrate(
            ensemble,
            x,
            predict(classifier, x),
            validity=method._validity,
            search=method._search_with,
            confidence=confidence,
            random_state=random_state,
        )


# ---------------------------------------------------------------- the margin


def test_the_margin_is_kept_in_the_ensemble_and_never_beyond_what_a_tenth_of_the_rows_reach(ensemble):
    found = calibrated(ensemble)
    assert torch.equal(ensemble.margin_, found.margin)
    assert found.margin.shape == found.passed.shape == (2,)
    assert (found.margin >= 0).all()
    assert (found.margin <= ensemble.max_margin_).all()
    assert (ensemble.max_margin_ > 0).all()


def test_it_is_deterministic_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again = (calibrated(fresh(), 0.9, random_state=4) for _ in range(2))
    assert torch.equal(first.margin, again.margin)
    assert torch.equal(first.passed, again.passed)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_margin_from_before_does_not_matter(ensemble):
    other = copy.deepcopy(ensemble)
    other.margin_ = other.margin_ + 5
    assert torch.equal(calibrated(ensemble).margin, calibrated(other).margin)


def test_what_is_learned_stays_but_for_the_margin(ensemble):
    before = ensemble.state()
    calibrated(ensemble)
    after = ensemble.state()
    assert [name for name in before if not torch.equal(before[name], after[name])] in ([], ["margin"])


class Round(torch.nn.Module):
    """Members in closed form: round Gaussians near the centre of each class, one of them stricter."""

    def forward(self, x, y):
        angles = torch.arange(3).to(x) * 2 * math.pi / 3
        offsets = 0.02 * torch.stack([angles.cos(), angles.sin()], dim=1)
        centre = torch.stack([0.3 + 0.4 * y.to(x), torch.full_like(x[:, 0], 0.5)], dim=1)
        squared = ((x - centre - offsets[:, None]) ** 2).sum(dim=2) / 0.1**2
        return math.log(2) - 0.5 * squared + x.new_tensor([0.15, 0.0, -0.15])[:, None]


def closed_form(cap):
    """Without the first member no point reaches 0.61; a margin of 0.5 satisfies whichever is left out."""
    ensemble = CrossFitEnsemble(members=3)
    ensemble.flows_ = [SimpleNamespace(n_features_=2, n_classes_=2)] * 3
    ensemble._stacked = Frozen(Round())
    ensemble.thresholds_, ensemble.errors_ = torch.zeros(2, 3, 2, dtype=torch.float64)
    ensemble.margin_ = torch.zeros(2, dtype=torch.float64)
    ensemble.max_margin_ = torch.full((2,), cap, dtype=torch.float64)
    return ensemble


def test_at_its_margin_the_members_left_out_accept_the_share_asked_for():
    found = calibrated(closed_form(cap=0.58), 0.95, quiet=False)
    assert (found.passed >= 0.95).all()
    assert (found.margin > 0.1).all()
    assert (found.margin < 0.55).all()
    barely = calibrated(closed_form(cap=float(found.margin.min()) - 0.05), 0.95)
    assert (barely.passed < 0.95).any()  # so that it is not more than it takes


def test_a_cap_out_of_reach_without_some_member_does_not_hide_the_margin_that_is_enough():
    found = calibrated(closed_form(cap=0.65), 0.95)
    assert (found.passed >= 0.95).all()
    assert (found.margin < 0.6).all()


def test_another_search_without_a_member_agrees_with_the_share_reported(ensemble):
    """Ensembles without one member guide a search of all rows; the missing member judges."""
    confidence = 0.9
    found = calibrated(ensemble, confidence)
    x, _ = table()
    accepted = {0: [], 1: []}
    for m in range(3):
        smaller = copy.deepcopy(ensemble)
        kept = [i for i in range(3) if i != m]
        smaller.members, smaller.thresholds_ = 2, ensemble.thresholds_[kept]
        smaller._adopt([ensemble.flows_[i] for i in kept])
        method = PPCEF(classifier=line(), plausibility=smaller).fit(*table())
        answers = method.explain(x)
        assert answers.feasible.all()
        x_cf, y = answers.x_cf.double(), answers.y_target
        passes = ensemble.flows_[m].log_prob(x_cf, y) >= ensemble.thresholds_[m, y]
        for k in (0, 1):
            accepted[k].append(passes[y == k])
    for k in (0, 1):
        share = float(torch.cat(accepted[k]).double().mean())
        assert share >= float(found.passed[k]) - 0.1


def test_more_confidence_never_asks_for_a_smaller_margin():
    margins = [calibrated(fresh(), confidence).margin for confidence in (0.3, 0.7, 0.9, 0.99)]
    for less, more in pairwise(margins):
        assert (more >= less).all()
    assert (margins[-1] > margins[0]).any()


def test_no_margin_is_taken_where_none_is_needed(ensemble):
    found = calibrated(ensemble, confidence=0.01)
    assert not found.margin.any()
    assert (found.passed >= 0.01).all()


def test_thresholds_that_are_less_certain_ask_for_more(ensemble):
    uncertain = copy.deepcopy(ensemble)
    uncertain.errors_ = uncertain.errors_ + 0.5
    assert (calibrated(uncertain, 0.8).margin >= calibrated(ensemble, 0.8).margin).all()


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_either_aggregation_can_be_calibrated(ensemble, aggregation):
    ensemble.aggregation = aggregation
    found = calibrated(ensemble, 0.8)
    assert torch.isfinite(found.passed).all()
    assert (found.margin <= ensemble.max_margin_).all()


@pytest.mark.parametrize("confidence", [0.01, 0.9, 0.999])
def test_the_work_is_bounded(ensemble, confidence):
    solver = Counting()
    calibrated(ensemble, confidence, solver=solver)
    assert 1 <= solver.calls <= STEPS
    assert max(solver.rows) <= 60
    if confidence == 0.01:
        assert solver.calls == 1


# ---------------------------------------------------------------- classes that are out of reach


def test_a_class_that_cannot_reach_it_is_warned_about_with_its_share_at_the_margin_worth_it(ensemble):
    ensemble = disagreeing(ensemble, 1)
    with pytest.warns(PlausibilityWarning) as caught:
        found = calibrated(ensemble, 0.8, quiet=False)
    (warning,) = caught
    text = str(warning.message)
    assert found.passed[1] < 0.8
    assert 0 < found.margin[1] <= ensemble.max_margin_[1]
    assert "The confidence of 0.8 cannot be reached within what a tenth of the real rows reach" in text
    assert f"outcome 1: {float(found.passed[1]):.2f}" in text
    assert "More rows of these outcomes would help" in text
    assert "class 0" not in text
    assert found.passed[0] >= 0.8


def test_a_class_that_reaches_it_is_found_as_if_the_other_one_did(ensemble):
    alone = calibrated(copy.deepcopy(ensemble), 0.8)
    beside = calibrated(disagreeing(ensemble, 1), 0.8)
    torch.testing.assert_close(beside.margin[0], alone.margin[0], rtol=0, atol=0.2)


def test_a_search_that_finds_nothing_is_not_accepted(ensemble):
    class Helpless:
        def solve(self, problem, starts=None):
            found = SQP().solve(problem, starts)
            return replace(found, x=torch.full_like(found.x, torch.nan))

    found = calibrated(ensemble, 0.5, solver=Helpless())
    assert found.passed.tolist() == [0, 0]
    assert not found.margin.any()


def test_a_class_without_rows_to_search_keeps_a_margin_of_zero(ensemble):
    found = calibrated(ensemble, 0.9, classifier=line(at=-50.0))
    assert found.margin[1] == 0
    assert math.isnan(found.passed[1])  # every row is of class 1 already
    assert math.isfinite(found.passed[0])


def test_rows_of_single_precision_are_searched_in_double_precision(ensemble):
    x = table()[0]
    exact = calibrated(copy.deepcopy(ensemble), 0.8, x=x.float().double())
    single = calibrated(ensemble, 0.8, x=x.float())
    assert torch.equal(exact.margin, single.margin)
    assert single.margin.dtype == torch.float64
