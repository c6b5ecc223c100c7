"""Conversion of scikit-learn regressors: compared with the models on rows made with pandas."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    Ridge,
    RidgeCV,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVR

from conversion_tables import (
    LEVEL_STEPS,
    LEVELS,
    NUMBER_STEPS,
    NUMBERS,
    ROWS,
    any_columns,
    encoder_of,
    fitted,
    new_rows,
    preprocessing,
    table,
)
from converted_regressors import assert_same_numbers, converted, network, prices
from plausiflow.core.protocols import Classifier, Regressor
from plausiflow.errors import InvalidInputError, ShapeError

ESTIMATORS = {
    "least squares": LinearRegression(),
    "least squares without intercept": LinearRegression(fit_intercept=False),
    "positive least squares": LinearRegression(positive=True),
    "ridge": Ridge(),
    "ridge by cross-validation": RidgeCV(),
    "lasso": Lasso(),
    "lasso by cross-validation": LassoCV(cv=2, alphas=3),
    "elastic net": ElasticNet(),
    "elastic net by cross-validation": ElasticNetCV(cv=2, alphas=3),
    "gradient descent": SGDRegressor(random_state=0),
    "averaged gradient descent": SGDRegressor(average=True, loss="huber", random_state=0),
    "support vectors": LinearSVR(random_state=0, max_iter=200),
    "Huber": HuberRegressor(max_iter=20),
    "Bayesian ridge": BayesianRidge(),
    "identity network": network("identity"),
    "logistic network": network("logistic"),
    "tanh network": network("tanh"),
    "relu network": network("relu"),
    "grid": GridSearchCV(Ridge(), {"alpha": [0.1, 1]}, cv=2),
}
TARGETS = {
    "standardised": StandardScaler(),
    "only centred": StandardScaler(with_std=False),
    "ranged": MinMaxScaler((-2, 5)),
    "ranged and clipped": MinMaxScaler(clip=True),
    "over its largest": MaxAbsScaler(),
    "robust": RobustScaler(),
    "untouched": None,
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_keeps_its_predictions(name):
    frame = table()
    model = fitted(make_pipeline(preprocessing(), clone(ESTIMATORS[name])), frame, prices(frame))
    encoder = encoder_of(frame)
    assert_same_numbers(model, converted(model, frame, encoder), encoder, new_rows(frame))


@pytest.mark.parametrize("inside", [False, True], ids=["around the pipeline", "in the pipeline"])
@pytest.mark.parametrize("name", TARGETS)
def test_a_scaled_target_is_scaled_back(name, inside):
    frame = table()
    target = None if TARGETS[name] is None else clone(TARGETS[name])
    if inside:
        model = make_pipeline(preprocessing(), TransformedTargetRegressor(Ridge(), transformer=target))
    else:
        model = TransformedTargetRegressor(
            make_pipeline(preprocessing(), network("tanh")), transformer=target
        )
    model, encoder = fitted(model, frame, prices(frame)), encoder_of(frame)
    assert_same_numbers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_a_network_of_counts_predicts_by_the_exponential_function():
    if "loss" not in MLPRegressor().get_params():
        pytest.skip("this scikit-learn has no MLPRegressor of counts")
    frame = table()
    model = make_pipeline(preprocessing(), network("tanh", loss="poisson"))
    model, encoder = fitted(model, frame, np.rint(prices(frame, size=2.0))), encoder_of(frame)
    assert model[-1].out_activation_ == "exp"
    assert_same_numbers(model, converted(model, frame, encoder), encoder, new_rows(frame))


ANY_PIPELINE = {
    "seed": st.integers(0, 10_000),
    "kept": st.sets(st.sampled_from(NUMBERS + LEVELS), min_size=2),
    "number": st.sampled_from(sorted(NUMBER_STEPS)),
    "level": st.sampled_from(sorted(set(LEVEL_STEPS) - {"constant and one-hot", "selected"})),
    "estimator": st.sampled_from(sorted(ESTIMATORS)),
    "target": st.sampled_from(sorted(TARGETS)),
    "size": st.sampled_from([1e-3, 1.0, 1e6]),
    "remainder": st.booleans(),
    "pandas": st.booleans(),
}


def check_any_pipeline(seed, kept, number, level, estimator, target, size, remainder, pandas):
    frame = table(seed)
    order = np.random.default_rng(seed).permutation(sorted(kept)).tolist()
    columns = any_columns(order, NUMBER_STEPS[number], LEVEL_STEPS[level], remainder, pandas)
    scaler = None if TARGETS[target] is None else clone(TARGETS[target])
    model = TransformedTargetRegressor(
        make_pipeline(columns, clone(ESTIMATORS[estimator])), transformer=scaler
    )
    try:
        model = fitted(model, frame[order], prices(frame, seed, size))
    except ValueError:  # an imputer that takes text and categories takes no categories alone
        reject()
    encoder, rows = encoder_of(frame), new_rows(frame, seed)
    regressor = converted(model, frame, encoder)
    own, predicted = regressor.values(encoder.encode(rows).x).numpy(), model.predict(rows[order])
    np.testing.assert_allclose(own, predicted, rtol=1e-6, atol=1e-6 * size)


@settings(max_examples=8)
@given(st.fixed_dictionaries(ANY_PIPELINE))
def test_a_pipeline_of_some_table_has_the_predictions_of_the_model(drawn):
    check_any_pipeline(**drawn)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.fixed_dictionaries(ANY_PIPELINE))
def test_any_pipeline_of_any_table_has_the_predictions_of_the_model(drawn):
    check_any_pipeline(**drawn)


def test_a_target_given_as_a_table_of_one_column_is_one_number():
    frame = table()
    y = pd.DataFrame({"price": prices(frame)})
    encoder = encoder_of(frame)
    for estimator in (LinearRegression(), TransformedTargetRegressor(transformer=StandardScaler())):
        model = fitted(make_pipeline(preprocessing(), estimator), frame, y)
        assert model.predict(frame).shape == (ROWS, 1)
        assert_same_numbers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_a_fitted_model_that_was_made_sparse_or_frozen_afterwards_is_exact():
    frame = table()
    model = make_pipeline(preprocessing(), SGDRegressor(penalty="l1", random_state=0))
    model, encoder = fitted(model, frame, prices(frame)), encoder_of(frame)
    model[-1].sparsify()
    for each in (model, FrozenEstimator(model)):
        assert_same_numbers(each, converted(each, frame, encoder), encoder, new_rows(frame))


def test_a_model_of_an_array_takes_the_columns_in_the_order_of_the_table():
    frame = table(missing=0.0)[["age", "income", "gain", "owns", "lines"]]
    model = fitted(make_pipeline(StandardScaler(), Ridge()), frame.to_numpy(), prices(table(missing=0.0)))
    encoder = encoder_of(frame)
    rows = new_rows(table(missing=0.0))[frame.columns.tolist()]
    assert_same_numbers(model, converted(model, frame[frame.columns[::-1]], encoder), encoder, rows)


@pytest.mark.parametrize(
    ("number", "estimator", "target"),
    [
        ("standard", "least squares", "ranged"),
        ("products", "ridge", "untouched"),
        ("both", "tanh network", "standardised"),
        ("clipped range", "logistic network", "robust"),
        ("components", "relu network", "standardised"),
    ],
)
def test_gradients_are_those_of_finite_differences(number, estimator, target):
    frame = table()
    model = make_pipeline(preprocessing(clone(NUMBER_STEPS[number])), clone(ESTIMATORS[estimator]))
    model = TransformedTargetRegressor(model, transformer=TARGETS[target])
    model, encoder = fitted(model, frame, prices(frame, size=1.0)), encoder_of(frame)
    x = encoder.encode(frame.iloc[:4]).x
    x[:, encoder.layout.numbers] = x[:, encoder.layout.numbers].clamp(0.05, 0.95)
    assert torch.autograd.gradcheck(converted(model, frame, encoder).values, x.requires_grad_())


def test_the_gradient_of_a_linear_model_is_its_weight_over_the_range_of_the_column():
    frame = table(missing=0.0)[["age", "rate"]]
    model = LinearRegression().fit(frame, prices(table(missing=0.0)))
    encoder = encoder_of(frame)
    x = encoder.encode(frame).x.requires_grad_()
    (gradient,) = torch.autograd.grad(converted(model, frame, encoder).values(x).sum(), x)
    expected = model.coef_ * np.ptp(frame.to_numpy(), axis=0)
    np.testing.assert_allclose(gradient.numpy(), np.tile(expected, (ROWS, 1)), rtol=1e-9)


@pytest.fixture(scope="module")
def simple():
    """Return a converted model, and encoded rows."""
    frame = table()
    model = make_pipeline(preprocessing(), network("relu"))
    model = fitted(TransformedTargetRegressor(model, transformer=StandardScaler()), frame, prices(frame))
    encoder = encoder_of(frame)
    return converted(model, frame, encoder), encoder.encode(frame).x


def test_it_is_a_regressor_and_says_what_it_is(simple):
    regressor, x = simple
    assert isinstance(regressor, Regressor)
    assert not isinstance(regressor, Classifier)
    assert regressor.differentiable
    assert regressor.n_features == x.shape[1]
    assert regressor.kind == "TransformedTargetRegressor"
    assert repr(regressor) == "ConvertedRegressor(TransformedTargetRegressor)"


def test_it_follows_the_precision_and_the_device_of_its_rows(simple, device):
    regressor, x = simple
    single = regressor.values(x.float().to(device))
    assert single.dtype == torch.float32
    assert single.device.type == device.type
    torch.testing.assert_close(single.double().cpu(), regressor.values(x), rtol=1e-4, atol=0)


def test_copies_and_pickles_answer_alike(simple):
    regressor, x = simple
    for other in (copy.deepcopy(regressor), pickle.loads(pickle.dumps(regressor))):
        torch.testing.assert_close(other.values(x), regressor.values(x), rtol=0, atol=0)


def test_rows_are_independent(simple):
    regressor, x = simple
    alone = torch.cat([regressor.values(row[None]) for row in x[:8]])
    torch.testing.assert_close(alone, regressor.values(x)[:8], rtol=1e-12, atol=0)
    assert regressor.values(x[:0]).shape == (0,)


def test_rows_of_another_shape_or_type_are_named(simple):
    regressor, x = simple
    with pytest.raises(ShapeError, match=r"must have shape \(n, \d+\).* got \(150, 3\)"):
        regressor.values(x[:, :3])
    with pytest.raises(InvalidInputError, match=r"float tensor; got torch.int64"):
        regressor.values(x.long())
