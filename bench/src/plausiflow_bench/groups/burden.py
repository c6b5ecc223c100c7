"""Does the audit find a planted burden, and does it stay silent on null tables?

Loans are explained once. Each table draws rows from these with replacement, and a random half is the group.
Null tables are left like that. In planted tables the cost of the group is 20 % higher. A table raises an
alarm if any adjusted p-value is at most .05; a planted burden is found if that of the group's cost is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from plausiflow.datasets import load_table
from plausiflow.explainer import Explainer
from plausiflow.explanations import Audit, Explanations
from plausiflow_bench.harness.pages import write_table
from plausiflow_bench.harness.rows import Row, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model

TRAINING, EXPLAINED, EXTRA, LEVEL = 1000, 600, 0.2, 0.05
MARK = "<!-- written by `plausiflow benchmark burden --page` -->"
COLUMNS = ("part", "dataset", "tables", "rows", "planted", "alarms", "found")


def run(tables: int, rows: int, seed: int = 0) -> Iterator[Row]:
    """Yield one row for null tables and one for planted ones."""
    train, test = load_table("loans").split(TRAINING, EXPLAINED)
    model = untrained_model("lr", seed).fit(train.x, train.y)
    with ignore_plausibility_warnings():
        explainer = Explainer(model, confidence=None, judges=0, random_state=seed)
        explainer.fit(train.x, train.y, effort="quick", verbose=False)
    pool = explainer.explain(test.x, "granted", diagnose=False, verbose=False)
    for planted in (0.0, EXTRA):
        alarms, found = [], []
        for table in range(tables):
            audit = _table(pool, rows, planted, seed=1000 * seed + table)
            adjusted = audit.differences["p_adjusted"]
            alarms.append(bool((adjusted <= LEVEL).any()))
            found.append(bool(adjusted.loc[("group=a", "cost")] <= LEVEL))
        row: Row = {
            "part": "burden",
            "dataset": "loans",
            "method": "audit",
            "tables": tables,
            "rows": rows,
            "planted": planted,
            "alarms": float(np.mean(alarms)),
            "found": float(np.mean(found)),
            "seed": seed,
        }
        yield row | environment()


def _table(pool: Explanations, rows: int, planted: float, seed: int) -> Audit:
    """Return the audit of rows drawn from a result, of which a random half is the group ``a``."""
    rng = np.random.default_rng(seed)
    needed = np.flatnonzero(pool.is_needed)
    drawn = rng.choice(needed, rows)
    group = np.where(rng.permutation(rows) < rows // 2, "a", "b")
    best = pool.best[drawn]
    answered = np.flatnonzero(best >= 0)
    figures = pool.figures.iloc[best[answered]].reset_index(drop=True)
    figures["cost"] *= np.where(group[answered] == "a", 1 + planted, 1.0)
    index = pd.RangeIndex(rows)
    table = replace(
        pool,
        rows=pool.rows.iloc[drawn].set_axis(index),
        answers=pool.answers.iloc[best[answered]].reset_index(drop=True),
        of=answered,
        figures=figures,
        verdicts=pool.verdicts.iloc[drawn].set_axis(index),
        misses=None,
        misses_of=np.empty(0, dtype=np.int64),
        misses_why=[],
        encoded=None,
        roles=None,
    )
    return table.audit(
        {"group": group.tolist()}, permutations=499, samples=200, matched=False, random_state=seed
    )


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    write_table(rows, COLUMNS, MARK, path)
