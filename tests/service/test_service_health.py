"""A failing model is an error and makes the service not ready; health and metadata of KServe."""

import json

import numpy as np
import pandas as pd
import pytest

from plausiflow import __version__
from plausiflow.core.training import Training
from plausiflow.densities import mixed
from plausiflow.errors import ModelError
from plausiflow.explainer import Explainer
from plausiflow.service import ServiceSettings, batching, health
from plausiflow.service.health import MAX_FAILURES
from plausiflow.service.logs import logging_to
from serving import AT, NAME, Client, instances, people

V2 = f"/v2/models/{NAME}"


@pytest.fixture
def broken(monkeypatch):
    """Let the model fail for every row while the returned list is not empty; the list counts calls."""
    explainer, fails = people()[0], [0]

    def failing(original):
        def call(frame, *args, **options):
            if fails:
                fails[0] += 1
                raise ModelError(f"income {frame['income'].iloc[0]}") from ValueError("income")
            return original(frame, *args, **options)

        return call

    for name in ("explain", "predict", "predict_proba"):
        monkeypatch.setattr(explainer, name, failing(getattr(explainer, name)))
    monkeypatch.setattr(health, "PROBE_INTERVAL", 0.0)
    return fails


@pytest.mark.parametrize("route", ["explain", "predict"])
def test_a_failing_model_is_an_error_with_a_code_and_its_type_is_logged(broken, rows, tmp_path, route):
    with (tmp_path / "log").open("w") as file, logging_to(file), Client() as client:
        answer = client.post(f"{AT}:{route}", {"instances": rows[:2]})
    assert answer.status_code == 500
    assert answer.json()["code"] == "model_error"
    line, _ = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert (line["level"], line["code"], line["error"]) == ("error", "model_error", "ModelError")
    assert line["causes"] == ["ValueError"]
    assert line["id"] in answer.json()["error"]


def test_the_service_is_not_ready_after_repeated_failures_and_ready_after_a_success(broken, rows):
    with Client() as client:
        assert client.get("/readyz").status_code == 200
        for _ in range(MAX_FAILURES - 1):
            client.post(f"{AT}:predict", {"instances": rows[:1]})
        assert client.get("/readyz").status_code == 200
        client.post(f"{AT}:explain", {"instances": rows[:1]})
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "model_error")
        assert NAME in answer.json()["error"]
        assert client.get("/v2/health/ready").status_code == client.get(f"{V2}/ready").status_code == 503
        assert client.get(AT).json()["ready"] is False
        assert client.get("/healthz").status_code == 200, "it is alive, so that it is not restarted"
        broken.clear()
        assert client.post(f"{AT}:predict", {"instances": rows[:1]}).status_code == 200
        assert client.get("/readyz").status_code == 200
        assert client.get(AT).json()["ready"] is True


def test_a_service_without_requests_becomes_ready_when_its_model_works_again(broken, rows):
    with Client() as client:
        for _ in range(MAX_FAILURES):
            client.post(f"{AT}:predict", {"instances": rows[:1]})
        calls = broken[0]
        assert client.get("/readyz").status_code == 503
        assert broken[0] == calls + 1, "the question was a probe"
        broken.clear()
        assert client.get("/readyz").status_code == 200


def test_questions_try_a_failing_model_at_most_once_in_an_interval(broken, rows, monkeypatch):
    monkeypatch.setattr(health, "PROBE_INTERVAL", 60.0)
    with Client() as client:
        for _ in range(MAX_FAILURES):
            client.post(f"{AT}:predict", {"instances": rows[:1]})
        calls = broken[0]
        assert {client.get("/readyz").status_code for _ in range(20)} == {503}
        assert broken[0] == calls + 1


def test_rows_that_the_model_is_not_asked_about_do_not_make_it_ready(broken, rows):
    with Client() as client:
        for _ in range(MAX_FAILURES):
            client.post(f"{AT}:predict", {"instances": rows[:1]})
        broken.clear()
        wrong = [{**rows[0], "income": "a lot"}]
        assert client.explain(wrong)[0]["status"] == "invalid_input"
        assert client.post(f"{AT}:predict", {"instances": wrong}).status_code == 200
        assert client.get(AT).json()["ready"] is False
        client.explain(rows[:1])
        assert client.get(AT).json()["ready"] is True


def test_a_single_bad_row_is_a_verdict_and_leaves_the_service_ready(rows):
    with Client() as client:
        for _ in range(MAX_FAILURES + 1):
            assert client.explain([{**rows[0], "income": "a lot"}])[0]["status"] == "invalid_input"
        assert client.get("/readyz").status_code == 200


def test_many_requests_in_one_batch_are_one_failure_and_one_call(broken, rows, monkeypatch):
    monkeypatch.setattr(batching, "WAIT_SHARE", 1e9)
    with Client(settings=ServiceSettings(batch_wait_ms=10_000, batch_rows=12)) as client:
        client.post(f"{AT}:predict", {"instances": rows[:1]})
        calls = broken[0]
        body = {"json": {"instances": rows[:1]}}
        answers = client.together([("POST", f"{AT}:predict", body)] * 12)
        assert {answer.status_code for answer in answers} == {500}
        assert broken[0] == calls + 1
        assert client.get("/readyz").status_code == 200


class Remote:
    """A model that may be down."""

    def __init__(self):
        self.answer = None

    def __call__(self, frame):
        if isinstance(self.answer, Exception):
            raise self.answer
        share = 1 / (1 + np.exp((100 - frame["size"].to_numpy()) / 20))
        return np.stack([share, 1 - share], axis=1) if self.answer is None else self.answer


@pytest.fixture(scope="module")
def remote():
    """Return a model, its explainer and its rows."""
    draw, model = np.random.default_rng(0), Remote()
    x = pd.DataFrame({"size": draw.integers(20, 200, 160), "age": draw.uniform(0, 90, 160).round(1)})
    y = pd.Series(np.where(x["size"] > 100, "large", "small"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        explainer = Explainer(model, confidence=None, judges=0).fit(x, y)
    return model, explainer, instances(x.iloc[:3])


@pytest.mark.parametrize(
    "answer", [OSError("down"), "down", -np.ones((1, 2))], ids=["error", "text", "negative"]
)
@pytest.mark.parametrize("route", ["explain", "predict"])
def test_a_model_that_is_down_is_not_an_invalid_row(remote, route, answer):
    model, explainer, rows = remote
    address, body = f"/v1/models/remote:{route}", {"instances": rows}
    with Client({"remote": explainer}) as client:
        model.answer = answer
        down = client.post(address, body)
        model.answer = None
        up = client.post(address, body)
    assert (down.status_code, down.json().get("code"), up.status_code) == (500, "model_error", 200)


HEALTH = ("/healthz", "/readyz", "/v2", "/v2/health/live", "/v2/health/ready", V2, f"{V2}/ready")


def test_addresses_of_health_support_head(client):
    for path in HEALTH:
        get, head = client.get(path), client.request("HEAD", path)
        assert (get.status_code, head.status_code, head.content) == (200, 200, b""), path
        assert head.headers["content-length"] == str(len(get.content))


def test_health_and_metadata_of_the_version_2_of_kserve(client):
    assert client.get("/v2").json() == {"name": "plausiflow", "version": __version__, "extensions": []}
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    assert client.get(f"{V2}/ready").json() == {"name": NAME, "ready": True}
    metadata = client.get(V2).json()
    assert (metadata["name"], metadata["platform"]) == (NAME, "plausiflow")
    assert {one["name"]: one["datatype"] for one in metadata["inputs"]} == {
        "age": "INT64", "income": "INT64", "savings": "FP64", "job": "BYTES", "school": "BYTES",
        "owns": "BOOL", "gain": "FP64",
    }  # fmt: skip
    assert metadata["outputs"] == [
        {"name": "outcome", "datatype": "BYTES", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP64", "shape": [-1, 2]},
    ]
