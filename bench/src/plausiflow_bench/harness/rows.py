"""The flat rows that a study reports: measures of counterfactuals, provenance, timing, and JSON files.

Every row states what was run, on which data, with which seed and at which commit. Tables are made from rows
only.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from plausiflow import __version__
from plausiflow.core import Counterfactuals, l1_distance, l2_distance

Row = dict[str, str | int | float]


def summarize(result: Counterfactuals) -> Row:
    """Return the measures that every study reports.

    Validity, plausibility, distances and log-density are means over the rows with a counterfactual, for the
    target class.
    """
    found = result[result.found]
    return {
        "rows": len(result),
        "coverage": float(result.found.double().mean()),
        "validity": float(found.valid.double().mean()),
        "plausibility": float(found.plausible.double().mean()),
        "feasible": float(result.feasible.double().mean()),
        "l1": float(l1_distance(found.x_cf.double(), found.x.double()).mean()),
        "l2": float(l2_distance(found.x_cf.double(), found.x.double()).mean()),
        "log_density": float(found.log_prob.mean()),
        "out_of_box": float(out_of_box(found).double().mean()),
        "gradients": float(result.gradients.double().mean()),
        "cpu_seconds": float(result.cpu_seconds.sum()),
        "wall_seconds": float(result.seconds.sum()),
    }


def compare_distances(result: Counterfactuals, penalty: Counterfactuals) -> Row:
    """Compare distances with those of the paper's solver, on the rows where that one is feasible.

    Args:
        result: Counterfactuals of a solver.
        penalty: Counterfactuals of the paper's solver for the same rows.

    Returns:
        Both mean distances, and the share of rows where ``result`` is infeasible or over 1 % farther.
    """
    l2 = l2_distance(result.x_cf.double(), result.x.double())
    l2_penalty = l2_distance(penalty.x_cf.double(), penalty.x.double())
    farther = ~(result.feasible & (l2 <= 1.01 * l2_penalty))
    both = penalty.feasible & result.feasible
    return {
        "l2_common": float(l2[both].mean()),
        "l2_common_penalty": float(l2_penalty[both].mean()),
        "farther": float(farther[penalty.feasible].double().mean()),
        "farther_in_box": float(farther[penalty.feasible & ~out_of_box(penalty)].double().mean()),
    }


def out_of_box(result: Counterfactuals) -> Tensor:
    """Return a mask of the counterfactuals that leave the box, shape ``(n,)``.

    The box is [0, 1], extended to the factual's own value where that is outside.
    """
    below = result.x_cf < result.x.clamp_max(0.0) - 1e-6
    above = result.x_cf > result.x.clamp_min(1.0) + 1e-6
    return (below | above).any(dim=1)


@cache
def environment() -> Row:
    """Return the commit and the versions that ran.

    The environment variable ``PLAUSIFLOW_COMMIT`` names the commit of a copy without git.
    """
    commit = os.environ.get("PLAUSIFLOW_COMMIT", "") or _commit()
    return {
        "commit": commit,
        "plausiflow": __version__,
        "torch": torch.__version__.split("+")[0],
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def provenance(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the distinct values of some columns as text, such as ``seed 0; commit abc, def``."""
    values = {name: sorted({str(row[name]) for row in rows}) for name in names if rows}
    return "; ".join(f"{name.replace('_', ' ')} {', '.join(own)}" for name, own in values.items())


def finite_or_none(row: Mapping[str, str | int | float]) -> dict[str, str | int | float | None]:
    """Return a row for JSON, with None for numbers that are not finite."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write rows as a list of flat objects; numbers that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([finite_or_none(row) for row in rows], indent=1) + "\n")


def read_json(*paths: Path) -> list[Row]:
    """Read the rows that :func:`write_json` wrote; null becomes NaN."""
    rows = [row for path in paths for row in json.loads(path.read_text())]
    return [{k: float("nan") if v is None else v for k, v in row.items()} for row in rows]


def cpu_seconds() -> float:
    """Return the processor seconds of this process and of the child processes that it has waited for."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


class CpuTimer:
    """A context manager that measures processor seconds: ``with CpuTimer() as timer: ...``.

    Attributes:
        seconds: Processor seconds of the block.
    """

    seconds = 0.0

    def __enter__(self) -> CpuTimer:
        self._start = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._start


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of the positive values, or NaN if there are none."""
    logs = torch.tensor(
        [value for value in values if value == value and value > 0], dtype=torch.float64
    ).log()
    return float(logs.mean().exp())
