"""Input rows of every method: none, one, many, unusable rows, and invalid tables."""

import pytest
import torch

from method_cases import assert_consistent, assert_same
from plausiflow.densities import Thresholded
from plausiflow.errors import InvalidInputError, ShapeError


def test_no_rows_give_no_answers(three_classes, entry):
    method, nothing = three_classes.method(entry), three_classes.x[:0]
    for target in ("runner_up", "paper", 1, torch.zeros(0, dtype=torch.long)):
        found = method.explain(nothing, target)
        assert len(found) == 0
        assert found.x_cf.shape == (0, 2)
        assert found.x_cf.dtype == nothing.dtype


def test_one_row_is_explained_as_in_a_table(two_classes, entry):
    method = two_classes.method(entry)
    together = method.explain(two_classes.x[:9])
    for row in (0, 4, 8):
        assert_same(method.explain(two_classes.x[row : row + 1]), together[row : row + 1])


@pytest.mark.parametrize("chunk_size", [1, 4, 11])
def test_chunks_give_the_answers_of_the_whole(three_classes, entry, chunk_size):
    x, y_target = three_classes.x[:10], torch.arange(10, device=three_classes.x.device) % 3
    whole = three_classes.method(entry).explain(x, y_target)
    assert_same(three_classes.method(entry, chunk_size=chunk_size).explain(x, y_target), whole)


def test_the_order_of_the_rows_does_not_matter(three_classes, entry):
    method, order = three_classes.method(entry), torch.randperm(20)
    x = three_classes.x[:20]
    assert_same(method.explain(x[order], "runner_up"), method.explain(x, "runner_up")[order])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_rows_that_are_not_numbers_are_not_found_and_do_not_disturb_the_others(two_classes, entry, bad):
    x = two_classes.x[:10].clone()
    x[2, 1] = x[7] = bad
    method = two_classes.method(entry)
    found = method.explain(x, 1)
    usable = torch.ones(10, dtype=torch.bool, device=x.device)
    usable[[2, 7]] = False
    assert torch.equal(found.found, usable)
    assert_consistent(found)
    assert torch.equal(found.x.isnan(), x.isnan())
    assert (found.gradients[~usable] == 0).all()
    assert_same(found[usable], method.explain(x[usable], 1))


def test_a_table_of_unusable_rows_has_no_answers(two_classes, entry):
    found = two_classes.method(entry).explain(torch.full_like(two_classes.x[:3], torch.nan))
    assert not found.found.any()
    assert_consistent(found)


def test_nan_is_exactly_not_found_where_a_class_is_out_of_reach(three_classes, entry):
    # No point reaches the threshold of class 1: a method finds no point, or an implausible one.
    thresholds = torch.tensor([0.0, 1e6, 0.0], dtype=torch.float64)
    unreachable = Thresholded.at(three_classes.plausibility.density, thresholds, 3)
    y_target = torch.arange(12, device=three_classes.x.device) % 3
    found = three_classes.method(entry, plausibility=unreachable).explain(three_classes.x[:12], y_target)
    assert_consistent(found)
    assert not found.plausible[y_target == 1].any()
    assert found.feasible[y_target != 1].double().mean() >= entry.feasible - 0.1


def test_rows_that_carry_gradients_are_explained_like_others(two_classes, entry):
    method, x = two_classes.method(entry), two_classes.x[:4]
    found = method.explain(x.clone().requires_grad_(True))
    assert not found.x_cf.requires_grad
    assert_same(found, method.explain(x))


def test_a_search_does_its_own_gradients_where_the_caller_has_switched_them_off(two_classes, entry):
    method, x = two_classes.method(entry), two_classes.x[:4]
    with torch.no_grad():
        found = method.explain(x)
    assert_same(found, method.explain(x))


# ---------------------------------------------------------------- tables that make no sense


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda x: (100 * x).long(), InvalidInputError, r"float tensor; got torch.int64.*`\.float\(\)`"),
        (lambda x: x > 0, InvalidInputError, r"float tensor; got torch.bool"),
        (lambda x: x[0], ShapeError, r"shape \(n, d\); got \(2,\).*`x\[None\]`"),
        (lambda x: x[None], ShapeError, r"shape \(n, d\); got \(1, 4, 2\)"),
        (lambda x: x[:, :0], ShapeError, r"shape \(n, d\); got \(4, 0\)"),
        (lambda x: torch.cat([x, x], dim=1), ShapeError, r"shape \(n, 2\), as when .* fitted; got \(4, 4\)"),
        (lambda x: x[:, :1], ShapeError, r"shape \(n, 2\), as when .* fitted; got \(4, 1\)"),
        (lambda x: x.cpu().numpy(), ShapeError, r"tensor of shape \(n, d\); got ndarray"),
        (lambda x: x.tolist(), ShapeError, r"tensor of shape \(n, d\); got list"),
    ],
    ids=["integers", "booleans", "one row", "3 dimensions", "no columns", "more", "fewer", "array", "list"],
)
def test_tables_that_make_no_sense_are_errors_with_a_remedy(two_classes, entry, spoil, error, text):
    with pytest.raises(error, match=text):
        two_classes.method(entry).explain(spoil(two_classes.x[:4]))
