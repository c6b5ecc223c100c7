"""The selection of ``plausiflow benchmark speed``: what is measured, how much of it, and on which device."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import torch

from plausiflow.core import Training
from plausiflow.densities import ConditionalFlow
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.speed.models import CLASSIFIERS, DENSITIES, ModelRecipe

STUDIES = ("product", "batch", "single", "columns", "growth", "paper", "memory", "agreement")
ONLY_ON = {"single": "cpu", "memory": "cuda", "agreement": "cuda"}
_GIB = 2**30

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SpeedPlan:
    """The amount of work of each measurement.

    Attributes:
        gaussian_columns: Columns of Gaussian rows that replace heloc. None means heloc.
        sizes: Batch sizes, by kind of device.
        single: The number of rows explained one at a time.
        table: Name of the mixed table, whose rows are also explained one at a time.
        table_train: Training rows of that table.
        confidence: The explainer's ``confidence`` on that table.
        judges: The explainer's ``judges`` on that table.
        product_tables: Tables on which the explainer is compared with the engine.
        product_train: Training rows of these tables.
        product_rows: Rows of these tables that are explained.
        columns: Numbers of columns of Gaussian rows.
        rows: How many rows are explained for each number of columns.
        train: Gaussian rows that models are trained on.
        growth: Numbers of rows explained with ``growth_columns`` columns.
        growth_columns: That number of columns.
        paper: How many rows the paper's solver explains.
        steps: Steps of the paper's solver. None means as published.
        run_rows: Rows of each run in the measurement of memory.
        runs: The number of these runs.
        enough: Seconds after which a measurement is not repeated.
        recipe: Settings of the models.
    """

    gaussian_columns: int | None = None
    sizes: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "cpu": (1, 10, 100, 1000, 10_000),
            "cuda": (1, 10, 100, 1000, 10_000, 100_000, 1_000_000),
        }
    )
    single: int = 40
    table: str = "adult"
    table_train: int = 1500
    confidence: float | None = Explainer.confidence
    judges: int = 3
    product_tables: tuple[str, ...] = ("heloc", "adult", "german_credit", "loans")
    product_train: int = 3000
    product_rows: int = 1000
    columns: tuple[int, ...] = (8, 16, 32, 64, 128)
    rows: int = 1000
    train: int = 2000
    growth: tuple[int, ...] = (1000, 10_000, 50_000)
    growth_columns: int = 16
    paper: int = 500
    steps: int | None = None
    run_rows: int = 100_000
    runs: int = 10
    enough: float = 10.0
    recipe: ModelRecipe = field(default_factory=ModelRecipe)


_SHORT_TRAINING = Training(epochs=12, learning_rate=1e-2, noise=0.02)
QUICK = SpeedPlan(
    gaussian_columns=4,
    sizes=dict.fromkeys(("cpu", "cuda"), (1, 10, 100)),
    single=4,
    table="loans",
    table_train=100,
    confidence=None,
    judges=0,
    product_tables=("loans",),
    product_train=100,
    product_rows=10,
    columns=(2, 4),
    rows=50,
    train=200,
    growth=(50, 100),
    growth_columns=4,
    paper=20,
    steps=50,
    run_rows=100,
    runs=3,
    enough=0.2,
    recipe=ModelRecipe(
        hidden=(16,),
        training=Training(epochs=60, learning_rate=3e-2),
        flow=ConditionalFlow(transforms=2, hidden=(16,), training=_SHORT_TRAINING),
        members=2,
    ),
)


@dataclass(frozen=True)
class TimedDevice:
    """The device that is measured, and how work on it is timed.

    Attributes:
        kind: ``cpu`` or ``cuda``.
    """

    kind: Literal["cpu", "cuda"]

    @classmethod
    def from_name(cls, device: str) -> TimedDevice:
        """Return a device by name: ``cpu``, ``cuda``, or ``auto``, which is CUDA if available."""
        available = torch.cuda.is_available()
        if device not in ("cpu", "cuda", "auto"):
            raise InvalidInputError(f"`device` must be cpu, cuda or auto; got {device!r}.")
        if device == "cuda" and not available:
            raise InvalidInputError(
                "`device` is 'cuda', but torch finds no CUDA device. Measure on the processor with 'cpu', "
                "or run this on a machine with CUDA."
            )
        return cls("cuda" if device == "cuda" or (device == "auto" and available) else "cpu")

    @property
    def device(self) -> torch.device:
        """The device as a torch object."""
        return torch.device(self.kind)

    @property
    def name(self) -> str:
        """The product name of the device."""
        if self.kind == "cuda":
            return torch.cuda.get_device_name()
        about = Path("/proc/cpuinfo")
        lines = about.read_text().splitlines() if about.exists() else []
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(models, platform.processor() or platform.machine())

    def time(self, work: Callable[[], T]) -> tuple[T, Row]:
        """Call ``work``; return its result and a row with wall seconds, processor seconds and CUDA memory."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        if self.kind == "cuda":
            torch.cuda.synchronize()
        row: Row = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        return result, row | (
            {"peak_gib": torch.cuda.max_memory_allocated() / _GIB} if self.kind == "cuda" else {}
        )

    def cost(self, row: Row) -> float:
        """Return the seconds that count: wall time on CUDA, processor time otherwise."""
        return float(row["seconds" if self.kind == "cuda" else "cpu_seconds"])


@dataclass(frozen=True, kw_only=True)
class SpeedSelection:
    """What is measured.

    Attributes:
        device: ``cpu``, ``cuda`` or ``auto``.
        sizes: Batch sizes. Empty means those of the plan.
        classifiers: Any of ``lr``, ``mlp``.
        densities: Any of ``one``, ``ensemble``.
        studies: Any of ``STUDIES``; those of the other kind of device are skipped.
        quick: Whether to use small models and few rows, to check that everything runs.
        threads: Threads of torch.
        seed: Seed of everything that is drawn or trained.
        cache: Folder of trained models. None means in memory only.
    """

    device: str = "auto"
    sizes: tuple[int, ...] = ()
    classifiers: tuple[str, ...] = CLASSIFIERS
    densities: tuple[str, ...] = DENSITIES
    studies: tuple[str, ...] = STUDIES
    quick: bool = False
    threads: int = 1
    seed: int = 0
    cache: Path | None = None

    def __post_init__(self) -> None:
        TimedDevice.from_name(self.device)
        choices = {"classifiers": CLASSIFIERS, "densities": DENSITIES, "studies": STUDIES}
        problems = []
        for name, known in choices.items():
            given = getattr(self, name)
            if not given or set(given) - set(known):
                problems.append(
                    f"`{name}` must be one or more of {', '.join(known)}; got {', '.join(given) or 'none'}"
                )
        if not problems and not self.available_studies():
            kind, names = self.timed_device.kind, ", ".join(self.studies)
            problems.append(f"`studies` must include one that runs on {kind}; got {names}")
        if any(size < 1 for size in self.sizes):
            problems.append(f"`sizes` must be at least 1; got {', '.join(map(str, self.sizes))}")
        if self.threads < 1:
            problems.append(f"`threads` must be at least 1; got {self.threads}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @property
    def timed_device(self) -> TimedDevice:
        """The device that is measured."""
        return TimedDevice.from_name(self.device)

    @property
    def plan(self) -> SpeedPlan:
        """The amount of work."""
        return QUICK if self.quick else SpeedPlan()

    def available_studies(self) -> tuple[str, ...]:
        """Return the studies that are possible on the device."""
        return tuple(
            name
            for name in self.studies
            if ONLY_ON.get(name, self.timed_device.kind) == self.timed_device.kind
        )
