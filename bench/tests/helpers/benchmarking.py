"""Shared by the tests of the studies: columns, a strict JSON reader, counterfactuals, the command line."""

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from plausiflow.cli import app
from plausiflow.core.counterfactuals import Counterfactuals
from plausiflow_bench.tables.cases import TableSelection

PLAIN = {
    "dataset", "classifier", "fold", "solver", "rows", "coverage", "validity", "plausibility", "feasible",
    "l1", "l2", "log_density", "cpu_seconds", "wall_seconds", "seed", "commit",
}  # fmt: skip
PLAIN_DENSITIES = {
    "dataset", "fold", "method", "rows", "log_density", "cpu_seconds", "wall_seconds", "seed", "commit",
}  # fmt: skip
PNG = b"\x89PNG\r\n"
FEW_LOANS = TableSelection(tables=("loans",), rows=30)

NAN = math.nan


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read_json(path):
    """The rows of a file that every JSON reader accepts: there is no NaN and no Infinity in JSON."""
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def answers(x, x_cf, **changed):
    """Counterfactuals for class 1, feasible wherever there are any, unless changed."""
    x, x_cf = torch.tensor(x), torch.tensor(x_cf)
    n, found = len(x), torch.isfinite(x_cf).all(dim=1)
    return Counterfactuals(
        **{
            "x": x,
            "x_cf": x_cf,
            "y": torch.zeros(n, dtype=torch.long),
            "y_target": torch.ones(n, dtype=torch.long),
            "y_cf": torch.where(found, 1, -1),
            "found": found,
            "valid": found,
            "plausible": found,
            "log_prob": torch.where(found, torch.arange(n).double(), torch.nan),
            "log_delta": torch.zeros(n, dtype=torch.float64),
            "gradients": 10 * torch.arange(n),
            "seconds": torch.full((n,), 0.5, dtype=torch.float64),
            "cpu_seconds": torch.full((n,), 0.25, dtype=torch.float64),
        }
        | changed
    )
