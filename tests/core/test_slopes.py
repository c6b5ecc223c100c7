"""Gradients that are written down, held against those of torch."""

import itertools

import pytest
import torch
from torch import nn

from plausiflow.core.gradients import validity_value_and_grad, value_and_grad
from plausiflow.core.losses import validity_value
from plausiflow.core.protocols import HasValueAndGrad
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, Thresholded
from plausiflow.errors import ModelError
from plausiflow.methods import PPCEF
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, TorchClassifier
from plausiflow.models.encoded import EncodedModel
from plausiflow.search.criterion import TargetCriterion, Targets, ValidityConstraint

CLASSES, MARGINS = (2, 3, 5), (0.0, 0.02, 0.3)


def graph_of(function, points):
    """Values and gradients as torch finds them."""
    leaf = points.clone().requires_grad_()
    values = function(leaf)
    return values.detach(), torch.autograd.grad(values.sum(), leaf)[0]


def perceptron(k, hidden=(7, 5), d=4):
    sizes = (d, *hidden, k)
    weights = [torch.randn(out, into) for into, out in itertools.pairwise(sizes)]
    return MLPClassifier.from_weights(weights, [torch.randn(len(weight)) for weight in weights])


def linear(k, d=4):
    return LinearClassifier.from_weights(torch.randn(k, d), torch.randn(k))


@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("size", [1.0, 1e3])  # 1e3: probabilities of exactly zero and one
def test_the_slope_of_validity_is_torchs(k, margin, size):
    logits, y = size * torch.randn(64, k), torch.randint(k, (64,))
    value, slope = validity_value_and_grad(logits, y, margin)
    expected = graph_of(lambda z: validity_value(z, y, margin), logits)
    # Torch's softplus is a line beyond 20: its own gradient is that far off.
    torch.testing.assert_close(
        (value, slope), expected, rtol=1e-7, atol=1e-8
    )  # torch's softplus is a line beyond 20


def test_values_and_slopes_of_any_function():
    points = torch.randn(8, 3)
    values, slopes = value_and_grad(lambda x: (x**2).sum(dim=1), points)
    torch.testing.assert_close(values, (points**2).sum(dim=1))
    torch.testing.assert_close(slopes, 2 * points)
    assert not values.requires_grad


@pytest.mark.parametrize("make", [linear, perceptron])
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_network_knows_its_own_gradient(make, k, precision):
    classifier, x, shares = make(k), torch.randn(32, 4, dtype=precision), torch.randn(32, k, dtype=precision)
    assert isinstance(classifier, HasValueAndGrad)
    logits, pulled_back = classifier.value_and_grad(x)
    assert torch.equal(logits, classifier.logits(x))
    expected = graph_of(lambda own: (classifier.logits(own) * shares).sum(dim=1), x)[1]
    torch.testing.assert_close(pulled_back(shares), expected)


def test_networks_with_other_layers_leave_it_to_torch():
    assert not isinstance(NODE(), HasValueAndGrad)


class Smooth(MLPClassifier):
    """Another network than the one it is made of."""

    def _build(self, n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_classes))


class Tempered(LinearClassifier):
    def logits(self, x):
        return super().logits(x) / 3


@pytest.mark.parametrize("classifier", [Smooth(), Tempered()], ids=["layers", "logits"])
def test_a_network_that_is_made_of_ours_has_its_own_gradient(classifier):
    x, shares = torch.rand(60, 3), torch.randn(60, 2)
    classifier.fit(x, (x.sum(dim=1) > 1.5).long())
    logits, pulled_back = classifier.value_and_grad(x)
    torch.testing.assert_close(logits, classifier.logits(x).detach())
    expected = graph_of(lambda own: (classifier.logits(own) * shares).sum(dim=1), x)[1]
    torch.testing.assert_close(pulled_back(shares), expected)
    torch.testing.assert_close(pulled_back(2 * shares), 2 * expected)


WISHES = {
    "a class": (2, TargetCriterion(margin=0.02), lambda y: Targets(y)),
    "of four": (4, TargetCriterion(margin=0.02), lambda y: Targets(y)),
    "firmly": (2, TargetCriterion(margin=0.02), lambda y: Targets(y, firmer=torch.rand(len(y)))),
    "with a probability": (
        2,
        TargetCriterion(margin=0.02),
        lambda y: Targets(y, least=torch.full((len(y),), 0.9)),
    ),
}


@pytest.mark.parametrize("wish", list(WISHES))
def test_what_is_wanted_has_the_slope_of_its_value(wish):
    k, aim, parse_target = WISHES[wish]
    classifier, x, wanted = perceptron(k), torch.randn(32, 4), parse_target(torch.randint(k, (32,)))
    decides = ValidityConstraint(classifier.logits, aim, classifier.value_and_grad)
    expected = graph_of(lambda own: decides(own, wanted), x)
    torch.testing.assert_close(decides.slope(x, wanted), expected, rtol=1e-7, atol=1e-7)


def test_answers_are_those_of_a_search_that_keeps_the_graph():
    x = torch.rand(200, 4)
    y = (x.sum(dim=1) > 2).long()
    classifier = MLPClassifier(hidden=(16,), training=Training(epochs=60, learning_rate=3e-2)).fit(x, y)
    flow = ConditionalFlow(transforms=2, hidden=(16,), training=Training(epochs=20, learning_rate=1e-2))
    plausibility = Thresholded(density=flow.fit(x, y)).fit(x, y)
    graph = TorchClassifier(classifier.module_, n_classes=2)
    assert not isinstance(graph, HasValueAndGrad)
    quick, slow = (
        PPCEF(classifier=own, plausibility=plausibility, lower=0.0, upper=1.0)
        .fit(x, y)
        .explain(x, "opposite")
        for own in (classifier, graph)
    )
    assert bool(quick.feasible.all())
    torch.testing.assert_close(quick.x_cf, slow.x_cf, rtol=0, atol=1e-6)


def test_a_model_that_raises_where_it_should_tell_its_gradient_is_an_error_of_ours():
    class Broken:
        n_classes, differentiable = 2, True

        def logits(self, x):
            return torch.stack([-x[:, 0], x[:, 0]], dim=1)

        def value_and_grad(self, x):
            raise ZeroDivisionError("no gradient")

    value_and_grad = EncodedModel(Broken(), ("no", "yes")).value_and_grad
    assert value_and_grad is not None
    with pytest.raises(ModelError, match=r"`model.value_and_grad` raised ZeroDivisionError .* no gradient"):
        value_and_grad(torch.rand(3, 2))
    assert EncodedModel(linear(2).logits, ("no", "yes")).value_and_grad is None
