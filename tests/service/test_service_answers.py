"""Answers of the service equal those of the library, whatever other clients send at the same time."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from explaining import stand_in
from plausiflow.constraints import Range
from plausiflow.core.training import Training
from plausiflow.densities import mixed
from plausiflow.explainer import Explainer
from plausiflow.service import ServiceSettings, batching
from plausiflow_bench.serving.load import max_difference
from searching import ORDERS
from serving import AT, NAME, Client, instances, people


def explain_directly(frame, target="opposite", **options):
    """Return the JSON rows of the library; the labels of the rows are their positions."""
    result = people()[0].explain(frame.reset_index(drop=True), target, **options)
    return json.loads(result.to_json())["rows"]


def test_explanations_are_those_of_the_library(client, rows):
    assert client.explain(rows[:8]) == explain_directly(people()[1].iloc[:8])
    assert client.explain(rows[3:5], "yes", k=3) == explain_directly(people()[1].iloc[3:5], "yes", k=3)


@pytest.mark.parametrize(
    ("sent", "library"),
    [
        ({"locked": ["income", "school"]}, {"locked": ["income", "school"]}),
        ({"ranges": {"income": [None, 5000]}}, {"constraints": [Range("income", None, 5000)]}),
        ({"min_probability": 0.7}, {"min_probability": 0.7}),
        ({"relaxed": True, "min_probability": 0.95}, {"relaxed": True, "min_probability": 0.95}),
        ({"confidence": None, "k": 2.0}, {"k": 2, "second_opinion": False}),
        ({"ranges": {"income": [None, None]}, "locked": []}, {}),
        (
            {"ranges": {"income": [None, 700]}, "diagnose": False, "locked": ["savings", "school", "job"]},
            {
                "constraints": [Range("income", None, 700)],
                "diagnose": False,
                "locked": ["savings", "school", "job"],
            },
        ),
    ],
)
def test_parameters_mean_what_they_mean_in_the_library(client, rows, sent, library):
    assert client.explain(rows[:2], **sent) == explain_directly(people()[1].iloc[:2], **library)


def test_what_is_proven_is_in_the_answer(client, rows):
    pytest.importorskip("ortools")
    sent = client.explain(rows[:4], certify=2)
    expected = explain_directly(people()[1].iloc[:4], certify=2)
    assert any(row["proof"] for row in sent)
    for name in ("bound_status", "proof", "relax"):
        assert [row[name] for row in sent] == [row[name] for row in expected]


@pytest.mark.parametrize("seconds", [0, -1, 11, "long"])
def test_the_seconds_of_a_proof_are_limited(client, rows, seconds):
    body = {"instances": rows[:1], "parameters": {"certify": seconds}}
    assert client.post(f"{AT}:explain", body).status_code == 422


def test_reasons_are_left_out_where_nobody_asks(client, rows):
    kept = [name for name in rows[0] if name != "age"]
    loud, quiet = (client.explain(rows[:4], "yes", locked=kept, diagnose=asked) for asked in (True, False))
    assert [row["status"] for row in loud] == [row["status"] for row in quiet]
    without = [row["reason"] for row in quiet if row["status"] == "infeasible"]
    assert set(without) == {"no answer was found; reasons were not asked for"}
    named = [row["reason"] for row in loud if row["status"] == "infeasible"]
    assert not set(named) & set(without)


def test_requests_of_many_clients_that_run_together_get_the_same_answers_as_alone(rows, monkeypatch):
    """Targets, locked features and rows differ; two rows have invalid cells."""
    frame, bodies, expected = people()[1], [], []
    for i in range(12):
        target, locked = ("yes" if i % 3 else "no"), (["savings"] if i % 4 == 1 else [])
        bodies.append({"instances": [rows[i]], "target": target, "parameters": {"locked": locked}})
        expected.append(explain_directly(frame.iloc[[i]], target, locked=locked or None))
    bodies[5] = {"instances": [{**rows[5], "income": "a lot"}], "target": "yes"}
    bodies[7] = {"instances": [{**rows[7], "job": "astronaut"}], "target": "no"}
    monkeypatch.setattr(batching, "WAIT_SHARE", 1e9)
    with Client(settings=ServiceSettings(batch_wait_ms=1000)) as client:
        client.explain(rows[:1])
        answers = client.together([("POST", f"{AT}:explain", {"json": body}) for body in bodies])
        together = client.get("/metrics").text
    assert [answer.status_code for answer in answers] == [200] * 12
    for i, answer in enumerate(answers):
        found = answer.json()["explanations"]
        if i in (5, 7):
            assert found[0]["status"] == "invalid_input"
            assert ("a lot" if i == 5 else "astronaut") in found[0]["reason"]
        else:
            assert max_difference(found, expected[i]) < 1e-9
    assert 'plausiflow_batch_rows_bucket{le="8.0"} 2.0' in together, "eleven rows together, and one alone"
    assert 'plausiflow_batch_rows_bucket{le="16.0"} 3.0' in together


def test_an_invalid_row_gets_a_verdict_and_its_neighbours_keep_their_answers(client, rows):
    sent = [
        rows[0],
        {**rows[1], "income": "a lot"},
        {**rows[2], "age": None},
        rows[3],
        {**rows[4], "owns": 1e999},
    ]
    text = json.dumps({"instances": sent}).replace("Infinity", "1e999")
    answer = client.post(f"{AT}:explain", content=text)
    found = answer.json()["explanations"]
    assert [row["status"] for row in found] == [
        "found",
        "invalid_input",
        "invalid_input",
        "found",
        "invalid_input",
    ]
    assert [row["row"] for row in found] == [0, 1, 2, 3, 4]
    assert [found[0], {**found[3], "row": 1}] == explain_directly(people()[1].iloc[[0, 3]])
    assert found[1]["factual"]["income"] == "a lot"


def test_predictions_are_those_of_the_library_and_an_unreadable_row_has_its_problem(client, rows):
    explainer, frame = people()
    answer = client.post(f"{AT}:predict", {"instances": [*rows[:5], {**rows[5], "job": "astronaut"}]})
    found, expected = answer.json()["predictions"], explainer.predict_proba(frame.iloc[:5])
    assert [row["outcome"] for row in found[:5]] == explainer.predict(frame.iloc[:5]).tolist()
    assert [row["probabilities"] for row in found[:5]] == expected.to_dict(orient="records")
    assert {row["problem"] for row in found[:5]} == {None}
    assert (found[5]["outcome"], found[5]["probabilities"]) == (None, None)
    assert "astronaut" in found[5]["problem"]


@pytest.fixture(scope="module")
def houses():
    """Return an explainer of a model that predicts a number, and its rows."""
    draw = np.random.default_rng(0)
    x = pd.DataFrame({"size": draw.integers(20, 200, 160), "age": draw.uniform(0, 90, 160).round(1)})
    y = pd.Series(2.0 * x["size"] - x["age"], name="price")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        explainer = Explainer(LinearRegression().fit(x, y), confidence=None, judges=0).fit(x, y)
    return explainer, x


def test_the_target_of_a_predicted_number_is_a_pair_of_bounds(houses):
    explainer, x = houses
    rows = instances(x.iloc[:3])
    with Client({"houses": explainer}) as client:
        at = "/v1/models/houses"
        description = client.get(at).json()
        values = [
            row["value"] for row in client.post(f"{at}:predict", {"instances": rows}).json()["predictions"]
        ]
        same = client.post(f"{at}:explain", {"instances": rows, "target": [300, None]})
        each = client.post(
            f"{at}:explain", {"instances": rows, "target": [[300, None], [None, 50], [100, 120]]}
        )
        wrong = [
            client.post(f"{at}:explain", {"instances": rows, "target": t}) for t in ("opposite", [2, 1], [1])
        ]
    assert (description["outcome"], description["outcomes"]) == ("price", [])
    assert values == explainer.predict(x.iloc[:3]).tolist()
    for answer, target in ((same, (300, None)), (each, [(300, None), (None, 50), (100, 120)])):
        expected = json.loads(explainer.explain(x.iloc[:3], target).to_json())["rows"]
        assert answer.json()["explanations"] == expected
    assert {(answer.status_code, "number" in answer.json()["error"]) for answer in wrong} == {(422, True)}


def test_a_label_that_is_not_text_may_be_sent_as_it_is_or_as_text():
    frame = people()[1]
    explainer = stand_in(frame, push={"income": 3.0}, labels=(0, 1), orders=ORDERS)
    with Client({NAME: explainer}) as client:
        rows = instances(frame.iloc[:1])
        found = [client.explain(rows, target)[0]["target"] for target in (1, "1", [1])]
        answer = client.post(f"{AT}:explain", {"instances": rows, "target": True})
    assert found == [1, 1, 1]
    assert answer.status_code == 422
