"""``plausiflow benchmark groups``: few actions for many rows, beside other group methods.

All methods get the same rows, model, density and rules. A row is covered if the change of its group makes it
valid for the model, plausible, and within the box and the rules, checked on the decoded row. The part
``numbers`` has one flow without a margin on the first fold of a data set, the part ``default`` the same with
default settings, and the part ``tables`` a table with its rules and default settings.

A method that helps only the easiest rows has a low mean cost. So plausiflow also chooses as many actions with
the mean cost of each other method as its ``mean_cost``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.datasets import load_dataset, load_table
from plausiflow.densities import ConditionalFlow
from plausiflow.explainer import Explainer
from plausiflow.groups import Form, search_task
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow.search import Candidates, SearchRequest, SearchTask, prepare_request, verify_candidates
from plausiflow.tables import FloatArray
from plausiflow_bench.groups.methods import globe_ce, group_optimisation, k_medoids
from plausiflow_bench.harness.pages import write_table
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.speed.product import untrained_model
from plausiflow_bench.tables.cases import table_rules

COLUMNS = (
    "part", "dataset", "model", "seed", "split", "method", "rows", "actions", "covered", "valid",
    "l2", "cost", "ours_at_cost", "ours_cost", "ours_on_rows", "rules_broken", "needed_shared", "cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark groups --page` -->"
METHODS = ("plausiflow", "shift", "globe_ce", "k_medoids", "group_optimisation")
NUMBERS, DEFAULTS = ("law:lr", "heloc:lr", "heloc:mlp"), ("law:lr",)
TABLES = ("adult:boosted", "german_credit:boosted")


@dataclass(frozen=True, kw_only=True)
class GroupSelection:
    """What the study runs on.

    Attributes:
        numbers: Data sets and models of the part ``numbers``, such as ``law:lr``.
        defaults: Data sets and models of the part ``default``.
        tables: Tables and models of the part ``tables``.
        methods: Methods.
        actions: Numbers of actions, over both directions.
        rows: The maximum number of explained rows.
        train: The maximum number of training rows.
        seed: Seed of everything that is trained.
        split: Seed of the split of tables into training rows and explained ones.
    """

    numbers: tuple[str, ...] = NUMBERS
    defaults: tuple[str, ...] = DEFAULTS
    tables: tuple[str, ...] = TABLES
    methods: tuple[str, ...] = METHODS
    actions: tuple[int, ...] = (20, 34)
    rows: int = 500
    train: int = 3000
    seed: int = 0
    split: int = 0


def run(selection: GroupSelection) -> Iterator[Row]:
    """Yield one row for each case, number of actions and method."""
    for text in selection.numbers:
        name, _, kind = text.partition(":")
        yield from _rows("numbers", name, kind, *_numbers_case(name, kind, selection), selection)
    for text in selection.defaults:
        name, _, kind = text.partition(":")
        case = _numbers_case(name, kind, selection, default=True)
        yield from _rows("default", name, kind, *case, selection)
    for text in selection.tables:
        name, _, kind = text.partition(":")
        yield from _rows("tables", name, kind, *_table_case(name, kind, selection), selection)


def _numbers_case(
    name: str, kind: str, selection: GroupSelection, *, default: bool = False
) -> tuple[Explainer, pd.DataFrame]:
    """Return an explainer with one flow and no margin, or with default settings, and test rows of fold 0."""
    data = load_dataset(name)
    fold, names = data.fold(0), list(data.feature_names)
    x = pd.DataFrame(fold.x_train.double().numpy(), columns=names).iloc[: selection.train]
    rows = pd.DataFrame(fold.x_test.double().numpy(), columns=names).iloc[: selection.rows]
    seed = selection.seed
    model = LinearClassifier(random_state=seed) if kind == "lr" else MLPClassifier(random_state=seed)
    plain = Explainer(
        model,
        density=ConditionalFlow(random_state=seed),
        confidence=None,
        judges=0,
        learn_rules=False,
        margin=0.0,
        kinds=dict.fromkeys(names, "continuous"),
        special={name: [] for name in names},
        random_state=seed,
    )
    explainer = Explainer(model, random_state=seed) if default else plain
    with ignore_plausibility_warnings():
        explainer.fit(x, fold.y_train[: selection.train].tolist(), verbose=False)
    return explainer, rows


def _table_case(name: str, kind: str, selection: GroupSelection) -> tuple[Explainer, pd.DataFrame]:
    """Return an explainer with default settings and the rules of a table, and its test rows."""
    table = load_table(name)
    rows = min(selection.rows, len(table.x) // 3)
    train, test = table.split(min(selection.train, len(table.x) - rows), rows, seed=selection.split)
    model = untrained_model(kind, selection.seed).fit(train.x, train.y)
    explainer = Explainer(
        model, constraints=table_rules(train), orders=train.orders, random_state=selection.seed
    )
    with ignore_plausibility_warnings():
        explainer.fit(train.x, train.y, verbose=False)
    return explainer, test.x


def _rows(
    part: str, name: str, kind: str, explainer: Explainer, rows: pd.DataFrame, selection: GroupSelection
) -> Iterator[Row]:
    summary = explainer.training_summary_
    trained = summary.rows if summary is not None else selection.train
    for count in selection.actions:
        for method in selection.methods:
            if method == "group_optimisation" and part == "tables":
                continue  # it needs gradients, and has no categories
            start = cpu_seconds()
            if method in ("plausiflow", "shift"):
                figures, _ = _ours(explainer, rows, count, "auto" if method == "plausiflow" else "shift")
                spent = cpu_seconds() - start
            else:
                figures, cost = _other(explainer, rows, count, method, selection.seed)
                spent = cpu_seconds() - start
                figures |= _within_cost(explainer, rows, count, cost)
            head: Row = {"part": part, "dataset": name, "model": kind, "method": method, "rows": len(rows)}
            head["training_rows"] = trained
            head |= {"split": selection.split} if part == "tables" else {}
            last: Row = {"cpu_seconds": spent, "seed": selection.seed}
            yield head | figures | last | environment()


def _within_cost(explainer: Explainer, rows: pd.DataFrame, count: int, cost: FloatArray) -> Row:
    """Compare our actions with those of another method, at its mean cost.

    Args:
        explainer: The fitted explainer.
        rows: The rows.
        count: The number of actions.
        cost: Cost of each row that needs an action with the other method, infinite without one.
    """
    helped = cost[np.isfinite(cost)]
    if len(helped) == 0:
        return compared_costs(np.full_like(cost, np.inf), cost)
    _, ours = _ours(explainer, rows, count, "auto", float(helped.mean()))
    return compared_costs(ours, cost)


def compared_costs(ours: FloatArray, cost: FloatArray) -> Row:
    """Compare our costs with those of another method; infinite for rows without an action, shape ``(n,)``.

    Returns:
        ``ours_at_cost``: the share of the rows that we help; ``ours_cost``: their mean cost;
        ``ours_on_rows``: our mean cost on the rows that both help. NaN for no rows.
    """
    helped, both = np.isfinite(ours), np.isfinite(ours) & np.isfinite(cost)
    share = float(helped.mean()) if np.isfinite(cost).any() else float("nan")
    means = [float(ours[some].mean()) if some.any() else float("nan") for some in (helped, both)]
    return {"ours_at_cost": share, "ours_cost": means[0], "ours_on_rows": means[1]}


def _ours(
    explainer: Explainer,
    rows: pd.DataFrame,
    count: int,
    form: Form | Literal["auto"],
    mean_cost: float | None = None,
) -> tuple[Row, FloatArray]:
    """Return our figures, and the cost of each row that needs an action."""
    groups = explainer.explain_groups(
        rows, "opposite", groups=count, form=form, mean_cost=mean_cost, verbose=False
    )
    result = groups.explanations
    before = result.rows.iloc[result.of]
    engine = explainer.engine_
    assert engine is not None
    broken = engine.rules.violations(before, result.answers.set_axis(before.index)).to_numpy(bool)
    needed = result.changes[result.changes["role"] == "needed"]
    action = dict(zip(result.rows.index, groups.action, strict=True))
    fixed = [set(groups.features_of(i)) for i in range(len(groups))]
    shared = [
        name in fixed[action[row] - 1] for row, name in zip(needed["row"], needed["feature"], strict=True)
    ]
    cost = result.found_figures("cost")
    figures: Row = {
        "actions": len(groups),
        "covered": groups.covered,
        "valid": groups.covered,
        "l2": float(np.nanmean(result.found_figures("l2"))),
        "cost": float(np.nanmean(cost)),
        "rules_broken": int(broken.any(axis=1).sum()),
        "needed_shared": float(np.mean(shared)) if shared else 1.0,
    }
    readable = (result.verdicts["status"] != "invalid_input").to_numpy()
    return figures, np.nan_to_num(cost, nan=np.inf)[result.is_needed & readable]


def _other(
    explainer: Explainer, rows: pd.DataFrame, count: int, method: str, seed: int
) -> tuple[Row, FloatArray]:
    """Return the figures of another method, and the cost of each row that needs an action."""
    (request, needing), task = task_of(explainer, rows)
    x_cf, group = _methods(explainer, rows)[method](task, count, seed)
    figures, cost = _checked(explainer, request, task, needing, x_cf, group)
    return figures | {"actions": count}, cost


def task_of(explainer: Explainer, rows: pd.DataFrame) -> tuple[tuple[SearchRequest, Tensor], SearchTask]:
    """Return the request for the opposite outcome, the rows of it that need an action, and their task."""
    encoder, model, engine = explainer._fitted()
    request, _, _ = prepare_request(
        encoder, model, explainer.criterion_, rows, "opposite", min_probability=None, k=1, locked=None,
        time_limit=None, relaxed=False, second_opinion=True, diagnose=False, device="cpu",
    )  # fmt: skip
    needing = torch.from_numpy((request.encoded.usable & ~request.already.numpy()).nonzero()[0])
    return (request, needing), search_task(engine, request, needing)


def _methods(
    explainer: Explainer, rows: pd.DataFrame
) -> dict[str, Callable[[SearchTask, int, int], tuple[Tensor, Tensor]]]:
    def medoids(task: SearchTask, count: int, seed: int) -> tuple[Tensor, Tensor]:
        result = explainer.explain(rows, "opposite", diagnose=False, verbose=False)
        assert result.encoded is not None
        x, answers, y = result.encoded
        of = torch.from_numpy(result.of)
        return k_medoids(task, answers - x[of], y[of], count, seed)

    def directions(task: SearchTask, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Apply GLOBE-CE to each target by itself, with a share of the actions."""
        x_cf, group = task.x.clone(), torch.full((len(task),), -1)
        targets = task.y_target.unique().tolist()
        for k in targets:
            own = (task.y_target == k).nonzero()[:, 0]
            share = max(1, round(count / len(targets)))
            x_cf[own], group[own] = globe_ce(task.at(own), share, seed)
        return x_cf, group

    return {"globe_ce": directions, "k_medoids": medoids, "group_optimisation": group_optimisation}


def _checked(
    explainer: Explainer,
    request: SearchRequest,
    task: SearchTask,
    needing: Tensor,
    x_cf: Tensor,
    group: Tensor,
) -> tuple[Row, FloatArray]:
    """Return how many rows are covered, checked in the same way as ours."""
    encoder, _, engine = explainer._fitted()
    some = (group >= 0).nonzero()[:, 0]
    x_cf = x_cf[some].clamp(0, 1)
    valid = task.model_value(x_cf, some) >= 0
    found = Candidates(rows=some, x=x_cf, cost=task.costs(x_cf, some))
    verified = verify_candidates(engine, encoder, request, found, needing)
    own = some[verified.candidate]
    holds = (verified.answers.score >= task.scores.margin[own]).nonzero()[:, 0]
    answers = verified.answers.select(holds)
    l2 = torch.linalg.vector_norm(answers.x_cf - request.encoded.x[answers.of], dim=1)
    cost = np.full(len(needing), np.inf)
    cost[own[holds].numpy()] = answers.cost.numpy()
    figures: Row = {
        "covered": len(holds) / max(1, len(needing)),
        "valid": float(valid.sum()) / max(1, len(needing)),
        "l2": float(l2.mean()) if len(l2) else float("nan"),
        "cost": float(answers.cost.mean()) if len(l2) else float("nan"),
    }
    return figures, cost


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    write_table(rows, COLUMNS, MARK, path)
