"""Modules that users bring as classifiers: logits, probabilities, and what goes wrong."""

import pytest
import torch
from torch import nn

from plausiflow.core.prediction import predict, predict_proba
from plausiflow.core.protocols import Classifier
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models import TorchClassifier


class Returns(nn.Module):
    """A module that returns what a function makes of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_module_of_logits_is_taken_as_it_is():
    module = nn.Linear(3, 4)
    classifier, x = TorchClassifier(module, n_classes=4), torch.randn(5, 3)
    assert isinstance(classifier, Classifier)
    assert torch.equal(classifier.logits(x), module(x).detach())


@pytest.mark.parametrize("squeeze", [False, True])
def test_a_single_logit_becomes_two_columns(squeeze):
    module = Returns(lambda x: x.sum(dim=1) if squeeze else x.sum(dim=1, keepdim=True))
    x = torch.randn(5, 3)
    logits = TorchClassifier(module, n_classes=2).logits(x)
    torch.testing.assert_close(logits, torch.stack([torch.zeros(5), x.sum(dim=1)], dim=1))


def test_a_single_row_with_a_flat_output_keeps_its_row():
    assert TorchClassifier(Returns(lambda x: x.sum(dim=1)), n_classes=2).logits(torch.ones(1, 3)).shape == (
        1,
        2,
    )


def test_a_single_probability_becomes_two_columns():
    module = Returns(lambda x: x[:, :1].sigmoid())
    x = torch.tensor([[-1.0], [0.0], [2.0]])
    proba = predict_proba(TorchClassifier(module, n_classes=2, output="probabilities"), x)
    torch.testing.assert_close(proba, torch.cat([1 - x.sigmoid(), x.sigmoid()], dim=1))


def test_probabilities_become_their_logarithms_and_stay_finite():
    module = Returns(lambda x: (1e4 * x).softmax(dim=1))
    x = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]], requires_grad=True)
    classifier = TorchClassifier(module, n_classes=3, output="probabilities")
    logits = classifier.logits(x)
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(logits.softmax(dim=1), module(x))
    logits.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_infinite_logits_are_cut_to_finite_ones():
    module = Returns(lambda x: torch.stack([x[:, 0], torch.where(x[:, 0] > 0, -torch.inf, x[:, 0])], dim=1))
    classifier = TorchClassifier(module, n_classes=2)
    assert torch.isfinite(classifier.logits(torch.ones(1, 1))).all()
    assert predict(classifier, torch.ones(1, 1)) == 0


def test_a_module_is_copied_and_left_in_its_mode():
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    classifier, x = TorchClassifier(module, n_classes=2), torch.randn(5, 3)
    before = classifier.logits(x)
    assert torch.equal(before, classifier.logits(x))  # no dropout
    assert module.training
    with torch.no_grad():
        module[0].weight.zero_()
    assert torch.equal(before, classifier.logits(x))


def test_a_single_precision_module_answers_in_double_precision():
    module = nn.Linear(3, 2).float()
    assert (
        TorchClassifier(module, n_classes=2).logits(torch.randn(5, 3, dtype=torch.float64)).dtype
        == torch.float64
    )
    assert module.weight.dtype == torch.float32


def test_repr_names_the_module():
    assert (
        repr(TorchClassifier(nn.Linear(3, 2), n_classes=2))
        == "TorchClassifier(Linear, n_classes=2, output='logits')"
    )


def _raise(x):
    raise ValueError("no such column")


@pytest.mark.parametrize(
    ("function", "output", "message"),
    [
        (lambda x: x[:, :2], "logits", r"shape \(5, 3\) for 5 rows; got \(5, 2\).*n_classes"),
        (lambda x: x[0], "logits", r"got \(3,\)"),
        (lambda x: x[:2], "logits", r"got \(2, 3\)"),
        (lambda x: x / 0 * 0, "logits", "NaN for 5 of 5 rows although their values are finite"),
        (_raise, "logits", "raised ValueError for rows of shape .*no such column"),
        (lambda x: (x, x), "logits", "must return a tensor; got tuple"),
        (lambda x: x.detach(), "logits", "no gradient with respect to its input"),
        (lambda x: 5 * x, "probabilities", 'probabilities, in .*Use `output="logits"`'),
        (lambda x: x.sigmoid(), "probabilities", "summing to one"),
    ],
    ids=[
        "columns",
        "vector",
        "rows",
        "nan",
        "raises",
        "tuple",
        "detached",
        "not probabilities",
        "not normalised",
    ],
)
def test_a_module_that_misbehaves_is_an_error_that_says_what_to_do(function, output, message):
    classifier = TorchClassifier(Returns(function), n_classes=3, output=output)
    with pytest.raises(ModelError, match=message):
        classifier.logits(torch.randn(5, 3).requires_grad_())


def test_rows_that_are_not_numbers_get_logits_that_are_not_numbers():
    x = torch.tensor([[1.0, 2.0], [torch.nan, 1.0]])
    for output, module in {"logits": nn.Identity(), "probabilities": nn.Softmax(dim=1)}.items():
        logits = TorchClassifier(module, n_classes=2, output=output).logits(x)
        assert torch.isfinite(logits[0]).all()
        assert logits[1].isnan().any()


def test_wrong_settings_are_an_error_that_names_all_of_them():
    with pytest.raises(
        InvalidInputError,
        match=r"torch\.nn\.Module; got function.*`n_classes`.*got 1.*`output`.*got 'scores'",
    ):
        TorchClassifier(_raise, n_classes=1, output="scores")


def test_a_module_that_cannot_be_copied_is_an_error():
    module = nn.Linear(2, 2)
    module.cache = module(torch.zeros(1, 2))  # not a leaf: torch refuses to copy it
    with pytest.raises(ModelError, match=r"could not be copied.*detach\(\)"):
        TorchClassifier(module, n_classes=2)
