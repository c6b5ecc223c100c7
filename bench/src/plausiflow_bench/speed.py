"""``plausiflow benchmark speed``: rows per second, one row's cost, and what these grow with.

PPCEF searches with the SQP, mode ``fast``, in the [0, 1] box, on a processor or on CUDA. A machine that has
the package but not its command line runs the same as a module, with files that were trained elsewhere:

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
from plausiflow_bench.speed_models import CLASSIFIERS, DENSITIES, Models, gaussian, heloc
from plausiflow_bench.speed_page import sections
from plausiflow_bench.speed_plan import STUDIES, SpeedSelection
from plausiflow_bench.speed_studies import Bench
from plausiflow_bench.study import Row, environment, write_json

STAND_IN_ROWS = (400, 200)
"""To train on and to explain, in a quick look."""


def run(selection: SpeedSelection) -> Iterator[Row]:
    """One row for each measurement."""
    plan, place = selection.plan, selection.place
    with _threads(selection.threads):
        bench = Bench(
            data=gaussian(plan.drawn, *STAND_IN_ROWS, selection.seed)
            if plan.drawn
            else heloc(selection.seed),
            models=Models(selection.cache, selection.seed),
            plan=plan,
            place=place,
            sizes=selection.sizes or plan.sizes[place.kind],
            classifiers=selection.classifiers,
            densities=selection.densities,
            seed=selection.seed,
        )
        origin = _origin(selection)
        for study in selection.studied():
            measure: Callable[[], Iterator[Row]] = getattr(bench, study)
            start = time.perf_counter()
            for row in measure():
                elapsed: Row = {"elapsed": time.perf_counter() - start}
                yield {"study": study} | row | origin | elapsed
                start = time.perf_counter()


def _origin(selection: SpeedSelection) -> Row:
    """What was run, where, and with which code."""
    place = selection.place
    ran: Row = {"device": place.kind, "device_name": place.name, "threads": selection.threads}
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


def collected(rows: Iterable[Row], path: Path | None = None) -> list[Row]:
    """All rows, each written to a file and told on standard error as soon as it is there."""
    kept: list[Row] = []
    for row in rows:
        kept.append(row)
        if path is not None:
            write_json(kept, path)
        named = ("study", "dataset", "classifier", "density", "solver", "columns", "rows", "run")
        said = " ".join(str(row[name]) for name in named if name in row)
        print(f"done: {said}", file=sys.stderr)
    return kept


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from a command line that needs no package for command lines."""
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
        print(*sections(collected(run(SpeedSelection(**given)), path)).values(), sep="\n\n")
    except PlausiflowError as error:
        parser.error(str(error))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _names(text)))


if __name__ == "__main__":
    main()
