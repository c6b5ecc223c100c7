"""Judges of another kind: what they say of real rows, of shuffled columns and of broken logic."""

import numpy as np
import pandas as pd
import pytest

import plausiflow as pf
from plausiflow.constraints import Rule
from plausiflow.datasets import contacts, orders
from plausiflow.densities import KDE
from plausiflow.explanations import RealismJudge
from plausiflow.tables import Schema

N = 1500


def as_real(frame, outcomes=None, **settings):
    codes = np.zeros(len(frame), dtype=np.int64) if outcomes is None else outcomes
    return RealismJudge(schema=Schema.infer(frame), load=lambda: frame, outcomes=codes, **settings)


@pytest.fixture(scope="module")
def drawn():
    """Orders: real rows to compare with, others of the same distribution, and their outcomes."""
    x, y = orders.draw(n=N + 250, seed=3)
    codes = (y == "late").to_numpy().astype(np.int64)
    return x.iloc[:N], codes[:N], x.iloc[N:], codes[N:]


def test_gowers_distance_is_that_of_its_definition():
    frame = pd.DataFrame({"n": [0.0, 10.0, 4.0], "c": ["a", "b", "a"], "o": [1.0, np.nan, 3.0]})
    real = as_real(frame)
    got = real._gower(real.read(frame), real.read(frame))
    first_second = (10 / 10 + 1 + 1) / 3  # a missing value differs from any other
    first_third = (4 / 10 + 0 + 2 / 2) / 3
    np.testing.assert_allclose(got[0], [0.0, first_second, first_third])
    np.testing.assert_allclose(got, got.T)


def test_the_fifth_neighbour_is_that_of_brute_force(drawn):
    x, codes, others, other_codes = drawn
    real = as_real(x, codes)
    rows = others.iloc[:10]
    got = real.neighbour_distances(rows, other_codes[:10])
    span = real.cells.max(axis=0) - real.cells.min(axis=0)
    for i in range(10):
        near = real.cells[codes == other_codes[i]]
        apart = np.zeros(len(near))
        for j, feature in enumerate(real.features):
            gap = np.abs(near[:, j] - real.read(rows)[i, j])
            apart += gap / span[j] if feature.is_number or feature.kind == "ordered" else gap > 0
        assert got[i] == pytest.approx(np.sort(apart / len(real.features))[4])


def test_real_rows_pass_as_real_rows(drawn):
    x, codes, others, other_codes = drawn
    real = as_real(x, codes)
    assert 0.01 <= real.outliers(others, other_codes).mean() <= 0.1
    assert real.two_sample_auc(others, other_codes) == pytest.approx(0.5, abs=0.07)


@pytest.mark.slow
def test_shuffled_columns_are_found_out_by_the_classifier(drawn):
    x, codes, others, other_codes = drawn
    generator = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: others[name].to_numpy()[generator.permutation(len(others))] for name in x})
    assert as_real(x, codes).two_sample_auc(shuffled.astype(x.dtypes), other_codes) > 0.85


def test_a_row_far_from_all_is_an_outlier(drawn):
    x, codes, others, other_codes = drawn
    far = others.assign(
        net=x["net"].max(), paid=x["paid"].max(), quantity=40, packed_on=14, credit_limit=40_000
    )
    assert as_real(x, codes).outliers(far, other_codes).mean() > 0.9


def test_immutable_features_do_not_give_a_row_away():
    """The rows differ from real ones in the immutable feature alone, and real rows with its values exist."""
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"age": generator.integers(20, 60, 2000), "income": generator.normal(size=2000)})
    old = pd.DataFrame({"age": generator.integers(50, 60, 100), "income": generator.normal(size=100)})
    codes = np.zeros(100, dtype=np.int64)
    assert as_real(frame).two_sample_auc(old, codes) > 0.7
    assert as_real(frame, immutable=("age",)).two_sample_auc(old, codes) == pytest.approx(0.5, abs=0.1)


def test_copies_of_real_rows_are_not_known_by_heart(drawn):
    x, codes, _, _ = drawn
    chosen = np.random.default_rng(2).choice(N, 100, replace=False)
    assert as_real(x, codes).two_sample_auc(x.iloc[chosen], codes[chosen]) == pytest.approx(0.5, abs=0.1)


def test_few_rows_and_outcomes_without_real_rows_have_no_figure(drawn):
    x, codes, others, other_codes = drawn
    real = as_real(x, codes)
    assert np.isnan(real.two_sample_auc(others.iloc[:9], other_codes[:9]))
    assert np.isnan(real.two_sample_auc(others, np.full(len(others), 7)))
    assert np.isnan(real.neighbour_distances(others.iloc[:2], np.array([7, 7]))).all()
    assert not real.outliers(others.iloc[:2], np.array([7, 7])).any()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figure(drawn):
    x, codes, others, other_codes = drawn
    first, again = (as_real(x, codes).two_sample_auc(others, other_codes, random_state=3) for _ in range(2))
    assert first == again


class _NeverContacted(Rule):
    """Four columns say "never contacted" together, or none does."""

    def broken(self, changes):
        after = changes.after
        return ((after["days_since_contact"] == -1) != (after["last_result"] == "none")).to_numpy()


def test_broken_logic_is_found_by_learned_rules_where_each_cell_is_real():
    x, _ = contacts.draw(n=400, seed=1)
    real = as_real(x, learned_rules=(_NeverContacted(),))
    broken = x.assign(last_result=x["last_result"].to_numpy()[::-1])
    logical = ((broken["days_since_contact"] == -1) == (broken["last_result"] == "none")).to_numpy()
    np.testing.assert_array_equal(real.learned_rules_broken(x, broken), ~logical)
    assert not real.learned_rules_broken(x, x).any()


def test_metrics_have_the_judges_of_another_kind():
    train, test = pf.load_table("loans").split(300, 30)
    model = pf.LinearClassifier()
    explainer = pf.Explainer(model, density=KDE(), confidence=None, judges=0)
    metrics = explainer.fit(train.x, train.y).explain(test.x).metrics()
    assert 0 < metrics["gower_distance"] < 1
    assert 0 <= metrics["gower_outliers"] <= 1
    assert 0 <= metrics["two_sample_auc"] <= 1
    assert metrics["learned_rules_broken"] == 0
