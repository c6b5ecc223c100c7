"""The audit: tests against scipy, level on null data, power on planted burdens, bad input."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.matching import match_rows
from plausiflow.explanations.resampling import (
    adjust_p_values,
    bootstrap_interval,
    permutation_p_values,
    sign_flip_p_value,
)
from results import FIGURES, build


def result_of(group, cost, found=None):
    """Return a result whose rows have a group, and whose answers have these costs."""
    n = len(group)
    found = np.ones(n, bool) if found is None else found
    rows = pd.DataFrame({"sex": group, "region": np.where(np.arange(n) % 2, "north", "south"), "x": "a"})
    of = np.flatnonzero(found)
    figures = pd.DataFrame(1.0, index=range(len(of)), columns=FIGURES).assign(cost=np.asarray(cost)[of])
    return build(rows, rows.iloc[of].assign(x="b").reset_index(drop=True), of, figures=figures)


def halves(n):
    return np.where(np.arange(n) < n // 2, "f", "m")


def test_the_permutation_test_agrees_with_scipy():
    rng = np.random.default_rng(0)
    values, group = rng.normal(size=40), np.arange(40) < 15
    values[group] += 0.5
    ours = permutation_p_values(values, [group], 4999, np.random.default_rng(1))[0]

    def difference(a, b, axis):
        return a.mean(axis=axis) - b.mean(axis=axis)

    theirs = stats.permutation_test(
        (values[group], values[~group]), difference, n_resamples=4999, vectorized=True, random_state=2
    ).pvalue
    assert ours == pytest.approx(theirs, abs=0.025)


def test_the_permutation_test_keeps_its_level_on_null_data():
    p = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        p.append(permutation_p_values(rng.exponential(size=60), [np.arange(60) < 25], 99, rng)[0])
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)


def test_adjusted_p_values_follow_the_formula_of_benjamini_and_hochberg():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.beta(0.5, 2, size=int(rng.integers(1, 30)))
        ordered, m = np.sort(p), len(p)
        # The smallest false discovery rate at which the step-up procedure rejects each hypothesis.
        expected = [
            min(1.0, min(ordered[k] * m / (k + 1) for k in range(m) if ordered[k] >= one)) for one in p
        ]
        np.testing.assert_allclose(adjust_p_values(p), expected)


def test_an_unknown_p_value_stays_unknown_and_does_not_count():
    adjusted = adjust_p_values(np.array([0.01, np.nan, 0.04, 0.03]))
    assert np.isnan(adjusted[1])
    np.testing.assert_allclose(adjusted[[0, 2, 3]], [0.03, 0.04, 0.04])


def test_an_exact_permutation_test_of_few_values_is_approached():
    values, group = np.array([1.0, 2.0, 3.0, 10.0, 11.0, 12.0]), np.arange(6) >= 3
    exact = 2 / math.comb(6, 3)  # only the observed grouping and its mirror image are as far apart
    p = permutation_p_values(values, [group], 20000, np.random.default_rng(0))[0]
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20000))


def test_the_sign_test_agrees_with_the_paired_test_of_scipy():
    differences = np.random.default_rng(3).normal(0.3, 1.0, 40)
    theirs = stats.permutation_test(
        (differences,), lambda x, axis: x.mean(axis=axis), permutation_type="samples", n_resamples=9999,
        vectorized=True, rng=np.random.default_rng(1),
    ).pvalue  # fmt: skip
    ours = sign_flip_p_value(differences, 9999, np.random.default_rng(2))
    assert ours == pytest.approx(theirs, abs=0.02)


def test_the_bootstrap_interval_agrees_with_the_percentile_one_of_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2, 1, 80), rng.gamma(3, 1, 60)

    def difference(x, y, axis):
        return x.mean(axis=axis) - y.mean(axis=axis)

    theirs = stats.bootstrap(
        (a, b), difference, method="percentile", vectorized=True, n_resamples=9999,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    ours = bootstrap_interval(a, b, 9999, 0.95, np.random.default_rng(2))
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.04)


def test_the_bootstrap_interval_agrees_with_the_normal_one():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 1, 400), rng.normal(0, 1, 500)
    low, high = bootstrap_interval(a, b, 4000, 0.95, rng)
    middle, error = a.mean() - b.mean(), np.sqrt(a.var() / 400 + b.var() / 500)
    assert (low, high) == pytest.approx((middle - 1.96 * error, middle + 1.96 * error), abs=0.02)


def test_paired_signs_find_a_shift_and_not_a_symmetric_difference():
    rng = np.random.default_rng(0)
    assert sign_flip_p_value(rng.normal(1, 1, 50), 999, rng) < 0.01
    assert sign_flip_p_value(np.array([-1.0, 1.0] * 20), 999, rng) > 0.5


def test_a_planted_burden_is_found_in_cost_and_nowhere_else():
    rng = np.random.default_rng(0)
    group = halves(400)
    cost = rng.gamma(4, 0.1, 400) * np.where(group == "f", 1.3, 1.0)
    audit = result_of(group, cost).audit("sex")
    assert set(audit.significant().index.get_level_values("measure")) == {"cost"}
    line = audit.differences.loc[("sex=f", "cost")]
    assert line["low"] < line["difference"] < line["high"]


def test_the_share_found_counts_rows_that_need_an_answer():
    group, found = halves(200), np.arange(200) % 4 > 0
    found[:100] = True
    audit = result_of(group, np.ones(200), found).audit("sex")
    assert audit.groups.loc["sex=m", "found"] == pytest.approx(0.75)
    assert audit.differences.loc[("sex=m", "found"), "p_adjusted"] < 0.01


def test_several_columns_have_intersections():
    audit = result_of(halves(200), np.ones(200)).audit(["sex", "region"])
    assert {"sex=f", "region=north", "sex=f, region=north"} <= set(audit.groups.index)


def test_small_groups_are_shown_and_not_tested():
    group = np.where(np.arange(100) < 5, "x", "y")
    audit = result_of(group, np.ones(100)).audit("sex")
    assert len(audit.groups) == 2
    assert len(audit.differences) == 0


def test_matched_rows_are_the_nearest_and_close_and_in_one_pair():
    x = np.array([[0.0], [1.0], [2.0], [0.1], [9.0], [1.1]])
    inside, outside, distance = match_rows(x, np.array([True, True, True, False, False, False]))
    assert list(zip(inside.tolist(), outside.tolist(), strict=True)) == [(0, 3), (1, 5)]  # 1.1 is nearer to 1
    np.testing.assert_allclose(distance, [0.1, 0.1])


def test_the_test_of_matched_rows_keeps_its_level_on_null_data():
    p = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, group = rng.random((300, 3)), rng.random(300) < 0.8
        cost = x[:, 0] + rng.exponential(size=300)
        inside, outside, _ = match_rows(x, group)
        p.append(sign_flip_p_value(cost[inside] - cost[outside], 99, rng))
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)


def test_the_same_seed_gives_the_same_audit_and_strict_json():
    rng = np.random.default_rng(1)
    result = result_of(halves(100), rng.random(100))
    first, second = result.audit("sex"), result.audit("sex")
    assert first.to_json() == second.to_json()
    json.loads(first.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert "not its cause" in str(first)


@pytest.mark.parametrize(
    ("by", "settings", "text"),
    [
        ("age", {}, "`by` must be columns of the rows"),
        ([], {}, "`by` must be columns of the rows"),
        ({"own": [1, 2]}, {}, "`by` must have 60 values"),
        ({"own": range(60)}, {}, "at most 20 groups"),
        ("sex", {"confidence": 2}, "`confidence` must be"),
        ("sex", {"min_size": 0}, "`min_size` must be"),
    ],
)
def test_bad_arguments_are_refused(by, settings, text):
    with pytest.raises(InvalidInputError, match=text):
        result_of(halves(60), np.ones(60)).audit(by, **settings)
