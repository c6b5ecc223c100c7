"""Timeouts, overload and unexpected errors: each gets a response, and the log has no value of a row."""

import asyncio
import json
import threading
from dataclasses import replace

import pytest

from plausiflow.errors import InvalidInputError, ModelError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier
from plausiflow.service import ServiceSettings, jobs
from plausiflow.service.errors import RequestError
from plausiflow.service.jobs import explain_jobs
from plausiflow.service.logs import logging_to
from plausiflow.service.schemas import build_schemas
from processes import wait_for
from serving import AT, NAME, Client, people


@pytest.fixture
def slow(monkeypatch):
    """Let explanations wait until the event is set; yield it and the number of rows of each call."""
    gate, calls, original = threading.Event(), [], jobs.run_explain

    def run(batch, seconds):
        calls.append(sum(job.size for job in batch))
        gate.wait(10)
        return original(batch, seconds)

    monkeypatch.setattr(jobs, "run_explain", run)
    yield gate, calls
    gate.set()


def make_jobs(service, rows):
    """Return the jobs of an explanation of rows."""
    served = service.models[NAME]
    schema = build_schemas(served, service.settings).explain
    return explain_jobs(served, schema.model_validate({"instances": rows}))


def test_a_service_whose_search_does_not_end_is_not_ready(slow, rows):
    gate, _ = slow
    with Client(settings=ServiceSettings(time_limit=0.2)) as client:
        assert client.explain(rows[:1])[0]["status"] == "not_reached"
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready"), "it is stuck"
        gate.set()
        wait_for(lambda: client.service.searches.busy_seconds() == 0)
        assert client.get("/readyz").status_code == 200


def test_rows_that_the_search_does_not_reach_in_time_have_that_status(monkeypatch, rows):
    run = jobs.run_explain
    monkeypatch.setattr(jobs, "run_explain", lambda batch, seconds: run(batch, 0.0))
    with Client() as client:
        assert client.explain(rows[:1])[0]["status"] == "not_reached"


def test_requests_are_refused_while_the_queue_is_full_and_accepted_afterwards(slow, rows):
    gate, calls = slow
    with Client(settings=ServiceSettings(max_rows=4, queue_rows=4, retry_after=7)) as client:
        service = client.service
        batch = make_jobs(service, rows[:4])
        futures = service.searches.submit(batch, 10)
        wait_for(lambda: calls)
        futures += service.searches.submit(batch, 10)
        answer = client.post(f"{AT}:explain", {"instances": rows[:1]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert "4 rows are waiting" in answer.json()["error"]
        assert client.get("/healthz").status_code == 200
        gate.set()
        assert [len(future.result(10).texts) for future in futures] == [4, 4]
        assert client.explain(rows[:1])[0]["status"] == "found"


def test_the_jobs_of_a_client_that_disconnects_are_cancelled(slow, rows):
    gate, calls = slow
    with Client() as client:
        service = client.service

        async def leave():
            left = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, left.set)
            first = asyncio.ensure_future(service.run(make_jobs(service, rows[:1]), asyncio.Event().wait))
            while not calls:
                await asyncio.sleep(0.001)
            with pytest.raises(RequestError, match="closed the connection"):
                await service.run(make_jobs(service, rows[:1]), left.wait)
            gate.set()
            return await first

        assert len(client._runner.run(leave())[0]) == 1
        wait_for(lambda: service.searches.waiting_rows == 0)
        assert calls == [1], "a job that nobody waits for does not run"


class Secret(Exception):
    """An error that quotes a cell."""


@pytest.mark.parametrize("error", [Secret("income 123456"), ModelError("income 123456")])
def test_an_unexpected_error_has_an_id_and_no_trace_and_the_log_has_no_row_values(
    monkeypatch, rows, tmp_path, error
):
    def fail(batch, seconds):
        raise error

    monkeypatch.setattr(jobs, "run_predict", fail)
    with (tmp_path / "log").open("w") as file, logging_to(file), Client() as client:
        answer = client.post(f"{AT}:predict", {"instances": [{**rows[0], "income": 123456}]})
    assert answer.status_code == 500
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    failed, request = log
    assert failed["id"] == request["id"] == answer.headers["x-request-id"]
    assert failed["id"] in answer.json()["error"]
    assert failed["error"] == type(error).__name__
    code = "model_error" if isinstance(error, ModelError) else "internal_error"
    assert failed["code"] == answer.json()["code"] == code
    assert failed["trace"][-1].endswith(" fail")
    for text in (answer.text, (tmp_path / "log").read_text()):
        assert "123456" not in text
        assert "income" not in text
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text


def test_the_log_has_one_line_per_request_and_no_value_of_its_rows(rows, tmp_path):
    with (tmp_path / "log").open("w") as file, logging_to(file), Client() as client:
        client.explain([{**rows[0], "job": "astronaut"}, rows[1]])
        client.get("/healthz?secret=astronaut")
        client.post(f"{AT}:predict", {"instances": [{"job": "astronaut"}]})
    text = (tmp_path / "log").read_text()
    assert "astronaut" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    keys = {"time", "level", "event", "id", "method", "path", "status", "ms", "rows", "batch"}
    assert all(set(line) == keys for line in lines)
    assert [(line["path"], line["status"], line["rows"], line["batch"]) for line in lines] == [
        (f"{AT}:explain", 200, 2, 2), ("/healthz", 200, 0, 0), (f"{AT}:predict", 422, 0, 0),
    ]  # fmt: skip


def test_invalid_explainers_rows_and_settings_are_refused_at_the_start():
    explainer, frame = people()
    with pytest.raises(InvalidInputError, match="one explainer or more"):
        Client({})
    with pytest.raises(InvalidInputError, match="letters, digits"):
        Client({"a:b": explainer})
    with pytest.raises(NotFittedError):
        Client({NAME: Explainer(LinearClassifier())})
    with pytest.raises(InvalidInputError, match="income"):
        Client(rows={NAME: frame.drop(columns="income")})
    with pytest.raises(InvalidInputError, match="rows or targets for other"):
        Client(rows={"other": frame})
    with pytest.raises(
        InvalidInputError, match=r"`max_rows` must be .*; `queue_rows` must be .*; `time_limit`"
    ):
        ServiceSettings(max_rows=0, queue_rows=-1, time_limit=0)
    with pytest.raises(
        InvalidInputError, match=r"`max_counterfactuals` must be .*; `header_timeout` .*; `body_timeout`"
    ):
        ServiceSettings(max_counterfactuals=99, header_timeout=-1, body_timeout=float("inf"))
    assert replace(ServiceSettings(), batch_rows=1).batch_rows == 1
