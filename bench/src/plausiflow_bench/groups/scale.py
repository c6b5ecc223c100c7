"""Time and memory of few actions for many generated loans rows."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

from plausiflow.datasets import loans
from plausiflow.explainer import Explainer
from plausiflow_bench.harness.pages import write_table
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model

TRAINING = 2000
MARK = "<!-- written by `plausiflow benchmark groups-scale --page` -->"
COLUMNS = ("part", "rows", "needed", "actions", "covered", "wall_seconds", "cpu_seconds", "more_memory_mb")


def run(rows: int, actions: int, seed: int = 0) -> Iterator[Row]:
    """Yield one row: an explainer with default settings, and all generated rows."""
    x, y = loans.draw(n=TRAINING, seed=seed + 1)
    model = untrained_model("lr", seed).fit(x, y)
    with ignore_plausibility_warnings():
        explainer = Explainer(model, random_state=seed).fit(x, y, verbose=False)
    many, _ = loans.draw(n=rows, seed=seed + 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.monotonic(), cpu_seconds()
    groups = explainer.explain_groups(many, "granted", groups=actions, verbose=False)
    row: Row = {
        "part": "scale",
        "dataset": "loans",
        "method": "plausiflow",
        "rows": rows,
        "needed": int(groups.explanations.is_needed.sum()),
        "actions": len(groups),
        "covered": groups.covered,
        "wall_seconds": time.monotonic() - wall,
        "cpu_seconds": cpu_seconds() - cpu,
        "more_memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "seed": seed,
    }
    yield row | environment()


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    write_table(rows, COLUMNS, MARK, path)
