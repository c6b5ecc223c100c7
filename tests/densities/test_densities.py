"""Every density keeps one contract, on ordinary rows and on awkward ones."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from scipy.stats import norm

from estimating import BRIEF, MAKERS, awkward, fitted_on, flow, rows, score_and_gradient
from plausiflow.core.protocols import Density
from plausiflow.datasets import catalog
from plausiflow.densities.flows import ARCHITECTURES
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from sampling import slow, slow_unless


@pytest.fixture(params=list(MAKERS))
def name(request):
    return request.param


@pytest.fixture
def density(name):
    return fitted_on(name, 3)


# The contract of every density


def test_it_is_a_density(density):
    assert isinstance(density, Density)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_each_row_gets_one_value_in_its_own_dtype(density, precision):
    x, y = rows(3, precision=precision)
    log_prob, gradient = score_and_gradient(density, x, y)
    assert log_prob.shape == (240,)
    assert log_prob.dtype == gradient.dtype == precision
    assert torch.isfinite(log_prob).all()


def test_both_precisions_agree(density):
    x, y = rows(3)
    torch.testing.assert_close(
        density.log_prob(x.float(), y).double(), density.log_prob(x, y), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_it_fits_rows_of_either_precision(name, precision):
    x, y = rows(2, n=60, precision=precision)
    fitted = flow(name, BRIEF).fit(x, y) if name in ARCHITECTURES else MAKERS[name]().fit(x, y)
    assert torch.isfinite(fitted.log_prob(x.double(), y)).all()
    assert fitted.log_prob(x, y).dtype == precision


def test_gradients_equal_finite_differences(density):
    x, y = rows(3, n=6)
    assert torch.autograd.gradcheck(lambda x: density.log_prob(x, y), x.requires_grad_())


@pytest.mark.parametrize("distance", [0.0, 3.0, 100.0])
def test_values_and_gradients_are_finite_far_away_too(density, distance):
    x, y = rows(3)
    log_prob, gradient = score_and_gradient(density, x + distance, y)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum(dim=1).min() > 0


def test_fitting_lifts_the_rows_of_a_class_above_those_of_another(density):
    x, y = rows(3)
    assert density.log_prob(x, y).mean() > density.log_prob(x, (y + 1) % 3).mean() + 1


@pytest.mark.parametrize("k", slow_unless([2], range(3)))
@pytest.mark.parametrize("d", [1, 2])
def test_it_integrates_to_one_in_every_class(name, d, k):
    axis = torch.linspace(-2.0, 3.0, 2001 if d == 1 else 251, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    density = fitted_on(name, d)
    with torch.no_grad():
        values = density.log_prob(grid, torch.full((len(grid),), k)).exp()
    integral = values.reshape(*[len(axis)] * d)
    for _ in range(d):
        integral = torch.trapezoid(integral, axis, dim=-1)
    assert integral.item() == pytest.approx(1, abs=1e-2)


def test_a_row_alone_gets_the_value_it_gets_in_a_batch(density):
    x, y = rows(3)
    alone = torch.cat([density.log_prob(x[i : i + 1], y[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(density.log_prob(x, y)[:20], alone, rtol=0, atol=1e-8)


def test_no_rows_give_no_values(density, name, request):
    x, y = rows(3)
    assert density.log_prob(x[:0], y[:0]).shape == (0,)


def test_the_state_makes_the_round_trip_through_a_file(density, name):
    x, y = rows(3)
    loaded = MAKERS[name]().load_state(from_bytes(to_bytes(density.state())))
    assert torch.equal(loaded.log_prob(x, y), density.log_prob(x, y))
    assert torch.equal(loaded.log_prob(x.float(), y), density.log_prob(x.float(), y))


def test_the_state_is_a_copy(density):
    x, y = rows(3)
    before = density.log_prob(x, y)
    for value in density.state().values():
        value.zero_()
    assert torch.equal(density.log_prob(x, y), before)


def test_loading_keeps_no_hold_of_the_given_state(density, name):
    x, y = rows(3)
    state = density.state()
    loaded = MAKERS[name]().load_state(state)
    for value in state.values():
        value.zero_()
    assert torch.equal(loaded.log_prob(x, y), density.log_prob(x, y))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda density: pickle.loads(pickle.dumps(density))])
def test_copies_give_the_same_values(density, duplicate):
    x, y = rows(3)
    assert torch.equal(duplicate(density).log_prob(x, y), density.log_prob(x, y))


def test_fitting_again_forgets_the_old_rows(name):
    density = flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()
    x, y = rows(2, n=60)
    before = density.fit(x, y).log_prob(x, y)
    assert not torch.allclose(density.fit(x + 5, y).log_prob(x, y), before)
    assert torch.equal(density.fit(x, y).log_prob(x, y), before)


def test_fitting_leaves_the_global_generator_alone(name):
    before = torch.get_rng_state()
    (flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()).fit(*rows(2, n=60))
    assert torch.equal(torch.get_rng_state(), before)


def test_scoring_leaves_the_global_generator_alone(name, request):
    density = copy.deepcopy(fitted_on(name, 3))  # a copy, so that its frozen module is made in this test
    x, y = rows(3)
    before = torch.get_rng_state()
    density.log_prob(x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_repr_shows_the_settings_and_no_tensor(density, name):
    assert repr(density) == repr(MAKERS[name]())
    assert repr(density).startswith(f"{type(density).__name__}(")
    assert "tensor" not in repr(density)


def test_using_it_before_fit_says_what_to_call(name):
    with pytest.raises(
        NotFittedError, match=r"has not been fitted\. Call `fit\(x, y\)` first, or `load_state\(state\)`"
    ):
        MAKERS[name]().log_prob(*rows(2))


def test_there_is_no_state_before_fit(name, request):
    with pytest.raises(NotFittedError, match=r"has not been fitted\. Call `fit\(x, y\)` first"):
        MAKERS[name]().state()


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (3,), (4, 3, 1)])
def test_rows_of_another_shape_are_an_error_that_names_both_shapes(density, shape):
    with pytest.raises(ShapeError) as caught:
        density.log_prob(torch.rand(shape), torch.zeros(shape[0]).long())
    assert f"`x` must have shape (n, 3), as when this density was fitted; got {shape}" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda x, y: (x.index_fill(0, torch.tensor([5]), torch.nan), y),
            InvalidInputError,
            "`x` must be finite; 2 entries",
        ),
        (lambda x, y: (x.long(), y), InvalidInputError, "`x` must be a float tensor; got torch.int64"),
        (
            lambda x, y: (x, y.double()),
            InvalidInputError,
            "`y` must be a long tensor of class numbers; got torch.float64",
        ),
        (
            lambda x, y: (x, y.int()),
            InvalidInputError,
            "`y` must be a long tensor of class numbers; got torch.int32",
        ),
        (lambda x, y: (x, y - 1), InvalidInputError, "`y` must number classes from 0; got -1"),
        (lambda x, y: (x[:0], y[:0]), ShapeError, r"at least one row and one column; got \(0, 2\)"),
        (lambda x, y: (x[:, 0], y), ShapeError, r"`x` must have shape \(n, d\).*got \(240,\)"),
        (
            lambda x, y: (x, y[:-1]),
            ShapeError,
            r"`y` must have shape \(240,\), one class per row; got \(239,\)",
        ),
    ],
)
def test_rows_that_cannot_be_fitted_are_an_error_that_says_why(name, change, error, text):
    with pytest.raises(error, match=text):
        MAKERS[name]().fit(*change(*rows(2)))


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1)], ids=["one for all", "too few", "column"])
def test_another_number_of_classes_than_rows_is_an_error(density, shape):
    with pytest.raises(ShapeError, match=r"`y` must have shape \(3,\)"):
        density.log_prob(torch.rand(3, 3), torch.zeros(shape).long())


# Awkward data


def assert_sound(density, x, y):
    log_prob, gradient = score_and_gradient(density, x.double(), y)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()
    assert all(torch.isfinite(value).all() for value in density.state().values())


def test_near_discrete_constant_and_duplicated_columns_are_harmless(name):
    x, y = awkward()
    density = MAKERS[name]().fit(x, y)
    assert_sound(density, x, y)
    assert_sound(density, x + 0.1, y)


@pytest.mark.parametrize("dataset", slow_unless(["audit"], ["audit", "heloc", "digits"]))
def test_near_discrete_data_sets_train_without_nan(name, dataset, request, monkeypatch):
    if dataset != "digits":  # which comes with scikit-learn
        monkeypatch.setenv("PLAUSIFLOW_DATA", str(request.getfixturevalue("data_directory")))
    fold = catalog.load_dataset(dataset).fold(0)
    density = flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()
    density.fit(fold.x_train[:1500], fold.y_train[:1500])
    assert_sound(density, fold.x_test[:300], fold.y_test[:300])


@pytest.mark.parametrize(("d", "classes"), [(1, 1), slow(1, 2), slow(2, 1)])
def test_one_feature_and_one_class_are_ordinary_cases(name, d, classes):
    x, y = rows(d, classes=classes)
    assert_sound(fitted_on(name, d, classes), x, y)
    for k in range(classes):
        gaussian = norm(x[y == k].mean(), x[y == k].std()).logpdf(x[y == k].numpy()).sum(axis=1).mean()
        assert fitted_on(name, d, classes).log_prob(x[y == k], y[y == k]).mean() > gaussian - 0.7


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_handful_of_rows_can_be_fitted(name, n):
    x, y = rows(2, n=n)
    density = flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()
    assert_sound(density.fit(x, y), x, y)


def test_a_class_without_rows_is_no_error(name):
    x, y = rows(2, n=60, classes=2)
    density = flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()
    density.fit(x, 2 * y)
    assert torch.isfinite(density.log_prob(x, 2 * y)).all()
    absent = density.log_prob(x, torch.ones_like(y))
    assert absent.shape == (60,)
    if name not in ARCHITECTURES:
        assert (absent == -torch.inf).all()
