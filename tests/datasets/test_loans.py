"""The mixed loans: their density against SciPy's and brute force, their rows against their density."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import Covariance, binom, multivariate_normal, norm
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plausiflow.datasets import synthetic
from plausiflow.datasets.applicants import JOBS_BY_EDUCATION, JOBS_BY_SEX, LEVELS, LINES_WITH_HOME, PEOPLE
from plausiflow.datasets.loans import COLUMNS, STEPS, draw, true_log_prob, true_log_prob_given
from plausiflow.datasets.synthetic import CLASSES, FEATURES, POPULATIONS
from plausiflow.errors import InvalidInputError


@pytest.fixture(scope="module")
def many():
    return draw(n=100_000, seed=3)


@pytest.fixture(scope="module")
def few():
    return draw(n=60, seed=4)


@cache
def binomial(k, n, p):
    return binom.pmf(k, n, p)


def chance(kind, levels):
    """The probability of all six levels of an applicant of a kind, factor by factor."""
    sex, education, job, owns_home, open_lines, dependents = levels
    person = PEOPLE[kind.name]
    e = LEVELS["education"].index(education)
    weights = [
        a * b * c
        for a, b, c in zip(
            JOBS_BY_SEX[sex == "male"],
            JOBS_BY_EDUCATION[e],
            person.jobs,
            strict=True,
        )
    ]
    return (
        (person.women if sex == "female" else 1 - person.women)
        * person.education[e]
        * weights[LEVELS["job"].index(job)]
        / sum(weights)
        * (person.owners if owns_home else 1 - person.owners)
        * binomial(open_lines, 6, person.lines + LINES_WITH_HOME * owns_home)
        * binomial(dependents, 5, person.dependents)
    )


@pytest.fixture(scope="module")
def tables():
    """Of each kind, the probabilities of all combinations of levels, as a Series indexed by levels."""
    index = pd.MultiIndex.from_tuples(product(*LEVELS.values()), names=list(LEVELS))
    kinds = [kind for population in POPULATIONS for kind in population.kinds]
    return {kind.name: pd.Series([chance(kind, levels) for levels in index], index) for kind in kinds}


def class_table(tables, label):
    return sum(kind.share * tables[kind.name] for kind in POPULATIONS[CLASSES.index(label)].kinds)


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


def moments(label):
    """Mean and covariance of a class's unrounded numbers."""
    population = POPULATIONS[CLASSES.index(label)]
    mean = population.shares @ population.means
    spread = population.means - mean
    within = population.cholesky @ population.cholesky.transpose(0, 2, 1)
    return mean, np.einsum("s,sde->de", population.shares, within + spread[:, :, None] * spread[:, None, :])


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


@pytest.mark.parametrize("name", PEOPLE)
def test_the_table_of_a_kind_is_the_product_of_its_factors_and_sums_to_one(name, tables):
    np.testing.assert_allclose(PEOPLE[name].table.ravel(), tables[name], rtol=1e-12)
    assert PEOPLE[name].table.sum() == pytest.approx(1, abs=1e-12)
    assert (PEOPLE[name].table > 0).all()


def test_every_kind_of_applicant_has_a_table():
    assert set(PEOPLE) == {kind.name for population in POPULATIONS for kind in population.kinds}


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
        women = PEOPLE[kind.name].women
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


@pytest.mark.parametrize("label", CLASSES)
def test_the_rows_of_a_class_have_its_mean_and_covariance(many, label):
    x, y = many
    rows = x.loc[y == label, list(FEATURES)].to_numpy(float)
    mean, covariance = moments(label)
    covariance = covariance + np.diag([STEPS[name] ** 2 / 12 for name in FEATURES])
    sd = np.sqrt(covariance.diagonal())
    np.testing.assert_allclose((rows.mean(axis=0) - mean) / sd, 0, atol=0.02)
    np.testing.assert_allclose(np.cov(rows.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.03)


@pytest.mark.parametrize("label", CLASSES)
@pytest.mark.parametrize(
    "pair", [("education", "job"), ("sex", "job"), ("owns_home", "open_lines"), ("sex", "dependents")]
)
def test_levels_occur_as_often_as_the_tables_say(many, tables, label, pair):
    x, y = many
    expected = class_table(tables, label).groupby(level=list(pair)).sum()
    found = x[y == label].groupby(list(pair), observed=False).size() / (y == label).sum()
    np.testing.assert_allclose(found.reindex(expected.index, fill_value=0), expected, atol=0.008)


@pytest.mark.parametrize("label", CLASSES)
def test_numbers_and_levels_go_together_through_the_kinds(many, label):
    x, y = many
    kinds = POPULATIONS[CLASSES.index(label)].kinds
    owners = np.array([kind.share * PEOPLE[kind.name].owners for kind in kinds])
    expected = owners @ [kind.means[-1] for kind in kinds] / owners.sum()
    assert x["age"][(y == label) & x["owns_home"]].mean() == pytest.approx(expected, abs=0.25)


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


def test_the_sexes_are_similar_but_not_the_same(many):
    x, y = many
    granted = (y == "granted").groupby(x["sex"], observed=True).mean()
    assert abs(granted["female"] - granted["male"]) < 0.03
    clerks = (x["job"] == "clerk").groupby(x["sex"], observed=True).mean()
    assert clerks["female"] - clerks["male"] > 0.1


def test_no_value_makes_no_sense(many):
    x, y = many
    assert (x[list(FEATURES)] > 0).all().all()
    assert (x["debt_ratio"] < 1).all()
    assert x["credit_score"].between(300, 850).all()
    assert (x["age"] >= 18).all()
    assert (x["age"] - x["years_employed"] >= 13).all()
    assert set(y) == set(CLASSES)
    for name, levels in LEVELS.items():
        assert set(x[name]) == set(levels)


def test_numbers_are_those_of_the_numeric_loans_on_their_grids(few):
    x, y = few
    numbers, classes = synthetic.draw(n=60, seed=4)
    assert [CLASSES[k] for k in classes] == y.tolist()
    for name, step in STEPS.items():
        assert ((x[name] - numbers[name]).abs() <= step / 2 + 1e-9).all()
        np.testing.assert_allclose(x[name] / step, (x[name] / step).round(), rtol=0, atol=1e-9)


def test_dtypes_are_those_that_people_have(few):
    x, y = few
    assert tuple(x.columns) == COLUMNS
    assert y.name == "decision"
    whole = [name for name in (*STEPS, "open_lines", "dependents") if name != "debt_ratio"]
    assert (x.dtypes[whole] == np.int64).all()
    assert x["debt_ratio"].dtype == np.float64
    assert x["owns_home"].dtype == bool
    assert x["education"].dtype == pd.CategoricalDtype(list(LEVELS["education"]), ordered=True)
    assert x["sex"].dtype == pd.CategoricalDtype(["female", "male"])
    assert pd.api.types.is_string_dtype(x["job"])


def test_the_same_seed_gives_the_same_rows(few):
    x, y = draw(n=60, seed=4)
    pd.testing.assert_frame_equal(x, few[0])
    pd.testing.assert_series_equal(y, few[1])
    assert (draw(n=60, seed=5)[0]["income"] == x["income"]).mean() < 0.1
    assert (draw(n=60, seed=5)[0]["job"] == x["job"]).mean() < 0.6


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


def test_no_rows_are_refused():
    with pytest.raises(InvalidInputError, match="`n` must be at least 1; got 0"):
        draw(n=0)
