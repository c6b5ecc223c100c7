"""Closed-form gradients of converted models, against autograd and differences of the model's own outputs."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC

from plausiflow.models import convert_classifier, convert_regressor
from plausiflow.tables import Encoder, Schema

ROWS = 120


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": np.round(rng.lognormal(10, 1.2, ROWS), 2),
            "age": rng.integers(18, 80, ROWS),
            "days": np.where(rng.random(ROWS) < 0.3, -1, rng.integers(0, 400, ROWS)),
            "job": rng.choice(["clerk", "cook", "nurse"], ROWS),
        }
    )


def classes(n):
    rows = frame()
    score = np.log(rows["income"]) + rows["age"] / 30 + (rows["job"] == "cook")
    return np.asarray(pd.qcut(score, n, labels=False))


def pipeline(estimator):
    numbers = ["income", "age", "days"]
    prepare = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), ["job"]))
    return make_pipeline(prepare, estimator)


def encoder():
    rows = frame()
    return Encoder(Schema.infer(rows, special={"days": [-1]}))


def perceptron(activation, **settings):
    return MLPClassifier((8, 6), activation=activation, max_iter=40, random_state=0, **settings)


CLASSIFIERS = {
    "logistic, two classes": (LogisticRegression(), 2),
    "logistic, three classes": (LogisticRegression(), 3),
    "margins": (LinearSVC(), 3),
    "one margin": (LinearSVC(), 2),
    "discriminant": (LinearDiscriminantAnalysis(), 3),
    "relu": (perceptron("relu"), 2),
    "tanh": (perceptron("tanh"), 3),
    "logistic units": (perceptron("logistic"), 2),
    "identity": (perceptron("identity"), 3),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_pullback_of_a_classifier_is_its_gradient(name):
    estimator, n = CLASSIFIERS[name]
    rows, coder = frame(), encoder()
    model = convert_classifier(pipeline(estimator).fit(rows, classes(n)), coder, rows)
    x = coder.encode(rows).x
    logits, pullback = model.value_and_grad(x)
    assert model.has_closed_form(x)
    compare(model.logits, x, logits, pullback)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [Ridge(), MLPRegressor(hidden_layer_sizes=(6,), max_iter=40, random_state=0)]
)
def test_the_pullback_of_a_regressor_is_its_gradient(estimator):
    rows, coder = frame(), encoder()
    model = convert_regressor(pipeline(estimator).fit(rows, classes(9) / 9), coder, rows)
    x = coder.encode(rows).x
    values, pullback = model.value_and_grad(x)
    assert values.shape == (ROWS,)
    compare(model.values, x, values, pullback)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_step_without_a_closed_form_is_left_to_autograd():
    rows, coder = frame(), encoder()
    prepare = make_column_transformer((PolynomialFeatures(), ["age"]), (StandardScaler(), ["income"]))
    model = make_pipeline(prepare, LogisticRegression()).fit(rows, classes(2))
    converted, x = convert_classifier(model, coder, rows), coder.encode(rows).x
    logits, pullback = converted.value_and_grad(x)
    assert not converted.has_closed_form(x)
    compare(converted.logits, x, logits, pullback)


def test_a_model_can_be_pickled_after_its_gradients_were_used():
    rows, coder = frame(), encoder()
    model = convert_classifier(pipeline(LogisticRegression()).fit(rows, classes(2)), coder, rows)
    x = coder.encode(rows).x
    logits, _ = model.value_and_grad(x)
    again = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(again.value_and_grad(x)[0], logits, rtol=0, atol=0)


def compare(function, x, outputs, pullback):
    leaf = x.clone().requires_grad_()
    expected = function(leaf)
    torch.testing.assert_close(outputs, expected.detach(), rtol=0, atol=0)
    upstream = torch.linspace(-1, 1, outputs.numel(), dtype=x.dtype).view(outputs.shape)
    (gradient,) = torch.autograd.grad(expected, leaf, upstream)
    torch.testing.assert_close(pullback(upstream), gradient, rtol=1e-9, atol=1e-9)
