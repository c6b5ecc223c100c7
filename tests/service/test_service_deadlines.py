"""Time limits and separate queues: explanations end in time, and predictions do not wait behind them."""

import json
import threading
import time

import pytest

from plausiflow.service import ServiceSettings, jobs
from plausiflow.service import service as service_module
from plausiflow_bench.serving.load import max_difference
from serving import AT, Client, people


@pytest.fixture
def slow(monkeypatch):
    """Let explanations wait until the event is set; yield it and the seconds that each had."""
    gate, calls, original = threading.Event(), [], jobs.run_explain

    def run(batch, seconds):
        calls.append(seconds)
        gate.wait(10)
        return original(batch, seconds)

    monkeypatch.setattr(jobs, "run_explain", run)
    yield gate, calls
    gate.set()


def statuses(answer):
    assert answer.status_code == 200, answer.text
    return [row["status"] for row in answer.json()["explanations"]]


def test_an_explanation_over_its_time_limit_has_verdicts_and_the_prediction_of_the_model(slow, rows):
    with Client(settings=ServiceSettings(time_limit=0.3)) as client:
        start = time.monotonic()
        answer = client.post(f"{AT}:explain", {"instances": rows[:3]})
        assert time.monotonic() - start < 0.3 + service_module.OVERRUN_SECONDS + 1
        assert statuses(answer) == ["not_reached"] * 3
    found = answer.json()["explanations"]
    assert [row["predicted"] for row in found] == people()[0].predict(people()[1].iloc[:3]).tolist()
    assert {row["reason"] for row in found} == {"the time limit was over before this row was searched"}


def test_an_explanation_whose_time_is_over_in_the_queue_has_verdicts_at_once(slow, rows):
    gate, calls = slow
    with Client(settings=ServiceSettings(time_limit=0.5)) as client:
        body = {"json": {"instances": rows[:1]}}
        other = {"json": {"instances": rows[:1], "parameters": {"k": 2}}}
        start = time.monotonic()
        answers = client.together([("POST", f"{AT}:explain", body), ("POST", f"{AT}:explain", other)])
        assert time.monotonic() - start < 0.5 + service_module.OVERRUN_SECONDS + 1
        assert [statuses(answer) for answer in answers] == [["not_reached"]] * 2
        assert len(calls) == 1
        gate.set()


def test_the_time_in_the_queue_is_part_of_the_time_limit(slow, rows):
    gate, calls = slow
    with Client(settings=ServiceSettings(time_limit=4.0)) as client:
        threading.Timer(1.0, gate.set).start()
        body = {"json": {"instances": rows[:1]}}
        other = {"json": {"instances": rows[:1], "parameters": {"k": 2}}}
        answers = client.together([("POST", f"{AT}:explain", body), ("POST", f"{AT}:explain", other)])
        assert [statuses(answer) for answer in answers] == [["found"]] * 2
    assert 3.4 < calls[0] <= 3.6
    assert 2.0 < calls[1] < 2.8


def test_predictions_do_not_wait_behind_explanations(slow, rows):
    gate, _ = slow
    with Client() as client:
        body = {"json": {"instances": rows[:2]}}
        threading.Timer(2.0, gate.set).start()
        asked = [("POST", f"{AT}:explain", body), ("POST", f"{AT}:predict", body)]
        explained, predicted = client.together(asked)
    assert statuses(explained) == ["found"] * 2
    assert predicted.status_code == 200
    assert predicted.elapsed.total_seconds() < 1 < explained.elapsed.total_seconds()


def test_predictions_and_explanations_at_the_same_time_are_those_of_the_library(client, rows):
    explainer, frame = people()
    requests = [
        ("POST", f"{AT}:explain", {"json": {"instances": [row], "target": "yes"}}) for row in rows[:8]
    ]
    requests += [
        ("POST", f"{AT}:predict", {"json": {"instances": rows[i : i + 5]}}) for i in range(0, 100, 5)
    ]
    answers = [answer.json() for answer in client.together(requests)]
    explained = [row for answer in answers[:8] for row in answer["explanations"]]
    predicted = [row for answer in answers[8:] for row in answer["predictions"]]
    expected = json.loads(explainer.explain(frame.iloc[:8], "yes").to_json())["rows"]
    assert max_difference(explained, [{**row, "row": 0} for row in expected]) < 1e-9
    assert [row["outcome"] for row in predicted] == explainer.predict(frame.iloc[:100]).tolist()


def test_a_model_that_does_not_answer_is_an_error_in_time(monkeypatch, slow, rows):
    gate, _ = slow
    monkeypatch.setattr(jobs, "run_unreached", lambda batch, seconds: gate.wait(10))
    monkeypatch.setattr(service_module, "LATE_SECONDS", 0.2)
    with Client(settings=ServiceSettings(time_limit=0.2)) as client:
        answer = client.post(f"{AT}:explain", {"instances": rows[:1]})
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")
        assert "0.2 s" in answer.json()["error"]
        gate.set()


def test_a_prediction_over_its_time_limit_is_an_error(monkeypatch, rows):
    gate, run = threading.Event(), jobs.run_predict
    monkeypatch.setattr(jobs, "run_predict", lambda batch, seconds: gate.wait(10) and run(batch, seconds))
    with Client(settings=ServiceSettings(time_limit=0.2)) as client:
        assert client.post(f"{AT}:predict", {"instances": rows[:1]}).status_code == 504
        gate.set()


def test_a_request_has_a_limited_number_of_counterfactuals(rows):
    with Client(settings=ServiceSettings(max_rows=5, max_counterfactuals=6)) as client:
        answers = [
            client.post(f"{AT}:explain", {"instances": rows[:n], "parameters": {"k": k}})
            for n, k in ((3, 3), (1, 48), (2, 3), (5, 1))
        ]
    assert [answer.status_code for answer in answers] == [413, 413, 200, 200]
    assert "6 counterfactuals, rows × `k`; got 3 × 3 = 9" in answers[0].json()["error"]
    assert answers[0].json()["code"] == "too_large"
