"""Helpers of the tests of commands: run a command, shorten its training, check its output."""

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plausiflow import Training
from plausiflow.cli import app
from plausiflow.cli.table_files import Dialect
from plausiflow.densities import mixed
from plausiflow.models import black_box
from plausiflow.search import black_box as verified
from plausiflow.search import fit as search_fitting
from plausiflow.search import learn
from plausiflow.search.evolution import Evolution

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS, LEVELS = ["age", "income", "debt_ratio"], ["education", "job"]
QUICK = ("--confidence", "none", "--judges", "0", "--plausibility", "0.1")
DIALECT = Dialect()


def shortened(patch):
    patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
    patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
    patch.setattr(learn, "MEMBERS", 2)
    patch.setattr(black_box, "MIN_SURROGATE_ROWS", 1000)
    patch.setattr(verified, "ITERATIONS", 4)
    short = partial(verified.BlackBoxSearch, evolution=Evolution(rounds=1))
    patch.setattr(search_fitting, "BlackBoxSearch", short)


def invoke(*arguments, **settings):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **settings)


def done(*arguments):
    """Run a command that must succeed."""
    finished = invoke(*arguments)
    assert finished.exit_code == 0, finished.output
    return finished


def refused(*arguments):
    """Run a command that must fail; return the one line that it prints on standard error."""
    finished = invoke(*arguments)
    assert finished.exit_code == 2, finished.output
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("Note: ")]
    assert len(lines) == 1, finished.stderr
    assert lines[0].startswith("plausiflow: ")
    assert "Traceback" not in finished.output
    return lines[0]


def make(path):
    path.mkdir()
    return path


def recorded(monkeypatch):
    """Record the calls of the server instead of running it."""
    server = pytest.importorskip("plausiflow.service.server")
    calls = []

    def record(explainers, **settings):
        settings["ready"]("http://127.0.0.1:8080/")
        calls.append({"explainers": explainers, **settings})

    monkeypatch.setattr(server, "serve", record)
    return calls
