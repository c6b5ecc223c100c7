"""The service: batching, rows in JSON, every address and every refusal, against the library's own answers."""

import asyncio
import json
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pandas as pd
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from sklearn.linear_model import LinearRegression

from explaining import stand_in
from plausiflow.benchmark.load import difference
from plausiflow.classifiers import LinearClassifier
from plausiflow.constraints import Range
from plausiflow.data.schema import Schema
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, ModelError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.search import fitting
from plausiflow.service import ServiceSettings, batching, work
from plausiflow.service.asking import explaining
from plausiflow.service.batching import Batcher, Closed, QueueFull
from plausiflow.service.bodies import parsed
from plausiflow.service.instances import Reader
from plausiflow.service.logs import logging_to
from plausiflow.service.refusals import Refusal
from plausiflow.service.server import check_reach
from plausiflow.training import Training
from processes import wait_for
from searching import ORDERS
from serving import AT, NAME, Client, instances, people

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def client():
    with Client(rows={NAME: people()[1]}) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    return instances(people()[1])


def as_library(frame, target="opposite", **options):
    """What the library writes for a table, with the positions of its rows as labels."""
    result = people()[0].explain(frame.reset_index(drop=True), target, **options)
    return json.loads(result.to_json())["rows"]


# ---------------------------------------------------------------- batching, with work that is only counted


@dataclass(frozen=True, eq=False)
class Sum:
    """Work that is answered with its number, and how much was done with it."""

    number: int
    key: str = "a"
    size: int = 1


@dataclass
class Counting:
    """Answers work, and remembers what was asked together; ``gate`` holds the first call back."""

    calls: list[list[int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)

    def __call__(self, works, seconds):
        self.begun.set()
        self.gate.wait(10)
        self.calls.append([w.number for w in works])
        self.seconds.append(seconds)
        wrong = [w.number for w in works if w.number < 0]
        if wrong:
            raise SystemExit if wrong[0] == -2 else ValueError(wrong[0])
        return [(w.number, len(works)) for w in works]


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def batcher(counting):
    made = Batcher(counting, queue_rows=20, batch_rows=8, long=5, wait=1.0)
    made.start()
    yield made
    counting.gate.set()
    made.close(10)


def occupied(batcher, counting):
    """A future of work that keeps the thread busy until the gate opens."""
    (future,) = batcher.submit([Sum(0, "first")], 10)
    assert counting.begun.wait(10)
    return future


def test_work_that_waits_is_done_together_by_key_and_each_gets_its_own_answer(batcher, counting):
    first = occupied(batcher, counting)
    futures = [batcher.submit([Sum(n, "ab"[n % 2])], 10)[0] for n in range(1, 7)]
    counting.gate.set()
    assert [future.result(10) for future in futures] == [(n, 3) for n in range(1, 7)]
    assert first.result(10) == (0, 1)
    assert counting.calls == [[0], [1, 3, 5], [2, 4, 6]]


def test_no_more_rows_are_done_together_than_a_batch_has_but_larger_work_is_done_alone(batcher, counting):
    occupied(batcher, counting)
    futures = batcher.submit([Sum(1, size=5), Sum(2, size=3), Sum(3, size=1), Sum(4, size=9)], 10)
    counting.gate.set()
    assert [future.result(10)[0] for future in futures] == [1, 2, 3, 4]
    assert counting.calls[1:] == [[1, 2], [3], [4]]


def test_work_that_comes_while_more_keeps_coming_is_waited_for(batcher, counting, monkeypatch):
    monkeypatch.setattr(batching, "WAITED", 1e9)
    counting.gate.set()
    futures = batcher.submit([Sum(9)], 10)
    assert futures.pop().result(10) == (9, 1)
    for n in range(4):
        futures += batcher.submit([Sum(n)], 10)
        time.sleep(0.002)
    assert {future.result(10)[1] for future in futures} == {4}


def test_less_is_done_together_where_it_took_long_and_more_again_where_it_is_quick(counting):
    batcher = Batcher(counting, queue_rows=200, batch_rows=32, long=0.5, wait=0)
    batcher.start()
    (first,) = batcher.submit([Sum(0, "first", size=32)], 10)
    assert counting.begun.wait(10)
    futures = batcher.submit([Sum(n) for n in range(1, 81)], 10)
    time.sleep(0.55)
    counting.gate.set()
    assert [future.result(10)[0] for future in (first, *futures)] == list(range(81))
    assert [len(call) for call in counting.calls] == [1, 16, 32, 32]
    batcher.close(10)


def test_a_full_queue_refuses_all_of_a_request_and_takes_the_next_when_there_is_room(batcher, counting):
    occupied(batcher, counting)
    taken = batcher.submit([Sum(n, size=6) for n in range(1, 4)], 10)
    with pytest.raises(QueueFull):
        batcher.submit([Sum(8), Sum(9, size=2)], 10)
    assert batcher.waiting_rows == 18
    taken += batcher.submit([Sum(8, size=2)], 10)
    counting.gate.set()
    assert [future.result(10)[0] for future in taken] == [1, 2, 3, 8]
    assert batcher.waiting_rows == 0
    assert batcher.submit([Sum(9, size=20)], 10)[0].result(10) == (9, 1)


@pytest.mark.parametrize("wrong", [-1, -2])
def test_work_that_fails_does_no_harm_to_its_neighbours_nor_to_the_thread(batcher, counting, wrong):
    occupied(batcher, counting)
    futures = batcher.submit([Sum(n) for n in (1, 2, wrong, 3, 4)], 10)
    counting.gate.set()
    assert [futures[i].result(10)[0] for i in (0, 1, 3, 4)] == [1, 2, 3, 4]
    assert isinstance(futures[2].exception(10), ValueError if wrong == -1 else RuntimeError)
    assert batcher.submit([Sum(5)], 10)[0].result(10) == (5, 1)


def test_work_that_is_cancelled_or_too_late_is_not_done(batcher, counting):
    occupied(batcher, counting)
    gone, late, right = (batcher.submit([Sum(n)], s)[0] for n, s in ((1, 10), (2, 0.01), (3, 10)))
    assert gone.cancel()
    time.sleep(0.02)
    counting.gate.set()
    assert right.result(10) == (3, 1)
    assert isinstance(late.exception(10), TimeoutError)
    with pytest.raises(CancelledError):
        gone.result(10)
    assert counting.calls == [[0], [3]]
    assert 8 < counting.seconds[-1] < 9, "a tenth of the time is left for sending"


def test_when_it_is_closed_it_finishes_what_waits_and_takes_nothing_more(counting):
    batcher = Batcher(counting, queue_rows=20, batch_rows=1, long=5, wait=5)
    batcher.start()
    first = occupied(batcher, counting)
    futures = batcher.submit([Sum(n) for n in range(1, 5)], 10)
    ending = threading.Thread(target=batcher.close)
    ending.start()
    wait_for(lambda: not batcher.is_open)
    with pytest.raises(Closed):
        batcher.submit([Sum(9)], 10)
    counting.gate.set()
    ending.join(10)
    assert [future.result(0)[0] for future in (first, *futures)] == [0, 1, 2, 3, 4]


def test_a_thread_that_is_long_at_the_same_work_says_so(batcher, counting):
    assert batcher.busy_for() == 0
    occupied(batcher, counting)
    time.sleep(0.01)
    assert batcher.busy_for() >= 0.01


# ---------------------------------------------------------------- rows of JSON

COLUMNS = {
    "whole": pd.Series([3, -7, 2**60], dtype="int64"),
    "small": pd.Series([3, 255, 0], dtype="uint8"),
    "nullable": pd.Series([3, None, -1], dtype="Int16"),
    "number": pd.Series([0.1, None, 1e300], dtype="float64"),
    "single": pd.Series([0.1, None, 3.4e38], dtype="float32"),
    "flag": pd.Series([True, False, True], dtype="bool"),
    "maybe": pd.Series([True, None, False], dtype="boolean"),
    "word": pd.Series(["a", None, "ü"], dtype="str"),
    "level": pd.Series(["low", None, "high"], dtype=pd.CategoricalDtype(["low", "high"], ordered=True)),
    "grade": pd.Series([1, 2, None], dtype=pd.CategoricalDtype([1, 2])),
    "mixed": pd.Series(["a", 1, np.nan], dtype="object"),
    "day": pd.Series(pd.to_datetime(["2024-02-29", None, "1999-12-31T23:59:59.5"], format="ISO8601")),
    "zoned": pd.Series(pd.to_datetime(["2024-02-29T12:00:00Z", None, "1999-12-31T00:00:00Z"])),
}
KEPT = dict.fromkeys(COLUMNS, "identifier")


def jsonable(cell):
    if cell is None or cell is pd.NA or cell is pd.NaT or cell != cell:
        return None
    return cell.isoformat() if isinstance(cell, pd.Timestamp) else getattr(cell, "item", lambda: cell)()


def test_rows_of_json_become_the_table_that_they_were_written_from_dtypes_included():
    frame = pd.DataFrame(COLUMNS)
    reader = Reader(Schema.infer(frame, kinds=KEPT))
    written = json.loads(
        json.dumps([{n: jsonable(frame[n][i]) for n in reversed(frame.columns)} for i in range(3)])
    )
    read = reader.read(written)
    assert {row.wider for row in read} == {()}
    assert_frame_equal(reader.frame(read), frame, check_freq=False)


@pytest.mark.parametrize(
    ("name", "cell", "sort", "wider"),
    [
        ("whole", 2.5, "number", "float64"),
        ("whole", None, "null", "float64"),
        ("whole", 2**70, "number", "float64"),
        ("whole", 10**400, "huge", "object"),
        ("whole", "3", "text", "object"),
        ("whole", True, "boolean", "object"),
        ("small", 256, "number", "float64"),
        ("nullable", 0.5, "number", "Float64"),
        ("number", "x", "text", "object"),
        ("number", 1e999, "huge", "object"),
        ("single", 1e39, "number", "float64"),
        ("flag", 1, "number", "object"),
        ("flag", None, "null", "object"),
        ("word", 7, "number", "object"),
        ("grade", True, "boolean", "object"),
        ("level", " low", "text", "category"),
        ("day", "yesterday", "text", "object"),
        ("day", 3, "number", "object"),
    ],
)
def test_a_cell_that_a_column_cannot_hold_widens_it_the_same_way_whoever_stands_beside(
    name, cell, sort, wider
):
    frame = pd.DataFrame({name: COLUMNS[name]})
    reader = Reader(Schema.infer(frame, kinds={name: "identifier"}))
    (row,) = reader.read([{name: cell}])
    assert row.wider == ((name, sort),)
    assert str(reader.frame([row]).dtypes[name]) == wider
    assert str(reader.frame([row, row]).dtypes[name]) == wider


def test_a_whole_number_may_be_written_with_a_point():
    reader = Reader(Schema.infer(pd.DataFrame({"whole": [1, 2, 3]})))
    assert reader.frame(reader.read([{"whole": 3.0}]))["whole"].tolist() == [3]
    assert reader.read([{"whole": 3.0}])[0].wider == ()


# ---------------------------------------------------------------- bodies

MALFORMED = [
    b"",
    b"\xff\xfe",
    b"{",
    b'{"a": 1,}',
    b"{'a': 1}",
    b"nul",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": 01}',
    b'"\\ud800"',
    b'{"a": 1, "a": 2}',
    b"[" * 100_000,
    b"[" * 40 + b"]" * 40,
    b"1" * 5000,
    b'"\x01"',
    b"[1] [2]",
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_a_body_that_is_no_strict_json_is_refused_with_the_reason(body):
    with pytest.raises(Refusal) as refusal:
        parsed(body)
    assert refusal.value.status == 400
    assert len(refusal.value.text) > 50


def test_large_bodies_of_nonsense_are_refused_quickly(client):
    """Each of these once took time that grows with the square of its size."""
    names = [f"a name of no meaning {i}" for i in range(30_000)]
    twice = "{" + ", ".join(f'"{name}": 1' for name in [*names, names[-1]]) + "}"
    bodies = [
        twice,
        json.dumps(dict.fromkeys(names, 1)),
        json.dumps({"instances": [dict.fromkeys(names[:20_000])]}),
    ]
    start = time.process_time()
    for body in bodies:
        assert len(body) < 1_000_000
        assert client.post(f"{AT}:explain", content=body).status_code in (400, 422)
    assert time.process_time() - start < 2


def test_json_in_any_language_is_read():
    value = {"instances": [{"größe": 1.5, "名": "\U0001f600 \x7f", "n": None, "t": True}]}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parsed(text.encode()) == value
    assert parsed(b'"\\ud83d\\ude00"') == "\U0001f600"


# ---------------------------------------------------------------- answers are the library's


def test_explanations_are_those_of_the_library(client, rows):
    assert client.explain(rows[:8]) == as_library(people()[1].iloc[:8])
    assert client.explain(rows[3:5], "yes", k=3) == as_library(people()[1].iloc[3:5], "yes", k=3)


@pytest.mark.parametrize(
    ("sent", "library"),
    [
        ({"locked": ["income", "school"]}, {"locked": ["income", "school"]}),
        ({"ranges": {"income": [None, 5000]}}, {"constraints": [Range("income", None, 5000)]}),
        ({"min_probability": 0.7}, {"min_probability": 0.7}),
        ({"relaxed": True, "min_probability": 0.95}, {"relaxed": True, "min_probability": 0.95}),
        ({"confidence": None, "k": 2.0}, {"k": 2, "second_opinion": False}),
        ({"ranges": {"income": [None, None]}, "locked": []}, {}),
    ],
)
def test_parameters_mean_what_they_mean_in_the_library(client, rows, sent, library):
    assert client.explain(rows[:2], **sent) == as_library(people()[1].iloc[:2], **library)


def test_questions_of_many_clients_that_are_answered_together_get_the_answers_they_get_alone(
    rows, monkeypatch
):
    """Other targets, locks and rows; one has a cell that no training row has; one cannot be answered."""
    frame, bodies, expected = people()[1], [], []
    for i in range(12):
        target, locked = ("yes" if i % 3 else "no"), (["savings"] if i % 4 == 1 else [])
        bodies.append({"instances": [rows[i]], "target": target, "parameters": {"locked": locked}})
        expected.append(as_library(frame.iloc[[i]], target, locked=locked or None))
    bodies[5] = {"instances": [{**rows[5], "income": "a lot"}], "target": "yes"}
    bodies[7] = {"instances": [{**rows[7], "job": "astronaut"}], "target": "no"}
    monkeypatch.setattr(batching, "WAITED", 1e9)
    with Client(settings=ServiceSettings(batch_wait_ms=1000)) as client:
        client.post(f"{AT}:predict", {"instances": rows[:1]})
        answers = client.together([("POST", f"{AT}:explain", {"json": body}) for body in bodies])
        together = client.get("/metrics").text
    assert [answer.status_code for answer in answers] == [200] * 12
    for i, answer in enumerate(answers):
        found = answer.json()["explanations"]
        if i in (5, 7):
            assert found[0]["status"] == "invalid_input"
            assert ("a lot" if i == 5 else "astronaut") in found[0]["reason"]
        else:
            assert difference(found, expected[i]) < 1e-9
    assert 'plausiflow_batch_rows_bucket{le="8.0"} 2.0' in together, "eleven rows together, and one alone"
    assert 'plausiflow_batch_rows_bucket{le="16.0"} 3.0' in together


def test_a_bad_row_has_a_verdict_and_its_neighbours_keep_their_answers(client, rows):
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
    assert [found[0], {**found[3], "row": 1}] == as_library(people()[1].iloc[[0, 3]])
    assert found[1]["factual"]["income"] == "a lot"


def test_predictions_are_those_of_the_library_and_an_unreadable_row_says_why(client, rows):
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
    """An explainer of a model that predicts a number, and its rows."""
    draw = np.random.default_rng(0)
    x = pd.DataFrame({"size": draw.integers(20, 200, 160), "age": draw.uniform(0, 90, 160).round(1)})
    y = pd.Series(2.0 * x["size"] - x["age"], name="price")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(fitting, "MEMBERS", 2)
        explainer = Explainer(LinearRegression().fit(x, y), confidence=None, judges=0).fit(x, y)
    return explainer, x


def test_a_model_that_predicts_a_number_is_asked_for_bounds(houses):
    explainer, x = houses
    rows = instances(x.iloc[:3])
    with Client({"houses": explainer}) as client:
        at = "/v1/models/houses"
        told = client.get(at).json()
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
    assert (told["outcome"], told["outcomes"]) == ("price", [])
    assert values == explainer.predict(x.iloc[:3]).tolist()
    for answer, target in ((same, (300, None)), (each, [(300, None), (None, 50), (100, 120)])):
        expected = json.loads(explainer.explain(x.iloc[:3], target).to_json())["rows"]
        assert answer.json()["explanations"] == expected
    assert {(answer.status_code, "number" in answer.json()["error"]) for answer in wrong} == {(422, True)}


def test_labels_that_are_no_text_can_be_asked_for_as_they_are_and_as_text():
    frame = people()[1]
    explainer = stand_in(frame, push={"income": 3.0}, labels=(0, 1), orders=ORDERS)
    with Client({NAME: explainer}) as client:
        rows = instances(frame.iloc[:1])
        found = [client.explain(rows, target)[0]["target"] for target in (1, "1", [1])]
        answer = client.post(f"{AT}:explain", {"instances": rows, "target": True})
    assert found == [1, 1, 1]
    assert answer.status_code == 422


# ---------------------------------------------------------------- what clients are told


def test_a_model_tells_what_its_rows_must_be_and_its_typical_row_can_be_asked_about(client):
    assert client.get("/v1/models").json() == {"models": [NAME]}
    told = client.get(AT).json()
    by_name = {feature["name"]: feature for feature in told["features"]}
    frame = people()[1]
    assert list(by_name) == list(frame.columns)
    assert (told["name"], told["ready"], told["outcomes"]) == (NAME, True, ["no", "yes"])
    assert told["rules"] == ['Immutable("age")']
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
    assert told["typical"]["income"] == sorted(frame["income"])[(len(frame) - 1) // 2]
    assert told["typical"]["job"] == frame["job"].mode()[0]
    assert client.explain([told["typical"]])[0]["status"] == "found"


def test_rows_to_start_from_are_the_first_two_hundred(rows):
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1},
        {"size": 81},
        {"size": "6"},
        {"points": {}},
        {"points": [{}]},
        {"instance": []},
        {"target": "opposite"},
        {"target": "maybe"},
        {"horizontal": "incom"},
        {"horizontal": "age"},
        {"more": 1},
    ],
)
def test_a_map_that_cannot_be_drawn_is_refused_with_the_reason(client, rows, wrong):
    answer = client.post(f"{AT}:map", {"instance": rows[0], "target": "yes"} | wrong)
    assert answer.status_code == 422
    assert len(answer.json()["error"]) > 30


def test_the_page_and_its_files_are_served_with_their_types_and_nothing_else_is(client):
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


def test_health_readiness_and_counters():
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


def test_every_answer_carries_headers_that_protect_and_questions_are_never_kept(client, rows):
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


# ---------------------------------------------------------------- what is refused

GOOD = "rows[0], the first row"
REFUSED = [
    ({}, "instances"),
    ([], "object"),
    (None, "object"),
    ({"instances": []}, "one row"),
    ({"instances": {}}, "list"),
    ({"instances": [1]}, "instances[0] is 1"),
    ({"instances": [{}]}, "lacks 'age'"),
    ({"instances": [GOOD, {"age": 1}]}, "instances[1] lacks 'income'"),
    ({"instances": [{"agee": 3}]}, "did you mean 'age'"),
    ({"instances": [GOOD], "taget": "yes"}, "did you mean 'target'"),
    ({"instances": [GOOD], "target": "maybe"}, "'no', 'yes'"),
    ({"instances": [GOOD], "target": ["yes", "no"]}, "each of the 1 rows"),
    ({"instances": [GOOD], "target": None}, "null"),
    ({"instances": [GOOD], "target": {"a": []}}, "outcomes"),
    ({"instances": [GOOD], "parameters": []}, "object"),
    ({"instances": [GOOD], "parameters": {"kk": 1}}, "'kk' is not known"),
    ({"instances": [GOOD], "parameters": {"k": 0}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": 1.5}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": True}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": 10**400}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"confidence": 0.5}}, "null"),
    ({"instances": [GOOD], "parameters": {"relaxed": 1}}, "true or false"),
    ({"instances": [GOOD], "parameters": {"min_probability": 1}}, "between 0 and 1"),
    ({"instances": [GOOD], "parameters": {"locked": "age"}}, "list"),
    ({"instances": [GOOD], "parameters": {"locked": ["incom"]}}, "did you mean 'income'"),
    ({"instances": [GOOD], "parameters": {"locked": [["income"]]}}, "a list of 1"),
    ({"instances": [GOOD], "parameters": {"ranges": []}}, "object"),
    ({"instances": [GOOD], "parameters": {"ranges": {"job": [0, 1]}}}, "'job' is none"),
    ({"instances": [GOOD], "parameters": {"ranges": {"income": 3}}}, "pairs"),
    ({"instances": [GOOD], "parameters": {"ranges": {"income": [2, 1]}}}, "2 and 1"),
    ({"instances": [GOOD], "parameters": {"ranges": {"income": ["a", 1]}}}, "'a' and 1"),
    (
        {"instances": [GOOD], "parameters": {"ranges": {"income": [4410, 4420]}}},
        'used: Range("income", 4410, 4420)',
    ),
]


@pytest.mark.parametrize(("body", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_question_that_cannot_be_answered_is_refused_with_the_reason(client, rows, body, reason):
    if isinstance(body, dict) and isinstance(body.get("instances"), list):
        body = {**body, "instances": [rows[0] if row == GOOD else row for row in body["instances"]]}
    answer = client.post(f"{AT}:explain", content=json.dumps(body))
    assert answer.status_code == 422
    assert reason in answer.json()["error"]


def damaged(random: Random, text: bytes) -> bytes:
    """A body that is cut off, has a byte that JSON has not, or something where other things belong."""
    body, place = json.loads(text), random.randrange(1, len(text))
    row = body["instances"][0]
    match random.randrange(6):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + random.choice([b"\x00", b"\x1f", b"\xff"]) + text[place:]
        case 2:
            body[random.choice(list(body))] = random.choice([None, 7, "x", [[]], True])
        case 3:
            del row[random.choice(list(row))]
        case 4:
            row[random.choice(list(row))] = random.choice([[], {}, [1], {"a": None}])
        case 5:
            name = random.choice(["k", "locked", "ranges", "other", "relaxed"])
            body["parameters"][name] = random.choice([None, -1, "x", [7]])
    return json.dumps(body).encode()


def test_two_hundred_malformed_bodies_are_refused_with_a_reason(client, rows):
    random = Random(7)
    text = json.dumps({"instances": [rows[0]], "target": "yes", "parameters": {}}).encode()
    statuses = set()
    for i in range(200):
        answer = client.post(f"{AT}:explain", content=damaged(random, text))
        statuses.add(answer.status_code)
        assert answer.status_code in (400, 422), (i, answer.text)
        assert len(answer.json()["error"]) > 30
    assert statuses == {400, 422}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_any_json_at_all_is_refused_with_a_reason(client, body):
    text = json.dumps(body)
    answer = client.post(f"{AT}:predict", content=text.encode())
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_too_many_rows_and_too_large_bodies_are_refused_chunked_ones_too(rows):
    async def pieces():
        for _ in range(30):
            yield b" " * 100

    with Client(settings=ServiceSettings(max_rows=3, max_body=2000, queue_rows=3)) as client:
        many = client.post(f"{AT}:predict", {"instances": rows[:4]})
        large = client.post(f"{AT}:predict", content=b" " * 2001)
        chunked = client.post(f"{AT}:predict", content=pieces())
        fits = client.post(f"{AT}:predict", {"instances": rows[:3]})
    assert "content-length" not in chunked.request.headers
    assert [answer.status_code for answer in (many, large, chunked, fits)] == [413, 413, 413, 200]
    assert "3 rows; got 4" in many.json()["error"]
    assert "2000 bytes" in chunked.json()["error"]


def test_a_body_must_say_that_it_is_json(client):
    for said in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        answer = client.post(f"{AT}:predict", content=b"{}", headers=said)
        assert answer.status_code == 415
        assert "Content-Type: application/json" in answer.json()["error"]
    answer = client.post(
        f"{AT}:predict", content=b"{}", headers={"Content-Type": "Application/JSON; charset=utf-8"}
    )
    assert answer.status_code == 422


def test_unknown_addresses_models_and_methods_are_refused_as_json(client):
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/other/rows", 404),
        ("POST", "/v1/models/other:explain", 404),
        ("GET", f"{AT}:explain", 405),
        ("DELETE", AT, 405),
        ("POST", "/v1/models", 405),
    ):
        answer = client.request(method, path)
        assert answer.status_code == status, path
        assert len(answer.json()["error"]) > 20
        assert status != 405 or answer.headers["allow"] in ("GET", "POST")


def test_a_token_is_needed_for_models_but_not_for_health(rows):
    body = {"json": {"instances": rows[:1]}}
    with Client(token=TOKEN) as client:
        for shown in (
            {},
            {"Authorization": TOKEN},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "Bearer "},
        ):
            for method, path, options in (
                ("GET", "/v1/models", {}),
                ("POST", f"{AT}:predict", body),
                ("GET", "/v1/x", {}),
                ("GET", "/openapi.json", {}),
            ):
                answer = client.request(method, path, headers=shown, **options)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert TOKEN not in answer.text
        right = {"Authorization": f"bearer {TOKEN}"}
        assert client.request("POST", f"{AT}:predict", headers=right, **body).status_code == 200
        assert [client.get(path).status_code for path in ("/healthz", "/readyz", "/metrics", "/")] == [
            200
        ] * 4
        assert client.get("/openapi.json", headers=right).json()["paths"][AT]["get"]["security"] == [
            {"token": []}
        ]


def test_a_service_without_a_token_answers_only_to_its_own_names():
    with Client(hosts=frozenset({"localhost", "127.0.0.1", "[::1]"})) as client:
        for host, status in (
            ("localhost:80", 200),
            ("[::1]:8080", 200),
            ("LOCALHOST", 200),
            ("evil.example", 421),
            ("", 421),
        ):
            assert client.get("/v1/models", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_other_machines_are_not_served_without_a_token_unless_that_is_wanted(host):
    with pytest.raises(InvalidInputError, match="token"):
        check_reach(host, None, ServiceSettings())
    check_reach(host, TOKEN, ServiceSettings())
    check_reach(host, None, ServiceSettings(allow_remote=True))
    with pytest.raises(InvalidInputError, match="16 visible"):
        check_reach(host, "short", ServiceSettings())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_is_served_without_a_token(host):
    check_reach(host, None, ServiceSettings())


# ---------------------------------------------------------------- time, overload and errors inside


@pytest.fixture
def slow(monkeypatch):
    """Explanations wait until the event is set; it tells of the rows of each call."""
    gate, calls, own = threading.Event(), [], work.Explaining.answered.__func__

    def answered(cls, works, seconds):
        calls.append(sum(w.size for w in works))
        gate.wait(10)
        return own(cls, works, seconds)

    monkeypatch.setattr(work.Explaining, "answered", classmethod(answered))
    yield gate, calls
    gate.set()


def test_a_request_that_takes_too_long_is_answered_in_time(slow, rows):
    gate, _ = slow
    with Client(settings=ServiceSettings(time_limit=0.2)) as client:
        start = time.monotonic()
        answer = client.post(f"{AT}:explain", {"instances": rows[:1]})
        assert time.monotonic() - start < 2
        assert answer.status_code == 504
        assert "0.2 s" in answer.json()["error"]
        assert client.service.is_ready
        time.sleep(0.3)
        assert client.get("/readyz").status_code == 503, "it is stuck"
        gate.set()
        wait_for(lambda: client.service.batcher.busy_for() == 0)
        assert client.post(f"{AT}:predict", {"instances": rows[:1]}).status_code == 200


def test_rows_that_are_not_reached_in_time_say_so(monkeypatch, rows):
    own = work.Explaining.answered.__func__
    monkeypatch.setattr(
        work.Explaining, "answered", classmethod(lambda cls, works, seconds: own(cls, works, 0.0))
    )
    with Client() as client:
        assert client.explain(rows[:1])[0]["status"] == "not_reached"


def test_when_too_many_rows_wait_requests_are_refused_and_later_taken_again(slow, rows):
    gate, calls = slow
    with Client(settings=ServiceSettings(max_rows=4, queue_rows=4, retry_after=7)) as client:
        service = client.service
        works = explaining(service.model(NAME), {"instances": rows[:4]}, service.settings)
        futures = service.batcher.submit(works, 10)
        wait_for(lambda: calls)
        futures += service.batcher.submit(works, 10)
        answer = client.post(f"{AT}:explain", {"instances": rows[:1]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
        assert "4 rows wait" in answer.json()["error"]
        assert client.get("/healthz").status_code == 200
        gate.set()
        assert [len(future.result(10).texts) for future in futures] == [4, 4]
        assert client.explain(rows[:1])[0]["status"] == "found"


def test_a_client_that_goes_away_leaves_nothing_behind(slow, rows):
    gate, calls = slow
    with Client() as client:
        service = client.service

        async def leave():
            left = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, left.set)
            body = json.dumps({"instances": rows[:1]}).encode()
            first = asyncio.ensure_future(service.answer("explain", NAME, body, asyncio.Event().wait))
            while not calls:
                await asyncio.sleep(0.001)
            with pytest.raises(Refusal, match="went away"):
                await service.answer("explain", NAME, body, left.wait)
            gate.set()
            return await first

        assert client._runner.run(leave()).rows == 1
        wait_for(lambda: service.batcher.waiting_rows == 0)
        assert calls == [1], "what nobody waits for is not done"


class Secret(Exception):
    """An error that quotes a cell."""


@pytest.mark.parametrize("error", [Secret("income 123456"), ModelError("income 123456")])
def test_an_unexpected_error_has_a_number_and_no_trace_and_the_log_no_row_values(
    monkeypatch, rows, tmp_path, error
):
    def fail(cls, works, seconds):
        raise error

    monkeypatch.setattr(work.Predicting, "answered", classmethod(fail))
    with (tmp_path / "log").open("w") as file, logging_to(file), Client() as client:
        answer = client.post(f"{AT}:predict", {"instances": [{**rows[0], "income": 123456}]})
    assert answer.status_code == 500
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    failed, request = log
    assert failed["id"] == request["id"] == answer.headers["x-request-id"]
    assert failed["id"] in answer.json()["error"]
    assert failed["error"] == type(error).__name__
    assert failed["trace"][-1].endswith(" fail")
    for text in (answer.text, (tmp_path / "log").read_text()):
        assert "123456" not in text
        assert "income" not in text
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text


def test_the_log_has_one_line_a_request_and_nothing_of_its_rows(rows, tmp_path):
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


def test_what_cannot_be_served_is_refused_at_the_start():
    explainer, frame = people()
    with pytest.raises(InvalidInputError, match="one explainer or more"):
        Client({})
    with pytest.raises(InvalidInputError, match="letters, digits"):
        Client({"a:b": explainer})
    with pytest.raises(NotFittedError):
        Client({NAME: Explainer(LinearClassifier())})
    with pytest.raises(InvalidInputError, match="income"):
        Client(rows={NAME: frame.drop(columns="income")})
    with pytest.raises(InvalidInputError, match="rows for other"):
        Client(rows={"other": frame})
    with pytest.raises(
        InvalidInputError, match=r"`max_rows` must be .*; `queue_rows` must be .*; `time_limit`"
    ):
        ServiceSettings(max_rows=0, queue_rows=-1, time_limit=0)
    assert replace(ServiceSettings(), batch_rows=1).batch_rows == 1


# ---------------------------------------------------------------- OpenAPI


def test_the_description_names_every_address_and_no_other(client):
    described = {
        (method.upper(), path.replace(NAME, "{model}"))
        for path, operations in client.get("/openapi.json").json()["paths"].items()
        for method in operations
    }
    routes = {
        (method, route.path)
        for route in client.app.routes
        for method in route.methods
        if route.path not in ("/", "/static/{name:path}", "/openapi.json")
    }
    assert described == routes


@pytest.mark.parametrize(
    ("mode", "token"),
    [(GenerationMode.POSITIVE, None), (GenerationMode.NEGATIVE, TOKEN)],
    ids=["right", "wrong"],
)
def test_generated_requests_are_answered_as_described(mode, token):
    """No 5xx, no status, type or body that the description does not have; wrong requests are refused.

    That what the description allows is taken, too, is checked where it can say all: pairs of bounds whose
    smallest is larger, or rows of a map that cannot be drawn, are allowed there, and refused.
    """
    app = Client(token=token, rows={NAME: people()[1].iloc[:5]}).app
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    seen = set()
    for operation in schema.get_all_operations():
        operation = operation.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue

        @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            answer = case.call(headers=headers)
            seen.add((case.path.rpartition(":")[2], answer.status_code))
            exact = case.path.endswith(":predict") or case.method == "GET"
            left_out = [] if exact else [positive_data_acceptance]
            if answer.status_code == 413:  # a refusal, too, but not one of those that the check knows
                left_out.append(negative_data_rejection)
            case.validate_response(answer, headers=headers, excluded_checks=left_out)

        check()
    app.state.service.batcher.close(10)
    assert ("explain", 200 if mode is GenerationMode.POSITIVE else 422) in seen
