"""Soft trees: small trees by hand, finite differences, and hard trees as the limit of low temperatures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from boosted_trees import QUIET, SCALES, at_thresholds, boosted, classes, rows, tie_tree
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.trees.forest import Forest, Tree
from plausiflow.models.trees.imitation import imitate_classifier, imitate_regressor
from plausiflow.models.trees.readers import read_catboost, read_hist_gradient_boosting
from plausiflow.models.trees.relaxation import RelaxedForest
from plausiflow.models.trees.soft_walk import ObliviousWalk, TreeWalk


def test_a_soft_tree_is_the_mean_of_its_leaves_by_hand():
    tree = Tree(
        feature=[0, 1, 0, 0, 0],
        threshold=[0.5, 2.0, 0, 0, 0],
        missing_left=[True] * 5,
        left=[1, 3, -1, -1, -1],
        right=[2, 4, -1, -1, -1],
        value=[0, 0, 5.0, 7.0, -4.0],
        output=1,
    )
    forest = Forest.from_trees([tree], torch.tensor([0.0, 10.0]), 2, inclusive=True)
    scales, temperature = torch.tensor([2.0, 8.0]), 0.1
    found = RelaxedForest(forest, scales, temperature)(torch.tensor([[0.6, 1.0]]))
    first, second = (1 / (1 + math.exp(-u)) for u in ((0.6 - 0.5) / 0.2, (1.0 - 2.0) / 0.8))
    expected = 10 + first * 5 + (1 - first) * ((1 - second) * 7 + second * -4)
    torch.testing.assert_close(found, torch.tensor([[0.0, expected]]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_gradients_agree_with_finite_differences(k):
    relaxed = RelaxedForest(read_hist_gradient_boosting(boosted(k)), SCALES, 0.05)
    unit = (torch.from_numpy(rows(6, seed=3)) / SCALES).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: relaxed(z * SCALES), (unit,), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("depth", [2, 5])
def test_oblivious_trees_answer_as_by_a_walk_through_each(k, depth, monkeypatch):
    catboost = pytest.importorskip("catboost", reason="needs the extra `trees`")
    x = rows(missing=0.2)
    forest = read_catboost(catboost.CatBoostClassifier(**{**QUIET, "depth": depth}).fit(x, classes(x, k)))
    quick = RelaxedForest(forest, SCALES, 0.05)
    assert isinstance(quick.walk, ObliviousWalk)
    monkeypatch.setattr("plausiflow.models.trees.relaxation.fastest_walk", TreeWalk)
    slow = RelaxedForest(forest, SCALES, 0.05)
    point = torch.from_numpy(x).requires_grad_()
    for output in range(k):
        answers = [relaxed(point)[:, output] for relaxed in (quick, slow)]
        gradients = [torch.autograd.grad(answer.sum(), point)[0] for answer in answers]
        torch.testing.assert_close(*answers, rtol=0, atol=1e-12)
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_trees_of_different_depths_may_be_oblivious():
    deep = Tree(
        feature=[0, 1, 1, 0, 0, 0, 0],
        threshold=[0.5, 0.3, 0.3, 0, 0, 0, 0],
        missing_left=[True] * 7,
        left=[1, 3, 5, -1, -1, -1, -1],
        right=[2, 4, 6, -1, -1, -1, -1],
        value=[0, 0, 0, 1.0, 2.0, 3.0, 4.0],
        output=0,
    )
    shallow = Tree([1, 0, 0], [0.7, 0, 0], [True] * 3, [1, -1, -1], [2, -1, -1], [0, 10.0, 20.0], 0)
    single = Tree([0], [0.0], [True], [-1], [-1], [100.0], 0)
    forest = Forest.from_trees([deep, shallow, single], torch.zeros(1), 2, inclusive=True)
    relaxed = RelaxedForest(forest, torch.ones(2), 0.1)
    assert isinstance(relaxed.walk, ObliviousWalk)
    x = torch.rand(50, 2).requires_grad_()
    a, b, c = ((x[:, i] - t).mul(10).sigmoid() for i, t in ((0, 0.5), (1, 0.3), (1, 0.7)))
    by_hand = (1 - a) * (1 + b) + a * (3 + b) + 10 + 10 * c + 100
    torch.testing.assert_close(relaxed(x)[:, 0], by_hand, rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad(f.sum(), x)[0] for f in (relaxed(x), by_hand)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_another_temperature_leaves_the_forest_as_it_was():
    relaxed = RelaxedForest(read_hist_gradient_boosting(boosted(2)), SCALES, 0.1)
    x = torch.from_numpy(rows(20))
    before = relaxed(x)
    relaxed.with_temperature(0.01).to(torch.float32)
    assert torch.equal(relaxed(x), before)


def test_the_relaxed_forest_approaches_the_forest_as_it_cools():
    forest = read_hist_gradient_boosting(boosted(3))
    x = torch.from_numpy(rows(seed=4))
    relaxed = RelaxedForest(forest, SCALES, 0.3)
    errors = [
        (relaxed.with_temperature(temperature)(x) - forest.values(x)).abs().mean().item()
        for temperature in (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 2e-3 * errors[0]


def test_the_coldest_forest_is_exact_also_at_thresholds_and_missing_cells():
    forest = read_hist_gradient_boosting(boosted(3, missing=0.2))
    x = rows(seed=4, missing=0.2)
    x = torch.from_numpy(np.concatenate([x, at_thresholds(forest, x)[len(x) :: 5]]))
    torch.testing.assert_close(RelaxedForest(forest, SCALES, 1e-11)(x), forest.values(x), rtol=0, atol=1e-9)


def test_a_split_of_missing_cells_from_all_others_is_relaxed_to_itself():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 1)) < 0.4, np.nan, rng.random((300, 1)))
    model = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=2).fit(x, np.isnan(x[:, 0]))
    forest = read_hist_gradient_boosting(model)
    assert torch.isinf(forest.threshold).any()
    point = torch.from_numpy(x).requires_grad_()
    values = RelaxedForest(forest, torch.ones(1), 0.05)(point)
    torch.testing.assert_close(values.detach(), forest.values(point))
    (gradient,) = torch.autograd.grad(values.sum(), point)
    assert not gradient.any()


def test_a_certain_cell_is_split_as_the_hard_forest_does():
    forest = read_hist_gradient_boosting(boosted(3, missing=0.2))
    x = torch.from_numpy(at_thresholds(forest, rows(seed=4, missing=0.2))).requires_grad_()
    relaxed = RelaxedForest(forest, SCALES, 0.1)
    values = relaxed(x, torch.ones(x.shape, dtype=torch.bool))
    torch.testing.assert_close(values.detach(), forest.values(x))
    assert not torch.autograd.grad(values.sum(), x)[0].any()
    some = torch.zeros(x.shape, dtype=torch.bool)
    some[:, 1] = True
    split = relaxed(x, some)
    (gradient,) = torch.autograd.grad(split.sum(), x)
    assert not gradient[:, 1].any()
    assert gradient[:, 0].any()
    torch.testing.assert_close(relaxed(x, ~some & some), relaxed(x))


@given(
    cell=st.integers(-40, 40),
    beyond=st.floats(-1, 1),
    step=st.sampled_from([1.0, 0.1, 0.25, 1e-3, 50.0]),
    inclusive=st.booleans(),
    single=st.booleans(),
)
def test_on_a_grid_a_threshold_lies_between_the_values_it_separates(cell, beyond, step, inclusive, single):
    threshold = (cell + (0 if abs(beyond) < 0.01 else beyond)) * step
    threshold = float(np.float32(threshold)) if single else threshold
    forest = tie_tree(inclusive=inclusive, single=single, threshold=threshold)
    grid = torch.tensor([[round(k * step, 9)] for k in range(cell - 3, cell + 4)], dtype=torch.float64)
    scales = torch.full((1,), 1e7 * step, dtype=torch.float64)
    relaxed = RelaxedForest(forest, scales, 1e-9, steps=torch.full((1,), step, dtype=torch.float64))
    gap = (grid - relaxed.threshold).abs().min().item()
    assert gap == pytest.approx(step / 2, rel=1e-6)
    torch.testing.assert_close(relaxed(grid).sign(), forest.values(grid))


@given(
    cell=st.integers(-40, 40),
    weight=st.sampled_from([1.0, 0.37123456, 1 / 3, 250.0]),
    shift=st.sampled_from([0.0, -1.7, 12.3]),
    inclusive=st.booleans(),
)
def test_a_grid_may_be_scaled_and_shifted(cell, weight, shift, inclusive):
    forest = tie_tree(inclusive=inclusive, threshold=weight * cell + shift)
    grid = torch.arange(cell - 3, cell + 4)[:, None].double() * weight + shift
    one = torch.ones(1, dtype=torch.float64)
    relaxed = RelaxedForest(forest, 1e7 * weight * one, 1e-9, weight * one, shift * one)
    assert (grid - relaxed.threshold).abs().min().item() == pytest.approx(weight / 2, rel=1e-6)
    expected = torch.arange(-3, 4)[:, None].sign().double()
    expected[3] = -1.0 if inclusive else 1.0
    torch.testing.assert_close(relaxed(grid).sign(), expected)


def test_the_side_of_a_tie_is_the_library_s():
    x = torch.tensor([[3.0]])
    for inclusive, side in ((True, -1.0), (False, 1.0)):
        forest = tie_tree(inclusive=inclusive)
        assert forest.values(x).item() == side
        assert RelaxedForest(forest, torch.ones(1), 1e-11)(x).item() == pytest.approx(side)


@pytest.mark.parametrize(("threshold", "side"), [(1e-35, -1.0), (-1e-35, 1.0)])
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_zero_keeps_its_side_of_a_threshold_next_to_it(threshold, side, step):
    forest, zero = tie_tree(inclusive=True, threshold=threshold), torch.zeros(1, 1)
    assert forest.values(zero).item() == side
    relaxed = RelaxedForest(forest, torch.ones(1), 1e-11, steps=torch.full((1,), step))
    assert relaxed(zero).item() == pytest.approx(side)


def test_single_precision_is_compared_in_single_precision():
    x = torch.tensor([[3.0 - 1e-9]], dtype=torch.float64)
    assert tie_tree(inclusive=False).values(x).item() == -1
    assert tie_tree(inclusive=False, single=True).values(x).item() == 1


@given(threshold=st.floats(1, 100, width=32), offset=st.floats(-4e-7, 4e-7), inclusive=st.booleans())
def test_a_soft_split_in_single_precision_lies_where_cells_are_rounded_to_the_other_side(
    threshold, offset, inclusive
):
    forest = tie_tree(inclusive=inclusive, single=True, threshold=threshold)
    cells = torch.tensor([[threshold * (1 + offset)], [threshold]], dtype=torch.float64)
    relaxed = RelaxedForest(forest, torch.ones(1), 1e-13)
    between = (cells - relaxed.threshold).abs() < 1e-12  # in the middle of two singles
    torch.testing.assert_close(relaxed(cells)[~between], forest.values(cells)[~between])


def test_rows_do_not_depend_on_their_batch():
    forest = read_hist_gradient_boosting(boosted(2, missing=0.2, n_trees=100))
    relaxed = RelaxedForest(forest, SCALES, 0.02)
    assert relaxed.walk.batch_size < 400
    x = torch.from_numpy(rows(seed=5, missing=0.2)).requires_grad_()
    together = relaxed(x)
    (gradient,) = torch.autograd.grad(together[:, 1].sum(), x)
    for i in (0, 17, 399):
        alone = x[i : i + 1].detach().requires_grad_()
        value = relaxed(alone)
        torch.testing.assert_close(value[0], together[i], rtol=0, atol=1e-10)
        torch.testing.assert_close(
            torch.autograd.grad(value[:, 1].sum(), alone)[0][0], gradient[i], rtol=0, atol=1e-10
        )


def test_no_rows_give_no_answers():
    forest, none = read_hist_gradient_boosting(boosted(3)), torch.zeros(0, 4)
    assert forest.values(none).shape == (0, 3)
    assert RelaxedForest(forest, SCALES, 0.1)(none.requires_grad_()).shape == (0, 3)


def test_a_scale_per_split_is_the_scale_of_its_column_where_these_agree():
    forest = read_hist_gradient_boosting(boosted(2))
    x = torch.from_numpy(rows(20))
    by_split = RelaxedForest(forest, SCALES[forest.feature], 0.1, per_split=True)
    assert torch.equal(by_split(x), RelaxedForest(forest, SCALES, 0.1)(x))


def test_a_deep_chain_of_splits_is_read_and_relaxed():
    n = 1500
    nodes = 2 * n + 1
    chain = Tree(
        feature=[0] * nodes,
        threshold=[i // 2 + 0.5 for i in range(nodes)],
        missing_left=[True] * nodes,
        left=[i + 1 if i % 2 == 0 and i < 2 * n else -1 for i in range(nodes)],
        right=[i + 2 for i in range(nodes)],
        value=[float((i + 1) // 2 - 1) if i % 2 else float(n) for i in range(nodes)],
        output=0,
    )
    forest = Forest.from_trees([chain], torch.zeros(1), 1, inclusive=True)
    x = torch.tensor([[0.0], [7.0], [700.0], [1499.0], [9999.0]], dtype=torch.float64)
    expected = x.clamp_max(n)
    assert torch.equal(forest.values(x), expected)
    torch.testing.assert_close(RelaxedForest(forest, torch.ones(1), 0.01)(x), expected)


def test_wrong_input_is_named():
    forest = read_hist_gradient_boosting(boosted(2))
    x = torch.from_numpy(rows(5))
    with pytest.raises(ShapeError, match=r"\(n, 4\).*got \(5, 3\)"):
        forest.values(x[:, :3])
    with pytest.raises(InvalidInputError, match=r"torch\.int64"):
        RelaxedForest(forest, SCALES, 0.1)(x.long())
    with pytest.raises(ShapeError, match="one scale per column"):
        RelaxedForest(forest, SCALES[:2], 0.1)
    with pytest.raises(InvalidInputError, match="positive"):
        RelaxedForest(forest, SCALES * 0, 0.1)
    with pytest.raises(ShapeError, match="one step per column"):
        RelaxedForest(forest, SCALES, 0.1, steps=SCALES[:2])
    with pytest.raises(InvalidInputError, match="temperature"):
        RelaxedForest(forest, SCALES, 0.0)
    with pytest.raises(ShapeError, match="at least two classes"):
        imitate_classifier(x, x[:, :1])
    with pytest.raises(InvalidInputError, match="NaN"):
        imitate_classifier(x, x * torch.nan)
    with pytest.raises(ShapeError, match="one for each row"):
        imitate_regressor(x, x)
    with pytest.raises(InvalidInputError, match="1 are not"):
        imitate_regressor(x, torch.tensor([1.0, 2.0, torch.inf, 4.0, 5.0]))
