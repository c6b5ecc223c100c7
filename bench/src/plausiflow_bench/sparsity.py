"""``plausiflow benchmark sparsity``: what fewer changes cost, and how several answers differ.

One explainer is fitted to each table. Its search then runs with all changes kept, with the sparsity that is
the default, and with at most three changes; the density and its margins stay the same, so that nothing else
differs. ``l2_ratio`` and ``cost_ratio`` are means over those of all changes, on the rows that both answer.
Then four answers are asked for: ``four_distinct`` is the share of rows that get four different ones, and
``spread`` the mean cost between the answers of a row over their mean cost.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import MaxChanges, Rules
from plausiflow.explanations import Explanations
from plausiflow.search import Engine, MixedSearch
from plausiflow_bench.cases import Case, TableSelection, mean, what_ran, write_section
from plausiflow_bench.study import CpuTimer, Row
from plausiflow_bench.tables import markdown

STUDIED = ("heloc", "adult")
SPARSITY, MOST, SEVERAL, ASKED_FOR_SEVERAL = 0.1, 3, 4, 100
COLUMNS = (
    "dataset", "method", "rows", "features", "found", "changes", "most_changes", "l2", "l2_ratio", "cost",
    "cost_ratio", "four_distinct", "spread", "explain_cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark sparsity --page` -->"


def run(selection: TableSelection) -> Iterator[Row]:
    """One row per table and way to search."""
    for name in selection.tables:
        case = selection.case(name, judges=0)
        for row in (*_fewer(case), _several(case.few(ASKED_FOR_SEVERAL))):
            features: Row = {"features": case.test.x.shape[1]}
            asked = case.few(int(row["rows"]))
            yield asked.identified(row | features, selection.seed)


def _fewer(case: Case) -> Iterator[Row]:
    finder = case.finder
    limited = [*finder.rules.constraints, MaxChanges(MOST)]
    rules = Rules(limited, finder.rules.schema, finder.rules.layout)
    search = finder.search
    assert isinstance(search, MixedSearch)
    ways = {
        "all_changes": replace(finder, search=replace(search, sparsity=None)),
        f"sparsity_{SPARSITY}": replace(finder, search=replace(search, sparsity=SPARSITY)),
        f"at_most_{MOST}_changes": replace(finder, rules=rules),
    }
    reference: Explanations | None = None
    for method, own in ways.items():
        row, result = _explained(case, own, 1)
        reference = result if reference is None else reference
        ratios: Row = {f"{name}_ratio": _ratio(name, result, reference) for name in ("l2", "cost")}
        yield {"method": method} | row | ratios


def _ratio(name: str, result: Explanations, reference: Explanations) -> float:
    """The mean of a figure over the reference's, on the rows that both answer."""
    own, other = (torch.from_numpy(each.found_figure(name)) for each in (result, reference))
    both = own.isfinite() & other.isfinite()
    return mean(own[both]) / mean(other[both])


def _several(case: Case) -> Row:
    row, result = _explained(case, case.finder, SEVERAL)
    distinct, spreads = [], []
    assert result.encoded is not None
    x_cf, of = result.encoded[1], torch.from_numpy(result.of)
    between = case.finder.task(x_cf, case.y_target[of])
    costs = result.figures["cost"].to_numpy(np.float64)
    for i in range(len(result)):
        own = result.answers_of(i)
        distinct.append(int((~result.answers.iloc[own.start : own.stop].duplicated()).sum()))
        pairs = torch.tensor(list(combinations(own, 2)), dtype=torch.long).reshape(-1, 2)
        if len(pairs):
            apart = between.costs(x_cf[pairs[:, 0]], pairs[:, 1])
            spreads.append(mean(apart) / float(costs[own.start : own.stop].mean()))
    return {
        "method": f"{SEVERAL}_answers",
        **row,
        "four_distinct": mean(torch.tensor(distinct) >= SEVERAL),
        "spread": mean(torch.tensor(spreads)),
    }


def _explained(case: Case, finder: Engine, count: int) -> tuple[Row, Explanations]:
    """The rows explained with another finder, and what all answers are like."""
    explainer = copy.copy(case.explainer)
    explainer.engine_ = finder
    with CpuTimer() as timer:
        result = explainer.explain(case.test.x, k=count)
    figures = {name: torch.tensor(result.figures[name].to_numpy(np.float64)) for name in ("l2", "cost")}
    changes = torch.from_numpy(np.bincount(result.changed.answer, minlength=len(result.answers)))
    row: Row = {
        "rows": len(result),
        "found": float(result.is_found.mean()),
        "changes": mean(changes),
        "most_changes": int(changes.max()) if len(changes) else 0,
        "l2": mean(figures["l2"]),
        "cost": mean(figures["cost"]),
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(result),
    }
    return row, result


def write_page(rows: list[Row], path: Path) -> None:
    """Put the study of sparsity between its marks in a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)}")
