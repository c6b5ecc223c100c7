"""Densities: one contract, flows against their Jacobians, KDE and GMM against scikit-learn, thresholds."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from scipy.stats import norm
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from plausiflow.benchmark.reference import Reference
from plausiflow.data import catalog
from plausiflow.densities import GMM, KDE, ConditionalFlow, PublishedMAF, Thresholded
from plausiflow.densities.flows import ARCHITECTURES
from plausiflow.densities.thresholds import scorer_of, slope_of
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError, TrainingError
from plausiflow.protocols import Density, Plausibility
from plausiflow.training import Training

SHORT = Training(epochs=12, batch_size=64, learning_rate=5e-3, noise=0.02)
BRIEF = Training(epochs=2, learning_rate=5e-3, noise=0.02)
UNTRAINED = Training(epochs=1, learning_rate=0.0)
PUBLISHED = ["moons", "law", "audit", "heloc", "blobs", "digits", "wine"]


def flow(architecture, training=SHORT, **settings):
    return ConditionalFlow(architecture=architecture, hidden=(16, 16), training=training, **settings)


MAKERS = {name: lambda name=name: flow(name) for name in ARCHITECTURES} | {
    "kde": KDE,
    "gmm": lambda: GMM(components=2),
}


def rows(d, n=240, classes=3, precision=torch.float64):
    """Classes of different centre and width, about in [0, 1]."""
    generator = torch.Generator().manual_seed(11)
    y = torch.arange(n) % classes
    centre, width = 0.3 + 0.2 * y, 0.06 + 0.03 * y
    x = centre[:, None] + width[:, None] * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x.to(precision), y


@cache
def fitted_on(name, d, classes=3):
    return MAKERS[name]().fit(*rows(d, classes=classes))


@pytest.fixture(params=list(MAKERS))
def name(request):
    return request.param


@pytest.fixture
def density(name):
    return fitted_on(name, 3)


def score_and_gradient(density, x, y):
    x = x.clone().requires_grad_()
    log_prob = density.log_prob(x, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    return log_prob.detach(), gradient


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


@pytest.mark.parametrize("k", range(3))
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
    with pytest.raises(NotFittedError, match=r"there is no state to save"):
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


def awkward(n=200):
    """Two levels, three rare levels, a constant, a number, and that number again."""
    generator = torch.Generator().manual_seed(2)
    number = torch.rand(n, generator=generator, dtype=torch.float64)
    y = (number > 0.5).long()
    levels = torch.multinomial(torch.tensor([0.9, 0.07, 0.03]), n, replacement=True, generator=generator) / 2
    return torch.stack(
        [(number > 0.3).double(), levels.double(), torch.full_like(number, 0.25), number, number], dim=1
    ), y


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


@pytest.mark.parametrize("dataset", ["audit", "heloc", "digits"])
def test_near_discrete_data_sets_train_without_nan(name, dataset, request, monkeypatch):
    if dataset != "digits":  # which comes with scikit-learn
        monkeypatch.setenv("PLAUSIFLOW_DATA", str(request.getfixturevalue("data_directory")))
    fold = catalog.load(dataset).fold(0)
    density = flow(name, BRIEF) if name in ARCHITECTURES else MAKERS[name]()
    density.fit(fold.x_train[:1500], fold.y_train[:1500])
    assert_sound(density, fold.x_test[:300], fold.y_test[:300])


@pytest.mark.parametrize(("d", "classes"), [(1, 1), (1, 2), (2, 1)])
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


# Flows


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


def test_the_log_density_is_that_of_the_latent_plus_the_log_determinant(architecture):
    density = fitted_on(architecture, 3)
    x, y = rows(3, n=9)
    module = density._frozen(x)
    for row, k, found in zip(x, y, density.log_prob(x, y), strict=True):
        transform = module.flow(F.one_hot(k, 3).to(row)).transform

        def latent(row, transform=transform):
            return transform((row - module.mean) / module.sd)

        jacobian = torch.autograd.functional.jacobian(latent, row)
        expected = norm.logpdf(latent(row).numpy()).sum() + np.linalg.slogdet(jacobian.numpy())[1]
        assert found.item() == pytest.approx(expected, abs=1e-8)


def test_the_transform_can_be_undone(architecture):
    x, y = rows(3)
    transform = fitted_on(architecture, 3)._frozen(x).flow(F.one_hot(y, 3).to(x)).transform
    torch.testing.assert_close(transform.inv(transform(x)), x, rtol=0, atol=1e-6)


def test_the_frozen_copy_scores_as_the_module_that_was_trained(architecture):
    x, y = rows(3)
    density = fitted_on(architecture, 3)
    torch.testing.assert_close(density.log_prob(x, y), density._frozen.module(x, y), rtol=0, atol=1e-10)


def test_training_raises_the_likelihood(architecture):
    x, y = rows(3)
    untrained = flow(architecture, UNTRAINED).fit(x, y)
    assert fitted_on(architecture, 3).log_prob(x, y).mean() > untrained.log_prob(x, y).mean() + 0.2


@pytest.mark.parametrize("training", [BRIEF, UNTRAINED], ids=["trained", "untrained"])
def test_the_seed_decides_the_weights(architecture, training):
    first, again, other = (
        flow(architecture, training, seed=seed).fit(*rows(2, n=60)).state() for seed in (0, 0, 1)
    )
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert any(not torch.equal(value, other[name]) for name, value in first.items() if "weight" in name)


def test_log_prob_leaves_the_trained_module_alone(architecture):
    density = copy.deepcopy(fitted_on(architecture, 3))
    module = density._frozen.module
    score_and_gradient(density, *rows(3, precision=torch.float32))
    assert all(
        weight.requires_grad and weight.grad is None and weight.dtype == torch.float64
        for weight in module.parameters()
    )


def test_inputs_are_standardised_by_the_rows_trained_on_with_a_floor(architecture):
    x, y = awkward()
    state = flow(architecture, Training(epochs=1, validation=0.0), sd_floor=0.05).fit(x, y).state()
    np.testing.assert_allclose(state["flow.mean"].numpy(), x.numpy().mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(state["flow.sd"].numpy(), np.sqrt(x.numpy().var(axis=0) + 0.05**2), atol=1e-12)


def test_the_number_of_transforms_can_be_chosen(architecture):
    few, usual = (
        flow(architecture, BRIEF, transforms=count).fit(*rows(2, n=60)).state() for count in (2, None)
    )
    assert len(few) < len(usual)


def test_an_unknown_architecture_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        InvalidInputError, match=r"`architecture` must be one of maf, nsf, realnvp, nice; got 'glow'"
    ):
        ConditionalFlow(architecture="glow")


def test_a_flow_whose_training_failed_is_not_fitted():
    density = flow("maf", Training(epochs=2))
    x, y = rows(2, n=60)
    with pytest.raises(TrainingError):
        density.fit(x * 1e300, y)
    with pytest.raises(NotFittedError):
        density.log_prob(x, y)


# Kernels and mixtures


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("bandwidth", [0.05, 0.1, 1.0])
def test_kde_equals_that_of_scikit_learn(d, bandwidth):
    x, y = rows(d)
    asked = torch.rand(240, d, dtype=torch.float64)
    log_prob = KDE(bandwidth=bandwidth).fit(x, y).log_prob(asked, y)
    for k in range(3):
        theirs = KernelDensity(bandwidth=bandwidth, rtol=1e-12).fit(x[y == k].numpy())
        np.testing.assert_allclose(
            log_prob[y == k].numpy(), theirs.score_samples(asked[y == k].numpy()), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("components", [1, 3])
def test_gmm_equals_that_of_scikit_learn(d, components):
    x, y = rows(d)
    asked = torch.rand(240, d, dtype=torch.float64)
    log_prob = GMM(components=components, regularisation=1e-3, seed=5).fit(x, y).log_prob(asked, y)
    for k in range(3):
        theirs = GaussianMixture(components, reg_covar=1e-3, random_state=5, max_iter=500).fit(
            x[y == k].numpy()
        )
        np.testing.assert_allclose(
            log_prob[y == k].numpy(), theirs.score_samples(asked[y == k].numpy()), rtol=1e-8, atol=1e-8
        )


def test_the_gradient_of_a_kde_is_finite_on_its_own_rows():
    x, y = rows(2)
    log_prob, gradient = score_and_gradient(KDE(bandwidth=0.01).fit(x, y), x, y)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()


def test_a_kde_keeps_no_hold_of_the_rows_it_was_given():
    x, y = rows(2)
    density, asked = KDE().fit(x, y), x.clone()
    before = density.log_prob(asked, y)
    x.zero_()
    assert torch.equal(density.log_prob(asked, y), before)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_a_bandwidth_that_is_not_positive_is_an_error(bandwidth):
    with pytest.raises(InvalidInputError, match=f"`bandwidth` must be positive; got {bandwidth}"):
        KDE(bandwidth=bandwidth)


def test_a_mixture_without_components_is_an_error():
    with pytest.raises(InvalidInputError, match="`components` must be at least 1; got 0"):
        GMM(components=0)


# The published flow


@pytest.fixture(scope="module")
def published_moons(reference_directory):
    reference = Reference.load("moons", reference_directory)
    return PublishedMAF(reference.maf_arrays), reference


@pytest.mark.paper
@pytest.mark.parametrize("dataset", PUBLISHED)
def test_the_published_flow_gives_the_published_log_densities(dataset, reference_directory):
    reference = Reference.load(dataset, reference_directory)
    density = PublishedMAF(reference.maf_arrays)
    with torch.no_grad():
        log_prob = density.log_prob(reference.x_train, reference.y_train)
    torch.testing.assert_close(log_prob, reference.maf_log_prob_train, rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_the_published_flow_keeps_the_contract(published_moons, precision):
    density, reference = published_moons
    x, y = reference.x_train[:20].to(precision), reference.y_train[:20]
    assert isinstance(density, Density)
    log_prob, gradient = score_and_gradient(density, x, y)
    assert log_prob.dtype == gradient.dtype == precision
    assert torch.isfinite(gradient).all()
    alone = torch.cat([density.log_prob(x[i : i + 1], y[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(log_prob, alone, rtol=0, atol=1e-8 if precision == torch.float64 else 1e-4)


def test_the_published_flow_integrates_to_one(published_moons):
    density, _ = published_moons
    axis = torch.linspace(-4.0, 5.0, 451, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    for k in range(2):
        with torch.no_grad():
            values = density.log_prob(grid, torch.full((len(grid),), k)).exp().reshape(len(axis), len(axis))
        assert torch.trapezoid(torch.trapezoid(values, axis), axis).item() == pytest.approx(1, abs=1e-2)


def test_the_published_flow_refuses_to_be_fitted(published_moons):
    density, reference = published_moons
    with pytest.raises(InvalidInputError, match=r"published weights and is not fitted\. Use ConditionalFlow"):
        density.fit(reference.x_train, reference.y_train)


def test_the_published_flow_names_the_shape_it_wants(published_moons):
    with pytest.raises(
        ShapeError, match=r"`x` must have shape \(n, 2\), as when this density was fitted; got \(4, 3\)"
    ):
        published_moons[0].log_prob(torch.rand(4, 3), torch.zeros(4).long())


def test_foreign_arrays_are_no_published_flow():
    with pytest.raises(
        InvalidInputError, match=r"weights of the published flow.*got \['bias', 'weight'\].*_maf.npz"
    ):
        PublishedMAF({"weight": np.zeros((2, 2)), "bias": np.zeros(2)})


def test_reading_the_published_flow_leaves_the_global_generator_alone(published_moons):
    before = torch.get_rng_state()
    PublishedMAF(published_moons[1].maf_arrays)
    assert torch.equal(torch.get_rng_state(), before)


# Thresholds


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
    assert isinstance(Thresholded(density=Coordinate()).fit(*labelled), Plausibility)


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
    monkeypatch.setattr("plausiflow.densities.thresholds._BLOCK", 7)
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
def test_a_threshold_prepares_its_score_for_known_classes(name):
    density = KDE() if name == "kde" else ConditionalFlow(architecture=name, training=Training(epochs=1))
    x, y = torch.rand(60, 3), torch.arange(60) % 2
    plausibility = Thresholded(density=density.fit(x, y)).fit(x, y)
    rows = torch.tensor([7, 2, 2, 11])
    point = x[rows].requires_grad_()
    expected = plausibility.score(point, y[rows])
    torch.testing.assert_close(scorer_of(plausibility, y)(point, rows), expected)
    slope = slope_of(plausibility, y)
    assert (slope is None) == (name != "maf")
    if slope is not None:
        value, gradient = slope(point.detach(), rows)
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), point)[0])
    with pytest.raises(InvalidInputError, match="must be between 0 and 1"):
        scorer_of(plausibility, y + 1)
