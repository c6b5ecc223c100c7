"""The explainer with models that somebody else trained: the answers are theirs."""

import numpy as np
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable
from plausiflow.core.training import Training
from plausiflow.datasets.tables import loans_table
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, ModelError
from sampling import slow_unless


@pytest.fixture(scope="module")
def parts():
    return loans_table(700).split(600, 40)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Densities that are trained for a moment only."""
    monkeypatch.setattr(mixed, "FLOW_TRAINING", Training(epochs=4, learning_rate=1e-2))
    monkeypatch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=4, learning_rate=1e-2))


def pipeline(estimator):
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=np.number)),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude=np.number)),
    )
    return make_pipeline(columns, estimator)


ESTIMATORS = {
    "logistic": LogisticRegression(max_iter=500),
    "discriminant": LinearDiscriminantAnalysis(),
    "perceptron": MLPClassifier((16,), max_iter=150, random_state=0, early_stopping=True),
}


@pytest.mark.parametrize("name", slow_unless(["logistic", "perceptron"], ESTIMATORS))
def test_the_pipeline_itself_decides_every_answer_as_wanted(parts, name):
    train, test = parts
    model = pipeline(ESTIMATORS[name]).fit(train.x, train.y)
    rules = [Immutable("age", "sex")]
    explainer = Explainer(model, constraints=rules, confidence=None, judges=0).fit(train.x, train.y)
    result = explainer.explain(test.x)
    assert (result.status["status"] == "found").mean() > 0.9
    before = model.predict(test.x)[result.of]
    after = model.predict(result.answers)
    assert (after != before).all()
    metrics = result.metrics()
    assert metrics["validity"] == metrics["plausibility"] == 1.0
    assert metrics[["lof", "lof_median", "lof_target", "iso_forest", "l1", "l2", "log_density"]].notna().all()
    assert metrics["coverage"] == (result.status["status"] == "found").mean()
    theirs = model.predict_proba(result.answers)
    wanted = [list(model.classes_).index(label) for label in result.status["target"].iloc[result.of]]
    ours = result.figures["probability"].to_numpy()
    np.testing.assert_allclose(ours, theirs[np.arange(len(wanted)), wanted], atol=1e-6)
    np.testing.assert_allclose(
        explainer.predict_proba(test.x)[list(model.classes_)].to_numpy(),
        model.predict_proba(test.x),
        atol=1e-6,
    )


def test_outcomes_keep_the_models_order(parts):
    train, test = parts
    model = pipeline(LogisticRegression(max_iter=500)).fit(train.x, train.y)
    explainer = Explainer(model, confidence=None, judges=0).fit(train.x, train.y)
    assert list(explainer.predict_proba(test.x).columns) == list(model.classes_)
    assert (explainer.predict(test.x).to_numpy() == model.predict(test.x)).all()


def test_a_model_that_cannot_be_converted_is_refused_with_the_reason(parts):
    train, _ = parts
    model = pipeline(RandomForestClassifier(5, random_state=0)).fit(train.x, train.y)
    with pytest.raises(InvalidInputError, match=r"can be converted exactly.*RandomForestClassifier"):
        Explainer(model, model_type="exact").fit(train.x, train.y)


def test_a_model_that_is_not_fitted_is_refused(parts):
    train, _ = parts
    with pytest.raises(ModelError, match="is not fitted yet"):
        Explainer(LogisticRegression()).fit(train.x, train.y)


def test_outcomes_that_the_model_does_not_know_are_named(parts):
    train, _ = parts
    model = pipeline(LogisticRegression(max_iter=500)).fit(train.x, train.y)
    with pytest.raises(InvalidInputError, match="got 'perhaps'"):
        Explainer(model).fit(train.x, ["perhaps", "granted"] * (len(train.x) // 2))
