"""``plausiflow benchmark performance``: every study of speed and closeness in one go.

It is written to ``docs/performance.md``. The sections of ``plausiflow benchmark speed`` on that page stay.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from plausiflow.errors import DataNotFoundError
from plausiflow.methods import PPCEF
from plausiflow_bench import densities, published, solvers
from plausiflow_bench.cases import kept_section
from plausiflow_bench.speed_page import MARKS
from plausiflow_bench.study import (
    Row,
    Selection,
    environment,
    fitted_classifier,
    fitted_plausibility,
    fold_of,
    summary,
    target_policy,
)
from plausiflow_bench.tables import caption, markdown

BATCHES = (1, 10, 100, 1000, 10000)
NODE_DATASETS = ("heloc", "digits", "law", "moons", "wine")
COLUMNS = (
    "dataset",
    "classifier",
    "rows",
    "feasible",
    "l2",
    "gradients",
    "cpu_seconds",
    "wall_seconds",
    "cpu_ms_per_row",
)


def batch_sizes(selection: Selection) -> Iterator[Row]:
    """What one row costs, explained alone or in batches of up to 10,000 (the test rows, repeated)."""
    for dataset, kind, fold in selection.cases():
        data = fold_of(dataset, fold)
        model = fitted_classifier(dataset, kind, fold, selection.seed)
        plausibility = fitted_plausibility(dataset, fold, selection.seed)
        method = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0).fit(
            data.x_train, data.y_train
        )
        method.explain(data.x_test[:2], target_policy(model.n_classes))
        for size in BATCHES:
            found = method.explain(
                data.x_test[torch.arange(size) % len(data.x_test)], target_policy(model.n_classes)
            )
            row = summary(found)
            row["cpu_ms_per_row"] = 1000 * float(row["cpu_seconds"]) / size
            case: Row = {"dataset": dataset, "classifier": kind, "fold": fold}
            yield case | row | {"seed": selection.seed} | environment()


def write(path: Path, selection: Selection, reference: Path | None, report: Callable[[str], None]) -> None:
    """Run every study and write the page; ``report`` is told what is done."""
    start = time.perf_counter()
    linear, both = replace(selection, classifiers=("lr",)), replace(selection, classifiers=("lr", "mlp"))
    node = tuple(name for name in NODE_DATASETS if name in selection.datasets)
    capped = replace(selection, datasets=node, classifiers=("node",), rows=min(500, selection.rows or 500))
    large = replace(
        selection, datasets=tuple(n for n in ("heloc",) if n in selection.datasets), classifiers=("lr", "mlp")
    )
    studies: list[tuple[str, str, Callable[[], Iterable[Row]], Sequence[str]]] = [
        (
            "Published models",
            published.__doc__ or "",
            lambda: published.run(linear, reference),
            published.COLUMNS,
        ),
        (
            "Published NODE",
            "The same on the published NODE.",
            lambda: published.run(capped, reference),
            published.COLUMNS,
        ),
        ("Models trained here", solvers.__doc__ or "", lambda: solvers.run(both), solvers.COLUMNS),
        ("Densities", densities.__doc__ or "", lambda: densities.run(selection), densities.COLUMNS),
        ("Batch sizes", batch_sizes.__doc__ or "", lambda: batch_sizes(large), COLUMNS),
    ]
    sections = []
    for title, text, run, columns in studies:
        try:
            rows = list(run())
            body = f"{markdown(rows, columns)}\n\n{caption(rows)}".rstrip()
        except DataNotFoundError as missing:
            body = f"Not run: {missing}"
        sections.append(f"## {title}\n\n{_as_markdown(text)}\n\n{body}\n")
        report(title)
    minutes = (time.perf_counter() - start) / 60
    head = (
        "# Performance\n\n"
        "Written by `plausiflow benchmark performance`; every number comes from that one run, but for the\n"
        "sections on speed at the end, which are runs of their own.\n"
        f"Commit {environment()['commit']}, torch {environment()['torch']}, "
        f"Python {platform.python_version()}, one thread, seed {selection.seed}, {minutes:.0f} minutes.\n"
        "Processor seconds on a shared machine: compare them within a table.\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    speed = [f"{kept_section(path, mark)}\n" for mark in MARKS.values()]
    path.write_text("\n".join([head, *sections, *speed]))


def _as_markdown(docstring: str) -> str:
    """A docstring's markup as a page writes it."""
    return re.sub(r":math:`([^`]*)`", r"$\1$", docstring.strip()).replace("``", "`")
