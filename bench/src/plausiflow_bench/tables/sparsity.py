"""``plausiflow benchmark sparsity``: the cost of fewer changes, and the diversity of several counterfactuals.

One explainer is fitted to each table. Its search runs with all changes kept, with the default sparsity, and
with at most three changes; density and margins stay the same. ``l2_ratio`` and ``cost_ratio`` are means
divided by those of all changes, on the rows that both explain. Then the search returns four counterfactuals
per row: ``four_distinct`` is the share of rows with four different ones, and ``spread`` the
mean cost between the counterfactuals of a row divided by their mean cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import MaxChanges, Rule
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row
from plausiflow_bench.tables.cases import Case, TableSelection, mean

DEFAULT_TABLES = ("heloc", "adult")
SPARSITY, MAX_CHANGES, N_ANSWERS, DIVERSITY_ROWS = 0.1, 3, 4, 100
COLUMNS = (
    "dataset", "method", "rows", "features", "found", "changes", "most_changes", "l2", "l2_ratio", "cost",
    "cost_ratio", "four_distinct", "spread", "explain_cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark sparsity --page` -->"


def run(selection: TableSelection) -> Iterator[Row]:
    """Yield one row per table and kind of search."""
    for name in selection.tables:
        case = selection.case(name, judges=0)
        for row in (*_measure_sparsity(case), _measure_diversity(case.first_rows(DIVERSITY_ROWS))):
            features: Row = {"features": case.test.x.shape[1]}
            explained = case.first_rows(int(row["rows"]))
            yield explained.with_provenance(row | features, selection.seed)


def _measure_sparsity(case: Case) -> Iterator[Row]:
    searches: dict[str, tuple[Explainer, Sequence[Rule]]] = {
        "all_changes": (_with_sparsity(case, None), ()),
        f"sparsity_{SPARSITY}": (_with_sparsity(case, SPARSITY), ()),
        f"at_most_{MAX_CHANGES}_changes": (case.explainer, [MaxChanges(MAX_CHANGES)]),
    }
    reference: Explanations | None = None
    for method, (explainer, constraints) in searches.items():
        row, result = _explain(case, explainer, 1, constraints)
        reference = result if reference is None else reference
        ratios: Row = {f"{name}_ratio": _ratio(name, result, reference) for name in ("l2", "cost")}
        yield {"method": method} | row | ratios


def _with_sparsity(case: Case, sparsity: float | None) -> Explainer:
    """Return an explainer with another sparsity, and with the fitted model and plausibility of the case."""
    explainer = replace(
        case.explainer,
        model=case.model.classifier,
        plausibility=case.engine.plausibility,
        confidence=None,
        sparsity=sparsity,
    )
    return explainer.fit(case.train.x, case.train.y)


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
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(result),
    }
    return row, result


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
