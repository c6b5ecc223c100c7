"""Unsupported regressors raise errors that name the reason, and wrong conversions are detected."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.svm import SVR

from conversion_tables import ROWS, encoder_of, fitted, preprocessing, table
from converted_regressors import converted, network, prices, reason
from plausiflow.errors import InvalidInputError
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.sklearn.conversion import convert_classifier, convert_regressor
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema


class Halved(Ridge):
    """A regressor of another package."""


class OwnScaler(StandardScaler):
    """A scaler of another package."""


def transformed(transformer=None, **functions):
    return TransformedTargetRegressor(Ridge(), transformer=transformer, **functions)


REFUSED = {
    "RandomForestRegressor is a regressor that cannot": RandomForestRegressor(3),
    "SVR is a regressor that cannot": SVR(),
    "GaussianProcessRegressor is a regressor that cannot": GaussianProcessRegressor(),
    "Halved is not a class of scikit-learn": Halved(),
    "<ufunc 'exp'> makes the prediction": transformed(func=np.log, inverse_func=np.exp),
    "PowerTransformer makes the prediction": transformed(PowerTransformer()),
    "QuantileTransformer makes the prediction": transformed(QuantileTransformer(n_quantiles=20)),
    "Pipeline makes the prediction": transformed(make_pipeline(StandardScaler(), MinMaxScaler())),
    "OwnScaler is not a class of scikit-learn": transformed(OwnScaler()),
    "SVR is a regressor": TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_model_that_cannot_be_converted_is_named(text):
    frame = table()
    model = fitted(make_pipeline(preprocessing(), clone(REFUSED[text])), frame, prices(frame))
    assert text in reason(model, frame)


def test_several_numbers_at_once_are_refused():
    frame = table()
    y = np.stack([prices(frame), prices(frame, seed=1)], axis=1)
    for estimator in (LinearRegression(), Ridge(), network("relu"), transformed(StandardScaler())):
        model = fitted(make_pipeline(preprocessing(), estimator), frame, y)
        assert "predicts 2 numbers for each row, not one" in reason(model, frame)


def test_what_is_no_fitted_regressor_is_named():
    frame = table(missing=0.0)[["age", "income"]]
    y = np.arange(ROWS) % 2
    classifier = LogisticRegression().fit(frame, y)
    cases = {
        "Ridge is not fitted": Ridge(),
        "Linear is not a class of scikit-learn": torch.nn.Linear(2, 1),
        "LogisticRegression is not a regressor": classifier,
        "Pipeline is not a regressor": make_pipeline(StandardScaler(), clone(classifier)).fit(frame, y),
        "StandardScaler is not a regressor": StandardScaler().fit(frame),
        "LogisticRegression is not a regressor, but predicts": fitted(
            TransformedTargetRegressor(LogisticRegression(), check_inverse=False), frame, y
        ),
        "takes columns that the table does not have: b": Ridge().fit(frame.set_axis(["age", "b"], axis=1), y),
        "an array of 3 columns without names; the table has 2": Ridge().fit(np.eye(3), [0, 1, 0]),
    }
    for text, model in cases.items():
        assert text in reason(model, frame), text


def test_a_regressor_is_no_classifier():
    frame = table(missing=0.0)[["age", "income"]]
    model = Ridge().fit(frame, np.arange(ROWS))
    with pytest.raises(UnsupportedModelError, match="Ridge is not a classifier"):
        convert_classifier(model, encoder_of(frame), frame)


def test_what_encoded_rows_do_not_hold_and_missing_cells_are_named():
    frame = table().assign(number=np.arange(ROWS))
    encoder = Encoder(Schema.infer(frame, kinds={"number": "identifier"}))
    model = Ridge().fit(frame[["age", "number"]], prices(frame))
    assert "the model uses `number`, an identifier" in reason(model, frame, encoder)
    seen = frame["rate"].notna()
    model = Ridge().fit(frame.loc[seen, ["age", "rate"]], prices(frame)[seen])
    assert "`rate` may be missing, and no imputer fills it" in reason(model, frame, encoder)


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_a_conversion_that_predicts_otherwise_is_not_claimed(size):
    """A difference counts relative to the size of the prediction."""
    frame = table()
    model = fitted(make_pipeline(preprocessing(), Ridge()), frame, prices(frame, size=size))
    own = model[-1].predict
    model[-1].predict = lambda x: own(x) * (1 + 1e-8)
    converted(model, frame)
    model[-1].predict = lambda x: own(x) + 1e-4 * size
    assert "Pipeline and its conversion differ by up to" in reason(model, frame)


def test_a_prediction_that_is_no_number_is_not_claimed():
    frame = table()
    model = fitted(make_pipeline(preprocessing(), Ridge()), frame, prices(frame))
    model[-1].predict = lambda x: np.full(len(x), np.nan)
    assert "differ by up to nan" in reason(model, frame)
    model[-1].coef_ = model[-1].coef_ * np.inf
    assert "its weights are not all finite" in reason(model, frame)


def test_a_transformer_that_cannot_be_converted_is_named():
    frame = table()
    number = make_pipeline(SimpleImputer(), FunctionTransformer(np.cbrt))
    model = fitted(make_pipeline(preprocessing(number), Ridge()), frame, prices(frame))
    assert "<ufunc 'cbrt'>, which cannot be converted" in reason(model, frame)


def test_a_model_and_torch_are_left_as_they_were():
    frame = table()
    model = fitted(make_pipeline(preprocessing(), transformed(StandardScaler())), frame, prices(frame))
    before, state = pickle.dumps(model), torch.get_rng_state()
    converted(model, frame)
    assert pickle.dumps(model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_a_sample_must_have_rows_of_the_table():
    frame = table()
    model = fitted(make_pipeline(preprocessing(), Ridge()), frame, prices(frame))
    encoder = encoder_of(frame)
    with pytest.raises(InvalidInputError, match="columns of the training table are missing: 'age'"):
        convert_regressor(model, encoder, frame.drop(columns="age"))
    for rows in (frame.iloc[:0], frame.assign(job="pilot")):
        assert "no row that can be encoded" in reason(model, rows, encoder)
