"""Durability at its edges: models that cannot be trained again, and answers that leave the margin."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from lasting import fitted, number_table
from plausiflow import Explainer
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.search import pipeline

pytestmark = pytest.mark.filterwarnings("ignore:Counterfactuals may not last")


@pytest.fixture(scope="module")
def table():
    return number_table()


def halves(rows):
    """Return probabilities by income, as a function that cannot be trained again."""
    chance = (rows["income"].to_numpy() > 40_000) * 0.8 + 0.1
    return np.stack([chance, 1 - chance], axis=1)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (
            halves,
            {},
            "cannot be trained again here. Pass `retrain`",
        ),
        ("frozen", {}, "FrozenEstimator cannot be trained again: it is frozen"),
        ("pipeline", {}, "Pipeline cannot be trained again: its frozenestimator is frozen"),
        ("calibrated", {}, "CalibratedClassifierCV cannot be trained again: its estimator is frozen"),
        ("logistic", {"retrain": 5}, "`retrain` must be a function"),
        ("logistic", {"retrain": "surrogate"}, "`retrain` must be a function"),
        ("logistic", {"retrain": lambda x, y, seed: None}, "Retrained model 0 cannot be used"),
        ("logistic", {"retrain": [None] * 4}, "must hold at least 8 models"),
        ("logistic", {"refits": 3}, "`refits` must be a whole number, 5 or more"),
        ("logistic", {"durability": 1.0}, "`durability` must be a share between 0.5 and 1"),
    ],
)
def test_what_cannot_be_retrained_is_an_error_with_a_way_out(table, model, settings, message):
    x, y = table
    if model == "logistic":
        model = LogisticRegression(max_iter=1000).fit(x, y)
    elif model in ("frozen", "pipeline", "calibrated"):
        frozen = FrozenEstimator(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y))
        made = {
            "frozen": frozen,
            "pipeline": make_pipeline(FunctionTransformer(), frozen),
            "calibrated": CalibratedClassifierCV(frozen),
        }
        model = made[model].fit(x, y)
    with pytest.raises(InvalidInputError, match=message):
        fitted(model, x, y, **({"durability": 0.9} | settings))


def test_models_that_all_predict_as_the_model_itself_are_an_error(table):
    x, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    with pytest.raises(InvalidInputError, match="predicts exactly as the model itself"):
        fitted(model, x, y, durability=0.9, retrain=[model] * 9)


def test_an_error_of_a_training_says_what_failed_and_what_to_do(table):
    x, y = table

    def retrain(rows, outcomes, seed):
        raise RuntimeError("no data")

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    with pytest.raises(ModelError, match=r"could not be trained again .* RuntimeError: no data"):
        fitted(model, x, y, durability=0.9, retrain=retrain)


@pytest.mark.filterwarnings("ignore:The confidence of")
def test_a_lasting_answer_gives_up_at_most_half_of_the_margin_before_it_lasts_less(table, monkeypatch):
    x, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    explainer = Explainer(model, confidence=0.95, judges=1, durability=0.9, refits=5)
    explainer.fit(x, y, effort="quick", verbose=False)
    engine, rows = explainer.engine_, x[model.predict(x) == "rejected"].iloc[:30]
    durability = replace(engine.durability, probabilities=(0.0, 0.0))
    for more in np.linspace(6, 12, 25).tolist():  # until some rows leave the margin
        durability = durability.with_factors((more * durability.factor,) * 2)
        explainer.engine_ = replace(engine, durability=durability)
        monkeypatch.setattr(pipeline, "KEPT_MARGIN", 1.0)
        strict = explainer.explain(rows, "granted")
        monkeypatch.undo()
        result = explainer.explain(rows, "granted")
        less, fewer = (
            own.verdicts["reason"].str.contains("lasts longest").to_numpy() for own in (strict, result)
        )
        if (less & ~fewer).any():
            break
    gained = less & ~fewer
    assert gained.any()
    assert not (fewer & ~less).any()
    own = result.answers[gained[result.of]]
    encoded = explainer.encoder_.encode(own).x
    targets = explainer.criterion_.of_class(result.encoded[2][result.of][torch.from_numpy(gained[result.of])])
    assert durability.bound(encoded, own, targets).min() >= 0
    before = result.encoded[0][result.of][torch.from_numpy(gained[result.of])]
    scores = row_scores(explainer.engine_.plausibility, before, targets.y)
    beyond = scores.score(encoded, torch.arange(len(own)))
    assert (beyond < 0).all()
    assert (beyond >= -0.5 * scores.margin - 1e-9).all()
    assert result.verdicts["reason"][gained].str.contains("a second opinion may differ").all()
