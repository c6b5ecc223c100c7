"""SearchResult keep missing values and locks, differ from each other, and change what costs least."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from explaining import stand_in
from plausiflow import Explainer, LinearClassifier
from plausiflow.constraints import Immutable
from plausiflow.errors import InvalidInputError
from searching import ORDERS, applicants

# ---------------------------------------------------------------- missing values


@pytest.fixture(scope="module")
def gaps():
    return applicants(200, missing=True)


def test_kept_missing_values_stay_missing_and_the_model_sees_them(gaps):
    explainer = stand_in(gaps, push={"income": 4.0, "job": 0.5, "gain": 0.5}, orders=ORDERS)
    rows = gaps[gaps["gain"].isna() | gaps["job"].isna()].head(6)
    result = explainer.explain(rows)
    assert result.status["status"].tolist() == ["found"] * 6
    assert_frame_equal(result.counterfactuals.isna(), rows.isna())
    assert (explainer.predict(result.counterfactuals) == result.status["target"]).all()
    filled = rows.assign(job=rows["job"].fillna("clerk"), gain=rows["gain"].fillna(0.0))
    assert not explainer.predict_proba(rows).equals(explainer.predict_proba(filled))


def test_rows_with_all_values_keep_them(gaps):
    explainer = stand_in(gaps, push={"income": 4.0, "job": 0.5, "gain": 0.5}, orders=ORDERS)
    result = explainer.explain(gaps.dropna().head(6))
    assert not result.counterfactuals.isna().any(axis=None)


def test_a_value_that_no_training_row_misses_makes_a_row_invalid(by_income, frame):
    rows = frame.iloc[:2].astype({"age": float})
    rows.iloc[0, 0] = np.nan
    result = by_income.explain(rows)
    assert result.status["status"].tolist() == ["invalid_input", "found"]
    reason = result.status["reason"].iloc[0]
    assert "`age` is nan, but no training row has a missing value" in reason
    assert 'missing="impute" fills it with' in reason


def test_imputed_values_are_the_median_and_the_most_common_level(gaps):
    explainer = stand_in(gaps, push={"income": 4.0}, missing="impute", orders=ORDERS)
    rows = gaps[gaps["gain"].isna() & gaps["job"].isna()].head(2)
    assert len(rows) == 2
    result = explainer.explain(rows)
    assert not result.counterfactuals.isna().any(axis=None)
    assert (result.counterfactuals["job"] == gaps["job"].mode()[0]).all()
    middle = gaps["gain"].dropna().sort_values().iloc[(gaps["gain"].notna().sum() - 1) // 2]
    assert (result.counterfactuals["gain"] == middle).all()
    filled = rows.assign(job=gaps["job"].mode()[0], gain=middle)
    assert explainer.predict_proba(rows).equals(explainer.predict_proba(filled))


def test_columns_that_lack_and_columns_too_many_are_one_error(by_income, frame):
    with pytest.raises(InvalidInputError) as raised:
        by_income.explain(frame.drop(columns=["age", "job"]).assign(height=1))
    assert "are missing: 'age', 'job'" in str(raised.value)
    assert "did not have the columns 'height'; drop them" in str(raised.value)


# ---------------------------------------------------------------- several answers, locks, weights


def test_several_answers_differ_and_the_cheapest_comes_first(frame):
    explainer = stand_in(frame, [Immutable("age")], push={"income": 3.0, "savings": 2.0, "job": 1.0})
    rows = frame.iloc[:4]
    one, several = explainer.explain(rows), explainer.explain(rows, k=3)
    count = several.status["answers"]
    said = several.status["reason"].str.contains("no counterfactual was found that needs other changes")
    assert ((count == 3) | said).all()
    assert (count == 3).sum() >= 3
    assert ((count == 3) != said).all()
    for i in range(4):
        costs = several.figures["cost"][several.of == i].tolist()
        assert costs == sorted(costs)
        assert costs[0] <= one.figures["cost"].iloc[i] + 1e-12
    assert not pd.concat([several.answers, pd.Series(several.of, name="of")], axis=1).duplicated().any()
    assert (explainer.predict(several.answers) == several.status["target"].iloc[several.of].to_numpy()).all()
    ranks = [rank for own in count for rank in range(1, own + 1)]
    assert several.alternatives.index.get_level_values("rank").tolist() == ranks


@pytest.mark.parametrize("form", ["names", "names by row", "table", "one column"])
def test_locked_features_keep_their_values_however_they_are_given(frame, form):
    explainer = stand_in(frame, push={"income": 2.0, "savings": 2.0, "age": 6.0}, orders=ORDERS)
    rows = frame.iloc[:3]
    locked = {
        "names": ["income", "savings"],
        "names by row": [["income"], (), {"savings", "age"}],
        "table": pd.DataFrame(True, index=[5, 5, 5], columns=["income", "savings"]),
        "one column": pd.DataFrame({"income": [True, False, True]}),
    }[form]
    kept = {
        "names": [["income", "savings"]] * 3,
        "names by row": [["income"], [], ["savings", "age"]],
        "table": [["income", "savings"]] * 3,
        "one column": [["income"], [], ["income"]],
    }[form]
    result = explainer.explain(rows, locked=locked)
    assert result.status["status"].tolist() == ["found"] * 3
    for i, names in enumerate(kept):
        assert result.counterfactuals[names].iloc[[i]].equals(rows[names].iloc[[i]])


def test_what_costs_more_changes_less(frame):
    def changes(weights):
        explainer = stand_in(
            frame[["income", "savings"]], push={"income": 3.0, "savings": 3.0}, weights=weights
        )
        result = explainer.explain(frame[["income", "savings"]].iloc[:5])
        return result.changes["feature"].value_counts()

    assert changes({"savings": 400.0}).index.tolist()[:1] == ["income"]
    assert changes({"income": 400.0}).index.tolist()[:1] == ["savings"]
    assert "savings" not in changes({"savings": 400.0})
    assert "income" not in changes({"income": 400.0})


@pytest.mark.parametrize("weight", [0, -1, np.nan, np.inf, "2", None, True, [1]], ids=repr)
def test_a_weight_must_be_a_positive_number(frame, weight):
    with pytest.raises(InvalidInputError, match="the weight of 'income' must be a positive number; got"):
        Explainer(LinearClassifier(), weights={"income": weight}).fit(frame, frame["owns"])


def test_weights_of_unknown_features_are_refused_all_at_once(frame):
    explainer = Explainer(LinearClassifier(), weights={"incme": 2, "age": -2}, kinds={"age": "integer"})
    with pytest.raises(
        InvalidInputError,
        match="'incme' is not a feature that can change; the weight of 'age' must be",
    ):
        explainer.fit(frame, frame["owns"])


def test_the_result_does_not_change_with_the_table_that_was_asked_about(by_income, frame):
    rows = frame.iloc[:3].copy()
    result = by_income.explain(rows)
    rows["income"] = 0
    assert result.rows.equals(frame.iloc[:3])
