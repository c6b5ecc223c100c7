"""Every invalid request is refused with a reason: bodies, addresses, methods, tokens and host names."""

import json
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plausiflow.errors import InvalidInputError
from plausiflow.service import ServiceSettings
from plausiflow.service.server import check_address
from serving import AT, Client

# ---------------------------------------------------------------- bodies

GOOD = "rows[0], the first row"
INVALID = [
    ({}, "instances"),
    ([], "object"),
    (None, "object"),
    ({"instances": []}, "at least 1 item"),
    ({"instances": {}}, "list"),
    ({"instances": [1]}, "`instances[0]` must be an object; got 1"),
    ({"instances": [{}]}, "`instances[0].age` is missing"),
    ({"instances": [GOOD, {"age": 1}]}, "`instances[1].income` is missing"),
    ({"instances": [{"agee": 3}]}, "did you mean 'age'"),
    ({"instances": [GOOD], "taget": "yes"}, "did you mean 'target'"),
    ({"instances": [GOOD], "target": "maybe"}, "'no', 'yes'"),
    ({"instances": [GOOD], "target": ["yes", "no"]}, "each of the 1 rows"),
    ({"instances": [GOOD], "target": None}, "null"),
    ({"instances": [GOOD], "target": {"a": []}}, "outcomes"),
    ({"instances": [GOOD], "parameters": []}, "object"),
    ({"instances": [GOOD], "parameters": {"kk": 1}}, "`parameters` has unknown names: 'kk'"),
    ({"instances": [GOOD], "parameters": {"k": 0}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": 1.5}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": True}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"k": 10**400}}, "from 1 to 48"),
    ({"instances": [GOOD], "parameters": {"confidence": 0.5}}, "null"),
    (
        {"instances": [GOOD], "parameters": {"relaxed": 1}},
        "`parameters.relaxed` must be a valid boolean; got 1",
    ),
    ({"instances": [GOOD], "parameters": {"min_probability": 1}}, "less than 1"),
    ({"instances": [GOOD], "parameters": {"locked": "age"}}, "list"),
    ({"instances": [GOOD], "parameters": {"locked": ["incom"]}}, "did you mean 'income'"),
    ({"instances": [GOOD], "parameters": {"locked": [["income"]]}}, "a list of 1"),
    ({"instances": [GOOD], "parameters": {"ranges": []}}, "object"),
    (
        {"instances": [GOOD], "parameters": {"ranges": {"job": [0, 1]}}},
        "must be one of 'age', 'income', 'savings', 'gain'; got 'job'",
    ),
    (
        {"instances": [GOOD], "parameters": {"ranges": {"income": 3}}},
        "`parameters.ranges.income` must be a pair of numbers",
    ),
    ({"instances": [GOOD], "parameters": {"ranges": {"income": [2, 1]}}}, "2 and 1"),
    ({"instances": [GOOD], "parameters": {"ranges": {"income": ["a", 1]}}}, "'a' and 1"),
    (
        {"instances": [GOOD], "parameters": {"ranges": {"income": [4410, 4420]}}},
        'used: Range("income", 4410, 4420)',
    ),
]


@pytest.mark.parametrize(("body", "reason"), INVALID, ids=range(len(INVALID)))
def test_a_body_that_does_not_match_its_schema_is_refused_with_the_reason(client, rows, body, reason):
    if isinstance(body, dict) and isinstance(body.get("instances"), list):
        body = {**body, "instances": [rows[0] if row == GOOD else row for row in body["instances"]]}
    answer = client.post(f"{AT}:explain", content=json.dumps(body))
    assert answer.status_code == 422
    assert reason in answer.json()["error"]


def damage(random: Random, text: bytes) -> bytes:
    """Return a body that is cut off, has a byte that JSON does not allow, or has a wrong value."""
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
        answer = client.post(f"{AT}:explain", content=damage(random, text))
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
def test_arbitrary_json_is_refused_with_a_reason(client, body):
    text = json.dumps(body)
    answer = client.post(f"{AT}:predict", content=text.encode())
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_too_many_rows_and_too_large_bodies_are_refused_also_in_chunks(rows):
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
    assert many.json()["code"] == "too_large"
    assert "2000 bytes" in chunked.json()["error"]


def test_a_body_must_have_the_content_type_of_json(client):
    for headers in (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ):
        answer = client.post(f"{AT}:predict", content=b"{}", headers=headers)
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
        ("GET", "/v1/models/", 404),
        ("GET", "/healthz/", 404),
        ("POST", f"{AT}:explain/", 404),
        ("GET", "/v2/models/other", 404),
    ):
        answer = client.request(method, path)
        assert answer.status_code == status, path
        assert len(answer.json()["error"]) > 20
        assert answer.json()["code"] == ("not_found" if status == 404 else "method_not_allowed")
        assert status != 405 or answer.headers["allow"] in ("GET", "POST")


# ---------------------------------------------------------------- access

TOKEN = "a-token-of-the-tests"


def test_a_token_is_needed_for_models_but_not_for_health(rows):
    body = {"json": {"instances": rows[:1]}}
    with Client(token=TOKEN) as client:
        for headers in (
            {},
            {"Authorization": TOKEN},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": "Bearer "},
        ):
            for method, path, options in (
                ("GET", "/v1/models", {}),
                ("POST", f"{AT}:predict", body),
                ("GET", "/v1/x", {}),
                ("GET", "/v2/models/people", {}),
                ("GET", "/v2/models/people/ready", {}),
                ("GET", "/openapi.json", {}),
            ):
                answer = client.request(method, path, headers=headers, **options)
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


def test_a_service_without_a_token_is_available_only_under_its_own_names():
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
def test_other_machines_need_a_token_unless_the_settings_allow_them(host):
    with pytest.raises(InvalidInputError, match="token"):
        check_address(host, None, ServiceSettings())
    check_address(host, TOKEN, ServiceSettings())
    check_address(host, None, ServiceSettings(allow_remote=True))
    with pytest.raises(InvalidInputError, match="16 visible"):
        check_address(host, "short", ServiceSettings())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_needs_no_token(host):
    check_address(host, None, ServiceSettings())
