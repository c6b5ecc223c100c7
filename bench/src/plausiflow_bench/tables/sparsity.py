"""``plausiflow benchmark sparsity``: the cost of fewer changes, and the diversity of several counterfactuals.

One explainer is fitted to each table. Its search runs with several values of ``max_extra_cost``, from zero,
the cheapest answers; with a lower ``plausibility``; without the margin of ``confidence``; with at most two
and three changes; and with three more rules. Unless the plausibility changes, density and margins stay the
same. ``l2_ratio``, ``cost_ratio`` and ``cpu_ratio`` are relative to the default, the first two on the rows
that both explain; ``search_cpu_ratio`` is the same without the reasons of rows that have no answer. ``kept``
is the share of rows whose answer has few enough changes with the default too, and that keep its cost at most
when the changes are limited. ``enumerated`` is the share of rows for which trying all combinations of few
changes finds an answer (:mod:`plausiflow_bench.tables.enumeration`), and ``found_of_enumerated`` the share of
these for which the search finds one. Then the search returns four counterfactuals per row:
``four_distinct`` is the share of rows with four different ones, and ``spread`` the mean cost between the
counterfactuals of a row divided by their mean cost. ``fewest_changes`` raises the limit of ``MaxChanges``
from one for each row until there is an answer: the fewest changes that the search finds at any cost;
``fewest_changes_with_margin`` goes on until the answer keeps the margin of ``confidence``. NICE, which
minimises the number of changes, is added if an interpreter that has it is given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from plausiflow.constraints import Increasing, Linear, MaxChanges, Range, Rule
from plausiflow.datasets import table_names
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.tables.cases import SCIKIT_LEARN, Case, TableSelection, mean
from plausiflow_bench.tables.enumeration import find_enumerated
from plausiflow_bench.tables.peers import PeerSettings, measure_peer, read_answers, write_task

DEFAULT_TABLES = ("german_credit", "adult", "heloc", "breast_cancer", "wine", "loans")
ROWS, N_ANSWERS, DIVERSITY_ROWS = 200, 4, 100
EXTRA_COSTS, LOWER_PLAUSIBILITY, MAX_CHANGES = (0.0, 0.15, 1.0), 0.25, (2, 3)
ENUMERATED_TABLES, ENUMERATED_ROWS = ("german_credit", "loans", "wine"), {2: 200, 3: 50}
"""Where all combinations are tried, and for how many rows at most, by the number of changes."""
NICE, FEWEST_CHANGES = "nice_sparsity", "fewest_changes"
COLUMNS = (
    "dataset", "method", "rows", "features", "found", "changes", "most_changes", "l2", "l2_ratio", "cost",
    "cost_ratio", "judged", "judged_by_default", "kept", "enumerated", "found_of_enumerated",
    "cpu_ratio", "search_cpu_ratio", "four_distinct", "spread", "explain_cpu_ms_per_row",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark sparsity --page` -->"


@dataclass(frozen=True, kw_only=True)
class SparsitySelection(TableSelection):
    """The tables of the study; those of scikit-learn are known too.

    Attributes:
        peers: How NICE is run; None leaves it out.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    rows: int | None = ROWS
    peers: PeerSettings | None = None

    @staticmethod
    def known_tables() -> tuple[str, ...]:
        """Return the names of the catalogue and those of scikit-learn's tables."""
        return (*table_names(), *SCIKIT_LEARN)


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """One way to explain the rows of a case.

    Attributes:
        explainer: A fitted explainer.
        constraints: More rules.
        second_opinion: Whether answers keep the margin of ``confidence``.
        max_changes: The limit among the rules.
    """

    explainer: Explainer
    constraints: Sequence[Rule] = ()
    second_opinion: bool = True
    max_changes: int | None = None


def run(selection: SparsitySelection) -> Iterator[Row]:
    """Yield one row per table and kind of search."""
    if selection.peers is not None:
        selection.peers.versions()
    for name in selection.tables:
        case = selection.case(name)
        for row in _measure(case, selection):
            features: Row = {"features": case.test.x.shape[1]}
            explained = case.first_rows(int(row["rows"]))
            yield explained.with_provenance(row | features, selection.seed)


def _measure(case: Case, selection: SparsitySelection) -> Iterator[Row]:
    first, reference = _explain(case, Setting(explainer=case.explainer))
    first["search_cpu_ms_per_row"] = _search_cpu(case, Setting(explainer=case.explainer))
    for method, setting in _settings(case).items():
        limited = bool(setting.constraints)
        row, result = (first, reference) if method == _default(case) else _explain(case, setting)
        ratios: Row = {f"{name}_ratio": _ratio(name, result, reference) for name in ("l2", "cost")}
        ratios["cpu_ratio"] = float(row["explain_cpu_ms_per_row"]) / float(first["explain_cpu_ms_per_row"])
        if limited:
            ratios["search_cpu_ratio"] = _search_cpu(case, setting) / float(first["search_cpu_ms_per_row"])
        if setting.max_changes is not None:
            ratios["kept"] = _share_kept(result, reference, setting.max_changes)
            ratios |= _compare_with_enumeration(case, result, setting.max_changes)
        yield {"method": method} | row | ratios
    for margin in (False, True):
        yield _measure_fewest_changes(case, reference, margin=margin)
    if selection.peers is not None:
        yield _measure_nice(case, selection.peers, reference, selection.seed)
    yield _measure_diversity(case.first_rows(DIVERSITY_ROWS))


def _default(case: Case) -> str:
    return f"max_extra_cost_{case.explainer.max_extra_cost}"


def _settings(case: Case) -> dict[str, Setting]:
    own = case.explainer
    settings = {_default(case): Setting(explainer=own)}
    for extra in EXTRA_COSTS:
        explainer = _with_extra_cost(case, extra)
        settings.setdefault(f"max_extra_cost_{extra}", Setting(explainer=explainer))
    lower = copy(own)
    lower.plausibility = LOWER_PLAUSIBILITY
    settings[f"plausibility_{LOWER_PLAUSIBILITY}"] = Setting(explainer=lower)
    settings["without_margin"] = Setting(explainer=own, second_opinion=False)
    for most in MAX_CHANGES:
        name = f"at_most_{most}_changes"
        settings[name] = Setting(explainer=own, constraints=[MaxChanges(most)], max_changes=most)
    settings["more_rules"] = Setting(explainer=own, constraints=more_rules(case))
    return settings


def more_rules(case: Case) -> list[Rule]:
    """Return rules about the first three numbers that may change: a range, a direction and a relation."""
    fixed = {*case.train.immutable, *case.train.increasing}
    numbers = [f.name for f in case.encoder.schema.features if f.is_number and f.name not in fixed]
    values = case.train.x[numbers].astype(float)
    rules: list[Rule] = []
    if len(numbers) > 0:
        rules.append(
            Range(numbers[0], float(values[numbers[0]].min()), float(values[numbers[0]].quantile(0.9)))
        )
    if len(numbers) > 1:
        rules.append(Increasing(numbers[1]))
    if len(numbers) > 2:
        rules.append(Linear(f"`{numbers[2]}` <= {float(values[numbers[2]].quantile(0.9))}"))
    return rules


def _search_cpu(case: Case, setting: Setting) -> float:
    """Return the processor time of each row in milliseconds, without reasons of rows that have no answer."""
    with CpuTimer() as timer:
        setting.explainer.explain(case.test.x, case.target, constraints=setting.constraints, diagnose=False)
    return 1000 * timer.seconds / len(case.test.x)


def _compare_with_enumeration(case: Case, result: Explanations, most: int) -> Row:
    """Compare with all combinations of at most ``most`` changes, on the tables where these are few."""
    if case.test.name not in ENUMERATED_TABLES:
        return {}
    rows = min(len(result), ENUMERATED_ROWS[most])
    exists, found = find_enumerated(case.first_rows(rows), most), result.is_found[:rows]
    missed = np.flatnonzero(exists & ~found)
    return {
        "enumerated": float(exists.mean()),
        "found_of_enumerated": mean(torch.from_numpy(found[exists])),
        "enumerated_rows": rows,
        "missed_rows": ", ".join(map(str, missed)),
    }


def _measure_nice(case: Case, peers: PeerSettings, reference: Explanations, seed: int) -> Row:
    """Measure NICE; of more than two classes, its target is the most probable other one."""
    with tempfile.TemporaryDirectory() as folder:
        write_task(case, Path(folder), peers.seconds_per_row, seed)
        lines = peers.answers(Path(folder), NICE)
    answers, of = read_answers(case, lines)
    x, again = case.x[torch.from_numpy(of)], case.encoder.encode(answers).x
    layout = case.encoder.layout
    costs = np.full(len(case.test.x), np.nan)
    costs[of] = case.engine.cost_model((x, layout.codes(x)), (again, layout.codes(again))).numpy()
    ours = reference.found_figures("cost")
    both = np.isfinite(costs) & np.isfinite(ours)
    row = measure_peer(case, lines)
    named: Row = {
        "method": NICE,
        "rows": len(case.test.x),
        "cost_ratio": costs[both].mean() / ours[both].mean(),
    }
    return named | {name: row[name] for name in ("found", "changes", "cost", "judged", "rules_broken")}


def _share_kept(limited: Explanations, free: Explanations, most: int) -> float:
    """Return how many rows with few enough changes anyway have no more expensive answer under the limit."""
    few = free.found_figures("n_changes") <= most
    costs, reference = limited.found_figures("cost")[few], free.found_figures("cost")[few]
    return mean(torch.from_numpy(costs <= reference * (1 + 1e-9)))


def _with_extra_cost(case: Case, max_extra_cost: float) -> Explainer:
    """Return the case's explainer with another ``max_extra_cost`` of its search, and the same margins.

    Assigning the setting of the explainer would calibrate the margins again.
    """
    explainer, strategy = copy(case.explainer), case.engine.strategy
    explainer.engine_ = replace(case.engine, strategy=strategy.with_extra_cost(max_extra_cost))
    return explainer


def _ratio(name: str, result: Explanations, reference: Explanations) -> float:
    """Return the ratio of two means of a figure, on the rows that both results explain."""
    values, reference_values = (torch.from_numpy(each.found_figures(name)) for each in (result, reference))
    both = values.isfinite() & reference_values.isfinite()
    return mean(values[both]) / mean(reference_values[both])


def _measure_fewest_changes(case: Case, reference: Explanations, *, margin: bool) -> Row:
    """Measure the answers of the smallest limit on changes that has one, for each row.

    A row whose default answer has as few changes keeps that answer. With ``margin``, only answers inside the
    margin count.
    """
    own = case.explainer
    changes, cost, judged = (reference.found_figures(name) for name in ("n_changes", "cost", "judged"))
    least_cost, found = cost.copy(), reference.is_found
    left, limit = np.flatnonzero(found), 1
    with CpuTimer() as timer:
        while len(left := left[changes[left] > limit]):
            rules = [MaxChanges(limit)]
            result = own.explain(case.test.x.iloc[left], case.target, constraints=rules, diagnose=False)
            few = result.is_found & ((result.status["reason"] == "").to_numpy() | (not margin))
            for values, name in ((changes, "n_changes"), (cost, "cost"), (judged, "judged")):
                values[left[few]] = result.found_figures(name)[few]
            left, limit = left[~few], limit + 1
    return {
        "method": f"{FEWEST_CHANGES}_with_margin" if margin else FEWEST_CHANGES,
        "rows": len(reference),
        "found": float(found.mean()),
        "changes": float(changes[found].mean()),
        "most_changes": int(changes[found].max()),
        "cost": float(cost[found].mean()),
        "cost_ratio": float(cost[found].mean() / least_cost[found].mean()),
        "judged": float(judged[found].mean()),
        "explain_cpu_ms_per_row": 1000 * timer.seconds / len(reference),
    }


def _measure_diversity(case: Case) -> Row:
    row, result = _explain(case, Setting(explainer=case.explainer), N_ANSWERS)
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


def _explain(case: Case, setting: Setting, k: int = 1) -> tuple[Row, Explanations]:
    """Explain the test rows; return the measures and the result."""
    with ignore_plausibility_warnings():
        setting.explainer.predict(case.test.x.iloc[:1])  # applies settings that were assigned
    with CpuTimer() as timer:
        result = setting.explainer.explain(
            case.test.x,
            case.target,
            k=k,
            constraints=setting.constraints,
            second_opinion=setting.second_opinion,
        )
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
    if setting.explainer.judges_ is not case.explainer.judges_:
        row["judged_by_default"] = _judged_by(case, result)
    return row, result


def _judged_by(case: Case, result: Explanations) -> float:
    """Return the share of answers that the judges of the case's explainer accept."""
    assert result.encoded is not None
    assert case.explainer.judges_ is not None
    x, x_cf, y = result.encoded
    of = torch.from_numpy(result.of)
    return mean(case.explainer.judges_.passes(x_cf, y[of], x[of]))


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
