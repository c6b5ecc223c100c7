"""User models in every method: dropout, errors, no gradients, no log-density."""

import pytest
import torch
from torch import nn

from method_cases import assert_refused, assert_same
from plausiflow.errors import ModelError
from plausiflow.models import TorchClassifier


def module_with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))


def test_a_module_in_training_mode_is_searched_without_dropout_and_stays_in_training_mode(two_classes, entry):
    module = module_with_dropout().train()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    method = two_classes.method(entry, classifier=TorchClassifier(module, n_classes=2))
    first, second = method.explain(two_classes.x[:8]), method.explain(two_classes.x[:8])
    assert_same(first, second, atol=0)
    assert all(part.training for part in module.modules())
    assert all(value.requires_grad and value.grad is None for value in module.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())

    quiet = two_classes.method(entry, classifier=TorchClassifier(module_with_dropout().eval(), n_classes=2))
    assert_same(first, quiet.explain(two_classes.x[:8]), atol=0)


def test_a_module_that_raises_is_a_model_error_that_quotes_it(two_classes, entry):
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError("weights were lost")

    broken = TorchClassifier(Broken(), n_classes=2)
    method = entry.make(classifier=broken, plausibility=two_classes.plausibility)
    with pytest.raises(ModelError, match=r"KeyError.*weights were lost"):
        method.explain(two_classes.x[:2])


def test_a_module_that_raises_in_the_middle_of_a_search_is_a_model_error_too(two_classes, entry):
    class Fickle(nn.Module):
        calls = 0

        def forward(self, x):
            Fickle.calls += 1
            if Fickle.calls > 1:
                raise RuntimeError("no more")
            return torch.stack([-x.sum(dim=1), x.sum(dim=1) - 1.0], dim=1)

    method = two_classes.method(entry)
    method.classifier = TorchClassifier(Fickle(), n_classes=2)
    if entry.linear:
        assert_refused(method, two_classes.x[:2])
        return
    with pytest.raises(ModelError, match="no more"):
        method.explain(two_classes.x[:2])


def test_a_module_without_gradients_is_a_model_error_with_a_remedy(two_classes, entry):
    class Detached(nn.Module):
        def forward(self, x):
            return torch.stack([-x.sum(dim=1), x.sum(dim=1) - 1.0], dim=1).detach()

    classifier = TorchClassifier(Detached(), n_classes=2)
    if entry.linear:
        assert_refused(entry.make(classifier=classifier), two_classes.x[:2])
        return
    if not entry.gradients:
        assert two_classes.method(entry, classifier=classifier).explain(two_classes.x[:2]).valid.all()
        return
    method = two_classes.method(entry)
    method.classifier = classifier
    with pytest.raises(ModelError, match=r"no gradient.*Remove `detach\(\)`"):
        method.explain(two_classes.x[:2])


class ScoreOnly:
    """A user's plausibility without a log-density: points near the middle are plausible."""

    def score(self, x, y):
        return 0.5 - (x - 0.5).square().sum(dim=1)


def test_a_plausibility_without_log_density_will_do(two_classes, entry):
    found = two_classes.method(entry, plausibility=ScoreOnly()).explain(two_classes.x[:20])
    assert found.feasible.double().mean() >= entry.feasible
    assert torch.isnan(found.log_prob).all()
    assert torch.isnan(found.log_delta).all()
