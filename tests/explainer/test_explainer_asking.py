"""Rules for one request only, requests without a second opinion, and plausibility scores."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import plausiflow as pf
from explaining import stand_in
from plausiflow.core import Targets
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError
from plausiflow.search import plausibility_scores


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(
        {
            "income": [i % 45 for i in range(90)],
            "debt": [i * 7 % 50 for i in range(90)],
            "job": ["a", "b"] * 45,
        }
    )


@pytest.fixture(scope="module")
def explainer(frame):
    return stand_in(frame, [pf.Immutable("job")], push={"income": 1.0, "debt": -1.0})


@pytest.fixture(scope="module")
def poor(frame, explainer):
    return frame[explainer.predict(frame) == "no"].iloc[:8]


def test_a_rule_of_one_request_is_kept_there_and_nowhere_else(explainer, poor):
    free = explainer.explain(poor, "yes").counterfactuals
    assert (free["debt"] != poor["debt"]).any()
    held = explainer.explain(poor, "yes", constraints=[pf.Range("debt", 40, None)])
    assert (held.status["status"] == "found").all()
    assert (held.counterfactuals["debt"] >= 40).all()
    pd.testing.assert_frame_equal(explainer.explain(poor, "yes").counterfactuals, free)


def test_a_rule_of_one_request_is_as_one_of_the_explainer(frame, explainer, poor):
    rule = pf.Increasing("debt")
    other = stand_in(frame, [pf.Immutable("job"), rule], push={"income": 1.0, "debt": -1.0})
    pd.testing.assert_frame_equal(
        explainer.explain(poor, "yes", constraints=[rule]).counterfactuals,
        other.explain(poor, "yes").counterfactuals,
    )


def test_a_rule_of_one_request_that_blocks_is_named(explainer, poor):
    rules = [pf.Range("income", 0, 1), pf.Increasing("debt")]
    status = explainer.explain(poor.iloc[1:2], "yes", constraints=rules).status
    assert status["status"].tolist() == ["infeasible"]
    assert 'Range("income", 0, 1)' in status["reason"].iloc[0]


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([pf.Immutable("debt")], "locked"),
        ([pf.Range("wealth", 0, 1)], "wealth"),
        ("income >= 0", "must be a list of rules"),
        (["income >= 0"], "income >= 0"),
    ],
)
def test_rules_of_one_request_that_cannot_be_used_are_rejected(explainer, poor, constraints, message):
    with pytest.raises(InvalidInputError, match=message):
        explainer.explain(poor, "yes", constraints=constraints)


def test_second_opinion_is_true_or_false(explainer, poor):
    with pytest.raises(InvalidInputError, match="second_opinion"):
        explainer.explain(poor, "yes", second_opinion="no")


@pytest.mark.parametrize("device", ["tpu", "mps", "cuda:99", 3, None, "meta"])
def test_a_device_that_is_not_available_is_rejected(explainer, poor, device):
    with pytest.raises(
        InvalidInputError, match=r"`device` must be 'auto', 'cpu', or an available CUDA device"
    ):
        explainer.explain(poor, "yes", device=device)


def test_the_cpu_may_be_chosen(explainer, poor):
    expected = explainer.explain(poor, "yes").counterfactuals
    pd.testing.assert_frame_equal(explainer.explain(poor, "yes", device="cpu").counterfactuals, expected)


def test_a_task_that_is_moved_is_the_same_task(explainer, poor):
    engine, x = explainer.engine_, explainer.encoder_.encode(poor).x
    task = engine.task(x, torch.ones(len(x)).long(), frame=poor)
    moved = task.to(torch.device("cpu"))
    rows = torch.arange(len(x))
    assert torch.equal(moved.constraint_values(x, rows), task.constraint_values(x, rows))
    assert torch.equal(moved.allowance.lower, task.allowance.lower)
    assert torch.equal(moved.scores.at(rows[:2]).threshold, task.scores.threshold[:2])


@pytest.fixture(scope="module")
def loans():
    return pf.load_table("loans").split(150, 15)


@pytest.fixture(scope="module")
def quickly_trained():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
            patch.setattr(mixed, name, replace(getattr(mixed, name), epochs=8))
        yield


def test_without_a_second_opinion_answers_are_those_of_an_explainer_that_asks_for_none(
    loans, quickly_trained
):
    train, test = loans
    numbers = ["income", "credit_score"]
    made = {}
    for confidence in (0.9, None):
        explainer = pf.Explainer(pf.LinearClassifier(), confidence=confidence, judges=0)
        made[confidence] = explainer.fit(train.x[numbers], train.y)
    plain = made[None].explain(test.x[numbers])
    careless = made[0.9].explain(test.x[numbers], second_opinion=False)
    pd.testing.assert_frame_equal(careless.counterfactuals, plain.counterfactuals)
    pd.testing.assert_frame_equal(careless.status, plain.status)
    careful = made[0.9].explain(test.x[numbers])
    assert careful.figures["cost"].mean() > careless.figures["cost"].mean()
    both = np.concatenate([plain.figures["score"], careful.figures["score"]])
    rows = pd.concat([plain.answers, careful.answers])
    wanted = [*plain.status["target"].iloc[plain.of], *careful.status["target"].iloc[careful.of]]
    np.testing.assert_allclose(made[0.9].score(rows, wanted), both, atol=1e-9)


def test_scores_are_missing_where_a_row_cannot_be_read(explainer, frame):
    rows = frame.iloc[:3].astype({"income": object})
    rows.iloc[1, 0] = "much"
    values = explainer.score(rows, "yes")
    assert np.isnan(values).tolist() == [False, True, False]
    assert explainer.score(rows.iloc[:0], "yes").shape == (0,)


def test_scores_need_one_outcome_for_each_row(explainer, frame):
    encoded = explainer.encoder_.encode(frame)
    targets = Targets(torch.zeros(len(frame), dtype=torch.long))
    with pytest.raises(InvalidInputError, match="'other' leaves it open"):
        plausibility_scores(explainer.engine_, encoded, [targets, targets])
