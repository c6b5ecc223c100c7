"""``plausiflow benchmark sparsity``: the cost of fewer changes, and the diversity of several counterfactuals.

One explainer is fitted to each table. Its search runs with several values of ``max_extra_cost``, from zero,
the cheapest answers, and with at most two and three changes; density and margins stay the same. ``l2_ratio``,
``cost_ratio`` and ``cpu_ratio`` are relative to the default, the first two on the rows that both explain.
``kept`` is the share of rows whose answer has few enough changes with the default too, and that keep its cost
at most when the changes are limited. Then the search returns four counterfactuals
per row: ``four_distinct`` is the share of rows with four different ones, and ``spread`` the
mean cost between the counterfactuals of a row divided by their mean cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import MaxChanges, Rule
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.search import MixedSearch
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row
from plausiflow_bench.tables.cases import Case, TableSelection, mean

DEFAULT_TABLES = ("heloc", "adult")
EXTRA_COSTS, MAX_CHANGES, N_ANSWERS, DIVERSITY_ROWS = (0.0, 0.1, 0.3, 0.5), (2, 3), 4, 100
COLUMNS = (
    "dataset", "method", "rows", "features", "found", "changes", "most_changes", "l2", "l2_ratio", "cost",
    "cost_ratio", "judged", "kept", "cpu_ratio", "four_distinct", "spread", "explain_cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark sparsity --page` -->"


def run(selection: TableSelection) -> Iterator[Row]:
    """Yield one row per table and kind of search."""
    for name in selection.tables:
        case = selection.case(name)
        for row in (*_measure_sparsity(case), _measure_diversity(case.first_rows(DIVERSITY_ROWS))):
            features: Row = {"features": case.test.x.shape[1]}
            explained = case.first_rows(int(row["rows"]))
            yield explained.with_provenance(row | features, selection.seed)


def _measure_sparsity(case: Case) -> Iterator[Row]:
    default = case.explainer.max_extra_cost
    searches: dict[str, tuple[Explainer, Sequence[Rule]]] = {
        f"max_extra_cost_{default}": (case.explainer, ())
    }
    for extra in EXTRA_COSTS:
        searches.setdefault(f"max_extra_cost_{extra}", (_with_extra_cost(case, extra), ()))
    for most in MAX_CHANGES:
        searches[f"at_most_{most}_changes"] = (case.explainer, [MaxChanges(most)])
    reference: tuple[Row, Explanations] | None = None
    for method, (explainer, constraints) in searches.items():
        row, result = _explain(case, explainer, 1, constraints)
        reference = reference or (row, result)
        ratios: Row = {f"{name}_ratio": _ratio(name, result, reference[1]) for name in ("l2", "cost")}
        cpu = "explain_cpu_ms_per_row"
        ratios["cpu_ratio"] = float(row[cpu]) / float(reference[0][cpu])
        if constraints:
            ratios["kept"] = _share_kept(result, reference[1], int(method.split("_")[2]))
        yield {"method": method} | row | ratios


def _share_kept(limited: Explanations, free: Explanations, most: int) -> float:
    """Return how many rows with few enough changes anyway have no more expensive answer under the limit."""
    few = free.found_figures("n_changes") <= most
    costs, reference = limited.found_figures("cost")[few], free.found_figures("cost")[few]
    return mean(torch.from_numpy(costs <= reference * (1 + 1e-9)))


def _with_extra_cost(case: Case, max_extra_cost: float) -> Explainer:
    """Return the case's explainer with another ``max_extra_cost``; nothing is learned again."""
    explainer = copy(case.explainer)
    explainer.max_extra_cost = max_extra_cost
    strategy = case.engine.strategy
    assert isinstance(strategy, MixedSearch)
    explainer.engine_ = replace(case.engine, strategy=replace(strategy, max_extra_cost=max_extra_cost))
    return explainer


def _ratio(name: str, result: Explanations, reference: Explanations) -> float:
    """Return the ratio of two means of a figure, on the rows that both results explain."""
    values, reference_values = (torch.from_numpy(each.found_figures(name)) for each in (result, reference))
    both = values.isfinite() & reference_values.isfinite()
    return mean(values[both]) / mean(reference_values[both])


def _measure_diversity(case: Case) -> Row:
    row, result = _explain(case, case.explainer, N_ANSWERS)
    distinct, spreads = [], []
    assert result.encoded is not None
    layout, x_cf = case.encoder.layout, result.encoded[1]
    codes = layout.codes(x_cf)
    costs = result.figures["cost"].to_numpy(np.float64)
    for i in range(len(result)):
        positions = result.answer_range(i)
        distinct.append(int((~result.answers.iloc[positions.start : positions.stop].duplicated()).sum()))
        pairs = torch.tensor(list(combinations(positions, 2)), dtype=torch.long).reshape(-1, 2)
        if len(pairs):
            first, second = ((x_cf[rows], codes[rows]) for rows in pairs.T)
            apart = case.engine.cost_model(second, first)
            spreads.append(mean(apart) / float(costs[positions.start : positions.stop].mean()))
    return {
        "method": f"{N_ANSWERS}_answers",
        **row,
        "four_distinct": mean(torch.tensor(distinct) >= N_ANSWERS),
        "spread": mean(torch.tensor(spreads)),
    }


def _explain(
    case: Case, explainer: Explainer, k: int, constraints: Sequence[Rule] = ()
) -> tuple[Row, Explanations]:
    """Explain the test rows; return the measures and the result."""
    with CpuTimer() as timer:
        result = explainer.explain(case.test.x, k=k, constraints=constraints)
    figures = {name: torch.tensor(result.figures[name].to_numpy(np.float64)) for name in ("l2", "cost")}
    changes = torch.from_numpy(np.bincount(result.changed.answer, minlength=len(result.answers)))
    row: Row = {
        "rows": len(result),
        "found": float(result.is_found.mean()),
        "changes": mean(changes),
        "most_changes": int(changes.max()) if len(changes) else 0,
        "l2": mean(figures["l2"]),
        "cost": mean(figures["cost"]),
        "judged": float(result.figures["judged"].mean()),
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(result),
    }
    return row, result


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
