"""What is asked of a search: candidates, their costs, and the checks that they pass."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.constraints import Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.core import batches
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.tables.layout import Block, Layout
from searching import UNIT, applicants, random_rows, setup, task_of

# ---------------------------------------------------------------- candidates


def some(n, rows=5):
    """Candidates with costs that often tie or are infinite, and rows that often repeat."""
    cost = torch.randint(4, (n,)).double()
    cost[torch.rand(n) < 0.2] = torch.inf
    return Candidates(rows=torch.randint(rows, (n,)), x=torch.randint(2, (n, 3)).double(), cost=cost)


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_the_cheapest_of_each_row_are_what_a_stable_sort_puts_first(n, count):
    candidates = some(n)
    frame = pd.DataFrame({"row": candidates.rows.numpy(), "cost": candidates.cost.numpy()})
    expected = frame.sort_values(["row", "cost"], kind="stable").groupby("row").head(count).index
    assert cheapest(candidates.rows, candidates.cost, count).tolist() == expected.tolist()
    assert torch.equal(candidates.cheapest(count).x, candidates.x[torch.tensor(expected.to_numpy(np.int64))])


@pytest.mark.parametrize("n", [0, 1, 200])
def test_distinct_candidates_are_those_that_stand_first(n):
    candidates = replace(some(n), cost=torch.arange(n).double())
    frame = pd.DataFrame(torch.cat([candidates.rows[:, None], candidates.x], dim=1).numpy())
    kept = frame.drop_duplicates(keep="first").index
    assert candidates.unique().cost.tolist() == kept.tolist()


def test_answers_are_those_with_a_finite_cost_and_joining_keeps_the_order():
    one, other = some(20), some(30)
    joined = Candidates.concat(one, other)
    assert len(joined) == 50
    assert torch.equal(joined.x, torch.cat([one.x, other.x]))
    assert torch.equal(joined.feasible.cost, joined.cost[joined.cost < torch.inf])


# ---------------------------------------------------------------- costs


@st.composite
def layouts(draw):
    """Blocks of every kind, in any order."""
    kinds = draw(st.lists(st.sampled_from(["number", "state", "nominal", "ordered"]), min_size=1, max_size=5))
    blocks, start = [], 0
    for i, kind in enumerate(kinds):
        number = start if kind in ("number", "state") else None
        first = start + (number is not None)
        size = 0 if kind == "number" else 2 if kind == "state" else draw(st.integers(1, 4))
        blocks.append(
            Block(
                name=f"f{i}",
                number=number,
                scale=None if number is None else UNIT,
                levels=range(first, first + size),
                ordered=kind == "ordered",
                pinned=(None, 0.0) if kind == "state" else (),
                closed=(False,) * size,
            )
        )
        start = first + size
    return Layout(tuple(blocks))


@given(layouts(), st.integers(0, 10**6), st.data())
def test_costs_are_the_formula_feature_by_feature(layout, seed, data):
    weight = st.floats(0.1, 5)
    weights = data.draw(st.lists(weight, min_size=len(layout.blocks), max_size=len(layout.blocks)))
    x, x_cf = random_rows(layout, 4, seed), random_rows(layout, 6, seed + 1)
    rows = torch.tensor([0, 1, 2, 3, 3, 0])
    x_cf[0] = x[0]
    expected = []
    for row, changed in zip(x[rows].tolist(), x_cf.tolist(), strict=True):
        squared = flat = 0.0
        for block, w in zip(layout.blocks, weights, strict=True):
            levels = list(block.levels)
            steps = [[r[c] for c in levels].index(1.0) for r in (row, changed) if levels]
            entered = len(set(steps)) == 2 and any(block.apart[code] for code in steps if block.apart)
            if block.number is not None and not entered:
                squared += (w * (changed[block.number] - row[block.number])) ** 2
            elif block.ordered:
                squared += (w * (steps[1] - steps[0]) / max(1, len(levels) - 1)) ** 2
            else:
                flat += w * (steps[0] != steps[1])
        expected.append(math.sqrt(squared) + flat)
    found = task_of(layout, x, weights).costs(x_cf, rows)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-12, atol=1e-12)
    assert found[0] == 0


# ---------------------------------------------------------------- checks


def test_a_checked_candidate_has_a_cost_exactly_where_its_decoded_row_breaks_nothing():
    """CompiledRules judged on the tables, the model and the bell by hand."""
    rules = [
        Immutable("age"),
        Increasing("school"),
        Range("income", 1000, 7000),
        Linear("savings <= income / 500"),
        MaxChanges(4),
    ]
    made = setup(applicants(), rules, bar=4.0)
    x, rows = made.x[:20], torch.arange(20).repeat_interleave(60)
    task = made.task(x)
    mixed = torch.where(torch.rand(1200, 7) < 0.5, 1.0, 0.0)  # each feature from the row or from another one
    other, candidate = made.x[torch.randint(300, (1200,))], x[rows].clone()
    for j, block in enumerate(task.layout.blocks):
        taken = (mixed[:, j] == 1)[:, None]
        candidate[:, block.columns] = torch.where(taken, other[:, block.columns], candidate[:, block.columns])
    before = made.frame.iloc[rows.numpy()]
    broken = made.engine.rules.violations(before, made.encoder.decode(candidate, like=before))
    wanted = task.y_target[rows]
    fine = torch.from_numpy(~broken.to_numpy().any(axis=1))
    fine &= made.classes(candidate) == wanted
    fine &= made.engine.plausibility.score(candidate, wanted) >= 0
    checked = task.check(task.candidates(rows, candidate))
    assert torch.equal(torch.isfinite(checked.cost), fine)
    assert 20 < int(fine.sum()) < 1000
    assert torch.equal(checked.cost[fine], task.costs(candidate, rows)[fine])
    without = task.check(task.candidates(rows, candidate), max_changes=False)
    assert int(torch.isfinite(without.cost).sum()) > int(fine.sum())


def test_shortfalls_name_validity_plausibility_and_relations_and_do_not_depend_on_chunks(monkeypatch):
    made = setup(applicants(), [Linear("savings <= income / 500"), Linear("gain <= age")])
    task = made.task(made.x[:50])
    x_cf, rows = made.x[50:250], torch.arange(200) % 50
    found = task.constraint_values(x_cf, rows)
    values = made.frame.iloc[50:250]
    assert torch.equal(found[:, 0] >= 0, made.classes(x_cf) == task.y_target[rows])
    torch.testing.assert_close(found[:, 1], made.engine.plausibility.score(x_cf, task.y_target[rows]))
    holds = np.stack([values["savings"] <= values["income"] / 500, values["gain"] <= values["age"]], axis=1)
    assert ((found[:, 2:] >= 0).numpy() == holds).all()
    monkeypatch.setattr(batches, "CANDIDATES", 7)
    torch.testing.assert_close(task.constraint_values(x_cf, rows), found, rtol=0, atol=1e-13)
    assert task.constraint_values(x_cf[:0], rows[:0]).shape == (0, 4)
