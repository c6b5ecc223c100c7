"""WACH: closed forms and linear programs for linear models, acceptance, unusual rows, settings."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import median_abs_deviation
from sklearn.neural_network import MLPClassifier as Network

from linear_problems import linear_problem, train
from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow.core.prediction import predict
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.reference.statistics import feature_spreads
from plausiflow.methods.reference.wachter import Wachter
from plausiflow.models import LinearClassifier, MLPClassifier

ODDS = math.log(0.51 / 0.49)
"""The log-odds of probability 0.51."""


def log_odds(classifier, x, y):
    logits = classifier.logits(x.double())
    rival = logits.scatter(1, y[:, None], -math.inf).amax(dim=1)
    return logits.gather(1, y[:, None])[:, 0] - rival


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize(("d", "worst"), [(2, 1.01), (10, 1.02), (50, 1.02)])
def test_in_a_wide_box_the_l1_distance_is_that_to_the_hyperplane_along_one_feature(d, worst):
    classifier, x = linear_problem(d)
    found = Wachter(classifier=classifier, lower=-9.0, upper=9.0).explain(x)
    need = log_odds(classifier, x, found.y_target).abs() + ODDS
    ratio = l1_distance(found.x_cf, x) * classifier.weight[1].abs().max() / need
    assert (ratio >= 1 - 1e-12).all()
    assert ratio.mean() < 1.005
    assert ratio.max() < worst


@pytest.mark.parametrize(("d", "mean", "worst"), [(2, 1.002, 1.01), (10, 1.01, 1.1), (50, 1.03, 1.3)])
def test_in_a_wide_box_the_l2_distance_is_that_of_the_projection(d, mean, worst):
    classifier, x = linear_problem(d)
    found = Wachter(classifier=classifier, distance="l2", lower=-9.0, upper=9.0).explain(x)
    need = log_odds(classifier, x, found.y_target).abs() + ODDS
    ratio = l2_distance(found.x_cf, x) * classifier.weight[1].norm() / need
    assert (ratio >= 1 - 1e-12).all()
    assert ratio.mean() < mean
    assert ratio.max() < worst


def test_the_mad_distance_is_that_of_the_feature_that_pays_most_for_its_spread():
    classifier, x = linear_problem(10)
    x = x * torch.linspace(0.2, 1, 10)
    found = Wachter(classifier=classifier, distance="mad", lower=-9.0, upper=9.0).fit(*train(x)).explain(x)
    spread = torch.from_numpy(median_abs_deviation(train(x)[0].numpy()))
    need = log_odds(classifier, x, found.y_target).abs() + ODDS
    ratio = l1_distance(found.x_cf, x, 1 / spread) * (classifier.weight[1] * spread).abs().max() / need
    assert (ratio >= 1 - 1e-12).all()
    assert ratio.max() < 1.02


def least_l1(classifier, x, y_target, cost=1.0):
    """Return the smallest L1 change of one row within the unit cube by linear programming."""
    weight, bias = classifier.weight.double().numpy(), classifier.bias.double().numpy()
    rivals = np.delete(np.arange(len(bias)), y_target)
    slope, gap = weight[rivals] - weight[y_target], bias[rivals] - bias[y_target]
    program = linprog(
        np.full(2 * len(x), cost),
        A_ub=np.hstack([slope, -slope]),  # the change is the difference of two non-negative vectors
        b_ub=-(slope @ x + gap) - ODDS,
        bounds=[(0, 1 - v) for v in x] + [(0, v) for v in x],
    )
    return program.fun if program.success else np.inf


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_in_the_box_of_the_data_the_l1_distance_is_that_of_a_linear_program(classes):
    classifier, x = linear_problem(10, n=25, classes=classes)
    found = Wachter(classifier=classifier).fit(*train(x)).explain(x, "runner_up")
    least = [least_l1(classifier, *row) for row in zip(x.numpy(), found.y_target.tolist(), strict=True)]
    ratio = l1_distance(found.x_cf, x) / torch.tensor(least)
    assert found.valid.all()
    assert (found.x_cf >= 0).all()
    assert (found.x_cf <= 1).all()
    assert (ratio >= 1 - 1e-7).all()
    assert ratio.mean() < 1.01
    assert ratio.max() < 1.05


def test_features_that_need_not_change_do_not_change_at_all():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([-3.0]))
    found = Wachter(classifier=classifier, lower=0.0, upper=1.0).explain(torch.full((1, 3), 0.3))
    assert (found.x_cf[0] != 0.3).tolist() == [False, True, False]


# ---------------------------------------------------------------- what is accepted


def three_blobs(n=120):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    centres = torch.tensor([[0.2, 0.2], [0.8, 0.3], [0.4, 0.8]])
    return centres[y] + 0.08 * torch.randn(n, 2, generator=generator), y


@pytest.fixture(scope="module")
def perceptron():
    x, y = three_blobs()
    network = Network((16, 16), solver="lbfgs", alpha=0.01, random_state=0).fit(x.numpy(), y.numpy())
    return MLPClassifier.from_weights([weight.T for weight in network.coefs_], network.intercepts_)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [0.0, 0.01, 0.3])
def test_every_answer_has_the_wanted_class_and_its_margin_in_the_returned_numbers(
    perceptron, precision, margin
):
    x, y = three_blobs()
    method = Wachter(classifier=perceptron, margin=margin, turns=3).fit(x, y)
    found = method.explain(x[:30].to(precision), (y[:30] + 1) % 3)
    assert found.valid.all()
    least = math.log((0.5 + margin) / (0.5 - margin))
    assert (log_odds(perceptron, found.x_cf, found.y_target) >= least).all()
    low, high = method.box(x[:30].double())
    assert ((found.x_cf >= low - 1e-7) & (found.x_cf <= high + 1e-7)).all()


def test_as_published_every_answer_is_of_another_class_with_probability_051(perceptron):
    x, y = three_blobs()
    found = Wachter.paper(classifier=perceptron).fit(x, y).explain(x[:20], "paper")
    proba = perceptron.logits(found.x_cf).softmax(dim=1)
    own = proba.gather(1, found.y[:, None])[:, 0]
    assert found.found.all()
    assert (found.y_cf != found.y).all()
    assert (proba.amax(dim=1) >= 0.51 - 1e-6).all()
    assert (own < 0.5).all()


def test_any_class_will_do_where_that_is_asked_for(perceptron):
    x, y = three_blobs()
    least_likely = perceptron.logits(x[:30]).argmin(dim=1)
    strict, free = (
        Wachter(classifier=perceptron, any_class=any_class, turns=3).fit(x, y).explain(x[:30], least_likely)
        for any_class in (False, True)
    )
    assert torch.equal(strict.y_cf, least_likely)
    assert (free.y_cf != free.y).all()
    assert (free.y_cf != least_likely).any()
    assert l1_distance(free.x_cf, x[:30]).mean() < l1_distance(strict.x_cf, x[:30]).mean()


def test_where_the_model_is_certain_the_log_odds_still_lead_somewhere():
    classifier = LinearClassifier.from_weights(torch.tensor([[3000.0, 900.0]]), torch.tensor([-1800.0]))
    x, y = torch.tensor([[0.1, 0.2], [0.9, 0.7]]), torch.tensor([0, 1])
    assert Wachter(classifier=classifier).fit(*train(x)).explain(x).valid.all()
    assert not Wachter.paper(classifier=classifier).fit(x, y).explain(x).found.any()


def test_a_model_without_gradients_is_searched_by_differences():
    class Opaque:
        n_classes, differentiable = 2, False

        def logits(self, x):
            z = (4 * x - 2).sum(dim=1).detach()
            return torch.stack([torch.zeros_like(z), z], dim=1)

    x = torch.tensor([[0.3, 0.4], [0.8, 0.6]])
    models = {"classifier": Opaque(), "lower": 0.0, "upper": 1.0}
    assert not Wachter(**models).explain(x).found.any()
    found = Wachter(**models, difference=1e-3).explain(x)
    assert found.valid.all()
    torch.testing.assert_close(
        l1_distance(found.x_cf, x), torch.tensor([0.3, 0.4]) + ODDS / 4, rtol=0.01, atol=0
    )


# ---------------------------------------------------------------- rows and data that are odd


def test_a_row_that_is_as_wanted_is_its_own_answer(perceptron):
    x, y = three_blobs()
    found = Wachter(classifier=perceptron).fit(x, y).explain(x[:9], predict(perceptron, x[:9]))
    assert torch.equal(found.x_cf, x[:9])
    assert (found.gradients == 1).all()


def test_a_model_that_never_changes_its_mind_gives_no_answer():
    classifier = LinearClassifier.from_weights(torch.zeros(1, 2), torch.ones(1))
    x = torch.rand(5, 2)
    for method in (Wachter(classifier=classifier), Wachter.paper(classifier=classifier)):
        found = method.fit(x, torch.zeros(5, dtype=torch.long)).explain(x, 0)
        assert not found.found.any()
        assert (found.gradients == 1).all()


def test_an_outcome_beyond_the_box_is_not_found():
    classifier = LinearClassifier.from_weights(torch.ones(1, 2), -torch.tensor([5.0]))
    found = Wachter(classifier=classifier, lower=0.0, upper=1.0).explain(torch.rand(4, 2), 1)
    assert not found.found.any()


def test_a_row_outside_the_box_may_stay_outside_by_default_and_is_clipped_as_published():
    classifier = LinearClassifier.from_weights(torch.tensor([[8.0, 1.0]]), torch.tensor([-4.0]))
    x, outside = torch.rand(20, 2), torch.tensor([[0.1, 1.5]])
    default = Wachter(classifier=classifier, turns=3).fit(*train(x)).explain(outside)
    published = Wachter.paper(classifier=classifier).fit(*train(x)).explain(outside)
    assert default.x_cf[0, 1] == 1.5
    assert published.valid.all()
    assert published.x_cf[0, 1] <= 1


@pytest.mark.parametrize("distance", ["l1", "mad", "l2"])
def test_constant_features_copies_and_a_class_without_training_rows_do_no_harm(distance):
    classifier, x = linear_problem(4, classes=10)
    x[:, 2] = 0.5
    x[10:20] = x[0]
    method = Wachter(classifier=classifier, distance=distance, turns=3)
    found = method.fit(x, torch.zeros(len(x), dtype=torch.long)).explain(x, "runner_up")
    assert found.valid.any()
    assert (found.x_cf[found.found, 2] == 0.5).all()
    assert torch.equal(found.x_cf[10:20], found.x_cf[:1].expand(10, 4))


@pytest.mark.parametrize("make", [Wachter, Wachter.paper], ids=["default", "paper"])
def test_a_row_alone_gets_the_answer_that_it_gets_in_a_batch(make):
    classifier, x = linear_problem(10, n=12)
    method = make(classifier=classifier).fit(*train(x))
    method.turns = 3
    together = method.explain(x).x_cf
    alone = torch.cat([method.explain(row[None]).x_cf for row in x[:2]])
    torch.testing.assert_close(alone, together[:2], rtol=0, atol=1e-9)


def test_the_spread_is_the_median_absolute_deviation_and_never_zero():
    x = torch.rand(100, 4) ** 2
    x[:, 2] = torch.where(torch.arange(100) % 10 == 0, 1.0, 0.0)  # mostly one value
    x[:, 3] = 0.7
    spread = feature_spreads(x)
    np.testing.assert_allclose(spread[:2], median_abs_deviation(x[:, :2].numpy()))
    assert spread[2:].tolist() == pytest.approx([0.1, 1])


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"distance": "cosine"}, "`distance` must be 'l1', 'mad' or 'l2'; got 'cosine'"),
        ({"margin": 0.5}, r"`margin` must be in \[0, 0.5\); got 0.5"),
        ({"difference": -0.1}, "`difference` must be at least 0; got -0.1"),
        ({"steps": 0, "turns": 1.5}, "`steps` must be .* at least 1; got 0; `turns` must be .* got 1.5"),
        ({"patience": 0}, "`patience` must be a whole number of at least 1; got 0"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive; got 0.0"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        Wachter(classifier=linear_problem(2)[0], **settings)


def test_without_training_rows_there_is_no_box_and_no_spread():
    classifier, x = linear_problem(2)
    with pytest.raises(NotFittedError, match=r"`fit\(x, y\)`.*or give `lower` and `upper`"):
        Wachter(classifier=classifier).explain(x)
    with pytest.raises(NotFittedError, match=r'"mad" needs the spread.*use "l1"'):
        Wachter(classifier=classifier, distance="mad", lower=0.0, upper=1.0).explain(x)
