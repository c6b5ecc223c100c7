"""The calibrated margin: enough for a member left out, never too much; and what PPCEF learns by default."""

import copy
import math
import warnings
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from plausiflow.classifiers import LinearClassifier, predict
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Thresholded
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.frozen import Frozen
from plausiflow.methods import PPCEF, ppcef
from plausiflow.search import calibration
from plausiflow.search.calibration import STEPS, PlausibilityWarning, calibrate
from plausiflow.solvers import SQP, PenaltyAdam
from plausiflow.training import Training

TRAINING = Training(epochs=60, batch_size=64, learning_rate=1e-2, noise=0.02)
BASE = ConditionalFlow(transforms=2, hidden=(16,), training=TRAINING)
FAST = replace(BASE, training=replace(TRAINING, epochs=25))
BRIEF = replace(BASE, training=Training(epochs=2, learning_rate=1e-2))


@pytest.fixture(autouse=True)
def small_allowance(monkeypatch):
    """Thresholds of 40 rows have large standard errors: with the usual allowance no margin is enough here."""
    monkeypatch.setattr(calibration, "ALLOWANCE", 0.5)


def table(n=240, seed=0):
    """Two Gaussian classes in the plane, side by side."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    noise = torch.randn(n, 2, generator=generator)
    return torch.stack([0.3 + 0.4 * y + 0.1 * noise[:, 0], 0.5 + 0.15 * noise[:, 1]], dim=1), y


def line(at=0.5):
    """A model that decides by the first feature."""
    return LinearClassifier.from_weights(torch.tensor([[20.0, 0.0]]), torch.tensor([-20.0 * at]))


@cache
def trained():
    return CrossFitEnsemble(members=3, base=BASE).fit(*table())


def fresh():
    """The trained ensemble with a cap that its members reach without any one of them, too."""
    ensemble = copy.deepcopy(trained())
    ensemble.most_margin_ = 0.85 * ensemble.most_margin_
    return ensemble


@pytest.fixture
def ensemble():
    return fresh()


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(calibration, "ROWS", 60)
    monkeypatch.setattr(calibration, "ROWS_OF_CLASS", 30)


class Counting:
    """A solver that counts its searches and remembers what it was asked and what it found."""

    def __init__(self):
        self.calls, self.rows = 0, []

    def solve(self, problem, starts=None):
        self.calls += 1
        self.rows.append(len(problem.x))
        return SQP().solve(problem, starts)


class Stand(SQP):
    """Takes the place of the solver in a method."""

    def __init__(self, solver):
        super().__init__()
        object.__setattr__(self, "own", solver)

    def solve(self, problem, starts=None):
        return self.own.solve(problem, starts)


def calibrated(ensemble, confidence=0.95, *, classifier=None, solver=None, seed=0, quiet=True, x=None):
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
            search=method._guided,
            confidence=confidence,
            seed=seed,
        )


# ---------------------------------------------------------------- the margin


def test_the_margin_is_kept_in_the_ensemble_and_never_beyond_what_a_tenth_of_the_rows_reach(ensemble):
    found = calibrated(ensemble)
    assert torch.equal(ensemble.margin_, found.margin)
    assert found.margin.shape == found.passed.shape == (2,)
    assert (found.margin >= 0).all()
    assert (found.margin <= ensemble.most_margin_).all()
    assert (ensemble.most_margin_ > 0).all()


def test_it_is_deterministic_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again = (calibrated(fresh(), 0.9, seed=4) for _ in range(2))
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
    """Members written down: round Gaussians about the centre of each class, a little apart, one stricter."""

    def forward(self, x, y):
        angles = torch.arange(3).to(x) * 2 * math.pi / 3
        offsets = 0.02 * torch.stack([angles.cos(), angles.sin()], dim=1)
        centre = torch.stack([0.3 + 0.4 * y.to(x), torch.full_like(x[:, 0], 0.5)], dim=1)
        squared = ((x - centre - offsets[:, None]) ** 2).sum(dim=2) / 0.1**2
        return math.log(2) - 0.5 * squared + x.new_tensor([0.15, 0.0, -0.15])[:, None]


def written_down(cap):
    """Without the first member no point reaches 0.61; a margin of 0.5 satisfies whichever is left out."""
    ensemble = CrossFitEnsemble(members=3)
    ensemble.flows_ = [SimpleNamespace(n_features_=2, n_classes_=2)] * 3
    ensemble._stacked = Frozen(Round())
    ensemble.thresholds_, ensemble.errors_ = torch.zeros(2, 3, 2, dtype=torch.float64)
    ensemble.margin_ = torch.zeros(2, dtype=torch.float64)
    ensemble.most_margin_ = torch.full((2,), cap, dtype=torch.float64)
    return ensemble


def test_at_its_margin_the_members_left_out_accept_the_share_asked_for():
    found = calibrated(written_down(cap=0.58), 0.95, quiet=False)
    assert (found.passed >= 0.95).all()
    assert (found.margin > 0.1).all()
    assert (found.margin < 0.55).all()
    barely = calibrated(written_down(cap=float(found.margin.min()) - 0.05), 0.95)
    assert (barely.passed < 0.95).any()  # so that it is not more than it takes


def test_a_cap_out_of_reach_without_some_member_does_not_hide_the_margin_that_is_enough():
    found = calibrated(written_down(cap=0.65), 0.95)
    assert (found.passed >= 0.95).all()
    assert (found.margin < 0.6).all()


def test_another_search_without_a_member_agrees_with_the_share_reported(ensemble):
    """Fresh ensembles that lack a member altogether guide a search of all rows; that member judges."""
    confidence = 0.9
    found = calibrated(ensemble, confidence)
    x, _ = table()
    accepted = {0: [], 1: []}
    for m in range(3):
        guide = copy.deepcopy(ensemble)
        kept = [i for i in range(3) if i != m]
        guide.members, guide.thresholds_ = 2, ensemble.thresholds_[kept]
        guide._adopt([ensemble.flows_[i] for i in kept])
        method = PPCEF(classifier=line(), plausibility=guide).fit(*table())
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
    assert (found.margin <= ensemble.most_margin_).all()


@pytest.mark.parametrize("confidence", [0.01, 0.9, 0.999])
def test_the_work_is_bounded(ensemble, confidence):
    solver = Counting()
    calibrated(ensemble, confidence, solver=solver)
    assert 1 <= solver.calls <= STEPS
    assert max(solver.rows) <= 60
    if confidence == 0.01:
        assert solver.calls == 1


# ---------------------------------------------------------------- classes that are out of reach


def disagreeing(ensemble, k):
    """Member by member another threshold for class ``k``: nothing that satisfies two satisfies the third."""
    ensemble.thresholds_ = ensemble.thresholds_.clone()
    ensemble.thresholds_[:, k] += torch.tensor([0.0, 0.0, 50.0], dtype=torch.float64)
    ensemble.thresholds_[0, k] -= 50.0
    return ensemble


def test_a_class_that_cannot_reach_it_is_warned_about_with_its_share_and_margin_at_the_cap(ensemble):
    ensemble = disagreeing(ensemble, 1)
    with pytest.warns(PlausibilityWarning) as caught:
        found = calibrated(ensemble, 0.8, quiet=False)
    (warning,) = caught
    text = str(warning.message)
    assert found.passed[1] < 0.8
    assert found.margin[1] == ensemble.most_margin_[1]
    assert "The confidence of 0.8 is out of reach" in text
    assert f"class 1: {float(found.passed[1]):.2f}" in text
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


# ---------------------------------------------------------------- what PPCEF learns


@pytest.fixture
def brief(monkeypatch):
    """Small and short: the ensemble and the flows that PPCEF makes itself."""
    monkeypatch.setattr(ppcef, "CrossFitEnsemble", Small)
    monkeypatch.setattr(
        ppcef, "ConditionalFlow", partial(ConditionalFlow, transforms=2, hidden=(16,), training=TRAINING)
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
    assert method.scored_by() is method.plausibility_
    assert method.plausibility_.quantile == method.plausibility == 0.5
    assert method.density == "ensemble"
    assert (method.plausibility_.margin_ > 0).any()
    x, _ = table(60, seed=7)
    found = method.explain(x)
    assert found.feasible.all()
    assert (method.plausibility_.score(found.x_cf.double(), found.y_target) >= 0).all()


def test_the_same_seed_learns_the_same_and_another_one_another(brief):
    first, again, other = (fit(seed=seed).plausibility_ for seed in (1, 1, 2))
    assert all(torch.equal(value, again.state()[name]) for name, value in first.state().items())
    assert first.seed == 1
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
    method = fit(density=architecture, plausibility=0.3, seed=3)
    learned = method.plausibility_
    assert isinstance(learned, Thresholded)
    assert (learned.quantile, learned.density.architecture, learned.density.seed) == (0.3, architecture, 3)
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
    assert method.scored_by() is ensemble
    assert ensemble.flows_ is flows
    assert ensemble.thresholds_ is thresholds
    assert (ensemble.margin_ > 0).any()


def test_an_ensemble_that_is_not_fitted_is_fitted():
    ensemble = CrossFitEnsemble(members=2, base=BRIEF)
    method = fit(density=ensemble, plausibility=0.2, confidence=None)
    assert len(method.scored_by().flows_) == 2
    assert method.scored_by().quantile == 0.2
    assert ensemble.flows_ == []


def test_a_plausibility_of_your_own_is_used_as_it_is(ensemble):
    before = ensemble.state()
    method = fit(plausibility=ensemble)
    assert method.scored_by() is ensemble
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
        PlausibilityWarning, match=r"The confidence of 0\.95 is out of reach.*class 1: 0\.\d\d"
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
