"""Outcomes are paired with rows by index; warnings name outcomes."""

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier
from plausiflow.core import TargetCriterion
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.models import pair_outcomes
from plausiflow.search.targets import outcome_names

X = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40) % 7}, index=np.arange(100, 140))
Y = pd.Series(np.where(X["a"] > 20, "high", "low"), index=X.index)


def trained_on(y):
    settings = {"density": KDE(), "confidence": None, "judges": 0}
    return Explainer(LinearClassifier(), **settings).fit(X, y).context_.y_train.tolist()


def test_outcomes_in_another_order_are_paired_by_index():
    assert trained_on(Y.sample(frac=1, random_state=0)) == trained_on(Y) == trained_on(Y.to_numpy())


@pytest.mark.parametrize("y", [Y.reset_index(drop=True), Y.to_list(), Y.to_numpy()])
def test_outcomes_without_labels_of_their_own_keep_their_order(y):
    assert list(pair_outcomes(X.index, y)) == Y.to_list()


def test_rows_without_labels_of_their_own_keep_their_order():
    assert pair_outcomes(pd.RangeIndex(40), Y).tolist() == Y.to_list()


@pytest.mark.parametrize(
    "index",
    [
        np.arange(101, 141),  # one row later
        np.repeat(np.arange(100, 120), 2),  # every label twice
        [f"row {i}" for i in range(40)],  # labels of another table
    ],
)
def test_an_index_that_clashes_is_an_error(index):
    with pytest.raises(InvalidInputError, match=r"`y` must have the index of `x`.*pass `y.to_numpy\(\)`"):
        trained_on(Y.set_axis(index))


def test_a_wrong_number_of_outcomes_is_reported_as_such():
    with pytest.raises(ValueError, match="`y` must have 40 outcomes"):
        trained_on(Y[:-1])


def test_outcomes_are_named_by_label_or_interval():
    assert outcome_names(("no", 3), TargetCriterion()) == ["'no'", "3"]
    numbers = TargetCriterion(edges=(-np.inf, 10.0, 25.5, np.inf))
    assert outcome_names((), numbers) == ["at most 10", "10 to 25.5", "at least 25.5"]
