"""``plausiflow benchmark performance``: the studies of speed and closeness, as ``docs/performance.md``.

The sections of ``plausiflow benchmark speed`` on that page are not changed.
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
from plausiflow_bench.harness.pages import read_section
from plausiflow_bench.harness.printing import caption, markdown
from plausiflow_bench.harness.rows import Row, environment, summarize
from plausiflow_bench.harness.selection import (
    Selection,
    fit_classifier,
    fit_thresholded_flow,
    load_fold,
    target_policy,
)
from plausiflow_bench.numeric import densities, solvers
from plausiflow_bench.published import study as published
from plausiflow_bench.speed.page import MARKS

BATCH_SIZES = (1, 10, 100, 1000, 10000)
NODE_DATASETS = ("heloc", "digits", "law", "moons", "wine")
BATCH_COLUMNS = (
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
    """What one row costs when it is explained alone, or in a batch of up to 10,000 test rows (repeated)."""
    for dataset, kind, fold in selection.cases():
        data = load_fold(dataset, fold)
        model = fit_classifier(dataset, kind, fold, selection.seed)
        plausibility = fit_thresholded_flow(dataset, fold, selection.seed)
        method = PPCEF(classifier=model, plausibility=plausibility, lower=0.0, upper=1.0).fit(
            data.x_train, data.y_train
        )
        method.explain(data.x_test[:2], target_policy(model.n_classes))
        for size in BATCH_SIZES:
            found = method.explain(
                data.x_test[torch.arange(size) % len(data.x_test)], target_policy(model.n_classes)
            )
            row = summarize(found)
            row["cpu_ms_per_row"] = 1000 * float(row["cpu_seconds"]) / size
            case: Row = {"dataset": dataset, "classifier": kind, "fold": fold}
            yield case | row | {"seed": selection.seed} | environment()


def write(path: Path, selection: Selection, reference: Path | None, report: Callable[[str], None]) -> None:
    """Run every study and write the page.

    Args:
        path: The page.
        selection: The cases.
        reference: Folder of the published runs, or None for the default.
        report: Called with the title of each study that is finished.
    """
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
        ("Batch sizes", batch_sizes.__doc__ or "", lambda: batch_sizes(large), BATCH_COLUMNS),
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
        "Written by `plausiflow benchmark performance`. Every number comes from that run, except for the\n"
        "sections on speed at the end, which come from separate runs.\n"
        f"Commit {environment()['commit']}, torch {environment()['torch']}, "
        f"Python {platform.python_version()}, one thread, seed {selection.seed}, {minutes:.0f} minutes.\n"
        "Processor seconds were measured on a shared machine: compare them within a table.\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    speed = [f"{read_section(path, mark)}\n" for mark in MARKS.values()]
    path.write_text("\n".join([head, *sections, *speed]))


def _as_markdown(docstring: str) -> str:
    """Convert the markup of a docstring to Markdown."""
    return re.sub(r":math:`([^`]*)`", r"$\1$", docstring.strip()).replace("``", "`")
