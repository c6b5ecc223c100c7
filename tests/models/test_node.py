"""NODE and its activations: against a general optimiser, and loops over leaves."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.datasets import load_wine

from plausiflow.core.prediction import predict
from plausiflow.core.training import Training
from plausiflow.errors import InvalidInputError
from plausiflow.models import NODE, node
from plausiflow.models.node import ODST, entmax15, entmoid15, sparsemax, sparsemoid
from plausiflow_bench.published.runs import PublishedRun

ENTMAX = {"sparsemax": (sparsemax, 2.0), "entmax15": (entmax15, 1.5)}


@pytest.fixture(params=list(ENTMAX))
def activation(request):
    return ENTMAX[request.param]


# Activations


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_distributions_maximise_score_plus_entropy(activation, scale):
    function, alpha = activation
    scores = scale * torch.randn(6, dtype=torch.float64)
    z = scores.numpy()

    def objective(p):
        p = np.maximum(p, 0)
        return -(z @ p + (p - p**alpha).sum() / (alpha * (alpha - 1)))

    simplex = {"type": "eq", "fun": lambda p: p.sum() - 1}
    best = minimize(
        objective,
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints=simplex,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    found = function(scores).numpy()
    assert objective(found) <= best.fun + 1e-9
    np.testing.assert_allclose(found, best.x, atol=1e-4)


@given(arrays(np.float64, (3, 5), elements=st.floats(-1e6, 1e6)))
def test_distributions_are_distributions_in_the_order_of_the_scores(scores):
    for function, _ in ENTMAX.values():
        z = torch.from_numpy(scores)
        p = function(z)
        assert (p >= 0).all()
        torch.testing.assert_close(p.sum(dim=-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-9)
        order = z.argsort(dim=-1)
        assert (p.gather(-1, order).diff(dim=-1) >= -1e-12).all()


def test_a_score_of_minus_infinity_gets_nothing_and_breaks_nothing(activation):
    function, _ = activation
    scores = torch.tensor([1.0, -torch.inf, 0.5], requires_grad=True)
    p = function(scores)
    torch.testing.assert_close(p[[0, 2]], function(scores[[0, 2]]))
    assert p[1] == 0
    p[0].backward()
    assert torch.isfinite(scores.grad).all()


def test_gradients_of_the_distributions_are_right_away_from_kinks(activation):
    function, _ = activation
    scores = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, scores, eps=1e-7, atol=1e-4)


@pytest.mark.parametrize(("bins", "whole"), [(sparsemoid, sparsemax), (entmoid15, entmax15)])
def test_bins_are_the_two_class_distributions(bins, whole):
    u = torch.linspace(-4, 4, 801, dtype=torch.float64)
    expected = whole(torch.stack([u, torch.zeros_like(u)], dim=-1))[:, 0]
    torch.testing.assert_close(bins(u), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bins", [sparsemoid, entmoid15])
def test_bins_have_the_right_gradient_also_at_zero(bins):
    u = torch.tensor([-3.0, -0.9, -0.1, 0.0, 0.4, 5.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(bins, u)
    (slope,) = torch.autograd.grad(bins(u).sum(), u)
    assert slope[0] == slope[-1] == 0
    assert (slope[1:-1] > 0).all()


# Trees


def leaf_by_leaf(layer, x, choice, bins):
    """The layer's answers, one row, tree and leaf at a time."""
    n_trees, n_classes, n_leaves = layer.response.shape
    answers = torch.zeros(len(x), n_trees, n_classes)
    for n in range(len(x)):
        for t in range(n_trees):
            above = []
            for k in range(layer.depth):
                weights = choice(layer.selection[:, t, k])
                above.append(
                    bins((x[n] @ weights - layer.thresholds[t, k]) / layer.log_temperatures[t, k].exp())
                )
            for leaf in range(n_leaves):
                weight = 1.0
                for k in range(layer.depth):
                    weight = weight * (1 - above[k] if (leaf >> k) & 1 else above[k])
                answers[n, t] += weight * layer.response[t, :, leaf]
    return answers


@pytest.mark.parametrize(("choice", "bins"), [(sparsemax, sparsemoid), (entmax15, entmoid15)])
def test_a_layer_answers_as_a_loop_over_its_leaves(choice, bins):
    layer, x = ODST(4, 3, n_trees=3, depth=3, choice=choice, bins=bins), torch.randn(5, 4)
    with torch.no_grad():
        expected = leaf_by_leaf(layer, x, choice, bins)
        torch.testing.assert_close(layer(x), expected)
        torch.testing.assert_close(layer.mean(x), expected.mean(dim=1))


def test_the_weights_of_a_trees_leaves_sum_to_one():
    layer = ODST(4, 2, n_trees=5, depth=6, choice=entmax15, bins=entmoid15)
    torch.testing.assert_close(layer.leaf_weights(torch.randn(9, 4)).sum(dim=-1), torch.ones(9, 5))


@torch.no_grad()
def test_a_later_layer_sees_the_rows_and_the_answers_of_the_trees_before():
    node = NODE(n_trees=3, depth=2, n_layers=3)
    network, x = node._build(4, 2), torch.randn(6, 4)
    seen, answers = x, []
    for layer in network.layers:
        answers.append(leaf_by_leaf(layer, seen, entmax15, entmoid15))
        seen = torch.cat([seen, answers[-1].reshape(6, -1)], dim=1)
    torch.testing.assert_close(network(x), torch.cat(answers, dim=1).mean(dim=1))


def test_first_thresholds_are_quantiles_and_first_temperatures_reach_the_farthest_row():
    layer = ODST(4, 2, n_trees=6, depth=3, choice=sparsemax, bins=sparsemoid).double()
    x = torch.rand(500, 4, dtype=torch.float64)
    layer.initialise(x, np.random.default_rng(3), beta=2.0, cutoff=1.0)
    values = layer.split_values(x).detach()
    quantiles = np.random.default_rng(3).beta(2.0, 2.0, size=(6, 3))
    expected = [[np.quantile(values[:, t, k].numpy(), quantiles[t, k]) for k in range(3)] for t in range(6)]
    np.testing.assert_allclose(layer.thresholds.detach().numpy(), expected, rtol=1e-9)
    reached = ((values - layer.thresholds).abs() / layer.log_temperatures.exp()).amax(dim=0)
    torch.testing.assert_close(reached.detach(), torch.ones(6, 3).double(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("cutoff", "share", "farthest"), [(0.9, 0.9, None), (2.0, 1.0, 2.0)])
def test_the_cutoff_says_how_many_rows_start_in_the_slope(cutoff, share, farthest):
    layer = ODST(4, 2, n_trees=6, depth=3, choice=sparsemax, bins=sparsemoid)
    x = torch.rand(2001, 4)
    layer.initialise(x, np.random.default_rng(3), beta=1.0, cutoff=cutoff)
    differences = (layer.split_values(x) - layer.thresholds).abs() / layer.log_temperatures.exp()
    if farthest is None:
        torch.testing.assert_close(
            (differences <= 1).to(x).mean(dim=0), torch.full((6, 3), share), rtol=0, atol=2e-3
        )
    else:
        torch.testing.assert_close(
            differences.amax(dim=0).detach(), torch.full((6, 3), farthest), rtol=0, atol=1e-3
        )


# The classifier


@pytest.fixture(scope="module")
def wine():
    x, y = load_wine(return_X_y=True)
    x = (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0))
    return torch.as_tensor(x).to(torch.get_default_dtype()), torch.as_tensor(y).long()


@pytest.mark.parametrize("activations", [("sparsemax", "sparsemoid"), ("entmax15", "entmoid15")])
def test_a_small_node_learns_wine(wine, activations):
    x, y = wine
    choice, bins = activations
    training = Training(epochs=60, learning_rate=5e-2, batch_size=64)
    node = NODE(n_trees=32, depth=3, choice=choice, bins=bins, training=training).fit(x[::2], y[::2])
    assert (predict(node, x[1::2]) == y[1::2]).double().mean() > 0.93


def test_logits_are_those_of_the_trained_module(wine):
    node = NODE(n_trees=4, depth=2, n_layers=2, training=Training(epochs=2)).fit(*wine)
    with torch.no_grad():
        torch.testing.assert_close(node.logits(wine[0]), node.module_(wine[0]), rtol=0, atol=1e-12)


def test_presets_are_what_they_say():
    paper, popov = NODE.paper(random_state=3), NODE.popov()
    assert (paper.n_trees, paper.depth, paper.n_layers, paper.choice, paper.bins) == (
        128,
        4,
        1,
        "sparsemax",
        "sparsemoid",
    )
    assert (popov.n_trees, popov.depth, popov.n_layers, popov.choice, popov.bins) == (
        128,
        6,
        2,
        "entmax15",
        "entmoid15",
    )
    assert paper.random_state == 3


def test_wrong_settings_are_an_error_that_names_all_of_them():
    with pytest.raises(
        InvalidInputError, match=r"at least 1; got 0, 4, 1.*`choice` must be .*'softmax'.*`bins` .*'sigmoid'"
    ):
        NODE(n_trees=0, choice="softmax", bins="sigmoid")


def test_weights_without_a_layer_are_an_error():
    with pytest.raises(InvalidInputError, match=r"dense_block\.0\.feature_thresholds`; got \['weight'\]"):
        NODE.from_weights({"weight": torch.zeros(2)})


def test_published_weights_give_the_logits_of_the_published_leaf_codes(reference_directory):
    reference = PublishedRun.load("wine", reference_directory)
    part = {
        name.split(".")[-1]: torch.as_tensor(v)
        for name, v in reference.classifier_arrays.items()
        if "dense_block" in name
    }
    x = reference.x_test
    values = torch.einsum(
        "nf,ftd->ntd", x, sparsemax(part["feature_selection_logits"].movedim(0, -1)).movedim(-1, 0)
    )
    u = (values - part["feature_thresholds"]) * (-part["log_temperatures"]).exp()
    bins = sparsemoid(torch.stack([-u, u], dim=-1))
    leaves = torch.einsum("ntds,dls->ntdl", bins, part["bin_codes_1hot"]).prod(dim=2)
    expected = torch.einsum("ntl,tcl->ntc", leaves, part["response"]).mean(dim=1)
    torch.testing.assert_close(reference.classifier("node").logits(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accuracy"), [("heloc", 0.69), ("digits", 0.93)])
@pytest.mark.parametrize("make", [NODE, NODE.paper], ids=["default", "paper"])
def test_our_training_reaches_the_published_accuracy(reference_directory, name, accuracy, make):
    reference = PublishedRun.load(name, reference_directory)
    node = make().fit(reference.x_train, reference.y_train)
    assert (predict(node, reference.x_test) == reference.y_test).double().mean() > accuracy


def test_many_rows_are_answered_in_pieces_with_the_same_answers_and_gradients(monkeypatch):
    trees = NODE(n_trees=8, depth=3, n_layers=2, training=Training(epochs=2)).fit(
        torch.rand(300, 4), torch.randint(3, (300,))
    )
    x = torch.rand(300, 4, requires_grad=True)
    whole = trees.logits(x)
    (gradient,) = torch.autograd.grad(whole.square().sum(), x)
    monkeypatch.setattr(node, "_MAX_LEAVES", 8 * 8 * 70)
    pieces = trees.logits(x)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(pieces.square().sum(), x)[0], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("choice", "bins"), [("sparsemax", "sparsemoid"), ("entmax15", "entmoid15")])
@pytest.mark.parametrize(("depth", "n_layers"), [(1, 1), (4, 1), (3, 2)])
@pytest.mark.parametrize("leaves", [2**18, 200])  # 200: several blocks of rows
def test_the_gradient_in_closed_form_equals_autograd(
    wine, monkeypatch, choice, bins, depth, n_layers, leaves
):
    monkeypatch.setattr(node, "_GRADIENT_LEAVES", leaves)
    x, y = wine
    training = Training(epochs=2, learning_rate=1e-2, batch_size=64, patience=2)
    model = NODE(n_trees=8, depth=depth, n_layers=n_layers, choice=choice, bins=bins, training=training)
    model.fit(x, y)
    points = x[:40].double()
    logits, pullback = model.value_and_grad(points)
    expected, by_autograd = model.value_and_grad_by_autograd(points)
    outer = torch.randn(logits.shape, dtype=logits.dtype)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(pullback(outer), by_autograd(outer))
