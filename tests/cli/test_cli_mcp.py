"""`plausiflow mcp` talks to a real client of the Model Context Protocol over standard input and output."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from commanding import LEVELS, NUMBERS

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from plausiflow.errors import InvalidInputError
from plausiflow.service.mcp_server import check_token

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ} | {
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "OMP_NUM_THREADS": "1",
}


def talk(arguments, calls, log):
    """Start the command, call tools in one session, and return what the server says about itself, too."""

    async def session():
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "plausiflow", "mcp", *map(str, arguments)], env=ENVIRONMENT
        )
        with open(log, "w") as errors:
            async with (
                stdio_client(parameters, errlog=errors) as (read, write),
                ClientSession(read, write) as client,
            ):
                hello = await client.initialize()
                tools = (await client.list_tools()).tools
                return hello, tools, [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(asyncio.wait_for(session(), 120))


@pytest.fixture(scope="module")
def rows(folder):
    frame = pd.read_csv(folder / "loans.csv")
    denied = frame[frame["loan"] == "rejected"][[*NUMBERS, *LEVELS]].iloc[:3]
    return json.loads(denied.to_json(orient="records"))


@pytest.fixture(scope="module")
def said(explainer, rows, tmp_path_factory):
    """The answers to all calls of one session."""
    one = rows[0]
    calls = [
        ("predict", {"instances": rows}),
        ("explain", {"instances": rows, "target": "granted", "parameters": {"locked": ["income"]}}),
        ("what_if", {"instance": one, "changes": {"income": one["income"] + 5000}, "locked": ["debt_ratio"],
                     "target": "granted"}),
        ("explain", {"instances": rows * 3, "target": "granted"}),
        ("explain", {"instances": [rows[0] | {"colour": "red"}], "target": "granted"}),
        ("explain", {"instances": rows, "target": "won"}),
        ("what_if", {"instance": one, "changes": {"incom": 1}, "target": "granted"}),
        ("delete", {}),
        ("predict", {"instances": [one | {"income": "x" * 20_000}]}),
        ("explain", {"instances": rows, "target": "granted", "parameters": {"k": 4}}),
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("logs") / "log"
    arguments = [explainer, "--max-rows", 5, "--max-counterfactuals", 10, "--max-body", 10_000]
    hello, tools, results = talk(arguments, calls, log)
    return hello, tools, results, log.read_text()


def found(result):
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_three_tools_describe_their_arguments(said, rows):
    hello, tools, _, _ = said
    assert [tool.name for tool in tools] == ["predict", "explain", "what_if"]
    schema = tools[1].input_schema
    assert {"instances", "target", "parameters"} <= set(schema["properties"])
    assert "granted" in json.dumps(schema)
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(name in hello.instructions for name in rows[0])
    assert 'Immutable("age")' in hello.instructions


def test_predictions_are_those_of_the_explainer(said):
    predictions = found(said[2][0])["predictions"]
    assert len(predictions) == 3
    assert {each["outcome"] for each in predictions} <= {"granted", "rejected"}
    assert predictions[0]["probabilities"].keys() == {"granted", "rejected"}


def test_explanations_keep_what_is_locked_and_obey_the_rules(said, rows):
    explanations = found(said[2][1])["explanations"]
    answers = [
        (row, each) for row, own in zip(rows, explanations, strict=True) for each in own["counterfactuals"]
    ]
    assert answers
    for row, each in answers:
        assert each["values"]["income"] == row["income"]
        assert each["values"]["age"] == row["age"]
        assert each["probability"] > 0.5


def test_what_if_keeps_the_changed_and_the_locked_features(said, rows):
    answer = found(said[2][2])
    assert answer["kept"] == ["debt_ratio", "income"]
    assert answer["before"]["probabilities"]["granted"] < answer["after"]["probabilities"]["granted"]
    assert answer["explanation"]["factual"]["income"] == rows[0]["income"] + 5000
    for each in answer["explanation"]["counterfactuals"]:
        assert each["values"]["income"] == rows[0]["income"] + 5000
        assert each["values"]["debt_ratio"] == rows[0]["debt_ratio"]


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        (3, "too_large", "A request may have 5 rows; got 9"),
        (4, "invalid_request", "has unknown names: 'colour'"),
        (5, "invalid_request", "`target` must be one of the outcomes 'granted', 'rejected'; got 'won'"),
        (6, "invalid_request", "did you mean 'income'?"),
        (7, "not_found", "The tools are 'predict', 'explain', 'what_if'; got 'delete'"),
        (8, "too_large", "The arguments may have 10000 bytes"),
        (9, "too_large", "A request may ask for 10 counterfactuals"),
    ],
)
def test_limits_and_errors_are_those_of_the_service(said, call, code, text):
    result = said[2][call]
    assert result.is_error
    assert result.structured_content["code"] == code
    assert text in result.structured_content["error"]


def test_logs_are_on_standard_error_and_have_no_values(said, rows):
    lines = [json.loads(line) for line in said[3].splitlines()]
    assert [line["event"] for line in lines][:2] == ["listening", "tool"]
    assert sum(line["event"] == "tool" for line in lines) == 10
    assert "colour" not in said[3]


@pytest.mark.parametrize(
    ("token", "given", "why"),
    [
        ("short", "short", "must have 16 visible ASCII characters"),
        ("0123456789abcdef", None, "it is not there"),
        ("0123456789abcdef", "0123456789abcdeX", "it is another one"),
    ],
)
def test_a_client_without_the_token_is_refused(token, given, why):
    with pytest.raises(InvalidInputError, match=why):
        check_token(token, {"PLAUSIFLOW_TOKEN": given} if given else {})


def test_the_token_is_in_the_environment_of_the_command(explainer, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef")
    command = [
        sys.executable,
        "-m",
        "plausiflow",
        "mcp",
        str(explainer),
        "--token-file",
        str(tmp_path / "token"),
    ]
    refused = subprocess.run(command, env=ENVIRONMENT, input="", capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert "it is not there" in " ".join(refused.stderr.split())
    assert refused.stdout == ""
    check_token("0123456789abcdef", {"PLAUSIFLOW_TOKEN": "0123456789abcdef"})
