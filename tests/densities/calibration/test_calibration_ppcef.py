"""What PPCEF learns: an ensemble with its margin by default, or what it is given."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch

from calibrating import BASE, TRAINING, disagreeing, line, table
from plausiflow.core.training import Training
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Thresholded, learn
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods import PPCEF
from plausiflow.solvers import SQP, PenaltyAdam

FAST = replace(BASE, training=replace(TRAINING, epochs=25))
BRIEF = replace(BASE, training=Training(epochs=2, learning_rate=1e-2))


@pytest.fixture
def brief(monkeypatch):
    """Small and short: the ensemble and the flows that PPCEF makes itself."""
    monkeypatch.setattr(learn, "CrossFitEnsemble", Small)
    monkeypatch.setattr(
        learn, "ConditionalFlow", partial(ConditionalFlow, transforms=2, hidden=(16,), training=TRAINING)
    )


class Small(CrossFitEnsemble):
    def __init__(self, **settings):
        super().__init__(**{"members": 3, "base": FAST} | settings)


def fit(**settings):
    x, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        return PPCEF(classifier=line(), **settings).fit(x, y)


def test_by_default_the_ensemble_is_learned_and_every_answer_is_feasible(brief):
    method = fit()
    assert isinstance(method.plausibility_, CrossFitEnsemble)
    assert method.fitted_plausibility() is method.plausibility_
    assert method.plausibility_.quantile == method.plausibility == 0.5
    assert method.density == "ensemble"
    assert (method.plausibility_.margin_ > 0).any()
    x, _ = table(60, seed=7)
    found = method.explain(x)
    assert found.feasible.all()
    assert (method.plausibility_.score(found.x_cf.double(), found.y_target) >= 0).all()


def test_the_same_seed_learns_the_same_and_another_one_another(brief):
    first, again, other = (fit(random_state=seed).plausibility_ for seed in (1, 1, 2))
    assert all(torch.equal(value, again.state()[name]) for name, value in first.state().items())
    assert first.random_state == 1
    assert not torch.isclose(first.thresholds_, other.thresholds_).any()


def test_a_lower_quantile_asks_for_less(brief):
    x, y = table()
    low, high = (fit(plausibility=q, confidence=None).plausibility_ for q in (0.1, 0.5))
    assert (low.thresholds_ < high.thresholds_).all()
    assert (low.score(x, y) >= 0).double().mean() > 0.8


def test_without_confidence_the_margin_stays_zero(brief):
    assert not fit(confidence=None).plausibility_.margin_.any()


@pytest.mark.parametrize("architecture", ["maf", "nice"])
def test_one_flow_is_one_word_away(brief, architecture):
    x, y = table()
    method = fit(density=architecture, plausibility=0.3, random_state=3)
    learned = method.plausibility_
    assert isinstance(learned, Thresholded)
    assert (learned.quantile, learned.density.architecture, learned.density.random_state) == (
        0.3,
        architecture,
        3,
    )
    expected = Thresholded(density=learned.density, quantile=0.3).fit(x, y)
    assert torch.equal(learned.log_delta_, expected.log_delta_)
    assert method.explain(x[:10]).feasible.all()


@pytest.mark.parametrize("density", [KDE(), GMM(components=1)], ids=["kde", "gmm"])
def test_a_density_of_your_own_is_fitted_and_used(density):
    method = fit(density=density)
    assert method.plausibility_.density is density
    x, y = table()
    assert torch.isfinite(density.log_prob(x, y)).all()
    assert method.explain(x[:10]).feasible.all()


def test_an_ensemble_that_is_fitted_is_only_calibrated(ensemble, monkeypatch):
    monkeypatch.setattr(CrossFitEnsemble, "fit", lambda *_: pytest.fail("it was fitted again"))
    flows, thresholds = ensemble.flows_, ensemble.thresholds_
    method = fit(density=ensemble)
    assert method.fitted_plausibility() is ensemble
    assert ensemble.flows_ is flows
    assert ensemble.thresholds_ is thresholds
    assert (ensemble.margin_ > 0).any()


def test_an_ensemble_that_is_not_fitted_is_fitted():
    ensemble = CrossFitEnsemble(members=2, base=BRIEF)
    method = fit(density=ensemble, plausibility=0.2, confidence=None)
    assert len(method.fitted_plausibility().flows_) == 2
    assert method.fitted_plausibility().quantile == 0.2
    assert ensemble.flows_ == []


def test_a_plausibility_of_your_own_is_used_as_it_is(ensemble):
    before = ensemble.state()
    method = fit(plausibility=ensemble)
    assert method.fitted_plausibility() is ensemble
    assert method.plausibility_ is None
    assert all(torch.equal(value, ensemble.state()[name]) for name, value in before.items())


def test_the_box_and_the_columns_that_may_not_move_hold_while_calibrating(brief, monkeypatch):
    seen = []
    solve = SQP.solve

    def noted(self, problem, starts=None):
        found = solve(self, problem, starts)
        seen.append((problem, found.x))
        return found

    monkeypatch.setattr(SQP, "solve", noted)
    fit(lower=0.0, upper=1.0, immutable=(1,))
    assert seen
    for problem, x_cf in seen:
        assert problem.lower is not None
        found = torch.isfinite(x_cf).all(dim=1)
        assert found.any()
        assert torch.equal(x_cf[found][:, 1], problem.x[found][:, 1])


def test_another_solver_is_calibrated_by_the_sqp(brief, monkeypatch):
    monkeypatch.setattr(PenaltyAdam, "solve", lambda *_: pytest.fail("the calibration would take an hour"))
    assert (fit(solver=PenaltyAdam(steps=5)).plausibility_.margin_ > 0).any()


def test_a_class_out_of_reach_is_warned_about_by_fit(ensemble):
    x, y = table()
    with pytest.warns(
        PlausibilityWarning, match=r"The confidence of 0\.95 cannot be reached.*outcome 1: 0\.\d\d.*More rows"
    ):
        PPCEF(classifier=line(), density=disagreeing(ensemble, 1)).fit(x, y)


def test_explaining_before_fit_says_what_to_call():
    with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)` with training rows first"):
        PPCEF(classifier=line()).explain(table()[0])


def test_all_problems_with_the_settings_are_named_at_once():
    with pytest.raises(InvalidInputError) as caught:
        PPCEF(classifier=line(), plausibility=1.5, confidence=0.0, density="flow", margin=0.5)
    for text in (
        "`plausibility` must be a quantile in [0, 1]; got 1.5",
        "`confidence` must be a share between 0 and 1; got 0.0",
        "`density` must be one of ensemble, maf, nsf, realnvp, nice; got 'flow'",
        "`margin` must be in [0, 0.5); got 0.5",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"plausibility": math.nan}, "`plausibility` must be a quantile"),
        ({"plausibility": -0.1}, "`plausibility` must be a quantile"),
        ({"plausibility": None}, "`plausibility` is needed: a quantile such as 0.5"),
        ({"confidence": 1.0}, "`confidence` must be a share"),
        ({"confidence": math.nan}, "`confidence` must be a share"),
        ({"density": "kde"}, "`density` must be one of ensemble"),
    ],
)
def test_a_setting_out_of_range_is_an_error(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        PPCEF(classifier=line(), **settings)


def test_a_class_without_rows_is_named_before_anything_is_trained():
    x, y = table()
    with pytest.raises(InvalidInputError, match=r"none of 1\. Add such"):
        PPCEF(classifier=line()).fit(x[y == 0], y[y == 0])
