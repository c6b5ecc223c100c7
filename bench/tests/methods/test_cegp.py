"""CEGP: prototypes by brute force, closed forms, the loop in NumPy, and the published counterfactuals."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from plausiflow.core.losses import l2_distance
from plausiflow.core.prediction import predict
from plausiflow.core.training import Training
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.models import LinearClassifier
from plausiflow_bench.methods.autoencoder import Autoencoder
from plausiflow_bench.methods.cegp import CEGP, ClassRows
from plausiflow_bench.methods.elastic_net import ElasticNet
from plausiflow_bench.methods.fista import FISTA
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun
from published_counterfactuals import BANDS, against_the_stored
from published_fista import published_loop

slow = pytest.mark.slow
BRIEF = FISTA(rounds=4, steps=80)
QUICK_AUTOENCODER = Autoencoder(training=Training(epochs=5))


def linear(d, classes=2, scale=8.0):
    """Return a linear model whose boundaries pass near the middle of the unit cube."""
    generator = torch.Generator().manual_seed(d)
    weight = scale * torch.randn(classes, d, generator=generator)
    return LinearClassifier.from_weights(weight, -weight @ torch.full((d,), 0.5))


def unused(x):
    """Return labels for rows where only the model's predictions matter."""
    return torch.zeros(len(x), dtype=torch.long)


# ---------------------------------------------------------------- prototypes


@pytest.mark.parametrize("k", [1, 3, 500])
def test_prototypes_are_the_kth_nearest_rows_of_the_nearest_allowed_class(k):
    points, y, x = torch.rand(200, 4), torch.randint(5, (200,)), torch.rand(60, 4)
    y[y == 3] = 0  # no row is of class 3
    allowed = torch.rand(60, 5) < 0.4
    found = ClassRows(points, y).prototypes(x, allowed, k=k, mean=False)
    distance = cdist(x.numpy(), points.numpy())
    for row in range(60):
        candidates = []
        for c in allowed[row].nonzero()[:, 0].tolist():
            order = sorted((y == c).nonzero()[:, 0].tolist(), key=lambda i, row=row: distance[row, i])
            candidates += [order[min(k, len(order)) - 1]] if order else []
        if not candidates:
            assert found[row].isnan().all()
            continue
        nearest = min(candidates, key=lambda i, row=row: distance[row, i])
        assert torch.equal(found[row], points[nearest])


@pytest.mark.parametrize("k", [2, None])
def test_mean_prototypes_are_means_of_the_neighbours_or_of_the_class(k):
    points, y, x = torch.rand(90, 3), torch.arange(90) % 2, torch.rand(20, 3)
    one = torch.tensor([[False, True]]).expand(20, 2)
    found = ClassRows(points, y).prototypes(x, one, k=k, mean=True)
    members = points[y == 1]
    for row in range(20):
        chosen = members[(members - x[row]).norm(dim=1).argsort()[:k]] if k else members
        torch.testing.assert_close(found[row], chosen.mean(dim=0))


def test_training_rows_are_grouped_by_what_the_model_predicts_not_by_their_labels():
    classifier, train = linear(3), torch.rand(100, 3)
    method = CEGP(classifier=classifier).fit(train, torch.randint(2, (100,)))
    predicted = predict(classifier, train)
    for c in (0, 1):
        assert np.array_equal(method.rows_.points[c], train[predicted == c].numpy())


def test_distances_to_a_class_without_rows_are_infinite():
    rows = ClassRows(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([0, 2]))
    x = torch.tensor([[0.0, 0.0]] * 3)
    assert rows.distance(x, torch.tensor([0, 1, 2])).tolist() == [0.0, torch.inf, 5.0]


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("theta", [1.0, 10.0, 100.0])
def test_without_validity_and_city_block_distance_the_loop_finds_the_weighted_mean(theta):
    x, prototype = torch.rand(20, 6), torch.rand(20, 6)
    mean = (x + theta * prototype) / (1 + theta)
    problem = ElasticNet(
        x=x,
        lower=torch.zeros_like(x),
        upper=torch.ones_like(x),
        l1_weight=0.0,
        gap=lambda x_cf, rows: (x_cf - mean[rows]).abs().amax(dim=1) - 1e-3,
        smooth=lambda x_cf, rows: theta * (x_cf - prototype[rows]).square().sum(dim=1),
        curvature=2 + 2 * theta,
    )
    # The validity has almost no weight, and a point is accepted only at the mean.
    found = FISTA(rounds=1, steps=1000, first_weight=1e-12).solve(problem, n_classes=2)
    torch.testing.assert_close(found.x, mean, atol=1e-3, rtol=0)


def test_prototypes_pull_answers_towards_training_rows_of_the_wanted_class():
    classifier, train = linear(6), torch.rand(300, 6)
    x, members = train[:40], {c: train[predict(classifier, train) == c].numpy() for c in (0, 1)}
    distances = []
    for theta in (0.0, 10.0):
        method = CEGP(classifier=classifier, prototype_weight=theta, solver=BRIEF).fit(train, unused(train))
        found = method.explain(x)
        assert found.valid.all()
        nearest = [
            cdist(cf[None], members[int(c)]).min() for cf, c in zip(found.x_cf, found.y_cf, strict=True)
        ]
        distances.append(np.mean(nearest))
    assert distances[1] < 0.9 * distances[0]


# ---------------------------------------------------------------- the published loop


@pytest.mark.parametrize(("d", "classes"), [(3, 2), (8, 3), (6, 10)])
def test_the_preset_repeats_the_published_loop_row_by_row(d, classes):
    classifier, train = linear(d, classes), torch.rand(50, d)
    x = torch.cat([train[:8], 1.1 * torch.rand(2, d)])
    method = CEGP.paper(classifier=classifier)
    method.solver = replace(method.solver, steps=40)
    found = method.fit(train, unused(train)).explain(x, "paper")
    weight, bias = classifier.weight.double().numpy(), classifier.bias.double().numpy()
    box = {"lower": train.amin(dim=0).numpy(), "upper": train.amax(dim=0).numpy()}
    settings = {"kappa": 0.0, "beta": 0.01, "rounds": 5, "steps": 40, "c": 1.0} | box
    by_hand = np.stack([published_loop(row, weight, bias, **settings) for row in x.numpy()])
    np.testing.assert_allclose(found.x_cf.numpy(), by_hand, atol=1e-9)
    assert found.found.any()


def test_the_preset_has_the_settings_of_the_published_runs():
    method = CEGP.paper(classifier=linear(2))
    assert (method.margin, method.l1_weight, method.reconstruction_weight) == (0.0, 0.01, 0.0)
    assert (method.any_class, method.scale, method.prototype_weight) == (True, "probability", 0.0)
    solver = method.solver
    assert (solver.rounds, solver.steps, solver.first_weight, solver.learning_rate) == (5, 500, 1.0, 0.01)
    assert (solver.prox, solver.numerical, solver.max_gradient) == ("dead_zone", True, 1000.0)


@pytest.mark.slow
@pytest.mark.paper
@pytest.mark.parametrize("name", ["wine", *(pytest.param(n, marks=slow) for n in BANDS if n != "wine")])
def test_the_preset_lands_on_the_published_counterfactuals(reference_directory, name):
    agreement, ratios, difference = against_the_stored(CEGP.paper, "cegp", name, reference_directory)
    assert agreement >= 0.99
    assert ratios == pytest.approx([1, 1], abs=BANDS[name])
    if name in ("moons", "law", "wine"):
        assert difference <= 1e-3


# Share of plausible rows, mean log-density (both under the class reached) and mean L2 distance of the
# published settings, without prototypes and with them, as another program measured them.
WITHOUT_AND_WITH = {
    "moons": ((0.11, -7.3, 0.296), (0.16, -6.1, 0.292)),
    "law": ((0.51, 1.12, 0.177), (0.54, 1.28, 0.171)),
    "wine": ((0.00, 2.6, 0.360), (0.33, 5.8, 0.474)),
    "blobs": ((0.00, -7.5, 0.265), (0.00, -4.8, 0.266)),
}


@slow
@pytest.mark.paper
@pytest.mark.parametrize("name", WITHOUT_AND_WITH)
def test_prototypes_change_plausibility_and_distance_as_measured_before(reference_directory, name):
    reference = PublishedRun.load(name, reference_directory)
    density = PublishedMAF(reference.maf_arrays)
    for theta, expected in zip((0.0, 10.0), WITHOUT_AND_WITH[name], strict=True):
        method = CEGP.paper(classifier=reference.classifier("lr"))
        method.prototype_weight = theta
        found = method.fit(reference.x_train, reference.y_train).explain(reference.x_test, "paper")
        rows = found.found
        log_prob = density.log_prob(found.x_cf[rows].double(), found.y_cf[rows])
        plausible = (log_prob > reference.log_delta).double().mean()
        l2 = l2_distance(found.x_cf, found.x)[rows].mean()
        assert float(plausible) == pytest.approx(expected[0], abs=0.01)
        assert float(log_prob.mean()) == pytest.approx(expected[1], abs=0.1)
        assert float(l2) == pytest.approx(expected[2], rel=0.005)


# ---------------------------------------------------------------- encoders, trust, classes


@pytest.mark.parametrize("neighbours", [1, 5, None])
def test_encoder_prototypes_lead_to_the_wanted_class(neighbours):
    classifier, train = linear(5), torch.rand(120, 5)
    method = CEGP(
        classifier=classifier,
        prototypes="encoder",
        neighbours=neighbours,
        autoencoder=QUICK_AUTOENCODER,
        solver=BRIEF,
    ).fit(train, unused(train))
    found = method.explain(train[:20])
    assert method.codes_.points[0].shape[1] == 2
    assert found.valid.all()


def test_trusted_answers_are_nearer_to_the_class_reached_than_to_the_one_left():
    classifier, train = linear(4), torch.rand(150, 4)
    predicted = predict(classifier, train)
    method = CEGP(classifier=classifier, trust=1.2, solver=BRIEF).fit(train, unused(train))
    found = method.explain(train[:30])
    free = CEGP(classifier=classifier, solver=BRIEF).fit(train, unused(train)).explain(train[:30])
    scores = []
    for answer in (found, free):
        x_cf = answer.x_cf[found.found].numpy()
        away, near = (cdist(x_cf, train[predicted == c].numpy()).min(axis=1) for c in (0, 1))
        reached = answer.y_cf[found.found].numpy() == 1
        scores.append(np.where(reached, away, near) / (np.where(reached, near, away) + 1e-10))
    assert found.found.double().mean() > 0.5
    assert (scores[0] > 1.2).all()
    assert not (scores[1] > 1.2).all()


def test_ten_classes_are_reached_from_anywhere_and_any_of_them_on_request():
    classifier, train = linear(5, 10), torch.rand(400, 5)
    y_target = torch.arange(30) % 10
    method = CEGP(classifier=classifier, solver=BRIEF).fit(train, unused(train))
    found = method.explain(train[:30], y_target)
    assert found.valid.double().mean() > 0.9
    assert found.valid[found.found].all()
    method.any_class = True
    anywhere = method.explain(train[:30], y_target)
    assert (anywhere.y_cf != anywhere.y).all()


def test_a_class_that_is_never_predicted_has_no_prototype_and_is_searched_without():
    classifier = LinearClassifier.from_weights(torch.tensor([[8.0, 0.0]]), torch.tensor([-8.0]))
    train = 0.9 * torch.rand(60, 2)
    settings = {"classifier": classifier, "lower": 0.0, "upper": 2.0, "solver": BRIEF}
    guided, free = (
        CEGP(**settings, prototype_weight=theta).fit(train, unused(train)).explain(train[:10])
        for theta in (10.0, 0.0)
    )
    assert list(CEGP(classifier=classifier).fit(train, unused(train)).rows_.trees) == [0]
    assert guided.valid.all()
    # Only the step size differs.
    torch.testing.assert_close(guided.x_cf, free.x_cf, atol=2e-2, rtol=0)


def test_constant_features_and_repeated_rows_do_no_harm():
    train = torch.rand(40, 3).repeat(3, 1)
    train[:, 1] = 0.5
    found = CEGP(classifier=linear(3), solver=BRIEF).fit(train, unused(train)).explain(train[:10])
    assert found.valid.all()
    assert (found.x_cf[:, 1] == 0.5).all()


# ---------------------------------------------------------------- misuse


def test_what_was_not_fitted_says_so():
    with pytest.raises(NotFittedError, match=r"prototypes are not known.*`fit\(x, y\)`"):
        CEGP(classifier=linear(3), lower=0.0, upper=1.0).explain(torch.rand(2, 3))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"prototype_weight": -1.0}, r"`prototype_weight` must be at least 0; got -1.0"),
        ({"prototypes": "mean"}, r"`prototypes` must be 'kdtree' or 'encoder'; got 'mean'"),
        ({"neighbours": 0}, r"`neighbours` must be a whole number of at least 1.*got 0"),
        ({"neighbours": None}, r"`neighbours` must be .*or None for encoders; got None"),
        ({"trust": -1.0, "margin": 2.0}, r"`margin` must be in \[0, 1\)"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        CEGP(classifier=linear(2), **settings)
