"""Do rows keep their principal reasons if the explainer is trained again?

One model is explained by several explainers. In the part ``seed`` they differ in their seed alone, which is
that of the density; in the part ``rows`` each also learns from another nine tenths of the training rows. A
row counts as the same if all explainers give it the same set of reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from plausiflow.datasets import Table, load_table
from plausiflow.explainer import Explainer
from plausiflow_bench.harness.pages import write_table
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables.cases import table_rules

TRAINING, KEPT = 2000, 0.9
MARK = "<!-- written by `plausiflow benchmark reasons --page` -->"
CASES = ("loans:lr", "loans:boosted", "german_credit:boosted", "adult:mlp")
COLUMNS = ("part", "dataset", "model", "rows", "seeds", "same", "same_first", "reasons", "ms_per_row")


def run(cases: tuple[str, ...], rows: int, seeds: int, seed: int = 0) -> Iterator[Row]:
    """Yield one row for each case, such as ``loans:lr``, and part."""
    for text in cases:
        name, _, kind = text.partition(":")
        table = load_table(name)
        explained = min(rows, len(table.x) // 3)
        train, test = table.split(min(TRAINING, len(table.x) - explained), explained)
        model = untrained_model(kind, seed).fit(train.x, train.y)
        for part in ("seed", "rows"):
            found, spent = [], 0.0
            for number in range(seed, seed + seeds):
                own = _part(train, number) if part == "rows" else train
                reasons, seconds = _reasons(model, own, test, number)
                found.append(reasons)
                spent += seconds
            head: Row = {"part": part, "dataset": name, "model": kind, "method": "reasons", "seeds": seeds}
            last: Row = {"ms_per_row": 1000 * spent / (seeds * explained), "seed": seed}
            yield head | agreement(found) | last | environment()


def _part(table: Table, number: int) -> Table:
    """Return nine tenths of the rows of a table."""
    kept = round(KEPT * len(table.x))
    return table.split(kept, len(table.x) - kept, seed=number)[0]


def _reasons(model: object, train: Table, test: Table, seed: int) -> tuple[list[list[str]], float]:
    """Return the reasons of each row, and the processor seconds that they take."""
    with ignore_plausibility_warnings():
        explainer = Explainer(
            model, constraints=table_rules(train), orders=train.orders, judges=0, random_state=seed
        )
        explainer.fit(train.x, train.y, verbose=False)
    result = explainer.explain(test.x, "opposite", diagnose=False, verbose=False)
    start = cpu_seconds()
    reasons = [[reason.feature for reason in one.reasons()] for one in result]
    return reasons, cpu_seconds() - start


def agreement(found: list[list[list[str]]]) -> Row:
    """Return how many rows have the same reasons everywhere; rows that have none anywhere do not count.

    Args:
        found: The reasons of each row, for each explainer.
    """
    rows = [own for own in zip(*found, strict=True) if any(own)]
    same = [len({frozenset(names) for names in own}) == 1 for own in rows]
    first = [len({tuple(names[:1]) for names in own}) == 1 for own in rows]
    sizes = [len(names) for own in rows for names in own]
    return {
        "rows": len(rows),
        "same": float(np.mean(same)),
        "same_first": float(np.mean(first)),
        "reasons": float(np.mean(sizes)),
    }


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    write_table(rows, COLUMNS, MARK, path)
