"""Servers in separate processes, under load, at overload and at shutdown; answers equal the library's."""

import json
import socket

import httpx
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.service import ServiceSettings
from plausiflow.service.server import serve
from plausiflow_bench.serving.load import NAME, max_difference, send_requests
from processes import wait_for
from serving import instances, people, running

ROWS = 20


@pytest.fixture(scope="module")
def served():
    return {NAME: people()[0]}


@pytest.fixture(scope="module")
def bodies():
    return [{"instances": [row], "target": "yes"} for row in instances(people()[1].iloc[:ROWS])]


@pytest.fixture(scope="module")
def library():
    """Return the library's answers to the same rows, each alone in its request."""
    explainer, frame = people()
    rows = json.loads(explainer.explain(frame.iloc[:ROWS], "yes").to_json())["rows"]
    return [{**row, "row": 0} for row in rows]


def wrong_answers(replies, library):
    """Return answers that differ from the library's by more than 1e-5."""
    right = [reply for reply in replies if reply.status == 200]
    return [r for r in right if not max_difference(r.answer, library[r.body]) < 1e-5]


def test_eight_clients_get_the_answers_of_the_library_and_none_is_lost(tmp_path, served, bodies, library):
    with running(tmp_path, served) as server:
        replies = send_requests(server.address, bodies, 100, 8)
    assert [reply.status for reply in replies] == [200] * 100
    assert wrong_answers(replies, library) == []
    assert server.wait() == 0
    lines = [line for line in server.lines() if line["status"] == 200]
    assert {line["id"] for line in lines} == {reply.request_id for reply in replies}
    assert max(line["batch"] for line in lines) > 1, "requests were answered together"


def test_a_server_that_shuts_down_under_load_answers_accepted_requests(tmp_path, served, bodies, library):
    with running(tmp_path, served) as server:
        replies = send_requests(
            server.address, bodies, 400, 16, lambda n: server.terminate() if n == 24 else None
        )
        assert server.wait() == 0
    got = {reply.request_id for reply in replies if reply.status == 200}
    accepted = {line["id"] for line in server.lines()}
    assert {reply.status for reply in replies} == {200, 0}, "the other clients could not connect"
    assert got == accepted
    assert 24 < len(got) < 400
    assert wrong_answers(replies, library) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.address)


def test_at_overload_requests_are_refused_at_once_and_accepted_again_afterwards(
    tmp_path, served, bodies, library
):
    few = ServiceSettings(max_rows=2, queue_rows=2)
    with running(tmp_path, served, settings=few) as server:
        replies = send_requests(server.address, bodies, 60, 16)
        after = send_requests(server.address, bodies, 5, 1)
    statuses = [reply.status for reply in replies]
    assert set(statuses) == {200, 503}
    assert wrong_answers(replies, library) == []
    assert [reply.status for reply in after] == [200] * 5
    waits = sorted(reply.seconds for reply in replies)
    assert waits[statuses.count(503) // 2] < 1, "a refusal is immediate"
    assert server.wait() == 0


def test_clients_that_disconnect_or_send_no_body_do_not_delay_others(tmp_path, served, bodies):
    with running(tmp_path, served, settings=ServiceSettings(body_timeout=3)) as server:
        host, port = server.address.removeprefix("http://").rstrip("/").split(":")
        body = json.dumps(bodies[0]).encode()
        first = f"POST /v1/models/{NAME}:explain HTTP/1.1"
        more = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
        head = "\r\n".join((first, *more, "", "")).encode()
        silent = socket.create_connection((host, int(port)))
        silent.sendall(head)
        for sent in (body, body, body, body[:5], body[:5]):
            with socket.create_connection((host, int(port))) as leaving:
                leaving.sendall(head + sent)
        assert send_requests(server.address, bodies, 4, 2)[-1].status == 200
        assert b" 408 " in silent.recv(1000), "the body did not arrive in time"
        silent.close()
        wait_for(lambda: len(server.lines()) == 10)
        assert httpx.get(f"{server.address}metrics").text.count("plausiflow_queue_rows 0.0") == 1
    assert server.wait() == 0
    assert server.lines("error") == []


def test_an_endless_body_in_chunks_is_cut_off_at_the_limit(tmp_path, served):
    def endless():
        while True:
            yield b" " * 1000

    with running(tmp_path, served, settings=ServiceSettings(max_body=10_000)) as server:
        headers = {"Content-Type": "application/json"}
        with httpx.Client(base_url=server.address) as client:
            try:
                status = client.post(
                    f"/v1/models/{NAME}:predict", content=endless(), headers=headers
                ).status_code
            except (httpx.WriteError, httpx.ReadError):
                status = 413  # it was still sending when the connection was closed
            assert client.get("/healthz").status_code == 200
        assert status == 413
        assert server.lines()[0]["status"] == 413


def test_a_port_in_use_is_an_error_with_a_remedy(served):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InvalidInputError, match="another `port`"),
    ):
        serve(served, port=taken.getsockname()[1])


def test_an_address_that_other_machines_can_reach_needs_a_token(served):
    with pytest.raises(InvalidInputError, match="token"):
        serve(served, host="0.0.0.0", port=0)


def test_the_page_is_available_as_soon_as_the_server_is_ready(served, tmp_path):
    with running(tmp_path, served) as server:
        with httpx.Client(base_url=server.address) as client:
            assert client.get("/readyz").json() == {"status": "ready"}
            assert client.get("/").headers["content-type"].startswith("text/html")
            assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert server.lines("listening")[0]["address"] == server.address
