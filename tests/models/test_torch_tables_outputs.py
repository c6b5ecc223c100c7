"""What a torch module of a table returns, logits or probabilities, is found out or can be said."""

import pytest
import torch
from torch import nn

from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.torch_module import torch_classifier, torch_regressor
from table_modules import COLUMNS, ROWS, Functional, Net, encoder_of, expected, small, table


@pytest.mark.parametrize("end", [nn.Identity(), nn.Flatten(0)], ids=["column", "flat"])
def test_a_single_output_is_the_logit_of_class_one(end):
    frame, module = table(), Net(1, end)
    encoder = encoder_of(frame)
    logits = torch_classifier(module, encoder, frame, 2).logits(encoder.encode(frame).x)
    own = expected(module, frame).reshape(-1)
    torch.testing.assert_close(logits, torch.stack([torch.zeros(ROWS), own], dim=1), rtol=1e-9, atol=1e-9)


def test_probabilities_become_their_logarithms():
    frame, encoder = table(), encoder_of(table())
    for module in (Net(3, nn.Softmax(dim=1)), Net(1, nn.Sigmoid())):
        n_classes = 3 if module.end.__class__ is nn.Softmax else 2
        classifier = torch_classifier(module, encoder, frame, n_classes)
        proba = classifier.logits(encoder.encode(frame).x).softmax(dim=1)
        own = expected(module, frame)
        own = own if n_classes == 3 else torch.cat([1 - own, own], dim=1)
        torch.testing.assert_close(proba, own, rtol=0, atol=1e-9)
        assert repr(classifier) == f"TableModule(Net, {n_classes} classes; probabilities)"


def unbounded(module) -> nn.Module:
    module.net.layers[1] = nn.ReLU()
    return module


def both(logit):
    return torch.cat([1 - logit.sigmoid(), logit.sigmoid()], dim=1)


def mixed(logits):
    return logits.softmax(dim=1) @ torch.tensor([[0.9, 0.1], [0.2, 0.8]]).to(logits)


PROBABILITIES = {
    "a sigmoid": lambda: Net(1, nn.Sigmoid()),
    "a flat sigmoid": lambda: Functional(lambda z: torch.sigmoid(z).squeeze(-1)),
    "a softmax": lambda: Net(2, nn.Softmax(dim=-1)),
    "a function softmax": lambda: Functional(lambda z: z.softmax(dim=1), 2),
    "both probabilities": lambda: Functional(both),
    "mixed probabilities": lambda: Functional(mixed, 2),
    "a softmax that overflows": lambda: unbounded(
        Functional(lambda z: z.exp() / z.exp().sum(dim=1, keepdim=True), 2)
    ),
    "a clamp": lambda: Functional(lambda z: (0.5 + z / 10).clamp(0, 1)),
}
LOGITS = {
    "a linear map": lambda: Net(2),
    "log-probabilities": lambda: Net(2, nn.LogSoftmax(dim=1)),
    "small logits": lambda: small(1, 0.5),
    "small flat logits": lambda: nn.Sequential(small(1, 0.5), nn.Flatten(0)),
    "small logits of two": lambda: small(2, 0.3),
    "small unbounded logits": lambda: unbounded(Functional(lambda z: 0.5 + 1e-3 * z[:, 0])),
    "a sigmoid for each class": lambda: Net(2, nn.Sigmoid()),
    "a tanh": lambda: Net(1, nn.Tanh()),
}


@pytest.mark.parametrize("name", PROBABILITIES | LOGITS)
def test_what_a_module_returns_is_found_out(name):
    frame, module = table(), (PROBABILITIES | LOGITS)[name]()
    found = torch_classifier(module, encoder_of(frame), frame, 2).output
    assert found == ("probabilities" if name in PROBABILITIES else "logits")


def test_logits_that_look_like_probabilities_near_the_table_are_told_far_from_it():
    frame = table(missing=0.0)
    weight = torch.zeros(1, COLUMNS)
    weight[0, 0] = 1 / 100
    linear = nn.Linear(COLUMNS, 1, bias=False)
    linear.weight = nn.Parameter(weight)
    module = nn.Sequential(linear, nn.ReLU())
    assert 0 <= float(expected(module, frame).min()) < float(expected(module, frame).max()) <= 1
    assert torch_classifier(module, encoder_of(frame), frame, 2).output == "logits"


def test_what_a_module_returns_can_be_said():
    frame, encoder = table(), encoder_of(table())
    x = encoder.encode(frame).x
    module = Net(1, nn.Sigmoid())
    classifier = torch_classifier(module, encoder, frame, 2, "logits")
    assert classifier.output == "logits"
    torch.testing.assert_close(classifier.logits(x)[:, 1:], expected(module, frame), rtol=1e-9, atol=1e-9)
    assert torch_classifier(module, encoder, frame, 2, "probabilities").output == "probabilities"
    with pytest.raises(ModelError, match=r"must return probabilities, in \[0, 1\] and summing to one"):
        torch_classifier(Net(3), encoder, frame, 3, "probabilities")
    with pytest.raises(InvalidInputError, match="`output` must be"):
        torch_classifier(Net(3), encoder, frame, 3, "odds")


def test_a_module_can_be_taken_where_gradients_are_off():
    frame, encoder = table(), encoder_of(table())
    with torch.no_grad():
        assert torch_classifier(small(1, 0.5), encoder, frame, 2).output == "logits"
        torch_regressor(Net(1), encoder, frame)
