"""CEM and the solver of CEM and CEGP: closed forms, a NumPy loop, and the published counterfactuals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plausiflow.core.losses import l2_distance
from plausiflow.core.prediction import predict, predict_proba
from plausiflow.core.training import Training
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.models import LinearClassifier, TorchClassifier
from plausiflow_bench.methods.autoencoder import Autoencoder
from plausiflow_bench.methods.cem import CEM
from plausiflow_bench.methods.elastic_net import decision_gap
from plausiflow_bench.methods.fista import FISTA
from published_counterfactuals import BANDS, against_the_stored
from published_fista import published_loop

slow = pytest.mark.slow
BRIEF = FISTA(rounds=4, steps=80)


def linear(d, classes=2, scale=8.0):
    """Return a linear model whose boundaries pass near the middle of the unit cube."""
    generator = torch.Generator().manual_seed(d)
    weight = scale * torch.randn(classes, d, generator=generator)
    return LinearClassifier.from_weights(weight, -weight @ torch.full((d,), 0.5))


def difference(classifier, x):
    """Return the lead of class 1 over class 0 in logits, and its gradient."""
    weight, bias = classifier.weight.double(), classifier.bias.double()
    return x @ (weight[1] - weight[0]) + bias[1] - bias[0], weight[1] - weight[0]


# ---------------------------------------------------------------- the decision gap


@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_the_gap_is_negative_exactly_where_the_rule_of_the_papers_accepts(scale, classes, margin):
    logits, y = 3 * torch.randn(500, classes), torch.arange(500) % classes
    proba, one_hot = logits.softmax(dim=1), torch.nn.functional.one_hot(y, classes)
    leaves = (proba + margin * one_hot).argmax(dim=1) != y
    arrives = (proba + margin * (1 - one_hot)).argmax(dim=1) == y
    assert torch.equal(decision_gap(logits, y, margin, scale=scale, away=True) < 0, leaves)
    assert torch.equal(decision_gap(logits, y, margin, scale=scale, away=False) < 0, arrives)
    assert 0 < arrives.sum() < 500


def test_on_the_scale_of_logits_the_gap_of_a_certain_model_still_has_a_slope():
    logits = torch.tensor([[80.0, 0.0, -5.0]], requires_grad=True)
    for scale, slopes in (("logit", True), ("probability", False)):
        gap = decision_gap(logits, torch.tensor([1]), 0.02, scale=scale, away=False)
        (gradient,) = torch.autograd.grad(gap.sum(), logits)
        assert (gradient.abs().max() > 0.5) == slopes


# ---------------------------------------------------------------- closed forms


def distances_to_the_boundary(d, scale, solver):
    """Return the L2 distances of counterfactuals without the L1 term, and of projections."""
    classifier, x = linear(d, scale=1.0), torch.rand(30, d)
    method = CEM(
        classifier=classifier, margin=0.0, l1_weight=0.0, lower=-9.0, upper=9.0, scale=scale, solver=solver
    )
    found = method.explain(x)
    assert found.valid.all()
    ahead, weight = difference(classifier, x)
    return l2_distance(found.x_cf, x), ahead.abs() / weight.norm()


def test_without_the_city_block_distance_answers_are_projections_on_the_boundary():
    answers, projections = distances_to_the_boundary(10, "logit", FISTA())
    torch.testing.assert_close(answers, projections, rtol=0.02, atol=0)


@slow
@pytest.mark.parametrize("d", [2, 10, 50])
@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("solver", [FISTA(), FISTA(rounds=10, steps=1000)], ids=["default", "long"])
def test_projections_are_met_in_any_dimension_and_on_both_scales(d, scale, solver):
    answers, projections = distances_to_the_boundary(d, scale, solver)
    torch.testing.assert_close(answers, projections, rtol=0.02, atol=0)


def elastic_net_optimum(classifier, x, *, beta, kappa, lower, upper):
    """Return the least elastic-net cost of the other side, by bisection of the one-dimensional dual."""
    ahead, weight = difference(classifier, x)
    towards = -ahead.sign()[:, None] * weight
    asked = ahead.abs() + 2 * np.arctanh(kappa)

    def change(price):
        step = towards.sign() * ((price[:, None] * towards.abs() - beta) / 2).clamp_min(0)
        return (x + step).clamp(lower, upper) - x

    low, high = torch.zeros(len(x)), torch.full((len(x),), 1e4)
    for _ in range(100):
        middle = (low + high) / 2
        enough = (change(middle) * towards).sum(dim=1) >= asked
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return cost(change(high), beta)


def cost(change, beta):
    return change.square().sum(dim=1) + beta * change.abs().sum(dim=1)


@pytest.mark.parametrize("d", [3, pytest.param(20, marks=slow)])
def test_answers_are_the_elastic_nets_optima_within_the_box(d):
    classifier, x = linear(d), torch.rand(40, d)
    found = CEM(classifier=classifier, lower=0.0, upper=1.0).explain(x)
    best = elastic_net_optimum(classifier, x, beta=0.1, kappa=0.02, lower=0.0, upper=1.0)
    ratio = cost(found.x_cf - x, 0.1) / best
    assert found.valid.all()
    assert (ratio > 1 - 1e-9).all()
    assert ratio.mean() < 1.005
    assert ratio.max() < 1.05


def test_features_that_need_not_change_do_not_change_at_all():
    classifier = LinearClassifier.from_weights(torch.tensor([[9.0, 0.3, -0.1]]), torch.tensor([-4.5]))
    found = CEM(classifier=classifier, lower=0.0, upper=1.0).explain(torch.rand(20, 3))
    assert found.valid.all()
    assert torch.equal(found.x_cf[:, 1:], found.x[:, 1:])


# ---------------------------------------------------------------- the published loop


def published_settings(x, **changed):
    median = np.median(x.numpy(), axis=0)
    box = {"lower": x.amin(dim=0).numpy(), "upper": x.amax(dim=0).numpy()}
    return {"kappa": 0.2, "beta": 0.1, "rounds": 5, "c": 10.0, "centre": median} | box | changed


@pytest.mark.parametrize(("d", "classes"), [(3, 2), (8, 3), (6, 10)])
def test_the_preset_repeats_the_published_loop_row_by_row(d, classes):
    classifier, train = linear(d, classes), torch.rand(50, d)
    x = torch.cat([train[:8], 1.1 * torch.rand(2, d)])
    method = CEM.paper(classifier=classifier)
    method.solver = replace(method.solver, steps=40)
    found = method.fit(train, torch.zeros(50, dtype=torch.long)).explain(x, "paper")
    weight, bias = classifier.weight.double().numpy(), classifier.bias.double().numpy()
    settings = published_settings(train, steps=40)
    by_hand = np.stack([published_loop(row, weight, bias, **settings) for row in x.numpy()])
    np.testing.assert_allclose(found.x_cf.numpy(), by_hand, atol=1e-9)
    assert found.found.any()


def test_the_preset_has_the_settings_of_the_published_runs():
    method = CEM.paper(classifier=linear(2))
    assert (method.margin, method.l1_weight, method.reconstruction_weight) == (0.2, 0.1, 0.0)
    assert (method.any_class, method.scale, method.no_information) == (True, "probability", "median")
    solver = method.solver
    assert (solver.rounds, solver.steps, solver.first_weight, solver.learning_rate) == (5, 200, 10.0, 0.01)
    assert (solver.prox, solver.numerical, solver.max_gradient) == ("dead_zone", True, 1000.0)


@pytest.mark.paper
@pytest.mark.parametrize(
    "name", ["moons", "wine", *(pytest.param(n, marks=slow) for n in BANDS if n not in ("moons", "wine"))]
)
def test_the_preset_lands_on_the_published_counterfactuals(reference_directory, name):
    agreement, ratios, difference = against_the_stored(CEM.paper, "cem", name, reference_directory)
    assert agreement >= 0.99
    assert ratios == pytest.approx([1, 1], abs=BANDS[name])
    if name in ("moons", "law"):
        assert difference <= 1e-3


@pytest.mark.parametrize("preset", [True, False])
def test_pertinent_negatives_keep_what_they_promise(preset):
    classifier, train = linear(6, 3), torch.rand(200, 6)
    method = CEM.paper(classifier=classifier)
    if not preset:
        method = CEM(classifier=classifier, no_information="median", margin=0.2, any_class=True, solver=BRIEF)
    method.solver = replace(method.solver, steps=80)
    found = method.fit(train, torch.zeros(200, dtype=torch.long)).explain(train[:60], "paper")
    x_cf, x = found.x_cf[found.found], found.x[found.found]
    assert found.found.double().mean() > 0.5
    centre = train.quantile(0.5, dim=0)
    assert ((x_cf == x) | ((x_cf - centre).abs() > (x - centre).abs())).all()
    assert (x_cf >= train.amin(dim=0)).all()
    assert (x_cf <= train.amax(dim=0)).all()
    proba, origin = predict_proba(classifier, x_cf), predict(classifier, x)[:, None]
    runner_up = proba.scatter(1, origin, -1.0).amax(dim=1)
    assert (proba.gather(1, origin)[:, 0] <= runner_up - 0.2).all()


def test_values_without_information_are_the_median_the_mean_or_given():
    classifier, train = linear(2), torch.tensor([[0.0, 1.0], [1.0, 3.0], [5.0, 4.0], [8.0, 4.0]])
    y = torch.zeros(4, dtype=torch.long)
    for given, expected in (("median", [3.0, 3.5]), ("mean", [3.5, 3.0])):
        method = CEM(classifier=classifier, no_information=given).fit(train, y)
        assert method.no_information_.tolist() == expected
    x, lower = torch.tensor([[0.4, 0.45]]), {"lower": 0.0, "upper": 1.0}
    away = CEM(classifier=classifier, no_information=torch.tensor([0.5, 0.5]), solver=BRIEF, **lower)
    found = away.explain(x)
    assert ((found.x_cf == x) | ((found.x_cf - 0.5).abs() > (x - 0.5).abs())).all()


# ---------------------------------------------------------------- targets, boxes, precision, cost


def test_the_wanted_class_is_reached_by_the_margin_and_any_class_on_request():
    classifier, x = linear(5, 10), torch.rand(40, 5)
    y_target = torch.arange(40) % 10
    common = {"classifier": classifier, "lower": -1.0, "upper": 2.0, "margin": 0.1, "solver": BRIEF}
    found = CEM(**common).explain(x, y_target)
    proba = predict_proba(classifier, found.x_cf[found.found])
    wanted = y_target[found.found][:, None]
    assert found.found.double().mean() > 0.8
    assert found.valid[found.found].all()
    assert (proba.gather(1, wanted)[:, 0] > proba.scatter(1, wanted, 0.0).amax(dim=1) + 0.1).all()
    anywhere = CEM(**common, any_class=True).explain(x, y_target)
    assert (anywhere.y_cf != anywhere.y).all()
    assert l2_distance(anywhere.x_cf, x).mean() < l2_distance(found.x_cf, x)[found.found].mean()


def test_a_row_outside_the_training_range_is_not_pulled_back_by_the_sound_form():
    classifier, train = linear(3), torch.rand(50, 3)
    x = torch.tensor([[1.4, 0.2, -0.3], [0.5, 0.6, 1.2]])
    found = CEM(classifier=classifier, solver=BRIEF).fit(train, torch.zeros(50, dtype=torch.long)).explain(x)
    assert found.valid.all()
    lower, upper = torch.minimum(train.amin(dim=0), x), torch.maximum(train.amax(dim=0), x)
    assert ((found.x_cf >= lower) & (found.x_cf <= upper)).all()


def test_a_constant_feature_stays_constant():
    train = torch.rand(60, 4)
    train[:, 2] = 0.5
    for method in (CEM(classifier=linear(4), solver=BRIEF), CEM.paper(classifier=linear(4))):
        method.solver = replace(method.solver, steps=60)
        found = method.fit(train, torch.zeros(60, dtype=torch.long)).explain(train[:10])
        assert found.found.any()
        assert (found.x_cf[found.found, 2] == 0.5).all()


def test_answers_in_single_precision_are_accepted_as_they_are_returned():
    classifier, x = linear(4), torch.rand(60, 4).float()
    found = CEM(classifier=classifier, lower=0.0, upper=1.0, margin=0.0, solver=BRIEF).explain(x)
    assert found.x_cf.dtype == torch.float32
    assert found.valid.all()


def test_where_the_model_is_certain_logits_lead_out_and_probabilities_do_not():
    weight = torch.tensor([[400.0, 0.0], [0.0, 0.0]])
    classifier = LinearClassifier.from_weights(weight, torch.tensor([-80.0, 0.0]))
    x = torch.full((3, 2), 0.9)
    common = {"classifier": classifier, "lower": 0.0, "upper": 1.0, "solver": BRIEF}
    assert CEM(**common).explain(x).valid.all()
    assert not CEM(**common, scale="probability").explain(x).found.any()


class Flat(torch.nn.Module):
    def forward(self, x):
        return torch.cat([0.0 * x[:, :1] + 1.0, 0.0 * x[:, :1]], dim=1)


def test_a_row_that_cannot_move_costs_one_gradient_a_round_and_has_no_answer():
    classifier = TorchClassifier(Flat(), n_classes=2)
    for method in (CEM(classifier=classifier), CEM.paper(classifier=classifier)):
        found = method.fit(torch.rand(9, 2), torch.zeros(9, dtype=torch.long)).explain(torch.rand(4, 2))
        assert not found.found.any()
        assert (found.gradients == method.solver.rounds).all()


# ---------------------------------------------------------------- the autoencoder


def on_a_line(n):
    return torch.rand(n, 1) * torch.tensor([1.0, 0.5, -0.5, 0.8]) + torch.tensor([0.0, 0.2, 0.7, 0.1])


@pytest.fixture(scope="module")
def autoencoder():
    torch.manual_seed(0)
    training = Training(epochs=60, learning_rate=1e-2, batch_size=50)
    return Autoencoder(hidden=(8, 1), training=training).fit(on_a_line(300))


def test_an_autoencoder_rebuilds_rows_like_the_ones_it_has_seen_and_no_others(autoencoder):
    seen, others = on_a_line(100), torch.rand(100, 4)
    assert autoencoder.error(seen).mean() < 0.005 * seen.var(dim=0).sum()
    assert autoencoder.error(others).mean() > 50 * autoencoder.error(seen).mean()
    assert autoencoder.encode(seen).shape == (100, 1)
    assert autoencoder.error(seen.float()).dtype == torch.float32
    torch.testing.assert_close(
        autoencoder.error(seen), (autoencoder.reconstruct(seen) - seen).square().sum(dim=1)
    )


def test_an_autoencoder_is_the_same_for_the_same_seed_and_touches_no_random_numbers():
    x, state = torch.rand(40, 5), torch.get_rng_state()
    first, again, other = (
        Autoencoder(training=Training(epochs=2), random_state=seed).fit(x).encode(x) for seed in (1, 1, 2)
    )
    assert first.shape == (40, 2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_reconstruction_term_keeps_answers_near_what_the_autoencoder_knows(autoencoder):
    train = on_a_line(200)
    classifier = LinearClassifier.from_weights(torch.tensor([[6.0, -4.0, 0.0, 0.0]]), torch.tensor([-1.0]))
    settings = {"classifier": classifier, "solver": BRIEF, "lower": -1.0, "upper": 2.0}
    y = torch.zeros(200, dtype=torch.long)
    free = CEM(**settings).fit(train, y)
    bound = CEM(**settings, reconstruction_weight=100.0, autoencoder=autoencoder).fit(train, y)
    assert free.autoencoder_ is None
    assert bound.autoencoder_ is not autoencoder
    errors = []
    for method in (free, bound):
        found = method.explain(train[:30])
        assert found.valid.all()
        errors.append(bound.autoencoder_.error(found.x_cf).mean())
    assert errors[1] < 0.2 * errors[0]


# ---------------------------------------------------------------- misuse


def test_what_was_not_fitted_says_so():
    classifier, x = linear(3), torch.rand(2, 3)
    box = {"lower": 0.0, "upper": 1.0}
    with pytest.raises(NotFittedError, match=r"box is not known.*`fit\(x, y\)`"):
        CEM(classifier=classifier).explain(x)
    with pytest.raises(NotFittedError, match=r"without information are not known.*`no_information`"):
        CEM(classifier=classifier, no_information="mean", **box).explain(x)
    with pytest.raises(NotFittedError, match=r"no autoencoder yet.*`fit\(x, y\)`"):
        CEM(classifier=classifier, reconstruction_weight=1.0, **box).explain(x)
    with pytest.raises(NotFittedError, match=r"not trained.*`fit\(x\)`"):
        Autoencoder().encode(x)


def test_an_autoencoder_wants_the_columns_of_its_training_rows(autoencoder):
    with pytest.raises(
        ShapeError, match=r"shape \(n, 4\), as when this autoencoder was fitted; got \(2, 3\)"
    ):
        autoencoder.error(torch.rand(2, 3))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"margin": 1.0}, r"`margin` must be in \[0, 1\); got 1.0"),
        ({"l1_weight": -1.0}, r"`l1_weight` must be at least 0; got -1.0"),
        ({"reconstruction_weight": float("nan")}, r"`reconstruction_weight` must be at least 0; got nan"),
        ({"scale": "odds"}, r"`scale` must be 'logit' or 'probability'; got 'odds'"),
        ({"no_information": "mode"}, r"`no_information` must be 'median', 'mean', .*got 'mode'"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        CEM(classifier=linear(2), **settings)


def test_all_wrong_settings_of_the_loop_are_named_at_once():
    with pytest.raises(
        InvalidInputError, match=r"`rounds`.*got 0; `first_weight`.*`prox`.*got 'l1'.*`patience`"
    ):
        FISTA(rounds=0, first_weight=0.0, prox="l1", patience=0)
    with pytest.raises(
        InvalidInputError, match=r"`hidden` must be whole numbers of at least 1; got \(4, 0\)"
    ):
        Autoencoder(hidden=(4, 0))
