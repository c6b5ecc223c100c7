"""Targets of every method: the class that is wanted of each row, and errors where none can be."""

import numpy as np
import pytest
import torch

from method_cases import assert_consistent, assert_same
from plausiflow.core.prediction import predict
from plausiflow.errors import InvalidInputError, ShapeError


def test_opposite_is_the_other_of_two_classes(two_classes, entry):
    found = two_classes.method(entry).explain(two_classes.x[:10], "opposite")
    assert torch.equal(found.y, predict(two_classes.classifier, two_classes.x[:10]))
    assert torch.equal(found.y_target, 1 - found.y)


def test_opposite_is_what_is_asked_for_by_default(two_classes, entry):
    method = two_classes.method(entry)
    assert_same(method.explain(two_classes.x[:4]), method.explain(two_classes.x[:4], "opposite"), atol=0)


def test_opposite_among_three_classes_is_an_error_that_says_what_to_ask_for(three_classes, entry):
    with pytest.raises(InvalidInputError, match=r"two classes; this one has 3.*'runner_up' or name a class"):
        three_classes.method(entry).explain(three_classes.x[:2])


def test_runner_up_is_the_second_most_probable_class(three_classes, entry):
    x = three_classes.x[:30]
    found = three_classes.method(entry).explain(x, "runner_up")
    for row, y, y_target in zip(x, found.y.tolist(), found.y_target.tolist(), strict=True):
        logits = three_classes.classifier.logits(row[None].double())[0].tolist()
        assert [y, y_target] == sorted(range(3), key=lambda k, logits=logits: -logits[k])[:2]


def test_the_papers_target_is_one_minus_the_predicted_class_without_its_sign(three_classes, entry):
    found = three_classes.method(entry).explain(three_classes.x[:30], "paper")
    assert found.y.unique().tolist() == [0, 1, 2]
    assert found.y_target.tolist() == [{0: 1, 1: 0, 2: 1}[y] for y in found.y.tolist()]


@pytest.mark.parametrize("one", [2, np.int64(2), torch.tensor(2), torch.tensor(2).int()], ids=repr)
def test_one_class_is_wanted_of_every_row(three_classes, entry, one):
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:5], one)
    assert found.y_target.tolist() == [2] * 5
    assert found.y_target.dtype == torch.long


@pytest.mark.parametrize("whole", [torch.long, torch.int32, torch.uint8])
def test_every_row_has_a_wanted_class_of_its_own(three_classes, entry, whole):
    wanted = torch.tensor([2, 0, 1, 1, 2, 0, 0], dtype=whole)
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:7], wanted)
    assert found.y_target.tolist() == wanted.tolist()
    assert found.y_target.device == three_classes.x.device
    assert found.feasible.double().mean() >= entry.feasible - 0.1


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        (3, InvalidInputError, r"between 0 and 2, the model's classes; got 3 to 3"),
        (-1, InvalidInputError, r"between 0 and 2.*got -1 to -1"),
        (torch.tensor([0, 1, 2, 5]), InvalidInputError, r"between 0 and 2.*got 0 to 5"),
        (torch.tensor([0.0, 1.0, 2.0, 0.0]), InvalidInputError, r"class numbers; got .*float.*`\.long\(\)`"),
        (torch.tensor([True, False, True, True]), InvalidInputError, r"whole class numbers; got torch.bool"),
        (1.0, InvalidInputError, r"whole class numbers; got torch.float"),
        (True, InvalidInputError, r"whole class numbers; got torch.bool"),
        (torch.tensor([0, 1, 2]), ShapeError, r"must have shape \(4,\), one class per row; got \(3,\)"),
        (torch.tensor([[0], [1], [2], [0]]), ShapeError, r"must have shape \(4,\).*got \(4, 1\)"),
        (torch.tensor([1]), ShapeError, r"must have shape \(4,\).*got \(1,\)"),
        ("other", InvalidInputError, r"'opposite', 'runner_up', 'paper', a class.*got 'other'"),
    ],
    ids=str,
)
def test_targets_that_make_no_sense_are_errors(three_classes, entry, target, error, text):
    with pytest.raises(error, match=text):
        three_classes.method(entry).explain(three_classes.x[:4], target)


def test_three_classes_are_reached_from_anywhere(three_classes, entry):
    method, x = three_classes.method(entry), three_classes.x[:60]
    for target in ("runner_up", 0, 1, 2):
        found = method.explain(x, target)
        assert found.feasible.double().mean() >= entry.feasible, target
        assert_consistent(found)
