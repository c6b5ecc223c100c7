"""Targets of every method: the target class of each row, and errors for invalid targets."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch

from method_cases import assert_consistent, assert_same
from plausiflow.core import Solution
from plausiflow.core.prediction import predict
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.methods import Method


def test_opposite_is_the_other_of_two_classes(two_classes, entry):
    found = two_classes.method(entry).explain(two_classes.x[:10], "opposite")
    assert torch.equal(found.y, predict(two_classes.classifier, two_classes.x[:10]))
    assert torch.equal(found.y_target, 1 - found.y)


def test_opposite_is_the_default_target(two_classes, entry):
    method = two_classes.method(entry)
    assert_same(method.explain(two_classes.x[:4]), method.explain(two_classes.x[:4], "opposite"), atol=0)


def test_opposite_of_three_classes_is_an_error_with_a_remedy(three_classes, entry):
    with pytest.raises(
        InvalidInputError, match=r"needs two outcomes; this model has 3: 0, 1, 2\. Use 'runner_up'"
    ):
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


@pytest.mark.parametrize("one", [2, 2.0, np.int64(2), torch.tensor(2), torch.tensor(2).int()], ids=repr)
def test_one_class_is_the_target_of_every_row(three_classes, entry, one):
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:5], one)
    assert found.y_target.tolist() == [2] * 5
    assert found.y_target.dtype == torch.long


@pytest.mark.parametrize("whole", [torch.long, torch.int32, torch.uint8])
def test_every_row_has_its_own_target_class(three_classes, entry, whole):
    target = torch.tensor([2, 0, 1, 1, 2, 0, 0], dtype=whole)
    found = three_classes.method(entry, chunk_size=3).explain(three_classes.x[:7], target)
    assert found.y_target.tolist() == target.tolist()
    assert found.y_target.device == three_classes.x.device
    assert found.feasible.double().mean() >= entry.feasible - 0.1


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        (3, InvalidInputError, r"one of the outcomes 0, 1, 2, or a list.*got 3"),
        (-1, InvalidInputError, r"one of the outcomes 0, 1, 2.*got -1"),
        ([0, 1, 2, 5], InvalidInputError, r"outcomes of the model, 0, 1, 2; got 5"),
        (torch.tensor(3), InvalidInputError, r"between 0 and 2, the model's classes; got 3 to 3"),
        (torch.tensor([0, 1, 2, 5]), InvalidInputError, r"between 0 and 2.*got 0 to 5"),
        (torch.tensor([0.0, 1.0, 2.0, 0.0]), InvalidInputError, r"class numbers; got .*float.*`\.long\(\)`"),
        (torch.tensor([True, False, True, True]), InvalidInputError, r"whole class numbers; got torch.bool"),
        (1.5, InvalidInputError, r"one of the outcomes 0, 1, 2.*got 1\.5"),
        (True, InvalidInputError, r"one of the outcomes 0, 1, 2.*got True"),
        ([0, 1, 2], ShapeError, r"must have 4 classes, one per row; got 3"),
        (np.array([0, 1, 2]), ShapeError, r"must have shape \(4,\), one class per row; got \(3,\)"),
        (torch.tensor([0, 1, 2]), ShapeError, r"must have shape \(4,\), one class per row; got \(3,\)"),
        (torch.tensor([[0], [1], [2], [0]]), ShapeError, r"must have shape \(4,\).*got \(4, 1\)"),
        (torch.tensor([1]), ShapeError, r"must have shape \(4,\).*got \(1,\)"),
        ("other", InvalidInputError, r"'opposite', 'runner_up', 'paper', one of the outcomes.*got 'other'"),
    ],
    ids=str,
)
def test_invalid_targets_are_errors(three_classes, entry, target, error, text):
    with pytest.raises(error, match=text):
        three_classes.method(entry).explain(three_classes.x[:4], target)


def test_three_classes_are_reached_from_anywhere(three_classes, entry):
    method, x = three_classes.method(entry), three_classes.x[:60]
    for target in ("runner_up", 0, 1, 2):
        found = method.explain(x, target)
        assert found.feasible.double().mean() >= entry.feasible, target
        assert_consistent(found)


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, pd.Index], ids=lambda make: make.__name__)
def test_targets_of_rows_may_come_as_any_column(three_classes, make):
    target = [2, 0, 1, 1, 2, 0, 0]
    method = Unchanged(classifier=three_classes.classifier, chunk_size=3)
    found = method.explain(three_classes.x[:7], make(target))
    assert found.y_target.tolist() == target


@dataclass(kw_only=True, eq=False)
class Unchanged(Method):
    """A method that returns every row as it is."""

    label = "Unchanged"

    def search(self, x, y_target):
        return Solution(x=x, gradients=torch.ones(len(x), dtype=torch.long))
