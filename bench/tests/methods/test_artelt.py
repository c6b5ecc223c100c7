"""ARTELT against closed forms, the program as printed, scikit-learn, and the published runs."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold, cross_val_score

from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow.densities import Thresholded
from plausiflow.errors import InvalidInputError, MissingExtraError, NotFittedError
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow_bench.methods.artelt import Artelt
from plausiflow_bench.methods.artelt_program import DenseRegion, choose_components, learn_region
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun

cp = pytest.importorskip("cvxpy", reason="needs cvxpy")


def linear(d, n_classes=2, scale=3.0, seed=0):
    """Return a random linear model; with two classes a sigmoid model."""
    generator = torch.Generator().manual_seed(seed)
    weight = scale * torch.randn(1 if n_classes == 2 else n_classes, d, generator=generator)
    return LinearClassifier.from_weights(weight, 0.3 * torch.randn(len(weight), generator=generator))


def rows(n, d, n_classes=2, spread=3.0, seed=1):
    """Return normally distributed rows, and classes independent of them."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(n, d, generator=generator), torch.arange(n) % n_classes


def gap(classifier, x, y_target):
    """Return the lead in logits of the target class over the strongest other class."""
    logits = classifier.logits(x)
    own = logits.gather(1, y_target[:, None])[:, 0]
    return own - logits.scatter(1, y_target[:, None], -torch.inf).amax(dim=1)


COST = {"l1": l1_distance, "l2": l2_distance}


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("d", [2, 10, 50])
@pytest.mark.parametrize(("distance", "dual_norm", "tolerance"), [("l2", 2, 1e-6), ("l1", torch.inf, 1e-6)])
def test_where_everything_is_dense_the_distance_is_that_to_the_hyperplane(d, distance, dual_norm, tolerance):
    classifier = linear(d)
    method = Artelt(classifier=classifier, distance=distance, components=[1], quantile=0.0)
    x = rows(6, d, spread=0.2, seed=2)[0]
    found = method.fit(*rows(20 * d, d)).explain(x)
    needed = gap(classifier, x, 1 - found.y_target) + method.margin
    expected = needed / torch.linalg.vector_norm(classifier.weight[1], ord=dual_norm)
    torch.testing.assert_close(COST[distance](found.x_cf, x), expected, rtol=0, atol=tolerance)
    assert found.valid.all()


def test_the_closest_by_l1_changes_one_feature_and_leaves_the_others_exactly():
    classifier = linear(10)
    method = Artelt(classifier=classifier, distance="l1", components=[1], quantile=0.0).fit(*rows(200, 10))
    found = method.explain(rows(6, 10, spread=0.2, seed=2)[0])
    changed = found.x_cf != found.x
    assert changed.sum(dim=1).tolist() == [1] * 6
    assert changed[:, int(classifier.weight[1].abs().argmax())].all()


@pytest.mark.parametrize("d", [2, 10, 50])
def test_a_ball_alone_is_met_at_its_nearest_point(d):
    always_one = LinearClassifier.from_weights(torch.zeros(1, d), torch.ones(1))
    method = Artelt(classifier=always_one, components=[1]).fit(*rows(4 * d, d))
    centre, sigma, radius = torch.rand(d), 0.3, 1.7
    method.regions_[1] = DenseRegion(
        means=centre[None], factors=sigma * torch.eye(d)[None], radii=torch.tensor([radius**2])
    )
    x = centre + 2 * torch.randn(5, d) / d**0.5
    x = x[torch.linalg.vector_norm(x - centre, dim=1) > radius * sigma]
    found = method.explain(x, 1)
    outward = (x - centre) / torch.linalg.vector_norm(x - centre, dim=1, keepdim=True)
    torch.testing.assert_close(found.x_cf, centre + radius * sigma * outward, rtol=0, atol=1e-4)
    expected = torch.linalg.vector_norm(x - centre, dim=1) - radius * sigma
    torch.testing.assert_close(l2_distance(found.x_cf, x), expected, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- the program as printed


def least_cost(method, x, y_target, lower=-np.inf, upper=np.inf):
    """Return the least cost of the program as printed in the paper, over all components."""
    weight, bias = method.classifier.weight.numpy(), method.classifier.bias.numpy()
    others = [k for k in range(len(weight)) if k != y_target]
    region = method.regions_[y_target]
    costs = []
    for mean, factor, radius in zip(region.means, region.factors, region.radii, strict=True):
        if radius <= 0:
            continue
        point = cp.Variable(len(x))
        precision = np.linalg.inv((factor @ factor.T).numpy())
        constraints = [
            (weight[others] - weight[y_target]) @ point + bias[others] - bias[y_target] + method.margin <= 0,
            cp.quad_form(point - mean.numpy(), cp.psd_wrap(precision)) <= float(radius),
        ]
        constraints += [point >= lower] if np.isfinite(lower) else []
        constraints += [point <= upper] if np.isfinite(upper) else []
        cost = cp.norm(point - x.numpy(), 1 if method.distance == "l1" else 2)
        costs.append(cp.Problem(cp.Minimize(cost), constraints).solve(solver=cp.CLARABEL))
    return min(costs)


@pytest.mark.parametrize("distance", ["l1", "l2"])
@pytest.mark.parametrize(("d", "n_classes"), [(2, 2), (3, 3), (8, 4)])
def test_the_cost_is_that_of_the_program_as_printed(distance, d, n_classes):
    x, y = rows(80, d, n_classes, spread=1.0)
    classifier = linear(d, n_classes)
    method = Artelt(classifier=classifier, distance=distance, components=[2]).fit(x + y[:, None], y)
    queries, y_target = 1.5 * torch.randn(5, d), torch.arange(5) % n_classes
    found = method.explain(queries, y_target)
    for row in found.found.nonzero()[:, 0].tolist():
        expected = least_cost(method, queries[row], int(y_target[row]))
        assert float(COST[distance](found.x_cf, queries)[row]) == pytest.approx(expected, abs=1e-5)
    for row in (~found.found).nonzero()[:, 0].tolist():
        assert least_cost(method, queries[row], int(y_target[row])) == np.inf
    assert found.found.double().mean() >= 0.4


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_a_box_is_kept_and_costs_what_the_program_with_bounds_costs(distance):
    x, y = rows(80, 3, spread=0.2)
    x = 0.5 + x + 0.1 * y[:, None]
    classifier = linear(3)
    free = Artelt(classifier=classifier, distance=distance, components=[2]).fit(x, y)
    boxed = Artelt(classifier=classifier, distance=distance, components=[2], lower=0.3, upper=0.7).fit(x, y)
    queries = 0.3 + 0.4 * torch.rand(6, 3)
    found, wider = boxed.explain(queries), free.explain(queries)
    assert found.valid.all()
    assert (found.x_cf >= 0.3 - 1e-7).all()
    assert (found.x_cf <= 0.7 + 1e-7).all()
    assert (COST[distance](found.x_cf, queries) >= COST[distance](wider.x_cf, queries) - 1e-6).all()
    for row in range(6):
        expected = least_cost(boxed, queries[row], int(found.y_target[row]), 0.3, 0.7)
        assert float(COST[distance](found.x_cf, queries)[row]) == pytest.approx(expected, abs=1e-5)


def test_a_row_outside_the_box_keeps_its_own_value_as_bound():
    x, y = rows(80, 2, spread=0.2)
    classifier = LinearClassifier.from_weights(torch.tensor([[5.0, 0.0]]), torch.tensor([0.0]))
    method = Artelt(classifier=classifier, components=[1], quantile=0.0, upper=torch.tensor([1.0, -0.5]))
    queries = torch.tensor([[-0.1, 0.0], [-0.1, -0.6]])
    found = method.fit(x, y).explain(queries, 1)
    assert found.valid.all()
    assert float(found.x_cf[0, 1]) <= 1e-7
    assert float(found.x_cf[1, 1]) <= -0.5 + 1e-7


# ---------------------------------------------------------------- the density


def test_dense_is_what_scikit_learn_and_scipy_call_dense():
    x, y = rows(122, 3, spread=0.5)
    x = x + y[:, None]
    method = Artelt(classifier=linear(3), components=[3]).fit(x, y)
    for k in (0, 1):
        own = x[y == k].numpy()
        mixture = GaussianMixture(3, reg_covar=1e-6, random_state=0, max_iter=500).fit(own)
        parts = list(zip(mixture.weights_, mixture.means_, mixture.covariances_, strict=True))

        def densest(points, parts=parts):
            return np.max([w * multivariate_normal(m, c).pdf(points) for w, m, c in parts], axis=0)

        threshold = np.median(densest(own))
        points = own.mean(axis=0) + np.random.default_rng(0).normal(size=(300, 3))
        expected = densest(points) >= threshold
        assert method.regions_[k].contains(torch.as_tensor(points)).tolist() == expected.tolist()
        assert 0 < expected.mean() < 1

        found = method.explain(x[:12], k)
        assert found.found.all()
        assert (np.log(densest(found.x_cf.numpy())) >= np.log(threshold) - 1e-6).all()
        assert (gap(method.classifier, found.x_cf, found.y_target) >= method.margin - 1e-6).all()


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_quantile_is_the_share_of_the_class_that_is_not_dense_enough(quantile):
    x, _ = rows(201, 2)
    region = learn_region(
        x, components=[2], quantile=quantile, radii="density", regularisation=None, random_state=0
    )
    assert float((~region.contains(x)).double().mean()) == pytest.approx(quantile, abs=0.01)


def test_asking_for_density_is_never_cheaper():
    x, y = rows(100, 4, spread=0.5)
    classifier = linear(4)
    costs = []
    for quantile in (0.0, 0.3, 0.6, 0.9):
        method = Artelt(classifier=classifier, components=[2], quantile=quantile).fit(x, y)
        costs.append(l2_distance(method.explain(x[:8]).x_cf, x[:8]))
    costs = torch.stack(costs)
    assert (costs.diff(dim=0) >= -1e-6).all()
    assert (costs[-1] > costs[0] + 1e-3).any()
    assert (
        costs[0] >= gap(classifier, x[:8], method.explain(x[:8]).y) / classifier.weight[1].norm() - 1e-6
    ).all()


def test_the_published_radii_hold_every_row_of_the_class_and_most_of_the_others():
    x, y = rows(200, 2, spread=0.3)
    x = x + 0.8 * y[:, None]
    settings = {"components": [2], "quantile": 0.5, "regularisation": None, "random_state": 0}
    published = learn_region(x[y == 0], radii="published", **settings)
    sound = learn_region(x[y == 0], radii="density", **settings)
    assert published.contains(x[y == 0]).all()
    assert published.contains(x[y == 1]).double().mean() > 0.5
    assert (published.radii > 3 * sound.radii).all()


def test_the_number_of_components_is_that_of_cross_validation():
    centres = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    x = centres[torch.arange(120) % 4] + 0.05 * torch.randn(120, 2)
    folds = KFold(5, shuffle=True, random_state=3)
    scores = [
        cross_val_score(GaussianMixture(k, random_state=3, max_iter=500), x.numpy(), cv=folds).mean()
        for k in range(2, 6)
    ]
    expected = 2 + int(np.argmax(scores))
    assert choose_components(x, range(2, 6), None, random_state=3) == expected == 4


# ---------------------------------------------------------------- difficult models and rows


def test_a_model_that_is_not_linear_gets_no_answers_and_a_reason():
    x, y = rows(40, 2)
    model = MLPClassifier.from_weights([torch.ones(4, 2), torch.ones(2, 4)], [torch.zeros(4), torch.zeros(2)])
    method = Artelt(classifier=model)
    for _ in range(2):
        found = method.explain(x[:3])
        assert not found.found.any()
        assert "needs a linear classifier" in found.reason
        assert "MLPClassifier" in found.reason
        method.fit(x, y)
    assert Artelt(classifier=linear(2)).unsupported() is None


def test_without_cvxpy_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingExtraError, match=r"ARTELT needs the package `cvxpy`.*pip install cvxpy"):
        Artelt(classifier=linear(2), components=[1]).fit(*rows(20, 2))


def test_explaining_before_the_fit_is_an_error():
    with pytest.raises(NotFittedError, match="Call `fit"):
        Artelt(classifier=linear(2)).explain(torch.rand(2, 2))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"distance": "l3"}, "'l1' or 'l2'; got 'l3'"),
        ({"radii": "mine"}, "'density' or 'published'; got 'mine'"),
        ({"quantile": 1.5}, r"in \[0, 1\]; got 1.5"),
        ({"margin": -1.0}, "at least 0; got -1.0"),
        ({"components": []}, "at least 1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(wrong, text):
    with pytest.raises(InvalidInputError, match=text):
        Artelt(classifier=linear(2), **wrong)


def test_a_class_without_rows_and_one_that_never_wins_have_no_answers():
    weight, bias = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0.0, 0.0, -5.0])
    x, y = rows(60, 2, 3)
    classifier = LinearClassifier.from_weights(weight, bias)
    method = Artelt(classifier=classifier, components=[2]).fit(x, y)
    assert method.explain(x[:6], 1).valid.all()
    assert not method.explain(x[:6], 2).found.any()
    assert (
        not Artelt(classifier=classifier, components=[2])
        .fit(x[y != 1], y[y != 1])
        .explain(x[:6], 1)
        .found.any()
    )


def test_a_constant_feature_keeps_the_value_of_each_row():
    x, y = rows(60, 3)
    x[:, 1] = 0.25
    method = Artelt(classifier=linear(3), components=[2]).fit(x, y)
    queries = x[:6].clone()
    queries[3:, 1] = 0.5
    found = method.explain(queries)
    assert found.valid.all()
    assert torch.equal(found.x_cf[:, 1], queries[:, 1])
    assert (gap(method.classifier, found.x_cf, found.y_target) >= method.margin - 1e-6).all()


def test_duplicated_rows_few_rows_and_rows_that_are_all_the_same_are_no_trouble():
    x = torch.tensor([[0.0, 0.0]] * 20 + [[1.0, 1.0]] * 10 + [[1.0, 0.9]] * 10 + [[0.5, 2.0]])
    y = torch.tensor([0] * 20 + [1] * 20 + [2])
    classifier = LinearClassifier.from_weights(
        torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), torch.tensor([0.0, -2.0, -4.0])
    )
    found = Artelt(classifier=classifier).fit(x, y).explain(x, "runner_up")
    assert found.valid.double().mean() > 0.9
    same = Artelt(classifier=classifier).fit(x[:20], y[:20]).explain(x[:3], 1)
    assert not same.found.any()


def test_ten_classes_are_reached():
    x, y = rows(100, 10, 10, spread=0.1)
    classifier = LinearClassifier.from_weights(3 * torch.eye(10), torch.zeros(10))
    method = Artelt(classifier=classifier, components=[1]).fit(x + torch.eye(10)[y], y)
    found = method.explain(x[:10] + torch.eye(10)[y[:10]], (y[:10] + 3) % 10)
    assert found.valid.all()


def test_a_victory_too_narrow_for_single_precision_is_won_by_more():
    classifier = LinearClassifier.from_weights(torch.tensor([[4e4, 3e4]]), torch.tensor([-4.2e4]))
    x = torch.rand(60, 2)
    method = Artelt(classifier=classifier, components=[1], quantile=0.0).fit(x, torch.arange(60) % 2)
    found = method.explain(x[:40].float())
    assert found.x_cf.dtype == torch.float32
    assert found.valid.all()


# ---------------------------------------------------------------- the published runs


def published(name, directory, make, n=None, components=range(2, 10)):
    """Fit a method to the published linear model of a data set, and explain its test rows."""
    reference = PublishedRun.load(name, directory)
    classifier = reference.classifier("lr")
    density = Thresholded.at(PublishedMAF(reference.maf_arrays), reference.log_delta, classifier.n_classes)
    method = replace(make(classifier=classifier, plausibility=density), components=components)
    found = method.fit(reference.x_train, reference.y_train).explain(reference.x_test[:n], "paper")
    return reference, found


QUICK = [("wine", 18, [2]), ("moons", 20, [4])]
WHOLE = [
    pytest.param(name, None, range(2, 10), marks=pytest.mark.slow, id=name)
    for name in ("moons", "law", "blobs", "wine", "audit", "digits")
]


@pytest.mark.paper
@pytest.mark.parametrize(("name", "n", "components"), [*QUICK, *WHOLE])
def test_every_row_of_the_published_models_is_answered_and_valid(reference_directory, name, n, components):
    _, found = published(name, reference_directory, Artelt, n, components)
    assert found.found.all()
    assert found.valid.all()
    if name == "moons":
        assert float(found.log_prob.mean()) > 0


@pytest.mark.paper
@pytest.mark.parametrize(("name", "n", "components"), [*QUICK, *WHOLE])
def test_the_papers_settings_land_on_the_published_counterfactuals(reference_directory, name, n, components):
    reference, found = published(name, reference_directory, Artelt.paper, n, components)
    stored = reference.counterfactuals["artelt", "lr"][:n]
    returned = torch.isfinite(stored).all(dim=1)
    assert found.found.all()
    ours, theirs = (float(l1_distance(x, found.x)[returned].mean()) for x in (found.x_cf, stored))
    assert ours == pytest.approx(theirs, rel=0.01)
    if n is None and name in ("moons", "law"):
        assert ours == pytest.approx({"moons": 0.349, "law": 0.200}[name], abs=5e-4)
    if name != "digits":
        difference = (found.x_cf - stored)[returned].abs().amax(dim=1)
        assert float((difference < 1e-3).double().mean()) > 0.98


@pytest.mark.slow
@pytest.mark.paper
def test_heloc_has_answers_where_the_published_run_had_none(reference_directory):
    reference, found = published("heloc", reference_directory, Artelt)
    assert torch.isnan(reference.counterfactuals["artelt", "lr"]).all()
    assert found.valid.all()
    assert float(found.cpu_seconds.sum()) < 120
