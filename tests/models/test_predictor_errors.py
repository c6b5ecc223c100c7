"""Models that cannot be predictors raise an error that says why."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.predictor import make_predictor, outputs_differ
from predictors import FRAME, NO_YES, NUMBERS, THREE, chance, outcomes, pipeline, score, two


def poor(frame):
    """Raises for some rows, and has no answer for others."""
    if (frame["age"] > 90).any():
        raise ValueError("too old")
    return np.where(frame["owns"], np.nan, chance(frame))


def noisy(frame):
    return chance(frame) + np.random.uniform(0, 1e-6, len(frame))  # noqa: NPY002


def centred(frame):
    return 1 / (1 + np.exp(-(score(frame) - score(frame).mean())))


def comparing(frame):
    return chance(frame) * 0.9 + 0.05 * (frame["age"].iloc[0] < frame["age"].iloc[-1]) * (len(frame) > 1)


def sorting(frame):
    return np.sort(chance(frame))


class Counting:
    """Changes with every call."""

    n = 0

    def __call__(self, frame):
        self.n += 1
        return chance(frame) * 0.9 + self.n * 1e-3


def of_several_rows(frame):
    if len(frame) == 1:
        raise IndexError("one row only")
    return chance(frame)


BAD = {
    "raises": (
        lambda f: 1 / 0,
        r"raised ZeroDivisionError for rows of shape \(120, 4\), first columns age int64",
    ),
    "alone": (of_several_rows, r"raised IndexError for rows of shape \(1, 4\).* any number of rows"),
    "NaN": (poor, r"of its predictions for 120 training rows \d+ are not finite"),
    "infinite": (lambda f: two(chance(f)) * np.inf, "120 are not finite"),
    "negative": (lambda f: two(-chance(f)), "120 are outside"),
    "logits": (lambda f: score(f) - 5, r"are outside \[0, 1\]"),
    "sum": (lambda f: two(chance(f)) * 0.9, "120 do not sum to one"),
    "rows": (
        lambda f: two(chance(f))[1:],
        r"must return .* for n = 120 rows; got ndarray of shape \(119, 2\)",
    ),
    "columns": (
        lambda f: np.full((len(f), 3), 1 / 3),
        r"shape \(n, 2\), in the order 'no', 'yes', or \(n,\)",
    ),
    "cube": (lambda f: two(chance(f))[None], r"got ndarray of shape \(1, 120, 2\)"),
    "nothing": (lambda f: None, "got NoneType"),
    "dictionary": (lambda f: {"no": chance(f)}, "got dict"),
    "ragged": (lambda f: [[0.5, 0.5]] * (len(f) - 1) + [[1.0]], "got list"),
    "other names": (lambda f: pd.DataFrame({"a": chance(f), "b": 1 - chance(f)}), "with columns 'a', 'b'"),
    "other labels": (
        lambda f: np.where(f["owns"], "Yes", "no"),
        r"out of 'no', 'yes'; .* are not known outcomes",
    ),
    "random": (noisy, "changes its predictions between calls .* random state"),
    "counting": (Counting(), "a function `Counting` must be deterministic; .* between calls for 120 of 120"),
    "centred": (centred, "depends on the other rows of the batch"),
    "comparing": (comparing, "depends on the other rows of the batch"),
    "sorting": (sorting, "depends on the other rows of the batch"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_function_is_refused_with_the_reason(bad):
    function, reason = BAD[bad]
    with pytest.raises(ModelError, match=reason):
        make_predictor(function, FRAME, NO_YES)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda f: two(chance(f)),
            r"must return finite numbers of shape \(n,\), for n = 120 rows; got ndarray",
        ),
        (lambda f: f["job"], "120 are not finite"),
        (lambda f: score(f) / np.where(f["owns"], 1, 0), "are not finite"),
        (lambda f: score(f) - score(f).mean(), "depends on the other rows"),
    ],
)
def test_a_bad_function_of_a_number_is_refused_with_the_reason(function, reason):
    with np.errstate(divide="ignore"), pytest.raises(ModelError, match=reason):
        make_predictor(function, FRAME, None)


def test_a_label_that_depends_on_the_other_rows_is_refused():
    with pytest.raises(ModelError, match="depends on the other rows of the batch"):
        make_predictor(lambda f: np.where(score(f) > score(f).mean(), "yes", "no"), FRAME, NO_YES)


REFUSED = {
    "a class": (RandomForestClassifier, NO_YES, "got the class RandomForestClassifier. Fit it"),
    "a word": ("forest", NO_YES, "a function of the table's rows; got str"),
    "a regressor": (LinearRegression().fit(NUMBERS, score(FRAME)), NO_YES, "LinearRegression is a regressor"),
    "a pipeline": (
        pipeline(RandomForestRegressor(3)).fit(FRAME, score(FRAME)),
        NO_YES,
        "Pipeline is a regressor",
    ),
    "a classifier": (
        LogisticRegression().fit(NUMBERS, outcomes(FRAME, NO_YES)),
        None,
        "LogisticRegression is a classifier",
    ),
    "margins": (LinearSVC().fit(NUMBERS, outcomes(FRAME, NO_YES)), None, "LinearSVC is a classifier"),
    "unknown": (
        SVC().fit(NUMBERS, outcomes(FRAME, NO_YES)),
        ("no", "si", "yes"),
        "knows, 'no', 'yes'; got 'si'",
    ),
    "other columns": (
        SVC().fit(NUMBERS.rename(columns={"age": "years"}), outcomes(FRAME, NO_YES)),
        NO_YES,
        "not have: years",
    ),
    "fewer columns": (
        SVC().fit(NUMBERS.to_numpy(dtype=float), outcomes(FRAME, NO_YES)),
        NO_YES,
        "an array of 3 columns",
    ),
    "two outcomes": (
        MultiOutputClassifier(DecisionTreeClassifier()).fit(
            NUMBERS, np.column_stack([outcomes(FRAME, NO_YES), outcomes(FRAME, THREE)])
        ),
        NO_YES,
        "must predict one outcome; MultiOutputClassifier predicts 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_of_the_table_is_refused(case):
    model, labels, reason = REFUSED[case]
    with pytest.raises(InvalidInputError, match=reason):
        make_predictor(model, FRAME, labels)


@pytest.mark.parametrize("model", [RandomForestClassifier(), pipeline(SVC()), LinearRegression()])
def test_a_model_that_is_not_fitted_is_refused(model):
    labels = None if isinstance(model, LinearRegression) else NO_YES
    with pytest.raises(ModelError, match=r"raised NotFittedError .*It must be fitted"):
        make_predictor(model, FRAME, labels)


def test_a_table_without_rows_is_refused():
    with pytest.raises(InvalidInputError, match="must hold training rows"):
        make_predictor(chance, FRAME.iloc[:0], NO_YES)


def test_rows_with_other_outputs_are_told_from_the_same():
    first = torch.tensor([[0.5, 0.5], [0.2, 0.8], [torch.nan] * 2, [torch.nan] * 2, [0.1, 0.9]])
    again = torch.tensor([[0.5, 0.5], [0.3, 0.7], [torch.nan] * 2, [0.4, 0.6], [0.1 + 1e-8, 0.9 - 1e-8]])
    assert outputs_differ(first, again).tolist() == [False, True, False, True, False]
    assert outputs_differ(first, again, tolerance=1e-9).tolist() == [False, True, False, True, True]
    values = torch.tensor([1e6, 1e6, 0.0])
    assert outputs_differ(values, values + torch.tensor([0.1, 10, 0.1])).tolist() == [False, True, True]
    assert outputs_differ(torch.zeros(0, 2), torch.zeros(0, 2)).tolist() == []
