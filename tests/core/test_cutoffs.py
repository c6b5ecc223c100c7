"""Cut-offs of a decision: the criterion decides as division by them does, and keeps the paper's losses."""

import pytest
import torch

from plausiflow.core import TargetCriterion, Targets, ValidityConstraint
from plausiflow.errors import InvalidInputError

THREE = TargetCriterion(cutoffs=(0.2, 0.5, 0.3))


def shares(n, k):
    return torch.rand(n, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(1)


def test_the_largest_ratio_of_probability_to_cutoff_decides():
    proba = shares(200, 3)
    expected = (proba / torch.tensor(THREE.cutoffs)).argmax(1)
    assert torch.equal(THREE.classes(proba.log()), expected)
    for k in range(3):
        value = THREE.value(proba.log(), torch.full((200,), k))
        assert torch.equal(value > 0, expected == k)


@pytest.mark.parametrize("cutoff", [0.01, 0.3, 0.5, 0.99])
def test_a_probability_equal_to_the_cutoff_is_enough_for_the_second_class(cutoff):
    criterion = TargetCriterion(cutoffs=(1 - cutoff, cutoff))
    share = torch.tensor([cutoff - 1e-6, cutoff, cutoff + 1e-6], dtype=torch.float64)
    outputs = torch.stack([1 - share, share], 1).log()
    assert criterion.classes(outputs).tolist() == [0, 1, 1]


def test_a_cutoff_of_one_half_changes_nothing():
    logits, y = shares(50, 2).log(), torch.arange(50) % 2
    plain, half = TargetCriterion(0.02), TargetCriterion(0.02, cutoffs=(0.5, 0.5))
    torch.testing.assert_close(half.value(logits, y), plain.value(logits, y))
    torch.testing.assert_close(half.loss(logits, Targets(y)), plain.loss(logits, Targets(y)))


def test_the_gradient_is_that_of_autograd():
    criterion = TargetCriterion(0.02, cutoffs=(0.8, 0.2))
    logits, targets = shares(20, 2).log(), Targets(torch.arange(20) % 2)
    value, gradient = criterion.value_and_grad(logits, targets)
    leaf = logits.clone().requires_grad_()
    torch.testing.assert_close(value, criterion.value(leaf, targets).detach())
    (expected,) = torch.autograd.grad(criterion.value(leaf, targets).sum(), leaf)
    torch.testing.assert_close(gradient, expected)
    assert ValidityConstraint(lambda x: x, criterion)(logits, targets).shape == (20,)


def test_the_model_itself_has_the_last_word():
    outputs, decided = torch.tensor([[0.4, 0.6], [0.4, 0.6]]).log(), torch.tensor([1, 0])
    assert TargetCriterion().met(outputs, Targets(torch.tensor([1, 1])), decided).tolist() == [True, False]
    least = Targets(torch.tensor([1, 1]), min_probability=torch.tensor([0.7, 0.7]))
    assert TargetCriterion().met(outputs, least, decided).tolist() == [False, False]


@pytest.mark.parametrize(("k", "least"), [(0, 0.2), (1, 0.5), (2, 0.3)])
def test_a_class_wins_from_its_cutoff_at_best(k, least):
    assert THREE.smallest_probability(k, 3) == pytest.approx(least)
    assert TargetCriterion().smallest_probability(k, 4) == 0.25


def test_cutoffs_are_saved():
    assert TargetCriterion.from_dict(THREE.to_dict()) == THREE


@pytest.mark.parametrize("cutoffs", [[0.5], [0.0, 1.0], [-0.1, 1.1], ["a", "b"], [float("nan"), 0.5]])
def test_damaged_cutoffs_are_refused(cutoffs):
    with pytest.raises(InvalidInputError, match="cut-offs"):
        TargetCriterion.from_dict({**THREE.to_dict(), "cutoffs": cutoffs})


def test_a_predicted_number_has_no_cutoffs():
    with pytest.raises(InvalidInputError, match="cut-offs"):
        TargetCriterion.from_dict({**THREE.to_dict(), "edges": [1.0, 2.0]})
