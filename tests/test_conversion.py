"""Conversion of scikit-learn models: the models' own answers on rows made with pandas are the truth."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

from converting import (
    FILLED,
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
from plausiflow.classifiers.base import predict
from plausiflow.classifiers.conversion import convert
from plausiflow.classifiers.preprocessing import positions
from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Schema
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.protocols import Classifier

LABELS = {"text": ["yes", "no", "maybe"], "integer": [7, -1, 3], "boolean": [True, False]}


def outcomes(frame, labels, seed=0) -> np.ndarray:
    """Classes that have something to do with the columns."""
    rng = np.random.default_rng(seed)
    score = frame["age"] / 20 + frame["owns"] + frame["rate"].fillna(0) + rng.normal(size=len(frame))
    return np.array(labels)[pd.qcut(score, len(labels), labels=False)]


def converted(model, frame, encoder=None):
    conversion = convert(model, encoder or encoder_of(frame), frame)
    assert conversion.classifier is not None, conversion.reason
    assert conversion.reason == ""
    return conversion.classifier


def reason(model, frame, encoder=None) -> str:
    conversion = convert(model, encoder or encoder_of(frame), frame)
    assert conversion.classifier is None
    return conversion.reason


def assert_same_answers(model, classifier, encoder, rows, columns=None):
    """The model on the rows, against the conversion on the encoded rows."""
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    given_rows = rows if columns is None else rows[columns]
    given_rows = given_rows if hasattr(model, "feature_names_in_") else given_rows.to_numpy()
    logits = classifier.logits(encoded.x)
    assert torch.isfinite(logits).all()
    if classifier.probabilities:
        own = logits.softmax(dim=1).numpy()
        np.testing.assert_allclose(own, model.predict_proba(given_rows), rtol=0, atol=1e-6)
    decided = np.diff(np.sort(logits.numpy(), axis=1)[:, -2:], axis=1)[:, 0] > 1e-9
    labels = np.array(classifier.classes)[predict(classifier, encoded.x).numpy()]
    assert (labels == model.predict(given_rows))[decided].all()
    assert decided.mean() > 0.9


ESTIMATORS = {
    "logistic": LogisticRegression(max_iter=200),
    "logistic without intercept": LogisticRegression(fit_intercept=False, C=0.1),
    "logistic by cross-validation": LogisticRegressionCV(
        Cs=2, cv=2, l1_ratios=(0.0,), use_legacy_attributes=False
    ),
    "gradient descent": SGDClassifier(loss="log_loss", random_state=0),
    "discriminant": LinearDiscriminantAnalysis(),
    "shrunk discriminant": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3),
    "quadratic discriminant": QuadraticDiscriminantAnalysis(reg_param=0.3),
    "naive Bayes": GaussianNB(),
    "identity network": MLPClassifier((5,), activation="identity", max_iter=5, random_state=0),
    "logistic network": MLPClassifier((5,), activation="logistic", max_iter=5, random_state=0),
    "tanh network": MLPClassifier((6, 4), activation="tanh", max_iter=5, random_state=0),
    "relu network": MLPClassifier((6, 4), max_iter=5, random_state=0),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
    "calibrated once": CalibratedClassifierCV(LogisticRegression(), cv=2, ensemble=False),
    "calibrated probabilities": CalibratedClassifierCV(GaussianNB(), cv=2),
    "calibrated quadratic": CalibratedClassifierCV(QuadraticDiscriminantAnalysis(reg_param=0.5), cv=2),
    "voting": VotingClassifier(
        [
            ("a", LogisticRegression()),
            ("b", GaussianNB()),
            ("c", "drop"),
            ("d", LinearDiscriminantAnalysis()),
        ],
        voting="soft",
        weights=[2, 1, 5, 0],
    ),
    "grid": GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2),
    "random search": RandomizedSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2, n_iter=1),
}
MARGINS = {
    "support vectors": LinearSVC(),
    "hinge": SGDClassifier(random_state=0),
    "ridge": RidgeClassifier(),
    "perceptron": Perceptron(random_state=0),
}


@pytest.mark.parametrize("labels", [LABELS["text"], LABELS["boolean"]], ids=["text", "boolean"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_keeps_its_probabilities(name, labels):
    frame = table()
    model = fitted(make_pipeline(preprocessing(), clone(ESTIMATORS[name])), frame, outcomes(frame, labels))
    encoder = encoder_of(frame)
    classifier = converted(model, frame, encoder)
    assert classifier.probabilities
    assert classifier.classes == tuple(sorted(labels))
    assert classifier.n_classes == len(labels)
    assert_same_answers(model, classifier, encoder, new_rows(frame))


@pytest.mark.parametrize("labels", [LABELS["integer"], LABELS["boolean"]], ids=["integer", "boolean"])
@pytest.mark.parametrize("name", MARGINS)
def test_a_model_without_probabilities_keeps_its_decision(name, labels):
    frame = table()
    model = fitted(make_pipeline(preprocessing(), clone(MARGINS[name])), frame, outcomes(frame, labels))
    encoder, rows = encoder_of(frame), new_rows(frame)
    classifier = converted(model, frame, encoder)
    assert not classifier.probabilities
    assert_same_answers(model, classifier, encoder, rows)
    logits, decision = classifier.logits(encoder.encode(rows).x).numpy(), model.decision_function(rows)
    own = logits[:, 1] - logits[:, 0] if len(labels) == 2 else logits
    np.testing.assert_allclose(own, decision, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NUMBER_STEPS)
def test_a_transformer_of_numbers_is_exact(name):
    frame = table()
    model = make_pipeline(preprocessing(number=clone(NUMBER_STEPS[name])), LogisticRegression(max_iter=50))
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


@pytest.mark.parametrize("name", LEVEL_STEPS)
def test_a_transformer_of_levels_is_exact(name):
    frame = table()
    mixed = "fill_value" in str(LEVEL_STEPS[name])  # a filling of text needs columns of text
    columns = ["job"] if mixed else LEVELS
    level = ("levels", clone(LEVEL_STEPS[name]), columns)
    model = make_pipeline(ColumnTransformer([level]), LogisticRegression(max_iter=50))
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b", "c"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


@pytest.mark.parametrize("keep", [False, True])
def test_a_column_that_the_model_never_sawFILLED_is_dropped_orFILLED_as_the_model_does(keep):
    frame = table()
    unseen = frame[frame["rate"].isna()]
    number = make_pipeline(SimpleImputer(keep_empty_features=keep, add_indicator=True), StandardScaler())
    model = make_pipeline(preprocessing(number), LogisticRegression())
    model, encoder = fitted(model, unseen, outcomes(unseen, ["a", "b"])), encoder_of(frame)
    classifier = converted(model, frame, encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same_answers(model, classifier, encoder, new_rows(frame))


def test_a_fitted_model_that_was_calibrated_or_made_sparse_afterwards_is_exact():
    frame = table()
    y = outcomes(frame, ["a", "b", "c"])
    model = fitted(make_pipeline(preprocessing(), SGDClassifier(penalty="l1", random_state=0)), frame, y)
    model[-1].sparsify()
    calibrated, encoder = fitted(CalibratedClassifierCV(FrozenEstimator(model)), frame, y), encoder_of(frame)
    for each in (model, calibrated):
        assert_same_answers(each, converted(each, frame, encoder), encoder, new_rows(frame))


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    kept=st.sets(st.sampled_from(NUMBERS + LEVELS), min_size=2),
    number=st.sampled_from(sorted(NUMBER_STEPS)),
    level=st.sampled_from(sorted(set(LEVEL_STEPS) - {"constant and one-hot", "selected"})),
    estimator=st.sampled_from(sorted(set(ESTIMATORS) - {"quadratic discriminant", "calibrated quadratic"})),
    labels=st.sampled_from(sorted(LABELS)),
    remainder=st.booleans(),
    pandas=st.booleans(),
)
def test_any_pipeline_of_any_table_has_the_answers_of_the_model(
    seed, kept, number, level, estimator, labels, remainder, pandas
):
    frame = table(seed)
    y = outcomes(frame, LABELS[labels], seed)
    order = np.random.default_rng(seed).permutation(sorted(kept)).tolist()
    columns = any_columns(order, NUMBER_STEPS[number], LEVEL_STEPS[level], remainder, pandas)
    model = make_pipeline(columns, clone(ESTIMATORS[estimator]))
    try:
        model = fitted(model, frame[order], y)
    except ValueError:  # an imputer that takes text and categories takes no categories alone
        reject()
    encoder = encoder_of(frame)
    classifier = converted(model, frame, encoder)
    assert_same_answers(model, classifier, encoder, new_rows(frame, seed), order)


@pytest.mark.parametrize("chosen", ["labels", "numbers", "slices", "masks", "selectors"])
def test_columns_are_found_however_they_are_chosen(chosen):
    frame = table()[[*NUMBERS, *LEVELS, "country"]]
    first, second = {
        "labels": (slice("age", "rate"), ["job"]),
        "numbers": ([0, 1, 2, -6], [-4]),
        "slices": (slice(0, 4), slice(5, 6)),
        "masks": ([name in NUMBERS for name in frame], np.array([name == "job" for name in frame])),
        "selectors": (make_column_selector("age|income|gain|rate"), make_column_selector("job")),
    }[chosen]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), first),
        (OneHotEncoder(), second),
        ("passthrough", ["owns"] if chosen == "labels" else [4]),
        ("drop", ["country"] if chosen == "labels" else [-1]),
        (StandardScaler(), []),
        remainder=make_pipeline(OrdinalEncoder(), SimpleImputer()),
    )
    columns.transformer_weights = {"onehotencoder": 3.0}
    model = fitted(make_pipeline(columns, LogisticRegression()), frame, outcomes(frame, ["a", "b"]))
    encoder = encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_positions_follow_pandas():
    names = list("abcde")
    frame = pd.DataFrame([range(5)], columns=names)
    assert positions(slice("b", "d"), names, 5) == frame.loc[0, "b":"d"].tolist()
    assert positions(slice("b", None, 2), names, 5) == frame.loc[0, "b"::2].tolist()
    assert positions(slice(-2, None), names, 5) == frame.iloc[0, -2:].tolist()
    assert positions([False, True, False, False, True], names, 5) == [1, 4]
    assert positions("c", names, 5) == positions(2, names, 5) == [2]


def test_a_model_of_an_array_takes_the_columns_in_the_order_of_the_table():
    frame = table(missing=0.0)[["age", "income", "gain", "owns", "lines"]]
    y = outcomes(table(missing=0.0), ["a", "b"])
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), frame.to_numpy(), y)
    encoder = encoder_of(frame)
    classifier = converted(model, frame[frame.columns[::-1]], encoder)
    rows = new_rows(table(missing=0.0))[frame.columns.tolist()]
    assert_same_answers(model, classifier, encoder, rows)


def test_a_model_of_an_array_of_objects_is_exact():
    frame = table()
    numbers = make_pipeline(SimpleImputer(), MinMaxScaler())
    columns = make_column_transformer((numbers, slice(0, 4)), (OneHotEncoder(), [4, 5, 6, 7]))
    model = make_pipeline(columns, LogisticRegression(max_iter=200))
    model, encoder = fitted(model, frame.to_numpy(), outcomes(frame, ["a", "b", "c"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_columns_may_come_in_another_order_and_fewer_may_be_used():
    frame = table()
    order = ["lines", "income", "job", "age"]
    level = make_pipeline(FILLED, OneHotEncoder())
    columns = make_column_transformer((level, ["job", "lines"]), remainder=StandardScaler())
    model = make_pipeline(columns, LogisticRegression())
    model, encoder = fitted(model, frame[order], outcomes(frame, ["a", "b"])), encoder_of(frame)
    shuffled = frame[np.random.default_rng(0).permutation(frame.columns)]
    assert_same_answers(model, converted(model, shuffled, encoder), encoder, new_rows(frame), order)


def test_a_level_that_only_the_table_knows_is_ignored_as_the_model_ignores_it():
    frame = table()
    known = frame[frame["job"] != "smith"]
    model = make_pipeline(preprocessing(), LogisticRegression())
    model, encoder = fitted(model, known, outcomes(known, ["a", "b"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))
    strict = make_pipeline(preprocessing(level=OneHotEncoder()), LogisticRegression())
    strict = fitted(strict, known, outcomes(known, ["a", "b"]))
    assert "unknown categories ['smith']" in reason(strict, frame, encoder)


def test_a_level_that_the_table_does_not_know_is_left_out_of_the_comparison():
    frame = table()
    model, encoder = make_pipeline(preprocessing(), LogisticRegression()), encoder_of(frame)
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    rows = frame.assign(job=["pilot", *frame["job"][1:]])
    assert not encoder.encode(rows).usable[0]
    assert_same_answers(model, converted(model, rows, encoder), encoder, new_rows(frame))


@pytest.mark.parametrize("cell", [None, np.nan], ids=["None", "nan"])
def test_a_missing_category_is_the_one_that_the_rows_hold(cell):
    frame = table()
    jobs = [cell if pd.isna(job) else job for job in frame["job"]]
    frame["job"] = pd.Series(jobs, dtype=object)
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["job"])), LogisticRegression())
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, frame)


def test_spellings_that_the_model_tells_apart_are_not_taken_for_one_level():
    frame = table(missing=0.0)
    frame["job"] = [f" {job}" if i % 3 == 0 else job for i, job in enumerate(frame["job"])]
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["job"])), LogisticRegression())
    assert "differ" in reason(fitted(model, frame, outcomes(frame, ["a", "b"])), frame)


def testFILLED_cells_are_compared_asFILLED():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression())
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    encoder = Encoder(Schema.infer(frame), missing="impute")
    classifier = converted(model, frame, encoder)
    assert_same_answers(model, classifier, encoder, new_rows(table(missing=0.0)))


@pytest.mark.parametrize(
    ("number", "estimator"),
    [
        ("standard", "logistic"),
        ("products", "logistic"),
        ("both", "tanh network"),
        ("clipped range", "calibrated"),
        ("components", "quadratic discriminant"),
        ("robust", "naive Bayes"),
        ("range", "voting"),
        ("largest", "gradient descent"),
    ],
)
def test_gradients_are_those_of_finite_differences(number, estimator):
    frame = table()
    model = make_pipeline(preprocessing(clone(NUMBER_STEPS[number])), clone(ESTIMATORS[estimator]))
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b", "c"])), encoder_of(frame)
    x = encoder.encode(frame.iloc[:4]).x
    x[:, encoder.layout.numbers] = x[:, encoder.layout.numbers].clamp(0.05, 0.95)
    assert torch.autograd.gradcheck(converted(model, frame, encoder).logits, x.requires_grad_())


def test_the_gradient_at_levels_tells_what_a_change_of_level_does_to_a_linear_decision():
    frame = table()
    model = make_pipeline(preprocessing(), LinearSVC())
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b"])), encoder_of(frame)
    row = frame.iloc[[1]].assign(grade=pd.Categorical(["A"], list("ABC"), ordered=True))
    x = encoder.encode(row).x.requires_grad_()
    (gradient,) = torch.autograd.grad(converted(model, frame, encoder).logits(x)[0, 1], x)
    levels = encoder.layout.block("grade").levels
    moved = row.assign(grade=pd.Categorical(["C"], list("ABC"), ordered=True))
    change = model.decision_function(moved) - model.decision_function(row)
    assert float(gradient[0, levels[2]] - gradient[0, levels[0]]) == pytest.approx(change[0])


def test_logits_and_gradients_are_finite_where_the_model_is_sure():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression(C=1e4, max_iter=500))
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b"])), encoder_of(frame)
    x = encoder.encode(frame.iloc[:8]).x
    x[:, encoder.layout.numbers] += 8.0
    logits = converted(model, frame, encoder).logits(x.requires_grad_())
    (gradient,) = torch.autograd.grad((logits[:, 1] - logits[:, 0]).sum(), x)
    assert float(logits.detach().min()) < -50
    assert torch.isfinite(logits).all()
    assert torch.isfinite(gradient).all()
    assert (gradient.abs().sum(dim=1) > 0).all()


@pytest.fixture(scope="module")
def simple():
    """A converted model, its encoder and encoded rows."""
    frame = table()
    number = make_pipeline(MinMaxScaler(clip=True), SimpleImputer(), PolynomialFeatures())
    model = make_pipeline(preprocessing(number), MLPClassifier((4,), max_iter=5, random_state=0))
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b", "c"])), encoder_of(frame)
    return converted(model, frame, encoder), encoder.encode(frame).x


def test_it_is_a_classifier_and_says_what_it_is(simple):
    classifier, x = simple
    assert isinstance(classifier, Classifier)
    assert classifier.differentiable
    assert classifier.n_features == x.shape[1]
    assert repr(classifier) == "ConvertedClassifier(Pipeline, 3 classes; probabilities)"


def test_it_follows_the_precision_and_the_device_of_its_rows(simple, device):
    classifier, x = simple
    single = classifier.logits(x.float().to(device))
    assert single.dtype == torch.float32
    assert single.device.type == device.type
    torch.testing.assert_close(single.double().cpu(), classifier.logits(x), rtol=0, atol=1e-3)


def test_copies_and_pickles_answer_alike(simple):
    classifier, x = simple
    for other in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        torch.testing.assert_close(other.logits(x), classifier.logits(x), rtol=0, atol=0)


def test_rows_are_independent(simple):
    classifier, x = simple
    alone = torch.cat([classifier.logits(row[None]) for row in x[:8]])
    torch.testing.assert_close(alone, classifier.logits(x)[:8], rtol=0, atol=1e-9)


def test_rows_of_another_shape_or_type_are_named(simple):
    classifier, x = simple
    with pytest.raises(ShapeError, match=r"must have shape \(n, \d+\).* got \(150, 3\)"):
        classifier.logits(x[:, :3])
    with pytest.raises(InvalidInputError, match=r"float tensor; got torch.int64"):
        classifier.logits(x.long())


def test_a_model_and_torch_are_left_as_they_were():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression())
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    before, state = pickle.dumps(model), torch.get_rng_state()
    converted(model, frame)
    assert pickle.dumps(model) == before
    assert torch.equal(torch.get_rng_state(), state)


class Halved(TransformerMixin, BaseEstimator):
    """A transformer of somebody else's."""

    def fit(self, x, y=None):
        self.fitted_ = True
        return self

    def transform(self, x):
        return x / 2


class Sharper(LogisticRegression):
    """A classifier of somebody else's that answers otherwise."""


REFUSED_NUMBERS = {
    "of which nothing is known": FunctionTransformer(np.cbrt),
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
    with pytest.raises(InvalidInputError, match="columns of the training table are not there: 'age'"):
        convert(model, encoder, frame.drop(columns="age"))
    for rows in (frame.iloc[:0], frame.assign(job="pilot")):
        assert "no row that can be encoded" in reason(model, rows, encoder)
