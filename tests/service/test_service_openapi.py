"""The OpenAPI document has every address, and generated requests get the responses that it describes."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from plausiflow.service import ServiceSettings
from serving import AT, NAME, Client, people

TOKEN = "a-token-of-the-tests"


def test_the_document_has_every_address_for_programs_and_no_other(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {path: list(operations) for path, operations in paths.items()} == {
        "/healthz": ["get"],
        "/readyz": ["get"],
        "/metrics": ["get"],
        "/v1/models": ["get"],
        AT: ["get"],
        f"{AT}/rows": ["get"],
        f"{AT}:predict": ["post"],
        f"{AT}:explain": ["post"],
        f"{AT}:population": ["post"],
        f"{AT}:letter": ["post"],
        f"{AT}:map": ["post"],
        "/v2": ["get"],
        "/v2/health/live": ["get"],
        "/v2/health/ready": ["get"],
        f"/v2/models/{NAME}": ["get"],
        f"/v2/models/{NAME}/ready": ["get"],
    }


def test_the_document_describes_the_rows_of_a_model(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    row, request = schemas[f"{NAME}_row"], schemas[f"{NAME}_explain"]
    assert row["required"] == list(row["properties"]) == list(people()[1].columns)
    assert row["additionalProperties"] is False
    assert row["properties"]["income"]["type"] == ["string", "number", "boolean", "null"]
    assert row["properties"]["income"]["description"].startswith("integer, ")
    assert row["properties"]["school"]["description"] == "ordered: 'none', 'basic', 'high', 'phd'"
    assert request["required"] == ["instances"]
    assert request["properties"]["instances"]["maxItems"] == ServiceSettings().max_rows
    assert request["properties"]["target"]["enum"] == ["opposite", "runner_up", "other", "no", "yes"]


@pytest.mark.parametrize(
    ("mode", "token"),
    [(GenerationMode.POSITIVE, None), (GenerationMode.NEGATIVE, TOKEN)],
    ids=["valid", "invalid"],
)
@pytest.mark.parametrize("examples", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_generated_requests_get_the_responses_of_the_document(mode, token, examples):
    """No status 5xx, no status, type or body that is not in the document; invalid requests are refused.

    That valid requests are accepted is checked only where the document is complete: it cannot say that bounds
    must ascend, or that the model must be able to read the rows of a map.
    """
    app = Client(token=token, rows={NAME: people()[1].iloc[:5]}).app
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    seen = set()
    for operation in schema.get_all_operations():
        operation = operation.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            answer = case.call(headers=headers)
            seen.add((case.path.rpartition(":")[2], answer.status_code))
            exact = case.path.endswith(":predict") or case.method == "GET"
            left_out = [] if exact else [positive_data_acceptance]
            if answer.status_code == 413:  # also a refusal, but the check does not know it
                left_out.append(negative_data_rejection)
            case.validate_response(answer, headers=headers, excluded_checks=left_out)

        check()
    app.state.service.close()
    assert ("explain", 200 if mode is GenerationMode.POSITIVE else 422) in seen
