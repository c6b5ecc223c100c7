"""Gradients in closed form, compared with those of autograd."""

import itertools

import pytest
import torch
from torch import nn

from plausiflow.core import TargetCriterion, Targets, ValidityConstraint
from plausiflow.core.losses import validity_value, validity_value_and_grad, value_and_grad
from plausiflow.core.protocols import HasValueAndGrad
from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, Thresholded
from plausiflow.errors import ModelError
from plausiflow.methods import PPCEF
from plausiflow.models import EncodedModel, LinearClassifier, MLPClassifier, TorchClassifier

CLASSES, MARGINS = (2, 3, 5), (0.0, 0.02, 0.3)


def by_autograd(function, points):
    """Values and gradients as autograd finds them."""
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
def test_the_gradient_of_validity_value_equals_autograd(k, margin, size):
    logits, y = size * torch.randn(64, k), torch.randint(k, (64,))
    value, gradient = validity_value_and_grad(logits, y, margin)
    expected = by_autograd(lambda z: validity_value(z, y, margin), logits)
    # Torch's softplus is linear beyond 20, so its gradient is off by about 1e-9 there.
    torch.testing.assert_close((value, gradient), expected, rtol=1e-7, atol=1e-8)


def test_value_and_grad_of_any_function():
    points = torch.randn(8, 3)
    values, gradients = value_and_grad(lambda x: (x**2).sum(dim=1), points)
    torch.testing.assert_close(values, (points**2).sum(dim=1))
    torch.testing.assert_close(gradients, 2 * points)
    assert not values.requires_grad


@pytest.mark.parametrize("make", [linear, perceptron])
@pytest.mark.parametrize("k", CLASSES)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_network_computes_its_gradient_without_a_graph(make, k, precision):
    classifier, x, shares = make(k), torch.randn(32, 4, dtype=precision), torch.randn(32, k, dtype=precision)
    assert isinstance(classifier, HasValueAndGrad)
    logits, pullback = classifier.value_and_grad(x)
    assert torch.equal(logits, classifier.logits(x))
    expected = by_autograd(lambda own: (classifier.logits(own) * shares).sum(dim=1), x)[1]
    torch.testing.assert_close(pullback(shares), expected)


class Smooth(MLPClassifier):
    """A subclass with other layers."""

    def _build(self, n_features, n_classes):
        return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_classes))


class Tempered(LinearClassifier):
    def logits(self, x):
        return super().logits(x) / 3


@pytest.mark.parametrize("classifier", [Smooth(), Tempered()], ids=["layers", "logits"])
def test_a_subclass_of_a_network_has_its_own_gradient(classifier):
    x, shares = torch.rand(60, 3), torch.randn(60, 2)
    classifier.fit(x, (x.sum(dim=1) > 1.5).long())
    logits, pullback = classifier.value_and_grad(x)
    torch.testing.assert_close(logits, classifier.logits(x).detach())
    expected = by_autograd(lambda own: (classifier.logits(own) * shares).sum(dim=1), x)[1]
    torch.testing.assert_close(pullback(shares), expected)
    torch.testing.assert_close(pullback(2 * shares), 2 * expected)


TARGETS = {
    "a class": (2, TargetCriterion(margin=0.02), lambda y: Targets(y)),
    "one of four classes": (4, TargetCriterion(margin=0.02), lambda y: Targets(y)),
    "with an extra margin": (
        2,
        TargetCriterion(margin=0.02),
        lambda y: Targets(y, extra_margin=torch.rand(len(y))),
    ),
    "with a minimum probability": (
        2,
        TargetCriterion(margin=0.02),
        lambda y: Targets(y, min_probability=torch.full((len(y),), 0.9)),
    ),
}


@pytest.mark.parametrize("target", list(TARGETS))
def test_the_gradient_of_a_validity_constraint_is_that_of_its_value(target):
    k, criterion, targets_of = TARGETS[target]
    classifier, x, targets = perceptron(k), torch.randn(32, 4), targets_of(torch.randint(k, (32,)))
    validity = ValidityConstraint(classifier.logits, criterion, classifier.value_and_grad)
    expected = by_autograd(lambda own: validity(own, targets), x)
    torch.testing.assert_close(validity.value_and_grad(x, targets), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("extra_margin", [None, torch.linspace(0, 3, 32)], ids=["plain", "extra margin"])
def test_the_gradient_of_an_interval_is_that_of_its_value(extra_margin):
    criterion = TargetCriterion(edges=(-torch.inf, 0.0, torch.inf), unit=0.5)
    values, low = torch.randn(32), torch.linspace(-1, 1, 32)
    targets = Targets(torch.ones(32).long(), low=low, high=low + 1, extra_margin=extra_margin)
    expected = by_autograd(lambda own: criterion.value(own, targets), values)
    torch.testing.assert_close(criterion.value_and_grad(values, targets), expected)


def test_a_search_without_a_graph_finds_the_counterfactuals_of_one_with_a_graph():
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


def test_a_model_whose_value_and_grad_raises_is_a_model_error():
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
