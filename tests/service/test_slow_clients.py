"""Clients that send nothing, or slowly, or do not read: real sockets against a server in its own process."""

import json
import logging
import resource
import socket
import time
import warnings
from contextlib import ExitStack, contextmanager
from io import StringIO

import httpx
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.service import ServiceSettings, connections, jobs, logs
from plausiflow.service import server as server_module
from plausiflow.service.connections import RESERVED, SPARE_FILES, ConnectionLimiter, allowed_requests
from plausiflow.service.logs import log, logging_to
from processes import wait_for
from serving import AT, instances, people, running

FILES = 1024
OPEN: list[socket.socket] = []
HALF = b"GET /healthz HTTP/1.1\r\nHost: local"
POST = f"POST {AT}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def file_limit(files):
    """Set the limit of open files; a process that is started inside keeps it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < files:
        pytest.skip(f"this machine allows {before[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def limited(folder, files=FILES, **settings):
    """Run a server that may open few files."""
    with ExitStack() as stack:
        with file_limit(files):
            server = stack.enter_context(running(folder, settings=ServiceSettings(**settings)))
        stack.enter_context(file_limit(4 * FILES))
        assert get(server)[0].status_code == 200, "it listens before it has started"
        yield server


def connect(server, sent=b""):
    """Return a connection on which something was sent."""
    host, port = server.address.removeprefix("http://").rstrip("/").split(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    OPEN.append(client)
    client.sendall(sent)
    return client


def send_many(client, parts, pause=0.0):
    """Send one part after the other."""
    for part in parts:
        client.sendall(part)
        time.sleep(pause)


@pytest.fixture(autouse=True)
def close_all():
    """Close all connections, also those of a test that fails."""
    yield
    while OPEN:
        OPEN.pop().close()


def read(client):
    """Return all that comes until the server closes the connection."""
    data = b""
    try:
        while some := client.recv(65536):
            data += some
    except ConnectionError:
        pass
    return data


def get(server, path="/healthz"):
    """Return the response to a request on a connection of its own, and its time."""
    with httpx.Client(base_url=server.address, timeout=20) as client:
        start = time.monotonic()
        answer = client.get(path)
        return answer, time.monotonic() - start


def predict(server):
    row = instances(people()[1].iloc[:1])
    return httpx.post(f"{server.address.rstrip('/')}{AT}:predict", json={"instances": row}, timeout=20)


def json_lines(server):
    return [json.loads(line) for line in server.log.read_text().splitlines()]


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half of the headers"])
def test_1030_connections_without_a_request_leave_room_for_health_checks_and_requests(tmp_path, sent, capfd):
    with limited(tmp_path) as server:
        for _ in range(1030):
            connect(server, sent)
        answer, seconds = get(server)
        assert (answer.status_code, answer.json()) == (200, {"status": "alive"})
        assert seconds < 1
        assert predict(server).status_code == 200
    assert server.wait() == 0
    assert len(server.log.read_bytes()) < 100_000
    assert {line["level"] for line in json_lines(server)} <= {"info", "warning"}
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_headers_must_arrive_in_time_also_those_of_a_second_request(tmp_path):
    with limited(tmp_path, header_timeout=1.0) as server:
        start = time.monotonic()
        silent, half = connect(server), connect(server, HALF)
        second = connect(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF)
        assert read(silent) == b""
        head, _, body = read(half).partition(b"\r\n\r\n")
        answers = read(second)
        assert 0.9 < time.monotonic() - start < 4
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(body) == {"error": "The headers must arrive within 1 s.", "code": "timeout"}
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert answers.count(b"HTTP/1.1 408 ") == 1


@pytest.mark.slow
def test_a_client_that_sends_its_headers_byte_by_byte_has_no_more_time(tmp_path):
    with limited(tmp_path, header_timeout=1.0) as server:
        client, start = connect(server), time.monotonic()
        with pytest.raises(ConnectionError):
            send_many(client, [bytes([byte]) for byte in HALF * 4], 0.05)
        assert time.monotonic() - start < 5


def test_half_sent_bodies_leave_room_for_health_checks_and_requests(tmp_path):
    with limited(tmp_path, max_connections=8) as server:
        for _ in range(60):
            connect(server, f"{POST}Content-Length: 100\r\n\r\n[".encode())
            time.sleep(0.01)
        answer, seconds = get(server)
        assert (answer.status_code, seconds < 1) == (200, True)
        assert predict(server).status_code == 200


def test_a_body_must_arrive_in_time(tmp_path):
    with limited(tmp_path, body_timeout=0.5) as server:
        client = connect(server, f"{POST}Content-Length: 100\r\n\r\n[".encode())
        head, _, body = read(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert json.loads(body) == {"error": "The body must arrive within 0.5 s.", "code": "timeout"}


@pytest.mark.slow
def test_a_body_that_is_incomplete_does_not_delay_the_shutdown(tmp_path):
    with limited(tmp_path) as server:
        connect(server, f"{POST}Content-Length: 100\r\n\r\n[".encode())
        assert get(server)[0].status_code == 200
        start = time.monotonic()
        server.terminate()
        assert server.wait() == 0
        assert time.monotonic() - start < 5


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(tmp_path):
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with limited(tmp_path, body_timeout=1.0) as server:
        client = connect(server)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            send_many(client, [request * 100] * 1000)
        wait_for(lambda: sum(line["event"] == "request" for line in json_lines(server)) > 1)
        time.sleep(2)
        client.settimeout(20)
        with pytest.raises(ConnectionError):
            send_many(client, [request * 100] * 1000)
        assert get(server)[0].status_code == 200


def test_at_the_limit_requests_are_refused_in_json_and_health_checks_are_answered(tmp_path, monkeypatch):
    run = jobs.run_predict

    def run_slowly(batch, seconds):
        time.sleep(1)
        return run(batch, seconds)

    monkeypatch.setattr(jobs, "run_predict", run_slowly)
    body = json.dumps({"instances": instances(people()[1].iloc[:1])})
    with limited(tmp_path, max_connections=2, retry_after=7) as server:
        request = f"{POST}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        clients = [connect(server, request) for _ in range(2)]
        time.sleep(0.3)
        answer = predict(server)
        health, seconds = get(server)
        done = [read(client) for client in clients]
        assert predict(server).status_code == 200
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == "too_many_connections"
    assert "2 connections" in answer.json()["error"]
    assert (health.status_code, seconds < 1) == (200, True)
    assert [text[:15] for text in done] == [b"HTTP/1.1 200 OK"] * 2


def test_a_request_that_is_not_http_gets_an_error_in_json(tmp_path):
    with limited(tmp_path) as server:
        client = connect(server, b"\x16\x03\x01 hello\r\n\r\n")
        head, _, body = read(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "invalid_http"


@pytest.mark.slow
def test_a_server_without_free_files_logs_little_and_recovers(tmp_path, capfd):
    with limited(tmp_path) as server:
        hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (40, hard))
        for _ in range(100):
            connect(server)
        wait_for(lambda: any("out of system resource" in line["event"] for line in json_lines(server)))
        time.sleep(2)
        while OPEN:
            OPEN.pop().close()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (FILES, hard))
        assert get(server)[0].status_code == 200
    lines = [line for line in json_lines(server) if "out of system resource" in line["event"]]
    assert {(line["level"], line["error"]) for line in lines} == {("error", "OSError")}
    assert len(server.log.read_bytes()) < 100_000
    assert capfd.readouterr().err == ""


# ---------------------------------------------------------------- limits and logs, without a server


class Client:
    """A connection that records whether it was closed."""

    def __init__(self, awaits_body=False):
        self.awaits_body, self.dropped = awaits_body, False

    def drop(self):
        self.dropped = True


def test_the_oldest_connection_without_a_request_is_closed_first():
    limiter, clients = ConnectionLimiter(2), [Client() for _ in range(2 + RESERVED)]
    for client in clients:
        assert not limiter.add(client)
    assert limiter.begin(clients[0], "/")
    limiter.end(clients[0])
    assert limiter.begin(clients[1], "/")
    assert [limiter.add(Client()) for _ in range(2)] == [True, True]
    assert [client.dropped for client in clients] == [False, False, True, True] + [False] * (RESERVED - 2)


def test_a_request_too_many_replaces_one_without_its_body_or_is_refused():
    limiter = ConnectionLimiter(2)
    busy, slow, more = clients = [Client(), Client(awaits_body=True), Client()]
    for client in clients:
        limiter.add(client)
        assert limiter.begin(client, "/v1/models")
    assert [busy.dropped, slow.dropped, more.dropped] == [False, True, False]
    last = Client()
    limiter.add(last)
    assert not limiter.begin(last, "/v1/models")
    assert limiter.begin(last, "/healthz")
    for client in (*clients, last):
        limiter.remove(client)
        limiter.end(client)
    assert limiter.open_connections == 0


def test_the_limit_of_connections_is_below_that_of_files(monkeypatch):
    monkeypatch.setattr(connections, "_open_files", lambda: 40)
    monkeypatch.setattr(connections, "_file_limit", lambda: FILES)
    assert allowed_requests(5000) == FILES - 40 - SPARE_FILES - RESERVED
    assert allowed_requests(10) == 10
    monkeypatch.setattr(connections, "_file_limit", lambda: None)
    assert allowed_requests(5000) == 5000
    monkeypatch.setattr(connections, "_file_limit", lambda: 64)
    with pytest.raises(InvalidInputError, match="the limit is 64"):
        allowed_requests(10)


def test_repeated_events_are_counted_instead_of_logged_but_every_request_has_a_line(monkeypatch):
    now, stream = [0.0], StringIO()
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    with logging_to(stream):
        for _ in range(50):
            log("request", {"id": 1})
            log("error", {"error": "ValueError"}, logging.ERROR)
            log("error", {"error": "KeyError"}, logging.ERROR)
            logging.getLogger("asyncio").error("out of resources")
        now[0] = 1.5
        log("error", {"error": "ValueError"}, logging.ERROR)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    counts = [
        sum(line["event"] == event for line in lines) for event in ("request", "error", "out of resources")
    ]
    assert counts == [50, 2 * logs.MAX_LINES + 1, logs.MAX_LINES]
    assert lines[-1]["suppressed"] == 50 - logs.MAX_LINES


def test_a_warning_is_logged_as_json_without_its_message():
    stream = StringIO()
    with warnings.catch_warnings(), logging_to(stream):
        warnings.simplefilter("always")
        warnings.warn("income 123456", UserWarning, stacklevel=1)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"], line["warning"]) == ("warning", "warning", "UserWarning")
    assert "123456" not in stream.getvalue()


def test_a_body_does_not_wait_until_its_headers_are_confirmed():
    with server_module._listening("127.0.0.1", 0) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with client, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
