"""The description of the service names every address, and generated requests are answered as it says."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from serving import NAME, Client, people

TOKEN = "a-token-of-the-tests"


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
