"""Paths through training rows: networkx on the same graph, every path of a small one, rules for its ends."""

import math
from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV, LeaveOneOut
from sklearn.neighbors import KernelDensity, NearestNeighbors

from plausiflow.core.prediction import predict, predict_proba
from plausiflow.densities import GMM, Thresholded
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.reference.face import FACE, likeliest_bandwidth
from plausiflow.models import LinearClassifier
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun

K, EPSILON, BANDWIDTH = 6, 0.25, 0.1


@pytest.fixture(scope="module")
def rows():
    """Return three overlapping clusters with some duplicated rows."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.2, 0.2, 0.5], [0.6, 0.3, 0.5], [0.5, 0.8, 0.6]], dtype=torch.float64)
    rows = centres.repeat(50, 1) + 0.1 * torch.randn(150, 3, generator=generator, dtype=torch.float64)
    return torch.cat([rows, rows[:10]])


@pytest.fixture(scope="module")
def y(rows):
    return torch.cat([torch.arange(150) % 3, torch.arange(10) % 3])


@pytest.fixture(scope="module")
def classifier():
    centres = torch.tensor([[0.2, 0.2, 0.5], [0.6, 0.3, 0.5], [0.5, 0.8, 0.6]], dtype=torch.float64)
    return LinearClassifier.from_weights(20 * centres, -10 * (centres**2).sum(dim=1))


@pytest.fixture(scope="module")
def plausibility(rows, y):
    return Thresholded(density=GMM(components=1).fit(rows, y)).fit(rows, y)


@pytest.fixture(scope="module")
def queries():
    return 0.8 * torch.rand(15, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def made(weights, classifier, plausibility, **settings):
    usual = {"neighbours": K, "epsilon": EPSILON, "bandwidth": BANDWIDTH}
    return FACE(classifier=classifier, plausibility=plausibility, weights=weights, **(usual | settings))


# ---------------------------------------------------------------- networkx


class Graph:
    """Build the same graph in networkx, from the formulas and scikit-learn's neighbours and kernels."""

    def __init__(self, weights, rows, y, plausibility, k=K):
        self.weights, self.plausibility, self.k = weights, plausibility, k
        self.rows = np.unique(rows.numpy(), axis=0)
        self.shares = np.bincount(y.numpy()) / len(y)
        self.kernels = KernelDensity(bandwidth=BANDWIDTH).fit(rows.numpy())
        lengths, numbers = NearestNeighbors(n_neighbors=k + 1).fit(self.rows).kneighbors(self.rows)
        typical = np.sort(lengths[:, 1])[(len(self.rows) - 1) // 2]
        ball = math.pi**1.5 / math.gamma(2.5)
        self.scale = min(EPSILON**3 if weights == "epsilon" else k / (len(self.rows) * ball), typical)
        start, end = np.repeat(np.arange(len(self.rows)), k), numbers[:, 1:].flatten()
        if weights == "epsilon":
            start, end = np.nonzero(np.linalg.norm(self.rows[:, None] - self.rows, axis=2) <= EPSILON)
            start, end = start[start != end], end[start != end]
        surprise = self.surprise(self.rows[start], self.rows[end])
        self.shift = max(0.0, -surprise.min()) if weights in ("kde", "flow") else 0.0
        self.graph = nx.Graph()
        self.graph.add_nodes_from(range(len(self.rows)))
        cost = self.cost(self.rows[start], self.rows[end]).tolist()
        self.graph.add_weighted_edges_from(zip(start.tolist(), end.tolist(), cost, strict=True))

    def log_density(self, x):
        if self.weights != "flow":
            return self.kernels.score_samples(x)
        x = torch.from_numpy(x)
        of_class = [self.plausibility.log_prob(x, torch.full((len(x),), c)).exp() for c in range(3)]
        return np.log(sum(share * p.numpy() for share, p in zip(self.shares, of_class, strict=True)))

    def surprise(self, a, b):
        """Return minus the log-density of steps."""
        if self.weights in ("kde", "flow"):
            return -self.log_density((a + b) / 2)
        return -np.log(self.scale / np.linalg.norm(a - b, axis=1))

    def cost(self, a, b):
        return np.linalg.norm(a - b, axis=1) * np.maximum(0.0, self.surprise(a, b) + self.shift)

    def cheapest(self, x, ends):
        """Return the least cost from ``x``, connected like a training row, to any of the rows ``ends``."""
        lengths = np.linalg.norm(x - self.rows, axis=1)
        joined = (
            np.argsort(lengths)[: self.k] if self.weights != "epsilon" else np.nonzero(lengths <= EPSILON)[0]
        )
        graph = self.graph.copy()
        graph.add_node("x")
        cost = self.cost(np.tile(x, (len(joined), 1)), self.rows[joined])
        graph.add_weighted_edges_from(
            ("x", j, c) for j, c in zip(joined.tolist(), cost.tolist(), strict=True)
        )
        costs = nx.single_source_dijkstra_path_length(graph, "x")
        return min((costs[j] for j in ends if j in costs), default=math.inf)

    def cost_of(self, x, path):
        """Return the cost of a path; every step must be in the graph."""
        numbers = [int(np.flatnonzero((self.rows == row).all(axis=1))[0]) for row in path]
        assert all(self.graph.has_edge(*step) for step in pairwise(numbers))
        return self.cost(np.concatenate([x[None], path[:-1]]), path).sum()


@pytest.mark.parametrize(("weights", "k"), [("knn", K), ("knn", 40), ("epsilon", K), ("kde", K), ("flow", K)])
def test_paths_are_as_cheap_as_those_of_networkx(weights, k, classifier, plausibility, rows, y, queries):
    graph = Graph(weights, rows, y, plausibility, k)
    method = made(weights, classifier, plausibility, neighbours=k).fit(rows, y)
    found = method.explain(queries, "runner_up")
    proba = predict_proba(classifier, torch.from_numpy(graph.rows))
    paths = method.paths(queries, found.y_target)
    for i, (x, wanted) in enumerate(zip(queries.numpy(), found.y_target.tolist(), strict=True)):
        ends = ((proba.argmax(dim=1) == wanted) & (proba[:, wanted] >= 0.5)).nonzero()[:, 0].tolist()
        expected = graph.cheapest(x, ends)
        assert bool(found.found[i]) == (expected < math.inf) == (len(paths[i]) > 0)
        if found.found[i]:
            assert graph.cost_of(x, paths[i].numpy()) == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert torch.equal(paths[i][-1], found.x_cf[i])
    assert found.found.double().mean() > 0.7
    assert found.valid.sum() == found.found.sum()
    assert max(len(path) for path in paths) > 2
    free = sum(cost == 0 for _, _, cost in graph.graph.edges(data="weight"))
    assert free > 10 or k < 40


# ---------------------------------------------------------------- every path of a small graph

# Class 1 is right of three, where there is one row; two paths lead there.
RIGHT = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([-3.0]))
SMALL = torch.tensor([[1.0, 0.0], [2.0, 1.2], [2.5, -1.0], [4.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("weights", ["knn", "epsilon", "kde"])
def test_the_path_is_the_best_of_all_on_four_rows(weights):
    x = torch.tensor([[0.5, 0.1], [0.5, 0.9], [1.5, -2.0], [2.9, 2.0]], dtype=torch.float64)
    method = FACE(classifier=RIGHT, weights=weights, neighbours=4, epsilon=2.5, bandwidth=0.7)
    method.fit(SMALL, torch.tensor([0, 0, 0, 1]))
    kernels = KernelDensity(bandwidth=0.7).fit(SMALL)
    ways = [way for n in range(4) for way in permutations(range(3), n)]
    log_scale = math.log(
        min(
            {"knn": 4 / (4 * math.pi), "epsilon": 2.5**2}.get(weights, 1),
            float(nearest_lengths(SMALL).median()),
        )
    )

    def cost(a, b):
        length = float((a - b).norm())
        if weights == "epsilon" and length > 2.5:
            return math.inf
        middle = float(kernels.score_samples((a + b)[None] / 2)[0]) if weights == "kde" else 0.0
        return length * max(0.0, -middle if weights == "kde" else math.log(length) - log_scale)

    paths = method.paths(x, torch.ones(4, dtype=torch.long))
    for row, path in zip(x, paths, strict=True):
        every = {way: [row, *SMALL[list(way)], SMALL[3]] for way in ways}
        costs = {way: sum(cost(a, b) for a, b in pairwise(p)) for way, p in every.items()}
        best = min(costs, key=costs.get)
        if costs[best] == math.inf:
            assert len(path) == 0
        else:
            assert torch.equal(path, SMALL[[*best, 3]])


def nearest_lengths(rows):
    return (torch.cdist(rows, rows) + 9 * torch.eye(len(rows))).amin(dim=1)


def test_dense_steps_are_preferred_to_a_shorter_way_through_nothing():
    # A straight path of ten steps through a gap in the middle, and a dense detour.
    angle = torch.linspace(0, math.pi, 40)
    detour = torch.stack([-angle.cos(), angle.sin()], dim=1)
    straight = torch.tensor([[-0.5, 0.0], [0.5, 0.0]])
    x = torch.cat([detour, straight])
    classifier = LinearClassifier.from_weights(torch.tensor([[10.0, 0.0]]), torch.tensor([-8.0]))
    method = FACE(classifier=classifier, weights="kde", bandwidth=0.08, neighbours=5).fit(
        x, (x[:, 0] > 0.8).long()
    )
    path = method.paths(torch.tensor([[-1.0, 0.05]]), torch.tensor([1]))[0]
    assert (path[:, 1] >= 0).all()
    assert path[:, 1].max() > 0.9


# ---------------------------------------------------------------- ends and steps


def test_an_end_has_the_probability_asked_for(classifier, plausibility, rows, y, queries):
    for probability in (0.5, 0.7, 0.9):
        method = made("knn", classifier, plausibility, probability=probability).fit(rows, y)
        found = method.explain(queries, "runner_up")
        reached = predict_proba(classifier, found.x_cf).gather(1, found.y_target[:, None])[:, 0]
        assert found.found.any()
        assert (reached[found.found] >= probability).all()


@pytest.mark.parametrize("weights", ["knn", "kde", "flow"])
def test_an_end_has_the_density_asked_for(weights, classifier, plausibility, rows, y, queries):
    graph = Graph(weights, rows, y, plausibility)

    least = float(np.median(graph.log_density(rows.numpy())))
    found = (
        made(weights, classifier, plausibility, density_threshold=least)
        .fit(rows, y)
        .explain(queries, "runner_up")
    )
    without = made(weights, classifier, plausibility).fit(rows, y).explain(queries, "runner_up")
    reached, before = (graph.log_density(cf.x_cf[cf.found].numpy()) for cf in (found, without))
    assert len(reached) > 5
    assert min(reached) >= least - 1e-9
    assert min(before) < least


def test_only_allowed_steps_are_taken(classifier, plausibility, rows, y, queries):
    def rising(start, end):
        return end[:, 0] >= start[:, 0]

    y_target = torch.ones(len(queries), dtype=torch.long)
    free = made("knn", classifier, plausibility).fit(rows, y)
    bound = made("knn", classifier, plausibility, allowed=rising).fit(rows, y)
    falling = [
        bool((steps(x, path) < 0).any())
        for x, path in zip(queries, free.paths(queries, y_target), strict=True)
    ]
    assert any(falling)
    paths = bound.paths(queries, y_target)
    assert sum(len(path) > 0 for path in paths) > 5
    for x, path in zip(queries, paths, strict=True):
        assert (steps(x, path) >= 0).all()


def steps(x, path):
    """Return changes of the first feature along a path."""
    return torch.cat([x[None], path])[:, 0].diff()


def test_paths_go_through_training_rows_and_are_empty_where_no_way_is_needed_or_known(
    classifier, plausibility, rows, y, queries
):
    x = torch.cat([queries, rows[:3], torch.full((1, 3), torch.nan)])
    method = made("knn", classifier, plausibility, probability=0.0).fit(rows, y)
    y_target = torch.cat([predict(classifier, queries), predict(classifier, rows[:3]), torch.tensor([0])])
    assert [len(path) for path in method.paths(x, y_target)] == [0] * len(x)
    paths = method.paths(x[:-1], (y_target[:-1] + 1) % 3)
    for path in paths:
        assert (path[:, None] == rows).all(dim=2).any(dim=1).all()


def test_what_no_path_leads_to_is_not_found():
    left, right = torch.rand(30, 2), torch.rand(30, 2) + 5.0
    x, y = torch.cat([left, right]), torch.arange(60) // 30
    for settings in ({"neighbours": 5}, {"weights": "epsilon"}, {"weights": "kde", "neighbours": 5}):
        found = FACE(classifier=RIGHT, **settings).fit(x, y).explain(torch.cat([left[:4], right[:4]]))
        assert not found.found.any()
        assert found.x_cf.isnan().all()
    assert FACE(classifier=RIGHT, neighbours=35).fit(x, y).explain(left[:4]).valid.all()


@pytest.mark.parametrize("weights", ["knn", "epsilon", "kde", "flow"])
def test_a_row_alone_is_answered_as_in_a_batch(weights, classifier, plausibility, rows, y):
    x = torch.rand(300, 3)
    method = made(weights, classifier, plausibility).fit(rows, y)
    together = method.explain(x, "runner_up")
    for i in (0, 128, 299):
        alone = method.explain(x[i : i + 1], "runner_up")
        torch.testing.assert_close(alone.x_cf[0], together.x_cf[i], rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- what is chosen by itself


def test_the_longest_step_lets_nine_rows_in_ten_have_their_neighbours(classifier, rows, y):
    method = FACE(classifier=classifier, weights="epsilon", neighbours=K).fit(rows, y)
    distinct = np.unique(rows.numpy(), axis=0)
    lengths = NearestNeighbors(n_neighbors=K + 1).fit(distinct).kneighbors(distinct)[0][:, -1]
    assert method.epsilon_ == pytest.approx(np.quantile(lengths, 0.9), rel=1e-12)


def test_the_bandwidth_is_about_as_likely_as_the_best_of_a_fine_grid(rows):
    distinct = np.unique(rows.numpy(), axis=0)[:25]
    grid = {"bandwidth": [*np.geomspace(0.03, 0.3, 12), likeliest_bandwidth(torch.from_numpy(distinct))]}
    search = GridSearchCV(KernelDensity(), grid, cv=LeaveOneOut()).fit(distinct)
    scores = search.cv_results_["mean_test_score"]
    assert scores[-1] >= scores.max() - 0.05


def test_with_many_features_not_every_step_is_free():
    x = torch.rand(120, 64)
    classifier = LinearClassifier.from_weights(torch.ones(1, 64), torch.tensor([-32.0]))
    y = predict(classifier, x)
    for settings in ({}, {"weights": "epsilon"}, {"weights": "kde"}):
        ways = FACE(classifier=classifier, **settings).fit(x, y).paths_
        assert torch.isfinite(ways.cost).double().mean() > 0.9
        assert (ways.cost > 0).double().mean() > 0.2


# ---------------------------------------------------------------- tables that are hard


@pytest.mark.parametrize("settings", [{}, {"weights": "epsilon"}, {"weights": "kde"}], ids=str)
def test_one_row_copies_constant_features_and_absent_classes_do_no_harm(settings):
    classifier = LinearClassifier.from_weights(torch.eye(10, 3), torch.zeros(10))
    one = FACE(classifier=classifier, **settings).fit(torch.ones(1, 3), torch.tensor([0]))
    assert not one.explain(torch.rand(2, 3), 7).found.any()
    x = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.9, 0.2, 0.5]]).repeat(5, 1)
    copies = FACE(classifier=classifier, probability=0.0, **settings).fit(x, torch.arange(15) % 10)
    found = copies.explain(x[:3], torch.tensor([1, 0, 9]))
    assert found.found.tolist()[2] is False
    assert FACE(classifier=classifier, **settings).fit(torch.ones(4, 3), torch.zeros(4).long()) is not None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"weights": "gaussian"}, r"'knn', 'epsilon', 'kde' or 'flow'; got 'gaussian'"),
        (
            {"weights": "flow"},
            r"`plausibility` must be one with `log_prob\(x, y\)` for 'flow'.*got None",
        ),
        ({"weights": "flow", "plausibility": 0.5}, r"'flow' weights.*got 0.5"),
        ({"neighbours": 0}, r"`neighbours` must be at least 1; got 0"),
        ({"epsilon": 0.0, "bandwidth": -1.0}, r"`epsilon` must be positive; got 0.0; `bandwidth`.*got -1.0"),
        ({"probability": 1.0}, r"`probability` must be in \[0, 1\); got 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_errors(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        FACE(classifier=RIGHT, **settings)


def test_before_fit_there_is_no_graph():
    with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)`"):
        FACE(classifier=RIGHT).explain(torch.rand(2, 2))


@pytest.mark.paper
def test_the_published_flow_leads_every_row_of_a_fold_to_a_real_row(reference_directory):
    reference = PublishedRun.load("moons", reference_directory)
    classifier = reference.classifier("lr")
    flow = PublishedMAF(reference.maf_arrays)
    plausibility = Thresholded.at(flow, reference.log_delta, 2)
    # Half of the rows are of either class, so the mixture is half as dense as one class.
    models = {"classifier": classifier, "plausibility": plausibility}
    method = FACE(**models, weights="flow", density_threshold=reference.log_delta - math.log(2))
    found = method.fit(reference.x_train, reference.y_train).explain(reference.x_test)
    assert found.valid.all()
    assert (found.x_cf[:, None] == reference.x_train).all(dim=2).any(dim=1).all()
