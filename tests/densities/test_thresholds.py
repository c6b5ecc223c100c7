"""Thresholds are empirical quantiles of a density, and a score is the distance to one."""

from functools import partial

import numpy as np
import pytest
import torch

from plausiflow.core import MovingColumns, Plausibility, PreparesRows, blocks
from plausiflow.core.training import Training
from plausiflow.densities import KDE, ConditionalFlow, Thresholded
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError


class Coordinate:
    """A stand-in whose log-density is the first feature."""

    def fit(self, x, y):
        return self

    def log_prob(self, x, y):
        return x[:, 0]


@pytest.fixture(params=[41, 40], ids=["odd", "even"])
def labelled(request):
    """Rows of two classes, the second of lower values."""
    x = torch.rand(request.param, 1, dtype=torch.float64)
    y = (torch.arange(request.param) % 3 == 0).long()
    return x - 2 * y[:, None], y


def test_a_thresholded_density_is_a_plausibility(labelled):
    plausibility = Thresholded(density=Coordinate()).fit(*labelled)
    assert isinstance(plausibility, Plausibility)
    assert isinstance(plausibility, PreparesRows)


def test_one_half_per_class_is_the_median_of_each_class(labelled):
    x, y = labelled
    found = Thresholded(density=Coordinate()).fit(x, y).log_delta_
    assert found.tolist() == [x[y == k].median().item() for k in range(2)]


def test_one_half_pooled_is_the_median_of_all_rows(labelled):
    x, y = labelled
    found = Thresholded(density=Coordinate(), scheme="pooled").fit(x, y).log_delta_
    assert found.tolist() == [x.median().item()] * 2


@pytest.mark.parametrize("quantile", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_a_threshold_is_the_lower_empirical_quantile(labelled, quantile):
    x, y = labelled
    found = Thresholded(density=Coordinate(), quantile=quantile).fit(x, y).log_delta_
    expected = [np.quantile(x[y == k].numpy(), quantile, method="lower") for k in range(2)]
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(("quantile", "passing"), [(0.0, "all"), (1.0, "one")])
def test_the_extreme_quantiles_let_every_row_or_only_the_densest_pass(labelled, quantile, passing):
    x, y = labelled
    scores = Thresholded(density=Coordinate(), quantile=quantile).fit(x, y).score(x, y)
    for k in range(2):
        members = scores[y == k]
        assert (members >= 0).sum() == (len(members) if passing == "all" else 1)


def test_a_class_without_rows_takes_the_pooled_threshold(labelled):
    x, y = labelled
    found = Thresholded(density=Coordinate()).fit(x, 2 * y).log_delta_
    assert found.shape == (3,)
    assert found[1] == x.median()


def test_the_score_is_the_log_density_minus_the_threshold_of_the_class(labelled):
    x, y = labelled
    plausibility = Thresholded(density=Coordinate()).fit(x, y)
    score, gradient = (
        plausibility.score(x, y),
        torch.autograd.functional.jacobian(lambda x: plausibility.score(x, y).sum(), x),
    )
    expected = (
        x[:, 0].numpy()
        - np.array([np.sort(x[y == k, 0])[(int((y == k).sum()) - 1) // 2] for k in range(2)])[y.numpy()]
    )
    np.testing.assert_allclose(score.numpy(), expected, atol=1e-12)
    assert torch.equal(plausibility.log_prob(x, y), x[:, 0])
    assert torch.equal(gradient, torch.ones_like(x))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_the_score_follows_the_dtype(labelled, precision):
    x, y = labelled
    assert Thresholded(density=Coordinate()).fit(x, y).score(x.to(precision), y).dtype == precision


def test_thresholds_over_many_blocks_equal_those_over_one(monkeypatch, labelled):
    whole = Thresholded(density=Coordinate()).fit(*labelled).log_delta_
    monkeypatch.setattr("plausiflow.densities.thresholds.blocks", partial(blocks, size=7))
    assert torch.equal(Thresholded(density=Coordinate()).fit(*labelled).log_delta_, whole)


@pytest.mark.parametrize(
    ("given", "expected"), [(-1.5, [-1.5, -1.5]), (torch.tensor([1.0, 2.0]), [1.0, 2.0])]
)
def test_known_thresholds_can_be_given(given, expected):
    plausibility = Thresholded.at(Coordinate(), given, n_classes=2)
    assert plausibility.log_delta(torch.tensor([0, 1])).tolist() == expected
    assert plausibility.score(torch.tensor([[3.0]]), torch.tensor([1])).tolist() == [3.0 - expected[1]]


def test_another_number_of_known_thresholds_than_classes_is_an_error():
    with pytest.raises(ShapeError):
        Thresholded.at(Coordinate(), torch.tensor([1.0, 2.0, 3.0]), n_classes=2)


@pytest.mark.parametrize("k", [-1, 2])
def test_a_class_that_has_no_threshold_is_an_error(labelled, k):
    plausibility = Thresholded(density=Coordinate()).fit(*labelled)
    with pytest.raises(InvalidInputError):
        plausibility.log_delta(torch.tensor([k]))


def test_a_threshold_is_not_known_before_fit():
    with pytest.raises(NotFittedError, match=r"thresholds are not known yet\. Call `fit\(x, y\)`"):
        Thresholded(density=Coordinate()).log_delta(torch.tensor([0]))


@pytest.mark.parametrize("quantile", [-0.1, 1.1, float("nan")])
def test_a_quantile_outside_zero_and_one_is_an_error(quantile):
    with pytest.raises(InvalidInputError, match=f"`quantile` must be between 0 and 1; got {quantile}"):
        Thresholded(density=Coordinate(), quantile=quantile)


def test_an_unknown_scheme_is_an_error():
    with pytest.raises(InvalidInputError, match=r"`scheme` must be 'per_class' or 'pooled'; got 'median'"):
        Thresholded(density=Coordinate(), scheme="median")


def test_thresholds_are_taken_from_sound_rows_only():
    with pytest.raises(InvalidInputError, match="`x` must be finite"):
        Thresholded(density=Coordinate()).fit(torch.tensor([[torch.nan]]), torch.tensor([0]))


def test_repr_of_a_thresholded_density_shows_density_and_quantile():
    assert (
        repr(Thresholded(density=KDE()))
        == "Thresholded(density=KDE(bandwidth=0.1), quantile=0.5, scheme='per_class')"
    )


@pytest.mark.parametrize("name", ["maf", "realnvp", "kde"])
def test_scores_prepared_for_rows_are_the_score_and_its_gradient(name):
    density = KDE() if name == "kde" else ConditionalFlow(architecture=name, training=Training(epochs=1))
    x, y = torch.rand(60, 3), torch.arange(60) % 2
    plausibility = Thresholded(density=density.fit(x, y)).fit(x, y)
    rows = torch.tensor([7, 2, 2, 11])
    point = x[rows].requires_grad_()
    expected = plausibility.score(point, y[rows])
    scores = plausibility.for_rows(x, y)
    assert not scores.threshold.any()  # the thresholds of the classes are part of the score
    score, value_and_grad = scores.of_columns(MovingColumns(x), torch.arange(60))
    for found in (scores.score(point, rows), score(point, rows)):
        torch.testing.assert_close(found, expected)
    some = scores.at(rows).to(torch.device("cpu"))
    torch.testing.assert_close(some.score(point, torch.arange(4)), expected)
    assert (value_and_grad is None) == (name != "maf")
    if value_and_grad is not None:
        value, gradient = value_and_grad(point.detach(), rows)
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), point)[0])
    with pytest.raises(InvalidInputError, match="must be between 0 and 1"):
        plausibility.for_rows(x, y + 1)
