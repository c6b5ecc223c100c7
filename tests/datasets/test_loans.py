"""The loans with categories: their rows against the distribution that they are drawn from."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from plausiflow.datasets import synthetic
from plausiflow.datasets.loans import (
    CATEGORIES,
    COLUMNS,
    JOBS_BY_EDUCATION,
    JOBS_BY_SEX,
    LEVELS,
    LINES_WITH_HOME,
    STEPS,
    draw,
)
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
    person = CATEGORIES[kind.name]
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


def moments(label):
    """Mean and covariance of a class's unrounded numbers."""
    population = POPULATIONS[CLASSES.index(label)]
    mean = population.shares @ population.means
    spread = population.means - mean
    within = population.cholesky @ population.cholesky.transpose(0, 2, 1)
    return mean, np.einsum("s,sde->de", population.shares, within + spread[:, :, None] * spread[:, None, :])


@pytest.mark.parametrize("name", CATEGORIES)
def test_the_table_of_a_kind_is_the_product_of_its_factors_and_sums_to_one(name, tables):
    np.testing.assert_allclose(CATEGORIES[name].table.ravel(), tables[name], rtol=1e-12)
    assert CATEGORIES[name].table.sum() == pytest.approx(1, abs=1e-12)
    assert (CATEGORIES[name].table > 0).all()


def test_every_kind_of_applicant_has_a_table():
    assert set(CATEGORIES) == {kind.name for population in POPULATIONS for kind in population.kinds}


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
    owners = np.array([kind.share * CATEGORIES[kind.name].owners for kind in kinds])
    expected = owners @ [kind.means[-1] for kind in kinds] / owners.sum()
    assert x["age"][(y == label) & x["owns_home"]].mean() == pytest.approx(expected, abs=0.25)


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


def test_no_rows_are_refused():
    with pytest.raises(InvalidInputError, match="`n` must be at least 1; got 0"):
        draw(n=0)
