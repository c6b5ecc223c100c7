"""Responses of the service: models, rows, maps, the page, health, metrics and headers."""

import pandas as pd
import pytest

from plausiflow.constraints import Implies, LearnedRule, LearnedRules
from serving import AT, NAME, Client, instances, people


def test_the_description_of_a_model_has_its_features_and_a_typical_row_that_can_be_explained(client):
    assert client.get("/v1/models").json() == {"models": [NAME]}
    description = client.get(AT).json()
    by_name = {feature["name"]: feature for feature in description["features"]}
    frame = people()[1]
    assert list(by_name) == list(frame.columns)
    assert (description["name"], description["ready"], description["outcomes"]) == (NAME, True, ["no", "yes"])
    assert description["rules"] == ['Immutable("age")']
    assert {name: f["kind"] for name, f in by_name.items()} == {
        "age": "integer", "income": "integer", "savings": "number", "job": "category", "school": "ordered",
        "owns": "boolean", "gain": "integer",
    }  # fmt: skip
    income = by_name["income"]
    assert (income["smallest"], income["largest"], income["step"]) == (
        frame["income"].min(),
        frame["income"].max(),
        100,
    )
    assert by_name["school"]["levels"] == ["none", "basic", "high", "phd"]
    assert [name for name, feature in by_name.items() if feature["immutable"]] == ["age"]
    assert [name for name, feature in by_name.items() if feature["missing"]] == ["job", "gain"]
    assert description["typical"]["income"] == sorted(frame["income"])[(len(frame) - 1) // 2]
    assert description["typical"]["job"] == frame["job"].mode()[0]
    assert client.explain([description["typical"]])[0]["status"] == "found"


def test_the_description_of_a_model_has_the_rules_learned_from_the_table(monkeypatch):
    explainer, _ = people()
    rule = LearnedRule(Implies("owns == True", "savings != 0"), 120, 60, 0)
    monkeypatch.setattr(explainer, "learned_rules", LearnedRules([rule]))
    with Client() as client:
        learned = client.get(AT).json()["learned_rules"]
    assert learned == [
        {
            "rule": str(rule),
            "description": "if owns == True, then savings != 0",
            "rows": 120,
            "support": 60,
            "exceptions": 0,
            "active": True,
        }
    ]


def test_the_first_two_hundred_rows_are_offered_as_examples(rows):
    frame = people()[1]
    many = pd.concat([frame] * 2, ignore_index=True).assign(more=1)
    with Client(rows={NAME: many}) as client:
        offered = client.get(f"{AT}/rows").json()["rows"]
    assert offered == (rows * 2)[:200]
    with Client() as client:
        assert client.get(f"{AT}/rows").json() == {"rows": []}


def test_a_map_is_drawn_around_a_row(client, rows):
    body = {"instance": rows[0], "target": "yes", "points": rows[1:3], "size": 6}
    body |= {"horizontal": "income", "vertical": "job"}
    drawn = client.post(f"{AT}:map", body).json()
    assert drawn["kind"] == "features"
    assert len(drawn["points"]) == 3
    assert {len(line) for line in drawn["score"]} == {6}


AXES = "must name two different features as `horizontal` and `vertical`, or neither"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"size": 1}, "`size` must be a whole number from 2 to 80; got 1"),
        ({"size": 81}, "`size` must be a whole number from 2 to 80; got 81"),
        ({"size": "6"}, "`size` must be a whole number from 2 to 80; got '6'"),
        ({"size": True}, "`size` must be a whole number from 2 to 80; got true"),
        ({"points": {}}, "`points` must be a valid list; got an object of 0"),
        ({"points": [{}]}, "`points[0].age` is missing"),
        ({"points": [[1, 2]]}, "`points[0]` must be an object; got a list of 2"),
        ({"instance": []}, "`instance` must be an object; got a list of 0"),
        ({"instance": {"age": 30}}, "`instance.income` is missing"),
        (
            {"instance": {"job": [1]}},
            "`instance.job` must be text, a number, true, false or null; got a list",
        ),
        ({"target": "opposite"}, "one of the outcomes 'no', 'yes'; got 'opposite'"),
        ({"target": "maybe"}, "one of the outcomes 'no', 'yes'; got 'maybe'"),
        ({"horizontal": "incom"}, "`horizontal` must be one of 'age', 'income'"),
        ({"horizontal": "incom"}, "got 'incom'; did you mean 'income'?"),
        ({"horizontal": "age"}, AXES),
        ({"horizontal": "age", "vertical": "age"}, AXES),
        ({"more": 1}, "The body has unknown names: 'more'"),
    ],
)
def test_an_invalid_map_request_is_refused_with_the_reason(client, rows, changed, reason):
    changed = {name: rows[0] | value if value == {"job": [1]} else value for name, value in changed.items()}
    answer = client.post(f"{AT}:map", {"instance": rows[0], "target": "yes"} | changed)
    assert answer.status_code == 422
    assert reason in answer.json()["error"]


def test_only_the_files_of_the_page_are_served_with_their_media_types(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert b"<html" in page.content
    assert client.get("/static/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/static/style.css").headers["content-type"].startswith("text/css")
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/",
        "/docs",
        "/redoc",
    ):
        assert client.get(path).status_code == 404, path


def test_health_readiness_and_metrics():
    with Client() as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        assert client.get("/readyz").json() == {"status": "ready"}
        client.explain(instances(people()[1].iloc[:3]))
        client.post(f"{AT}:explain", {"instances": []})
        text = client.get("/metrics").text
    for line in (
        'plausiflow_requests_total{route="/v1/models/{model}:explain",status="200"} 1.0',
        'plausiflow_requests_total{route="/v1/models/{model}:explain",status="422"} 1.0',
        'plausiflow_rows_total{route="/v1/models/{model}:explain"} 3.0',
        'plausiflow_verdicts_total{status="found"} 3.0',
        "plausiflow_queue_rows 0.0",
        "plausiflow_batch_rows_sum 3.0",
        'plausiflow_request_seconds_count{route="/v1/models/{model}:explain"} 2.0',
    ):
        assert line in text.splitlines(), line
    assert not client.service.is_ready


def test_every_response_has_security_headers_and_answers_are_not_cached(client, rows):
    answers = [client.get("/"), client.get("/nothing"), client.get(AT), client.post(f"{AT}:predict", {})]
    for answer in answers:
        headers = answer.headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert len(headers["x-request-id"]) == 16
        assert "access-control-allow-origin" not in headers
    assert [answer.headers["cache-control"] for answer in answers] == [
        "no-cache",
        "no-store",
        "no-store",
        "no-store",
    ]
    preflight = client.request("OPTIONS", f"{AT}:explain", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 405
