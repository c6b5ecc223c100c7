"""What ``plausiflow benchmark speed`` is asked to measure, how much of it, and where."""

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
from plausiflow_bench.speed_models import CLASSIFIERS, DENSITIES, Recipe
from plausiflow_bench.study import Row

STUDIES = ("batch", "single", "columns", "growth", "paper", "memory", "agreement")
ONLY_ON = {"single": "cpu", "memory": "cuda", "agreement": "cuda"}
_GIB = 2**30

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        drawn: Columns of drawn rows that stand for heloc's; none means heloc.
        sizes: Rows explained at once, by kind of device.
        single: Rows explained one at a time.
        table: The mixed table that some of these come from.
        table_train: Its training rows.
        confidence: Share of its answers that a second opinion must accept; none asks for no opinion.
        judges: That give one on its answers.
        columns: Numbers of columns of drawn rows.
        rows: Of each of these, so many are explained.
        train: Drawn rows that models learn from.
        growth: Numbers of rows explained at ``growth_columns`` columns.
        growth_columns: That many.
        paper: Rows that the paper's solver explains, too.
        steps: Most steps of the paper's solver; none means as published.
        run_rows: Rows of each of ``runs`` that may not take more and more memory.
        runs: That many.
        enough: Seconds after which nothing is repeated.
        recipe: How models are made.
    """

    drawn: int | None = None
    sizes: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "cpu": (1, 10, 100, 1000, 10_000),
            "cuda": (1, 10, 100, 1000, 10_000, 100_000, 1_000_000),
        }
    )
    single: int = 40
    table: str = "adult"
    table_train: int = 1500
    confidence: float | None = 0.95
    judges: int = 3
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
    recipe: Recipe = field(default_factory=Recipe)


_BRIEF = Training(epochs=12, learning_rate=1e-2, noise=0.02)
QUICK = Plan(
    drawn=4,
    sizes=dict.fromkeys(("cpu", "cuda"), (1, 10, 100)),
    single=4,
    table="loans",
    table_train=100,
    confidence=None,
    judges=0,
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
    recipe=Recipe(
        hidden=(16,),
        training=Training(epochs=60, learning_rate=3e-2),
        flow=ConditionalFlow(transforms=2, hidden=(16,), training=_BRIEF),
        members=2,
    ),
)


@dataclass(frozen=True)
class Place:
    """A processor or a CUDA device, and what work there takes."""

    kind: Literal["cpu", "cuda"]

    @classmethod
    def of(cls, device: str) -> Place:
        """By name: ``cpu``, ``cuda``, or ``auto``, which is CUDA where there is such a device."""
        there = torch.cuda.is_available()
        if device not in ("cpu", "cuda", "auto"):
            raise InvalidInputError(f"`device` must be cpu, cuda or auto; got {device!r}.")
        if device == "cuda" and not there:
            raise InvalidInputError(
                "`device` must be one that is there; got 'cuda', and torch finds no CUDA device on this "
                "machine. Measure on the processor with 'cpu', or run this where there is one."
            )
        return cls("cuda" if device == "cuda" or (device == "auto" and there) else "cpu")

    @property
    def device(self) -> torch.device:
        """As torch calls it."""
        return torch.device(self.kind)

    @property
    def name(self) -> str:
        """As its maker calls it."""
        if self.kind == "cuda":
            return torch.cuda.get_device_name()
        about = Path("/proc/cpuinfo")
        lines = about.read_text().splitlines() if about.exists() else []
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(models, platform.processor() or platform.machine())

    def timed(self, work: Callable[[], T]) -> tuple[T, Row]:
        """What a call gives, and what it took: by the clock, of the processor, and of CUDA's memory."""
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
        """The seconds that count: of the processor, or by the clock where CUDA does the work."""
        return float(row["seconds" if self.kind == "cuda" else "cpu_seconds"])


@dataclass(frozen=True, kw_only=True)
class SpeedSelection:
    """What is measured.

    Attributes:
        device: ``cpu``, ``cuda`` or ``auto``.
        sizes: Rows explained at once; none means those of the plan.
        classifiers: ``lr``, ``mlp``.
        densities: ``one``, ``ensemble``.
        studies: Of ``STUDIES``; those of the other kind of device are left out.
        quick: Small models and few rows, to see that everything runs.
        threads: Of torch.
        seed: Of everything that is drawn or trained.
        cache: Where models are kept; none keeps nothing.
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
        Place.of(self.device)
        choices = {"classifiers": CLASSIFIERS, "densities": DENSITIES, "studies": STUDIES}
        problems = []
        for name, known in choices.items():
            given = getattr(self, name)
            if not given or set(given) - set(known):
                problems.append(
                    f"`{name}` must be some of {', '.join(known)}; got {', '.join(given) or 'none'}"
                )
        if not problems and not self.studied():
            problems.append(
                f"`studies` must be some that are made on {self.place.kind}; got {', '.join(self.studies)}"
            )
        if any(size < 1 for size in self.sizes):
            problems.append(f"`sizes` must be at least 1; got {', '.join(map(str, self.sizes))}")
        if self.threads < 1:
            problems.append(f"`threads` must be at least 1; got {self.threads}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @property
    def place(self) -> Place:
        """Where it is measured."""
        return Place.of(self.device)

    @property
    def plan(self) -> Plan:
        """How much is measured."""
        return QUICK if self.quick else Plan()

    def studied(self) -> tuple[str, ...]:
        """The studies that can be made here."""
        return tuple(name for name in self.studies if ONLY_ON.get(name, self.place.kind) == self.place.kind)
