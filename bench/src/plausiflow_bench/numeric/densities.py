r"""``plausiflow benchmark densities``: how well each density fits held-out rows, and its cost.

The published RealNVP and NICE could only shrink volumes, so their log-density could not exceed
:math:`-d/2 \log 2\pi` on data in [0, 1]; the column ``published_cap`` has that number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from plausiflow.core import Density
from plausiflow.densities import GMM, KDE, ConditionalFlow
from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.rows import CpuTimer, Row, environment
from plausiflow_bench.harness.selection import Selection, load_fold

DENSITIES = ("maf", "nsf", "realnvp", "nice", "kde", "gmm")
COLUMNS = (
    "dataset", "fold", "method", "rows", "log_density", "median_log_density", "published_cap", "cpu_seconds",
    "evaluation_ms",
)  # fmt: skip


def make_density(name: str, seed: int) -> Density:
    """Return an unfitted density by its name in the tables."""
    if name not in DENSITIES:
        raise InvalidInputError(f"Unknown density {name!r}; choose from {', '.join(DENSITIES)}.")
    if name == "kde":
        return KDE()
    if name == "gmm":
        return GMM(random_state=seed)
    return ConditionalFlow(architecture=name, random_state=seed)  # type: ignore[arg-type]


def run(selection: Selection, names: tuple[str, ...] = DENSITIES) -> Iterator[Row]:
    """Yield one row per data set, fold and density, measured on the test rows of the fold."""
    for name in names:
        make_density(name, selection.seed)
    for dataset in selection.datasets:
        for fold in selection.folds:
            data = load_fold(dataset, fold)
            x, y = selection.first_rows(data.x_test), selection.first_rows(data.y_test)
            for name in names:
                density, wall = make_density(name, selection.seed), time.perf_counter()
                with CpuTimer() as training:
                    density.fit(data.x_train, data.y_train)
                wall = time.perf_counter() - wall
                with torch.no_grad():
                    log_prob = density.log_prob(x.double(), y)
                row: Row = {
                    "dataset": dataset,
                    "fold": fold,
                    "method": name,
                    "rows": len(x),
                    "log_density": float(log_prob.mean()),
                    "median_log_density": float(log_prob.median()),
                    "published_cap": -0.5 * x.shape[1] * math.log(2 * math.pi),
                    "cpu_seconds": training.seconds,
                    "wall_seconds": wall,
                    "evaluation_ms": _evaluation_ms(density, x, y),
                }
                yield row | {"seed": selection.seed} | environment()


def _evaluation_ms(density: Density, x: Tensor, y: Tensor, rows: int = 1000, repeats: int = 5) -> float:
    """Return the processor milliseconds of the value and gradient of 1,000 rows in single precision."""
    many = torch.arange(rows) % len(x)
    point, classes = x[many].requires_grad_(True), y[many]
    torch.autograd.grad(density.log_prob(point, classes).sum(), point)
    with CpuTimer() as timer:
        for _ in range(repeats):
            torch.autograd.grad(density.log_prob(point, classes).sum(), point)
    return 1000 * timer.seconds / repeats
