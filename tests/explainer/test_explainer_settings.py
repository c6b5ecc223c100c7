"""Settings and models that do not fit the table are refused, and what a model raises later is told."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import survives
from plausiflow import Explainer, LinearClassifier, MLPClassifier, TorchClassifier, Training
from plausiflow.constraints import Decreasing, Immutable, Increasing, Range
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.models import EncodedModel
from searching import applicants

pytestmark = pytest.mark.usefixtures("no_reasons_asked")

FRAME = applicants(120, missing=True)
ROWS = FRAME.iloc[:4]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("plausibility", [-0.1, 1.1, np.nan, "high", None, True, [0.5]]),
        ("confidence", [0, 1, np.nan, "high", True, [0.5]]),
        ("max_extra_cost", [-0.1, np.nan, "no", None, True, [0.1]]),
        ("margin", [-0.1, 0.5, np.nan, "no", None, True]),
        ("judges", [-1, 1.5, "two", None, True, [1]]),
        ("random_state", [-1, 1.5, 2**32, 10**30, "x", None, True, np.random.default_rng(0)]),
        ("weights", [[1], "age", 1, pd.Series({"age": 1.0}), {"age"}]),
        ("kinds", [["age"], "age", 1]),
        ("orders", [["school"], "school", 1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_are_checked_before_anything_is_learned(setting, values):
    for value in values:
        with pytest.raises(InvalidInputError, match=rf"`{setting}` must be .*; got"):
            Explainer(LinearClassifier(), **{setting: value}).fit(FRAME, FRAME["job"])


def test_a_seed_of_numpy_is_the_same_seed():
    x, y = (
        FRAME[["age", "job"]].iloc[:60],
        (FRAME["age"].iloc[:60] > FRAME["age"].iloc[:60].median()).map(str),
    )
    made = [
        Explainer(LinearClassifier(), confidence=None, judges=0, random_state=seed).fit(x, y)
        for seed in (3, np.int64(3))
    ]
    pd.testing.assert_frame_equal(made[0].predict_proba(x), made[1].predict_proba(x))


def test_all_wrong_settings_are_named_at_once():
    with pytest.raises(InvalidInputError, match=r"`plausibility` must.*`margin` must.*`judges` must"):
        Explainer(LinearClassifier(), plausibility="much", margin=3, judges=-1).fit(FRAME, FRAME["job"])


@pytest.mark.parametrize(
    "given",
    [
        {"constraints": Immutable("age")},
        {"constraints": "age"},
        {"constraints": None},
        {"constraints": ["age", Immutable]},
        {"constraints": [Immutable("agee"), Range("job", 0)]},
        {"constraints": [Increasing("age"), Decreasing("age")]},
        {"constraints": [Immutable(*FRAME.columns)]},
        {"missing": "drop"},
        {"missing": None},
        {"kinds": {"age": "number"}},
        {"kinds": {"height": "integer"}},
        {"kinds": dict.fromkeys(FRAME.columns, "identifier")},
        {"orders": {"school": ["none"]}},
        {"orders": {"school": "none"}},
        {"weights": {"agee": 1}},
        {"model": None},
        {"model": "MLP"},
        {"model": MLPClassifier},
        {"model": len},
        {"model": LinearClassifier.from_weights(torch.zeros(3, 3), torch.zeros(3))},
        {"model": LinearClassifier.from_weights(torch.zeros(2, 3), torch.zeros(2))},
        {"model": TorchClassifier(torch.nn.Linear(3, 2), n_classes=2)},
    ],
    ids=lambda given: str(given).split(" at 0x")[0][:40],
)
def test_settings_that_do_not_fit_the_table_are_refused(given):
    model = given.get("model", LinearClassifier(training=Training(epochs=1)))
    settings = {name: value for name, value in given.items() if name != "model"}
    explainer = Explainer(model, confidence=None, judges=0, **settings)
    error = survives(lambda: explainer.fit(FRAME, FRAME["owns"]), 0)
    assert isinstance(error, PlausiflowError)
    with pytest.raises(PlausiflowError, match="has not been fitted"):
        explainer.explain(ROWS)


# ---------------------------------------------------------------- models


class Model:
    """A model that somebody brings."""

    n_classes = 2
    differentiable = True

    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (lambda x: 1 / 0, "raised ZeroDivisionError for encoded rows of shape"),
        (lambda x: None, "must return a float tensor of shape .* got NoneType"),
        (lambda x: np.zeros((len(x), 2)), "got ndarray"),
        (lambda x: x[:, 0], r"got Tensor of shape \(120,\)"),
        (lambda x: x[:, :1], r"got Tensor of shape \(120, 1\)"),
        (lambda x: x[:, :3], r"got Tensor of shape \(120, 3\)"),
        (lambda x: x[:1, :2], r"got Tensor of shape \(1, 2\)"),
        (lambda x: x[:, :2].long(), "got Tensor of shape .*, torch.int64"),
        (lambda x: x[:, :2] / 0, "training rows have logits that are not"),
        (lambda x: torch.where(x[:, :2] > 0.5, torch.nan, 0.0), "training rows have logits that are not"),
    ],
)
def test_a_model_that_does_not_answer_is_refused(logits, message):
    with pytest.raises(ModelError, match=message):
        Explainer(Model(logits), confidence=None, judges=0).fit(FRAME, FRAME["owns"])


@pytest.mark.parametrize("answer", ["raises", "is not a number"])
def test_a_row_that_the_model_cannot_decide_does_not_harm_the_others(explainer, answer):
    own, age = explainer.model_, explainer.encoder_.layout.block("age").number

    def logits(x):
        far = x[:, age] > 5
        if answer == "raises" and far.any():
            raise ValueError("too old")
        return torch.where(far[:, None], torch.nan, own.model.logits(x))

    rows = ROWS.assign(age=[30, 5000, 40, 5000])
    fresh = replace(explainer)
    fresh.encoder_, fresh.engine_ = explainer.encoder_, explainer.engine_
    fresh.model_ = EncodedModel(Model(logits), own.labels)
    result, expected = fresh.explain(rows), explainer.explain(rows)
    assert (result.status["status"] == "invalid_input").tolist() == [False, True, False, True]
    assert result.status["reason"].iloc[1].startswith("the model gives no probabilities for it")
    assert fresh.predict(rows).isna().tolist() == [False, True, False, True]
    kept = result.status.iloc[[0, 2]]
    assert kept["status"].tolist() == expected.status["status"].iloc[[0, 2]].tolist()


def test_a_model_that_raises_in_a_search_is_named(explainer):
    own = explainer.model_.model

    def logits(x):
        if len(x) == 1:
            raise IndexError("more rows, please")
        return own.logits(x)

    broken, own_labels = Model(logits), explainer.model_.labels
    fresh = replace(explainer)
    fresh.encoder_, fresh.model_ = explainer.encoder_, explainer.model_
    validity = replace(explainer.engine_.validity, outputs=EncodedModel(broken, own_labels).outputs)
    fresh.engine_ = replace(explainer.engine_, validity=validity)
    with pytest.raises(ModelError, match=r"`model.logits` raised IndexError.*: more rows, please"):
        fresh.explain(ROWS.iloc[:1])
