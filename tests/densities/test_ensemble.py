"""The cross-fitted ensemble is a density and a plausibility like the others."""

import copy
import math
import pickle
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from crossfitting import BRIEF, changed, ensemble_like, fitted_on
from estimating import rows
from plausiflow.core import Density, MovingColumns, Plausibility, PreparesRows
from plausiflow.densities import CrossFitEnsemble
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError


@pytest.fixture
def ensemble():
    return fitted_on(3)


# ---------------------------------------------------------------- the contract of every density


def test_it_is_a_density_and_a_plausibility(ensemble):
    assert isinstance(ensemble, Density)
    assert isinstance(ensemble, Plausibility)
    assert isinstance(ensemble, PreparesRows)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", ["log_prob", "score"])
def test_each_row_gets_one_value_in_its_own_dtype(ensemble, precision, value):
    x, y = rows(3, precision=precision)
    x.requires_grad_()
    found = getattr(ensemble, value)(x, y)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert found.shape == (240,)
    assert found.dtype == gradient.dtype == precision
    assert torch.isfinite(found).all()
    assert torch.isfinite(gradient).all()
    assert ensemble.member_log_probs(x, y).shape == ensemble.member_scores(x, y).shape == (3, 240)


def test_both_precisions_agree(ensemble):
    x, y = rows(3)
    for value in (ensemble.log_prob, ensemble.score):
        torch.testing.assert_close(value(x.float(), y).double(), value(x, y), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_it_fits_rows_of_either_precision(precision):
    x, y = rows(2, n=60, precision=precision)
    fitted = CrossFitEnsemble(members=2, base=BRIEF).fit(x, y)
    assert torch.isfinite(fitted.score(x.double(), y)).all()
    assert fitted.score(x, y).dtype == precision
    assert fitted.thresholds_.dtype == torch.float64


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_gradients_equal_finite_differences(ensemble, aggregation):
    x, y = rows(3, n=6)
    ensemble = changed(ensemble, aggregation=aggregation)
    assert torch.autograd.gradcheck(lambda x: ensemble.log_prob(x, y), x.requires_grad_())
    assert torch.autograd.gradcheck(lambda x: ensemble.score(x, y), x)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_scores_prepared_for_rows_are_the_score_and_its_gradient(ensemble, aggregation):
    x, y = rows(3, n=8)
    margin = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    ensemble = changed(ensemble, aggregation=aggregation, margin_=margin)
    which = torch.tensor([5, 0, 3])
    point = x[which].requires_grad_()
    expected = ensemble.score(point, y[which])
    scores = ensemble.for_rows(x, y)
    torch.testing.assert_close(scores.score(point, which), expected)
    excess, value_and_grad = scores.of_columns(MovingColumns(x), torch.arange(8))
    torch.testing.assert_close(excess(point, which) - scores.threshold[which], expected)
    value, gradient = value_and_grad(point.detach(), which)
    torch.testing.assert_close(value - scores.threshold[which], expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), point)[0])


def test_scores_without_the_margin_are_larger_by_the_margin_of_the_class(ensemble):
    x, y = rows(3, n=8)
    margin = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    ensemble = changed(ensemble, margin_=margin)
    which = torch.arange(8)
    scores, without = (ensemble.for_rows(x, y, with_margin=with_margin) for with_margin in (True, False))
    torch.testing.assert_close(without.score(x, which), ensemble.score(x, y) + margin[y])
    assert torch.equal(scores.margin, margin[y])
    assert not without.margin.any()
    assert torch.equal(scores.at(which[2:]).margin, scores.margin[2:])


@pytest.mark.parametrize("k", [-1, 3])
def test_scores_prepared_for_a_class_that_was_not_fitted_are_an_error(ensemble, k):
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        ensemble.for_rows(torch.rand(2, 3), torch.tensor([0, k]))


def test_second_derivatives_flow(ensemble):
    x, y = rows(3, n=4)
    assert torch.autograd.gradgradcheck(lambda x: ensemble.score(x, y), x.requires_grad_())


@pytest.mark.parametrize("distance", [0.0, 3.0, 100.0])
def test_values_and_gradients_are_finite_far_away_too(ensemble, distance):
    x, y = rows(3)
    x = (x + distance).requires_grad_()
    log_prob = ensemble.log_prob(x, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum(dim=1).min() > 0


def test_fitting_lifts_the_rows_of_a_class_above_those_of_another(ensemble):
    x, y = rows(3)
    assert ensemble.log_prob(x, y).mean() > ensemble.log_prob(x, (y + 1) % 3).mean() + 1


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("d", [1, 2])
def test_it_integrates_to_one_in_every_class(d, k):
    axis = torch.linspace(-2.0, 3.0, 2001 if d == 1 else 251, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    with torch.no_grad():
        values = fitted_on(d).log_prob(grid, torch.full((len(grid),), k)).exp()
    integral = values.reshape(*[len(axis)] * d)
    for _ in range(d):
        integral = torch.trapezoid(integral, axis, dim=-1)
    assert integral.item() == pytest.approx(1, abs=1e-2)


def test_a_row_alone_gets_the_value_it_gets_in_a_batch(ensemble):
    x, y = rows(3)
    for value in (ensemble.log_prob, ensemble.score):
        alone = torch.cat([value(x[i : i + 1], y[i : i + 1]) for i in range(20)])
        torch.testing.assert_close(value(x, y)[:20], alone, rtol=0, atol=1e-8)


@pytest.mark.parametrize("d", [1, 3])
def test_no_rows_give_no_values(d):
    x, y = rows(d)
    ensemble = fitted_on(d)
    assert ensemble.log_prob(x[:0], y[:0]).shape == ensemble.score(x[:0], y[:0]).shape == (0,)
    assert ensemble.member_scores(x[:0], y[:0]).shape == (3, 0)
    assert ensemble.score(x[:0].float(), y[:0]).dtype == torch.float32


@pytest.mark.parametrize("d", [1, 3])
def test_the_state_makes_the_round_trip_through_a_file(d):
    x, y = rows(d)
    ensemble = changed(fitted_on(d), margin_=torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64))
    loaded = ensemble_like().load_state(from_bytes(to_bytes(ensemble.state())))
    for value in ("log_prob", "score", "member_log_probs"):
        for x_ in (x, x.float()):
            assert torch.equal(getattr(loaded, value)(x_, y), getattr(ensemble, value)(x_, y))
    for name in ("thresholds_", "errors_", "margin_", "max_margin_"):
        assert torch.equal(getattr(loaded, name), getattr(ensemble, name))


def test_the_state_is_a_copy_and_loading_keeps_no_hold_of_it(ensemble):
    x, y = rows(3)
    before = ensemble.score(x, y)
    state = ensemble.state()
    loaded = ensemble_like().load_state(state)
    for value in state.values():
        value.zero_()
    assert torch.equal(ensemble.score(x, y), before)
    assert torch.equal(loaded.score(x, y), before)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda ensemble: pickle.loads(pickle.dumps(ensemble))])
def test_copies_give_the_same_values(d, duplicate):
    x, y = rows(d)
    assert torch.equal(duplicate(fitted_on(d)).score(x, y), fitted_on(d).score(x, y))


def test_fitting_again_forgets_the_old_rows_and_the_margin():
    ensemble = CrossFitEnsemble(members=2, base=BRIEF)
    x, y = rows(2, n=60)
    before = ensemble.fit(x, y).log_prob(x, y)
    ensemble.margin_ += 1
    assert not torch.allclose(ensemble.fit(x + 5, y).log_prob(x, y), before)
    assert torch.equal(ensemble.fit(x, y).log_prob(x, y), before)
    assert not ensemble.margin_.any()


def test_the_same_seed_gives_the_same_ensemble_and_another_one_another():
    x, y = rows(2, n=60)
    first, again, other = (
        CrossFitEnsemble(members=2, base=BRIEF, random_state=seed).fit(x, y) for seed in (3, 3, 4)
    )
    assert torch.equal(first.score(x, y), again.score(x, y))
    assert torch.equal(first.max_margin_, again.max_margin_)
    assert not torch.isclose(first.thresholds_, other.thresholds_).any()
    assert [flow.random_state for flow in first.flows_] == [3000, 3001]
    assert not torch.isclose(*first.member_log_probs(x, y)).all()


@pytest.mark.parametrize("d", [1, 2])
def test_fitting_and_scoring_leave_the_global_generator_alone(d):
    x, y = rows(d, n=60)
    before = torch.get_rng_state()
    CrossFitEnsemble(members=2, base=BRIEF).fit(x, y).score(x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_base_is_left_as_it_was():
    base = replace(BRIEF)
    CrossFitEnsemble(members=2, base=base).fit(*rows(2, n=60))
    assert repr(base) == repr(BRIEF)
    with pytest.raises(NotFittedError):
        base.state()


def test_repr_shows_the_settings_and_no_tensor(ensemble):
    assert repr(ensemble) == repr(ensemble_like())
    assert repr(ensemble).startswith("CrossFitEnsemble(members=3, base=ConditionalFlow(")
    assert "tensor" not in repr(ensemble)


def test_few_rows_are_an_ordinary_case():
    x, y = rows(2, n=6, classes=2)
    ensemble = CrossFitEnsemble(members=2, base=BRIEF).fit(x, y)
    assert torch.isfinite(ensemble.score(x, y)).all()
    assert all(math.isfinite(value) for value in ensemble.max_margin_.tolist())


# ---------------------------------------------------------------- errors


def test_using_it_before_fit_says_what_to_call():
    x, y = rows(2)
    for value in ("log_prob", "score", "member_log_probs", "member_scores"):
        with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)` first, or `load_state\(state\)`"):
            getattr(CrossFitEnsemble(), value)(x, y)
    with pytest.raises(NotFittedError, match="there is no state to save"):
        CrossFitEnsemble().state()


def test_all_problems_with_the_settings_are_named_at_once():
    with pytest.raises(InvalidInputError) as caught:
        CrossFitEnsemble(members=1, quantile=1.5, aggregation="median")
    for text in (
        "`members` must be at least 2; got 1",
        "`quantile` must be between 0 and 1; got 1.5",
        "`aggregation` must be 'mean' or 'min'; got 'median'",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (3,), (4, 3, 1)])
def test_rows_of_another_shape_are_an_error_that_names_both_shapes(ensemble, shape):
    with pytest.raises(ShapeError) as caught:
        ensemble.log_prob(torch.rand(shape), torch.zeros(shape[0]).long())
    assert f"`x` must have shape (n, 3), as when this density was fitted; got {shape}" in str(caught.value)


@pytest.mark.parametrize("k", [-1, 3])
def test_a_class_that_was_not_fitted_is_an_error(ensemble, k):
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        ensemble.score(torch.rand(2, 3), torch.tensor([0, k]))


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1)], ids=["one for all", "too few", "column"])
def test_another_number_of_classes_than_rows_is_an_error(ensemble, shape):
    with pytest.raises(ShapeError, match=r"`y` must have shape \(3,\)"):
        ensemble.score(torch.rand(3, 3), torch.zeros(shape).long())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda x, y: (x * torch.nan, y), InvalidInputError, "`x` must be finite"),
        (lambda x, y: (x, y.double()), InvalidInputError, "`y` must be a long tensor of class numbers"),
        (lambda x, y: (x, y - 1), InvalidInputError, "`y` must number classes from 0; got -1"),
        (lambda x, y: (x[:0], y[:0]), ShapeError, r"at least one row and one column; got \(0, 2\)"),
        (lambda x, y: (x, y[:-1]), ShapeError, r"`y` must have shape \(240,\), one class per row"),
    ],
)
def test_rows_that_cannot_be_fitted_are_an_error_that_says_why(change, error, text):
    with pytest.raises(error, match=text):
        CrossFitEnsemble(base=BRIEF).fit(*change(*rows(2)))


def test_the_state_of_another_number_of_members_is_an_error(ensemble):
    with pytest.raises(InvalidInputError, match="members"):
        ensemble_like(members=2).load_state(ensemble.state())
