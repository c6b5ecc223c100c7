"""Outcomes, estimators, and checks of conversions, for the tests of converted classifiers."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from conversion_tables import encoder_of
from plausiflow.core import predict
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.sklearn.conversion import convert_classifier

LABELS = {"text": ["yes", "no", "maybe"], "integer": [7, -1, 3], "boolean": [True, False]}


def outcomes(frame, labels, seed=0) -> np.ndarray:
    """Return classes that depend on the columns."""
    rng = np.random.default_rng(seed)
    score = frame["age"] / 20 + frame["owns"] + frame["rate"].fillna(0) + rng.normal(size=len(frame))
    return np.array(labels)[pd.qcut(score, len(labels), labels=False)]


def converted(model, frame, encoder=None):
    return convert_classifier(model, encoder or encoder_of(frame), frame)


def reason(model, frame, encoder=None) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        convert_classifier(model, encoder or encoder_of(frame), frame)
    return str(caught.value)


def assert_same_answers(model, classifier, encoder, rows, columns=None):
    """Compare the model on rows with the conversion on encoded rows."""
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
