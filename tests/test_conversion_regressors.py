"""Conversion of scikit-learn regressors: their own predictions on rows made with pandas are the truth."""

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
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeCV,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVR, LinearSVR

from converting import (
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
from plausiflow.classifiers.conversion import convert, convert_regressor
from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Schema
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.protocols import Classifier, Regressor


def prices(frame, seed=0, size=1000.0) -> np.ndarray:
    """Positive numbers that have something to do with the columns."""
    rng = np.random.default_rng(seed)
    score = frame["age"] / 20 + frame["owns"] + frame["rate"].fillna(0) + rng.normal(size=len(frame))
    return size * np.log1p(np.exp(score.to_numpy(dtype=float)))


def converted(model, frame, encoder=None):
    conversion = convert_regressor(model, encoder or encoder_of(frame), frame)
    assert conversion.regressor is not None, conversion.reason
    assert conversion.reason == ""
    return conversion.regressor


def reason(model, frame, encoder=None) -> str:
    conversion = convert_regressor(model, encoder or encoder_of(frame), frame)
    assert conversion.regressor is None
    return conversion.reason


def assert_same_numbers(model, regressor, encoder, rows, columns=None):
    """The model on the rows, against the conversion on the encoded rows."""
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    given_rows = rows if columns is None else rows[columns]
    given_rows = given_rows if hasattr(model, "feature_names_in_") else given_rows.to_numpy()
    predicted = np.ravel(model.predict(given_rows))
    own = regressor.values(encoded.x)
    assert own.shape == (len(rows),)
    np.testing.assert_allclose(own.numpy(), predicted, rtol=1e-6, atol=1e-6)
    assert np.ptp(predicted) > 1e-3


def network(activation, **settings):
    return MLPRegressor(
        hidden_layer_sizes=(6, 4), activation=activation, max_iter=5, random_state=0, **settings
    )


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


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    kept=st.sets(st.sampled_from(NUMBERS + LEVELS), min_size=2),
    number=st.sampled_from(sorted(NUMBER_STEPS)),
    level=st.sampled_from(sorted(set(LEVEL_STEPS) - {"constant and one-hot", "selected"})),
    estimator=st.sampled_from(sorted(ESTIMATORS)),
    target=st.sampled_from(sorted(TARGETS)),
    size=st.sampled_from([1e-3, 1.0, 1e6]),
    remainder=st.booleans(),
    pandas=st.booleans(),
)
def test_any_pipeline_of_any_table_has_the_predictions_of_the_model(
    seed, kept, number, level, estimator, target, size, remainder, pandas
):
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
    """A converted model, its encoder and encoded rows."""
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


class Halved(Ridge):
    """A regressor of somebody else's that answers otherwise."""


class OwnScaler(StandardScaler):
    """A scaler of somebody else's."""


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
    assert "Ridge is not a classifier" in convert(model, encoder_of(frame), frame).reason


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
    assert "of which nothing is known" in reason(model, frame)


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
    with pytest.raises(InvalidInputError, match="columns of the training table are not there: 'age'"):
        convert_regressor(model, encoder, frame.drop(columns="age"))
    for rows in (frame.iloc[:0], frame.assign(job="pilot")):
        assert "no row that can be encoded" in reason(model, rows, encoder)
