"""Conversion of scikit-learn models: compared with the models on rows made with pandas."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

from conversion_tables import (
    LEVEL_STEPS,
    LEVELS,
    NUMBER_STEPS,
    NUMBERS,
    any_columns,
    encoder_of,
    fitted,
    new_rows,
    preprocessing,
    table,
)
from converted_classifiers import ESTIMATORS, LABELS, assert_same_answers, converted, outcomes
from plausiflow.core.protocols import Classifier
from plausiflow.errors import InvalidInputError, ShapeError

# ---------------------------------------------------------------- answers

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
def test_a_column_that_the_model_never_saw_filled_is_dropped_or_filled_as_the_model_does(keep):
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


ANY_PIPELINE = {
    "seed": st.integers(0, 10_000),
    "kept": st.sets(st.sampled_from(NUMBERS + LEVELS), min_size=2),
    "number": st.sampled_from(sorted(NUMBER_STEPS)),
    "level": st.sampled_from(sorted(set(LEVEL_STEPS) - {"constant and one-hot", "selected"})),
    "estimator": st.sampled_from(
        sorted(set(ESTIMATORS) - {"quadratic discriminant", "calibrated quadratic"})
    ),
    "labels": st.sampled_from(sorted(LABELS)),
    "remainder": st.booleans(),
    "pandas": st.booleans(),
}


def check_any_pipeline(seed, kept, number, level, estimator, labels, remainder, pandas):
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


@settings(max_examples=8)
@given(st.fixed_dictionaries(ANY_PIPELINE))
def test_a_pipeline_of_some_table_has_the_answers_of_the_model(drawn):
    check_any_pipeline(**drawn)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.fixed_dictionaries(ANY_PIPELINE))
def test_any_pipeline_of_any_table_has_the_answers_of_the_model(drawn):
    check_any_pipeline(**drawn)


# ---------------------------------------------------------------- gradients


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


# ---------------------------------------------------------------- properties of a converted model


@pytest.fixture(scope="module")
def simple():
    """Return a converted model, and encoded rows."""
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
