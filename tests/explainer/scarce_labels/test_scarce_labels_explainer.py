"""The explainer with few outcomes or none."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from plausiflow import Explainer, Immutable, LinearClassifier
from plausiflow.densities import mixed as density
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from scarce import BRIEF


@pytest.fixture
def brief(monkeypatch):
    """Two densities that are trained for a moment only."""
    monkeypatch.setattr(density, "FLOW_TRAINING", BRIEF)
    monkeypatch.setattr(density, "LEVELS_TRAINING", BRIEF)


def numbers_table(n=160):
    """Two numbers that decide, one that cannot change, and an outcome."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(n, 3)).round(3), columns=["income", "debt", "age"])
    y = pd.Series(np.where(frame["income"] - frame["debt"] + 0.3 * draw.normal(size=n) > 0, "yes", "no"))
    return frame, y


def explained(model, y, frame, **settings):
    settings = {"constraints": [Immutable("age")], "confidence": None, "judges": 0} | settings
    explainer = Explainer(model, labels="bayes", **settings).fit(frame, y)
    return explainer, explainer.explain(frame.iloc[:12])


@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")
def test_no_outcome_is_needed_where_the_model_is_fitted_already(brief):
    frame, y = numbers_table()
    model = LogisticRegression().fit(frame, y)
    explainer, result = explained(model, None, frame, confidence=0.5, judges=1)
    assert result.is_found.mean() > 0.8
    wanted = np.where(model.predict(frame.iloc[:12]) == "yes", "no", "yes")
    assert (model.predict(result.answers) == wanted[result.of]).all()
    assert result.answers["age"].tolist() == frame["age"].iloc[result.of].tolist()
    assert result.metrics()[["judged", "log_density", "plausibility"]].notna().all()
    ensemble = explainer.engine_.plausibility
    assert ensemble.rule_ is not None
    x = explainer.encoder_.encode(frame).x
    theirs = model.predict_proba(frame)
    np.testing.assert_allclose(ensemble.rule_.weights(x).numpy(), theirs, atol=1e-6)


def test_outcomes_of_some_rows_train_the_model_and_the_density_learns_from_all(brief):
    frame, y = numbers_table()
    some = y.where(y.index < 80)
    explainer, result = explained(LinearClassifier(), some, frame)
    assert result.is_found.mean() > 0.8
    alone = LinearClassifier().fit(
        explainer.encoder_.encode(frame).x[:80].float(), torch.tensor((y[:80] == "yes").to_numpy()).long()
    )
    torch.testing.assert_close(explainer.model_.model.weight, alone.weight)


def test_a_model_without_gradients_is_represented_by_its_likeness(brief):
    frame, y = numbers_table()
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=4).fit(frame, y)
    _, result = explained(model, None, frame)
    assert result.is_found.mean() > 0.5
    wanted = np.where(model.predict(frame.iloc[:12]) == "yes", "no", "yes")
    assert (model.predict(result.answers) == wanted[result.of]).all()


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_an_outcome_that_the_model_never_decides_is_answered_with_a_verdict(brief, labels):
    frame, _ = numbers_table()
    weight = torch.tensor([[8.0, 0, 0], [-8.0, 0, 0], [0, 0, 0]])
    model = LinearClassifier.from_weights(weight, torch.tensor([-4.0, 4.0, -20.0]))
    settings = {"constraints": [Immutable("age")], "confidence": None, "judges": 1}
    with pytest.warns(PlausibilityWarning, match="decides none of the .* training rows for 2, so rows can"):
        explainer = Explainer(model, labels=labels, **settings).fit(frame)
    assert explainer.explain(frame.iloc[:3], 2).status["status"].tolist() == ["infeasible"] * 3
    assert explainer.judges_.log_delta_.shape == (1, 3)
    assert len(explainer.engine_.plausibility.margin_) == 3


def test_a_predicted_number_has_no_probabilities(brief):
    frame, _ = numbers_table(60)
    model = LinearRegression().fit(frame[["income", "debt", "age"]], frame["income"] + frame["debt"])
    with pytest.raises(InvalidInputError, match=r'"given" or "model" for a model that predicts a number'):
        Explainer(model, labels="bayes").fit(frame)


def test_all_three_ways_are_named_where_another_is_asked_for():
    with pytest.raises(InvalidInputError, match="`labels` must be 'given', 'model' or 'bayes'; got 'truth'"):
        Explainer(LinearClassifier(), labels="truth").fit(pd.DataFrame({"income": [1, 2]}), ["a", "b"])
