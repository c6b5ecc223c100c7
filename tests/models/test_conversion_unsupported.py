"""Unsupported models raise errors that name the reason, and wrong conversions are detected."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
)
from sklearn.svm import SVC, LinearSVC

from conversion_tables import ROWS, encoder_of, fitted, preprocessing, table
from converted_classifiers import assert_same_answers, converted, outcomes, reason
from plausiflow.errors import InvalidInputError
from plausiflow.models.sklearn.conversion import convert_classifier
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema


class Halved(TransformerMixin, BaseEstimator):
    """A transformer of another package."""

    def fit(self, x, y=None):
        self.fitted_ = True
        return self

    def transform(self, x):
        return x / 2


class Sharper(LogisticRegression):
    """A classifier of another package."""


REFUSED_NUMBERS = {
    "<ufunc 'cbrt'>, which cannot be converted": FunctionTransformer(np.cbrt),
    "Halved is not a class of scikit-learn": Halved(),
    "PowerTransformer of the number `age`": PowerTransformer(),
    "QuantileTransformer of the number `age`": QuantileTransformer(n_quantiles=20),
    "KBinsDiscretizer of the number `age`": KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    "kinds={'age': 'category'}": OneHotEncoder(handle_unknown="ignore"),
    "SimpleImputer fills the number `age` where it is 0": SimpleImputer(missing_values=0),
}
REFUSED_MODELS = {
    "RandomForestClassifier is a classifier that cannot": RandomForestClassifier(3),
    "SVC is a classifier that cannot": SVC(),
    "Sharper is not a class of scikit-learn": Sharper(),
    "modified_huber": SGDClassifier(loss="modified_huber", random_state=0),
    "'isotonic'; only 'sigmoid' is smooth": CalibratedClassifierCV(LinearSVC(), cv=2, method="isotonic"),
    "VotingClassifier counts votes": VotingClassifier([("a", LogisticRegression())]),
    "a class has no prior": GaussianNB(priors=[1.0, 0.0]),
}


@pytest.mark.parametrize("text", REFUSED_NUMBERS)
def test_a_transformer_that_cannot_be_converted_is_named(text):
    frame = table()
    number = make_pipeline(SimpleImputer(), clone(REFUSED_NUMBERS[text]))
    model = make_pipeline(preprocessing(number), LogisticRegression())
    assert text in reason(fitted(model, frame, outcomes(frame, ["a", "b"])), frame)


@pytest.mark.parametrize("text", REFUSED_MODELS)
def test_a_model_that_cannot_be_converted_is_named(text):
    frame = table()
    model = make_pipeline(preprocessing(), clone(REFUSED_MODELS[text]))
    assert text in reason(fitted(model, frame, outcomes(frame, ["a", "b"])), frame)


def test_what_is_no_fitted_classifier_is_named():
    frame = table(missing=0.0)[["age", "income"]]
    y = np.arange(ROWS) % 2
    several = MLPClassifier((3,), max_iter=3)
    cases = {
        "LogisticRegression is not fitted": LogisticRegression(),
        "Linear is not a class of scikit-learn": torch.nn.Linear(2, 2),
        "LinearRegression is not a classifier": LinearRegression().fit(frame, y),
        "MLPClassifier has 2 outputs by logistic": fitted(several, frame, np.stack([y, 1 - y], axis=1)),
        "takes columns that the table does not have: b": LogisticRegression().fit(
            frame.set_axis(["age", "b"], axis=1), y
        ),
        "an array of 3 columns without names; the table has 2": LogisticRegression().fit(
            np.eye(3), [0, 1, 0]
        ),
    }
    for text, model in cases.items():
        assert text in reason(model, frame), text


def test_what_encoded_rows_do_not_hold_cannot_be_used():
    frame = table()
    frame["note"] = [f"note {i}" for i in range(ROWS)]
    frame["country"] = ["X", None] * (ROWS // 2)
    encoder = Encoder(Schema.infer(frame, kinds={"note": "identifier"}))
    y = outcomes(frame, ["a", "b"])

    def model_of(column):
        columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [column, "owns"]))
        return fitted(make_pipeline(columns, LogisticRegression()), frame, y)

    assert "the model uses `note`, an identifier" in reason(model_of("note"), frame, encoder)
    assert "the model uses `country`, a constant that some rows miss" in reason(
        model_of("country"), frame, encoder
    )
    assert_same_answers(model_of("job"), converted(model_of("job"), frame, encoder), encoder, frame)


def test_missing_cells_and_text_that_reach_the_estimator_are_named():
    frame = table()
    y = outcomes(frame, ["a", "b"])
    model = fitted(LogisticRegression(), frame[["age", "rate"]].dropna(), y[frame["rate"].notna()])
    assert "`rate` may be missing, and no imputer fills it" in reason(model, frame)
    digits = table(missing=0.0).assign(
        job=lambda rows: rows["job"].map({"clerk": "1", "nurse": "2", "smith": "3"})
    )
    model = fitted(LogisticRegression(), digits[["age", "job"]], y)
    assert "`job` is text" in reason(model, digits)


def test_a_conversion_that_answers_otherwise_is_not_claimed():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression())
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    model[-1].predict_proba = lambda x: np.full((len(x), 2), 0.5)
    assert "Pipeline and its conversion differ by up to" in reason(model, frame)


def test_single_precision_is_told_where_it_makes_the_difference():
    """The model subtracts two large numbers, whose last bits single precision loses."""
    first = np.random.default_rng(0).normal(3000, 500, ROWS)
    frame = pd.DataFrame({"before": first, "after": first + np.sin(np.arange(ROWS))}).astype("float32")
    model = LogisticRegression(fit_intercept=False).fit(frame, frame["after"] > frame["before"])
    model.coef_ = np.array([[-7.3, 7.3]], dtype=np.float32)
    assert "; it is given single precision, double may do" in reason(model, frame)
    converted(LogisticRegression().fit(frame.astype(float), frame["after"] > 3000), frame.astype(float))


def test_a_sample_must_have_rows_of_the_table():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression())
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    encoder = encoder_of(frame)
    with pytest.raises(InvalidInputError, match="columns of the training table are missing: 'age'"):
        convert_classifier(model, encoder, frame.drop(columns="age"))
    for rows in (frame.iloc[:0], frame.assign(job="pilot")):
        assert "no row that can be encoded" in reason(model, rows, encoder)
