"""Targets: any outcome of the model, by its label or by a policy."""

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import stand_in
from plausiflow import Explainer, LinearClassifier
from plausiflow.errors import InvalidInputError, ShapeError
from searching import ORDERS


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True), (0, 1), (-1, 7.5)], ids=str)
def test_any_labels_may_be_asked_for(frame, labels):
    explainer = stand_in(frame, push={"income": 4.0}, labels=labels, orders=ORDERS)
    rows = frame.iloc[:4]
    decided = explainer.predict(rows)
    opposite = [labels[1] if label == labels[0] else labels[0] for label in decided]
    first = explainer.explain(rows)
    assert first.status["target"].tolist() == opposite
    assert explainer.predict(first.counterfactuals).tolist() == opposite
    ways = [
        "runner_up",
        opposite,
        tuple(opposite),
        np.array(opposite, dtype=object),
        pd.Series(opposite, index=[9, 9, 8, 8]),
        pd.Index(opposite),
        pd.Categorical(opposite),
        pd.Series(opposite).convert_dtypes().array,
    ]
    if not isinstance(labels[0], str):
        ways.append(torch.tensor(opposite))
    for target in ways:
        asked = explainer.explain(rows, target, time_limit=0).status
        assert asked["target"].tolist() == opposite
        assert set(asked["status"]) == {"not_reached"}
    for label in (*labels, np.array(labels)[1], np.array(labels[0])):
        asked = explainer.explain(rows, label, time_limit=0).status
        assert asked["target"].tolist() == [label] * 4
        assert (asked["status"] == "already").tolist() == (decided == label).tolist()


def test_a_label_that_is_called_like_a_policy_is_the_label(frame):
    explainer = stand_in(frame, push={"income": 4.0}, labels=("runner_up", "opposite"), orders=ORDERS)
    asked = explainer.explain(frame.iloc[:6], "opposite", time_limit=0).status
    assert asked["target"].tolist() == ["opposite"] * 6


@pytest.mark.parametrize(
    ("labels", "target", "error", "message"),
    [
        (("no", "yes"), "maybe", InvalidInputError, "one of the outcomes 'no', 'yes'.*got 'maybe'"),
        (("no", "yes"), ["yes"], ShapeError, "`target` must have 2 outcomes, one for each row; got 1"),
        (
            ("no", "yes"),
            ["yes", "maybe"],
            InvalidInputError,
            "outcomes of the model, 'no', 'yes'; got 'maybe'",
        ),
        (("no", "yes"), [None, "yes"], InvalidInputError, "got None"),
        ((0, 1), True, InvalidInputError, "got True"),
        ((False, True), 1, InvalidInputError, "got 1"),
        ((0, 1), "1", InvalidInputError, "got '1'"),
        (
            ("no", "yes"),
            torch.tensor([0, 1]),
            InvalidInputError,
            "outcomes of the model, 'no', 'yes'; got 0, 1",
        ),
        ((False, True), torch.tensor([0, 1]), InvalidInputError, "got 0, 1"),
        (("no", "yes"), torch.tensor(1), InvalidInputError, "got 1"),
        ((0, 1), torch.tensor([0, 2]), InvalidInputError, "between 0 and 1, the model's classes; got 0 to 2"),
        ((0, 1), torch.tensor([0.0, 1.0]), InvalidInputError, "whole class numbers; got torch.float"),
        ((0, 1), torch.tensor([0, 1, 1]), ShapeError, r"shape \(2,\), one class per row; got \(3,\)"),
        ((0, 1), pd.DataFrame({"a": [0, 1]}), InvalidInputError, "a list with one outcome for each row"),
        (("no", "yes"), "paper", InvalidInputError, "'opposite', 'runner_up', 'other'.*got 'paper'"),
        ((0, 1), pd.NA, InvalidInputError, "got <NA>"),
    ],
    ids=str,
)
def test_invalid_targets_are_rejected(frame, labels, target, error, message):
    explainer = stand_in(frame, push={"income": 4.0}, labels=labels, orders=ORDERS)
    with pytest.raises(error, match=message):
        explainer.explain(frame.iloc[:2], target)


def test_with_three_outcomes_any_other_may_be_asked_for_but_none_is_the_opposite(quickly_trained):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.uniform(0, 9, 240), "b": draw.uniform(0, 1, 240)})
    grade = pd.cut(frame["a"], [0, 3, 6, 9], labels=["low", "mid", "top"]).rename("grade")
    explainer = Explainer(LinearClassifier(), confidence=None, judges=0).fit(frame, grade)
    rows = frame.iloc[:5]
    decided, proba = explainer.predict(rows), explainer.predict_proba(rows)
    assert proba.columns.tolist() == ["low", "mid", "top"]
    assert decided.name == "grade"
    second = proba.apply(lambda row: row.sort_values().index[-2], axis=1)
    result = explainer.explain(rows, "runner_up")
    assert result.status["target"].tolist() == second.tolist()
    found = explainer.predict(result.answers)
    assert found.tolist() == second.iloc[result.of].tolist()
    third = proba.idxmin(axis=1)
    assert explainer.predict(explainer.explain(rows, third).answers).isin(third.tolist()).all()
    with pytest.raises(InvalidInputError, match="needs two outcomes; this model has 3: 'low', 'mid', 'top'"):
        explainer.explain(rows)
