"""Searches with a fitted flow: rows alone and together, bounds that hold exactly, paths."""

from dataclasses import replace

import pytest
import torch
from sklearn.datasets import make_moons

from plausiflow.core import Evaluation
from plausiflow.core.losses import l2_distance
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, Thresholded, row_scores
from plausiflow.methods import PPCEF
from plausiflow.models import MLPClassifier
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow.solvers.iteration import SQPState, StoppingCriteria


@pytest.fixture(scope="module")
def two_moons():
    x, y = make_moons(1200, noise=0.1, random_state=0)
    x = torch.as_tensor((x - x.min(0)) / (x.max(0) - x.min(0)), dtype=torch.float32)
    y = torch.as_tensor(y)
    classifier = MLPClassifier(hidden=(32, 32), training=Training(epochs=30, learning_rate=1e-2)).fit(x, y)
    flow = ConditionalFlow(
        transforms=3, hidden=(32, 32), training=Training(epochs=25, learning_rate=5e-3, noise=0.02)
    )
    return x, y, classifier, Thresholded(density=flow.fit(x, y)).fit(x, y)


@pytest.mark.parametrize("mode", ["fast", "quality"])
def test_a_row_alone_gets_the_answer_it_gets_in_a_batch_of_a_thousand(two_moons, mode):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(
        classifier=classifier, plausibility=plausibility, lower=0.0, upper=1.0, solver=SQP(mode=mode)
    ).fit(x, y)
    together = method.explain(x[:1000])
    assert together.feasible.all()
    for row in (0, 17, 500, 999):
        alone = method.explain(x[row : row + 1])
        torch.testing.assert_close(alone.x_cf[0], together.x_cf[row], rtol=0, atol=1e-5)
    chunked = replace(method, chunk_size=137)
    chunked.bank_ = method.bank_
    torch.testing.assert_close(chunked.explain(x[:1000]).x_cf, together.x_cf, rtol=0, atol=1e-5)


def test_bounds_frozen_and_monotone_features_hold_exactly(two_moons):
    x, y, classifier, plausibility = two_moons
    base = PPCEF(classifier=classifier, plausibility=plausibility).fit(x, y)
    rows = x[:200]
    for settings_, holds in (
        ({"immutable": (1,)}, lambda cf: cf.x_cf[:, 1] == cf.x[:, 1]),
        ({"increasing": (0,)}, lambda cf: cf.x_cf[:, 0] >= cf.x[:, 0]),
        ({"decreasing": (-1,)}, lambda cf: cf.x_cf[:, -1] <= cf.x[:, -1]),
        ({"lower": 0.2, "upper": torch.tensor([0.8, 0.9])}, None),
    ):
        method = replace(base, **settings_)
        method.bank_ = base.bank_
        cf = method.explain(rows)
        kept = cf[cf.found]
        assert len(kept) > 3
        assert kept.feasible.all()
        if holds is not None:
            assert holds(kept).all()
        else:
            upper = torch.maximum(torch.tensor([0.8, 0.9]).to(kept.x), kept.x)
            assert ((kept.x_cf >= kept.x.clamp_max(0.2)) & (kept.x_cf <= upper)).all()


def test_nothing_is_returned_where_nothing_is_feasible(two_moons):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(classifier=classifier, plausibility=plausibility, immutable=(0, 1)).fit(x, y)
    found = method.explain(x[:20])
    assert not found.found.any()
    assert torch.isnan(found.x_cf).all()


def test_searches_that_all_take_the_same_operations_come_as_close(two_moons):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(classifier=classifier, plausibility=plausibility, lower=-1.5, upper=2.5)
    rows, y_target = x[:40].double(), 1 - y[:40]
    problem = method._problem(rows, y_target, row_scores(plausibility, rows, y_target))
    evaluation, rows = Evaluation(problem), torch.arange(40)
    best = {}
    for uniform in (False, True):
        state = SQPState.begin(evaluation, rows, problem.x, curvature=4.0, radius=0.3)
        for _ in range(40):
            state.iterate(evaluation, StoppingCriteria(1e-4, 10, max_without_answer=40, uniform=uniform))
        best[uniform] = state.best_cost
    found = torch.isfinite(best[False]) & torch.isfinite(best[True])
    assert found.sum() >= 36
    torch.testing.assert_close(best[True][found], best[False][found], rtol=1e-2, atol=1e-4)


def test_a_search_that_is_too_slow_ends_after_a_third_and_others_go_on(two_moons):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(classifier=classifier, plausibility=plausibility, lower=-1.5, upper=2.5)
    rows, y_target = x[:60].double(), 1 - y[:60]
    problem = method._problem(rows, y_target, row_scores(plausibility, rows, y_target))
    closed = replace(problem, lower=problem.x - 1e-3, upper=problem.x + 1e-3)
    free, stuck = (SQP().improve(own, own.x, max_without_answer=30, paced=True) for own in (problem, closed))
    patient = SQP().improve(problem, problem.x, max_without_answer=30)
    found = torch.isfinite(patient.x).all(dim=1)
    assert found.sum() > 50
    assert torch.equal(free.x[found], patient.x[found])
    hopeless = ~torch.isfinite(stuck.x).all(dim=1)
    assert hopeless.sum() > 50
    assert (stuck.gradients[hopeless] <= 12).all()


def test_the_best_iterate_is_feasible_more_often_and_never_farther_than_the_last(two_moons):
    x, _, classifier, plausibility = two_moons
    rows = x[:60]
    last = PPCEF(
        classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=300, keep="last")
    ).explain(rows)
    best = PPCEF(
        classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=300, keep="best")
    ).explain(rows)
    both = last.feasible & best.feasible
    assert best.feasible.sum() >= last.feasible.sum()
    assert (l2_distance(best.x_cf, best.x)[both] <= l2_distance(last.x_cf, last.x)[both] + 1e-6).all()


def test_paths_start_at_the_row_and_end_at_the_counterfactual(two_moons):
    x, y, classifier, plausibility = two_moons
    for solver in (PenaltyAdam(steps=60, keep="last", trace=20), SQP(trace=True)):
        found = (
            PPCEF(classifier=classifier, plausibility=plausibility, solver=solver).fit(x, y).explain(x[:3])
        )
        assert found.path is not None
        torch.testing.assert_close(found.path[0].to(found.x), found.x)
        if isinstance(solver, PenaltyAdam):
            torch.testing.assert_close(found.path[-1], found.x_cf)
