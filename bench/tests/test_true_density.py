"""The exact densities of the loans: against SciPy and brute force, and their rows against them."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import Covariance, multivariate_normal, norm
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plausiflow.core import Density
from plausiflow.datasets import load_dataset
from plausiflow.datasets.loans import CATEGORIES, COLUMNS, LEVELS, draw
from plausiflow.datasets.synthetic import CLASSES, FEATURES, POPULATIONS
from plausiflow.errors import InvalidInputError
from plausiflow_bench.true_density import true_density, true_log_prob, true_log_prob_given

# ---------------------------------------------------------------- numeric loans


@pytest.fixture(scope="module")
def data():
    return load_dataset("loans")


@pytest.fixture(scope="module")
def fold(data):
    return data.fold(0)


def exact(x, k):
    """SciPy's log-density of class k at rows in original units."""
    population = POPULATIONS[k]
    parts = [
        multivariate_normal(mean, Covariance.from_cholesky(factor)).logpdf(x)
        for mean, factor in zip(population.means, population.cholesky, strict=True)
    ]
    return logsumexp(np.stack(parts), axis=0, b=population.shares[:, None])


def moments(k):
    """Mean and covariance of class k, from its kinds'."""
    population = POPULATIONS[k]
    mean = population.shares @ population.means
    spread = population.means - mean
    within = population.cholesky @ population.cholesky.transpose(0, 2, 1)
    between = spread[:, :, None] * spread[:, None, :]
    return mean, np.einsum("s,sde->de", population.shares, within + between)


@pytest.mark.parametrize("k", [0, 1])
def test_the_density_equals_scipys_in_original_units(data, k):
    x = data.x.to_numpy()[:500].copy()
    log_prob = true_density().log_prob(torch.from_numpy(x), torch.full((500,), k))
    np.testing.assert_allclose(log_prob.numpy(), exact(x, k), rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [0, 1])
def test_the_scaled_density_differs_by_the_log_of_the_product_of_ranges(fold, k):
    scaled = fold.x_test.double()
    y = torch.full((len(scaled),), k)
    x = scaled * fold.range + fold.minimum
    jacobian = float(fold.range.log().sum())
    log_prob = true_density(fold).log_prob(scaled, y)
    torch.testing.assert_close(log_prob, true_density().log_prob(x, y) + jacobian, rtol=0, atol=1e-8)
    np.testing.assert_allclose(log_prob.numpy(), exact(x.numpy(), k) + jacobian, rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [0, 1])
def test_the_scaled_density_integrates_to_one(fold, k):
    mean, covariance = moments(k)
    wide = multivariate_normal(
        (mean - fold.minimum.numpy()) / fold.range.numpy(),
        2 * covariance / np.outer(fold.range, fold.range),
        seed=0,
    )
    points = wide.rvs(100_000)
    log_prob = true_density(fold).log_prob(torch.from_numpy(points), torch.full((len(points),), k))
    assert np.exp(log_prob.numpy() - wide.logpdf(points)).mean() == pytest.approx(1, abs=0.03)


def test_a_linear_model_comes_close_to_the_best_possible_accuracy_but_not_to_it(fold):
    linear = LogisticRegression(max_iter=1000).fit(fold.x_train.numpy(), fold.y_train.numpy())
    linear = linear.score(fold.x_test.numpy(), fold.y_test.numpy())
    density = true_density(fold)
    x = fold.x_test.double()
    log_probs = torch.stack([density.log_prob(x, torch.full_like(fold.y_test, k)) for k in (0, 1)])
    best = float((log_probs.argmax(dim=0) == fold.y_test).double().mean())
    assert 0.85 <= linear <= 0.92
    assert linear < best < 0.96


@pytest.mark.parametrize("dtype_", [torch.float32, torch.float64])
def test_the_true_density_follows_its_inputs_dtype_and_has_gradients(fold, dtype_):
    density = true_density(fold)
    assert isinstance(density, Density)
    x = fold.x_test.to(dtype_).requires_grad_()
    log_prob = density.log_prob(x, fold.y_test)
    assert log_prob.dtype == dtype_
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).any(dim=1).all()


def test_a_fold_of_other_data_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"one of the loans, with the features income, .*; got alcohol"
    ):
        true_density(load_dataset("wine").fold(0))


# ---------------------------------------------------------------- loans with categories


@pytest.fixture(scope="module")
def many():
    return draw(n=100_000, seed=3)


@pytest.fixture(scope="module")
def few():
    return draw(n=60, seed=4)


@pytest.fixture(scope="module")
def tables():
    """Of each kind, the probabilities of all combinations of levels, as a Series indexed by levels."""
    index = pd.MultiIndex.from_tuples(product(*LEVELS.values()), names=list(LEVELS))
    return {name: pd.Series(categories.table.ravel(), index) for name, categories in CATEGORIES.items()}


def brute_marginal(frame, label, names, tables):
    """The log-density of the named columns alone, by SciPy's Gaussians and sums over levels."""
    population = POPULATIONS[CLASSES.index(label)]
    numbers = [name for name in FEATURES if name in names]
    levels = [name for name in LEVELS if name in names]
    j = [FEATURES.index(name) for name in numbers]
    log_prob = []
    for kind, mean, factor in zip(population.kinds, population.means, population.cholesky, strict=True):
        part = np.full(len(frame), np.log(kind.share))
        if numbers:
            covariance = Covariance.from_cholesky(np.linalg.cholesky((factor @ factor.T)[np.ix_(j, j)]))
            part += multivariate_normal(mean[j], covariance).logpdf(frame[numbers].to_numpy(float))
        if levels:
            sums = tables[kind.name].groupby(level=levels).sum()
            rows = zip(*(frame[name] for name in levels), strict=True)
            part += np.log([sums[row if len(levels) > 1 else row[0]] for row in rows])
        log_prob.append(part)
    return logsumexp(log_prob, axis=0)


def varied(row, changes):
    """The row once for each combination of the values of some columns."""
    n = int(np.prod([len(values) for values in changes.values()]))
    frame = row.iloc[[0] * n].reset_index(drop=True)
    for name, values in zip(changes, zip(*product(*changes.values()), strict=True), strict=True):
        frame[name] = pd.Series(values)
    return frame


def grid(name):
    """Every value of a category; 201 values of a number, from side to side of all kinds."""
    if name in LEVELS:
        return LEVELS[name]
    j = FEATURES.index(name)
    ends = [kind.means[j] + z * kind.sds[j] for p in POPULATIONS for kind in p.kinds for z in (-7, 7)]
    return np.linspace(min(ends), max(ends), 201)


def spacing(name):
    return 1 if name in LEVELS else grid(name)[1] - grid(name)[0]


@pytest.mark.parametrize("label", CLASSES)
def test_the_density_equals_gaussians_times_tables(few, tables, label):
    x, _ = few
    expected = brute_marginal(x, label, COLUMNS, tables)
    np.testing.assert_allclose(true_log_prob(x, [label] * len(x)), expected, rtol=0, atol=1e-8)


@given(names=st.sets(st.sampled_from(COLUMNS)), label=st.sampled_from(CLASSES))
@settings(max_examples=12)
def test_the_density_given_any_columns_is_the_joint_one_without_their_marginal(few, tables, names, label):
    x, _ = few
    y = [label] * len(x)
    expected = brute_marginal(x, label, COLUMNS, tables) - brute_marginal(x, label, names, tables)
    np.testing.assert_allclose(true_log_prob_given(x, y, given=sorted(names)), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("label", CLASSES)
def test_the_marginal_of_age_and_sex_is_that_of_the_kinds(few, label):
    x, _ = few
    y = [label] * len(x)
    density = 0
    for kind in POPULATIONS[CLASSES.index(label)].kinds:
        women = CATEGORIES[kind.name].women
        sex = np.where(x["sex"] == "female", women, 1 - women)
        density += kind.share * sex * norm.pdf(x["age"], kind.means[-1], kind.sds[-1])
    found = true_log_prob(x, y) - true_log_prob_given(x, y)
    np.testing.assert_allclose(found, np.log(density), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "names",
    [
        ("income",),
        ("job",),
        ("years_employed", "credit_score"),
        ("education", "job"),
        ("debt_ratio", "owns_home"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("label", CLASSES)
def test_columns_given_age_and_sex_have_probability_one_on_a_grid(few, names, label):
    row = few[0].iloc[[0]]
    rows = varied(row, {name: grid(name) for name in names})
    y = [label] * len(rows)
    log_prob = true_log_prob_given(rows, y) - true_log_prob_given(rows, y, given=("age", "sex", *names))
    total = np.exp(log_prob).sum() * np.prod([spacing(name) for name in names])
    assert total == pytest.approx(1, abs=1e-6)


def test_decisions_are_as_likely_as_the_densities_say(many):
    x, y = many
    log_prob = np.stack([true_log_prob(x, [label] * len(x)) for label in CLASSES])
    granted = np.exp(log_prob[1] - logsumexp(log_prob, axis=0))
    assert granted.mean() == pytest.approx(0.5, abs=0.01)
    groups = pd.DataFrame({"said": granted, "was": y == "granted"}).groupby((granted * 10).astype(int))
    np.testing.assert_allclose(groups["was"].mean(), groups["said"].mean(), atol=0.04)


def test_a_network_is_right_for_nine_rows_of_ten_and_the_truth_for_more():
    x, y = draw()
    encoded = pd.get_dummies(x).astype(float)
    network = MLPClassifier((32,), early_stopping=True, random_state=0)
    model = make_pipeline(StandardScaler(), network).fit(encoded[:4000], y[:4000])
    accuracy = model.score(encoded[4000:], y[4000:])
    log_prob = np.stack([true_log_prob(x[4000:], [label] * 1000) for label in CLASSES])
    best = (np.array(CLASSES)[log_prob.argmax(axis=0)] == y[4000:]).mean()
    assert 0.86 <= accuracy < best < 0.96


def test_order_and_dtypes_of_columns_do_not_matter(few):
    x, y = few
    other = (
        x[list(COLUMNS)[::-1]].astype({"sex": object, "education": object, "age": float}).assign(extra="?")
    )
    np.testing.assert_array_equal(true_log_prob(other, y.to_numpy()), true_log_prob(x, y))


def test_labels_belong_to_rows_by_position(few):
    x, y = few
    reversed_ = true_log_prob(x[::-1], y[::-1].reset_index(drop=True))
    np.testing.assert_allclose(reversed_[::-1], true_log_prob(x, y), rtol=1e-14)


def test_no_rows_have_no_densities(few):
    x, y = few
    assert true_log_prob(x[:0], y[:0]).shape == (0,)


def test_every_problem_of_the_rows_is_listed(few):
    x, _ = few
    wrong = x.drop(columns="age").assign(job="pilot", dependents=9, income=np.nan)
    with pytest.raises(InvalidInputError) as caught:
        true_log_prob(wrong, ["granted"] * 58 + ["lost"])
    for part in (
        "no column age",
        "59 decisions for 60 rows",
        "1 decisions are not one of rejected, granted",
        "60 values of job are not one of manual,",
        "60 values of dependents are not one of 0, 1",
        "60 values of income are not numbers",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("names", ["age", ("age", "height")])
def test_given_names_that_are_no_columns_are_refused(few, names):
    with pytest.raises(InvalidInputError, match="`given` must list some of age, sex"):
        true_log_prob_given(*few, given=names)
