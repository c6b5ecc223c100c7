"""``plausiflow benchmark speed``: rows per second, the latency of one row, and how these scale.

PPCEF searches with the SQP, mode ``fast``, in the [0, 1] box, on a processor or on CUDA. On a machine without
typer, run the study as a module, with models that were trained elsewhere:

``python -m plausiflow_bench.speed --device cuda --cache DIR --json FILE``

``plausiflow benchmark speed --reuse FILE --page docs/performance.md`` then writes the page.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from plausiflow.errors import PlausiflowError
from plausiflow_bench.harness.rows import Row, environment, write_json
from plausiflow_bench.speed.measurements import SpeedBench
from plausiflow_bench.speed.models import CLASSIFIERS, DENSITIES, ModelCache, gaussian, heloc
from plausiflow_bench.speed.page import sections
from plausiflow_bench.speed.plan import STUDIES, SpeedSelection

QUICK_ROWS = (400, 200)
"""Training and test rows of the quick mode."""


def run(selection: SpeedSelection) -> Iterator[Row]:
    """Yield one row per measurement."""
    plan, device = selection.plan, selection.timed_device
    with _threads(selection.threads):
        bench = SpeedBench(
            data=gaussian(plan.gaussian_columns, *QUICK_ROWS, selection.seed)
            if plan.gaussian_columns
            else heloc(selection.seed),
            models=ModelCache(selection.cache, selection.seed),
            plan=plan,
            device=device,
            sizes=selection.sizes or plan.sizes[device.kind],
            classifiers=selection.classifiers,
            densities=selection.densities,
            seed=selection.seed,
        )
        origin = _origin(selection)
        for study in selection.available_studies():
            measure: Callable[[], Iterator[Row]] = getattr(bench, study)
            start = time.perf_counter()
            for row in measure():
                elapsed: Row = {"elapsed": time.perf_counter() - start}
                yield {"study": study} | row | origin | elapsed
                start = time.perf_counter()


def _origin(selection: SpeedSelection) -> Row:
    """Return the settings, the device and the versions of a run."""
    device = selection.timed_device
    ran: Row = {"device": device.kind, "device_name": device.name, "threads": selection.threads}
    ran |= {"quick": int(selection.quick), "seed": selection.seed, "python": platform.python_version()}
    return ran | environment()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def collect_rows(rows: Iterable[Row], path: Path | None = None) -> list[Row]:
    """Collect rows; write each to a file and report it on standard error as soon as it is measured."""
    kept: list[Row] = []
    for row in rows:
        kept.append(row)
        if path is not None:
            write_json(kept, path)
        named = ("study", "dataset", "classifier", "density", "solver", "columns", "rows", "run")
        case = " ".join(str(row[name]) for name in named if name in row)
        print(f"done: {case}", file=sys.stderr)
    return kept


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from a command line that needs only the standard library."""
    parser = argparse.ArgumentParser(prog="python -m plausiflow_bench.speed")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--quick", action="store_true", help="small models and few rows")
    for name, default in (("threads", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("cache", "json"):
        parser.add_argument(f"--{name}", type=Path)
    for name, known in (("classifiers", CLASSIFIERS), ("densities", DENSITIES), ("studies", STUDIES)):
        parser.add_argument(f"--{name}", type=_names, default=known, help=",".join(known))
    parser.add_argument("--sizes", type=_numbers, default=(), help="rows explained at once, such as 1,100")
    given = vars(parser.parse_args(arguments))
    path = given.pop("json")
    try:
        print(*sections(collect_rows(run(SpeedSelection(**given)), path)).values(), sep="\n\n")
    except PlausiflowError as error:
        parser.error(str(error))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _names(text)))
