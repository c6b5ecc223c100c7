"""Where a search begins and what becomes of its candidates: real rows, fewer changes, grids."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from plausiflow.constraints import Allowed, Decreasing, Immutable, Increasing, Linear, Range
from plausiflow.search import rounding as snapping_module
from plausiflow.search.bank import Bank, transplant
from plausiflow.search.candidates import Candidates
from plausiflow.search.rounding import put_on_grid
from plausiflow.search.sparsify import sparsify
from plausiflow.tables.layout import Block, Layout, Scale
from searching import UNIT, Ball, applicants, linear_validity, random_rows, setup, task_of

RULES = [
    Immutable("age", "owns"),
    Increasing("school"),
    Decreasing("gain"),
    Range("income", 1000, 6000),
    Allowed("job", ["clerk", "nurse"]),
    Linear("savings <= income / 300"),
]


# ---------------------------------------------------------------- real rows


def test_typical_numbers_are_those_of_the_rows_that_have_one():
    made = setup(applicants(missing=True))
    block = made.encoder.layout.block("gain")
    typical = Bank.free_numbers(made.encoder.layout, made.x)
    positive = made.frame["gain"][made.frame["gain"] > 0]
    scale = block.scale
    lower_median = positive.quantile(0.5, interpolation="lower")
    assert typical == {block.number: pytest.approx(float(scale.encode(torch.tensor(lower_median))))}
    never = made.x.clone()
    never[:, list(block.levels)] = torch.tensor([0.0, 1.0, 0.0])
    assert Bank.free_numbers(made.encoder.layout, never) == {block.number: 0.5}


def transplanted_by_hand(task, bank_row, i):
    """One real row with what the rules fix for row ``i`` put in, cell by cell."""
    found, allowance = bank_row.clone(), task.allowance
    for block in task.layout.blocks:
        pin, source = None, bank_row
        if len(block.levels):
            own, level = (int(x[list(block.levels)].argmax()) for x in (task.x[i], bank_row))
            if not bool(allowance.levels[i, block.levels[level]]):
                level, source = own, task.x[i]
            found[list(block.levels)] = 0
            found[block.levels[level]] = 1
            pin = block.pinned[level] if block.pinned else None
        if block.number is not None:
            low, high = float(allowance.lower[i, block.number]), float(allowance.upper[i, block.number])
            value = min(max(float(source[block.number]), low), high)
            found[block.number] = value if pin is None else pin
    return found


@pytest.mark.parametrize("rules", [(), RULES], ids=["free", "rules"])
@pytest.mark.parametrize("missing", [False, True])
def test_near_rows_are_the_cheapest_of_all_real_rows_once_transplanted_and_verified(rules, missing):
    made = setup(applicants(missing=missing), rules, bar=6.0)
    task, bank = made.task(made.x[:12]), made.engine.bank
    found = bank.verified(task, torch.arange(12), 5, among=10**6)
    assert torch.equal(task.check(found, max_changes=False).cost, found.cost)
    for i in range(12):
        real = bank.rows[int(task.y_target[i])]
        moved = torch.stack([transplanted_by_hand(task, row, i) for row in real])
        owners = torch.full((len(real),), i)
        assert torch.equal(transplant(task, real, owners), moved)
        verified = task.check(task.candidates(owners, moved), max_changes=False).cost
        expected = verified[torch.isfinite(verified)].sort().values[:5]
        assert torch.equal(found.cost[found.rows == i], expected)
    assert len(found) > 20
    assert (found.rows.diff()[task.y_target[found.rows].diff() == 0] >= 0).all()


def test_rows_that_look_cheap_are_the_cheapest_where_nothing_is_fixed():
    made = setup(applicants(), bar=6.0, weights=torch.tensor([1.0, 2.0, 0.5, 1.5, 3.0, 0.7, 1.0]))
    task = made.task(made.x[:30])
    few, all_ = (made.engine.bank.verified(task, torch.arange(30), 4, among=among) for among in (4, 10**6))
    assert torch.equal(few.cost, all_.cost)
    assert len(few) == 120


def test_transplanted_rows_keep_what_cannot_change_to_the_bit():
    made = setup(applicants(missing=True), RULES)
    rows = torch.randint(100, (400,))
    task = made.task(made.x[:100])
    moved = transplant(task, made.x[torch.randint(300, (400,))], rows)
    fixed = [c for n in ["age", "owns"] for c in task.layout.block(n).columns]
    assert torch.equal(moved[:, fixed], task.x[rows][:, fixed])
    within = replace(task.allowance, clauses=(), max_changes=None)
    assert torch.equal(within.contains(moved, rows), task.allowance.possible[rows])


def test_a_class_without_real_rows_has_none_near():
    made = setup(applicants(), bar=6.0)
    task = made.task(made.x[:10])
    for bank in ({}, {0: made.x[:0], 1: made.x[:0]}):
        real = Bank(bank, made.engine.bank.typical)
        assert len(real.verified(task, torch.arange(10), 3)) == 0
    assert len(made.engine.bank.verified(task, torch.arange(0), 3)) == 0


# ---------------------------------------------------------------- fewer changes

PLANE = Layout(tuple(Block(name=f"n{j}", number=j, scale=UNIT) for j in range(2)))


def on_plane(weight, x=((0.2, 0.2),), max_changes=None):
    """Rows that need ``weight @ numbers`` of 0.6 more, and their cheapest answers."""
    x = torch.tensor(x)
    weight = torch.tensor(weight)
    validity = linear_validity(weight, -(x @ weight)[0] - 0.6)
    task = task_of(PLANE, x, [1.0, 1.0], validity=validity)
    task = replace(task, allowance=replace(task.allowance, max_changes=max_changes))
    return task, task.solve(task.candidates(torch.arange(len(x)), x))


def test_a_change_that_saves_little_is_put_back_for_a_little_more():
    task, dense = on_plane([1.0, 0.3])
    assert float(dense.cost) == pytest.approx(0.6 / 1.09**0.5, abs=2e-3)
    sparse = sparsify(task, dense, 1.1 * dense.cost)
    assert task.layout.changed(sparse.x, task.x).tolist() == [[True, False]]
    assert sparse.x[0, 1] == task.x[0, 1]
    assert float(sparse.cost) == pytest.approx(0.6, abs=2e-3)
    assert torch.equal(sparsify(task, dense, 1.01 * dense.cost).x, dense.x)


def test_a_limit_of_changes_is_met_at_any_cost():
    task, dense = on_plane([1.0, 1.0])
    assert float(dense.cost) == pytest.approx(0.6 / 2**0.5, abs=2e-3)
    assert torch.equal(sparsify(task, dense, 1.1 * dense.cost).x, dense.x)
    limited, _ = on_plane([1.0, 1.0], max_changes=1)
    sparse = sparsify(limited, dense, dense.cost)
    assert limited.layout.changed(sparse.x, limited.x).sum() == 1
    assert float(sparse.cost) == pytest.approx(0.6, abs=2e-3)
    assert torch.isfinite(limited.check(sparse).cost)


def test_many_numbers_and_a_category_that_nothing_needs_are_all_put_back():
    numbers = tuple(Block(name=f"n{j}", number=j, scale=UNIT) for j in range(9))
    layout = Layout((*numbers, Block(name="c", levels=range(9, 12))))
    x = random_rows(layout, 8, 0) * torch.tensor([0.5] * 9 + [1.0] * 3)
    weight = torch.zeros(12)
    weight[4] = 1.0
    task = task_of(layout, x, [1.0] * 10, validity=linear_validity(weight, torch.tensor(-0.8)))
    start = task.candidates(torch.arange(8), random_rows(layout, 8, 1))
    dense = replace(start, cost=torch.full((8,), 9.0))
    sparse = sparsify(task, dense, 1.1 * dense.cost)
    assert task.layout.changed(sparse.x, x).nonzero()[:, 1].tolist() == [4] * 8
    torch.testing.assert_close(sparse.cost, 0.8 - x[:, 4], rtol=0, atol=2e-3)


@pytest.mark.parametrize("slack", [0.0, pytest.param(0.1, marks=pytest.mark.slow), 0.5])
@pytest.mark.parametrize(
    "rules", [(), RULES[:4], [Range("income", 3000, None)]], ids=["free", "rules", "forced"]
)
def test_sparse_answers_change_no_more_cost_little_more_and_still_hold(slack, rules):
    made = setup(applicants(), rules, bar=4.0)
    task = made.task(made.x[:25])
    possible = torch.arange(25)[task.allowance.possible]
    dense = made.engine.strategy.dense(task, made.engine.bank, possible).cheapest(2)
    sparse = sparsify(task, dense, (1 + slack) * dense.cost)
    assert torch.equal(sparse.rows, dense.rows)
    changes = [task.layout.changed(part.x, task.x[part.rows]).sum(dim=1) for part in (dense, sparse)]
    assert (changes[1] <= changes[0]).all()
    assert (sparse.cost <= dense.cost * (1 + slack)).all()
    assert torch.equal(task.check(sparse).cost, sparse.cost)
    assert slack == 0 or int(changes[1].sum()) < int(changes[0].sum())


def test_a_candidate_is_made_sparse_alone_as_among_others():
    made = setup(applicants(), RULES[:4], bar=4.0)
    task = made.task(made.x[:25])
    dense = made.engine.strategy.dense(task, made.engine.bank, torch.arange(25)).cheapest(2)
    together = sparsify(task, dense, 1.1 * dense.cost)
    for i in range(0, len(dense), 5):
        alone = sparsify(task, dense[torch.tensor([i])], 1.1 * dense.cost[i : i + 1])
        assert torch.equal(alone.x[0], together.x[i])
    assert len(sparsify(task, dense[torch.arange(0)], dense.cost[:0])) == 0


# ---------------------------------------------------------------- numbers on their grids

COARSE = Layout(
    tuple(Block(name=f"n{j}", number=j, scale=Scale(minimum=0, maximum=8, step=1.0)) for j in range(3))
)


def on_grid_rows():
    """Rows on the grid and their cheapest answers, off it, in a cap of a ball."""
    x, normal = torch.randint(9, (80, 3)) / 8, torch.tensor([1.0, -1.0, 0.7])
    validity = linear_validity(normal, torch.tensor(-0.57))
    ball = Ball([0, 1, 2], [0.5, 0.45, 0.6], 0.3)
    task = task_of(COARSE, x, [1.0, 2.0, 0.5], plausibility=ball, validity=validity)
    return task, task.solve(task.candidates(torch.arange(80), x))


def neighbours(point, factual):
    """Every point of the grid around one, numbers that did not change as they are."""
    axes = [
        [float(old)] if value == old else [float(np.floor(value * 8) / 8), float(np.ceil(value * 8) / 8)]
        for value, old in zip(point.tolist(), factual.tolist(), strict=True)
    ]
    return torch.tensor(list(itertools.product(*axes)))


def test_the_nearest_grid_point_is_taken_where_it_is_an_answer_else_the_cheapest_neighbour(monkeypatch):
    monkeypatch.setattr(snapping_module, "EXTRA_PLAUSIBILITY", ())
    task, dense = on_grid_rows()
    found = put_on_grid(task, dense)
    lost = 0
    for i in range(80):
        own, point = task.x[i], dense.x[i]
        rounded = torch.where(point == own, own, (point * 8).round() / 8)
        points = torch.cat([rounded[None], neighbours(point, own)])
        costs = task.check(task.candidates(torch.full((len(points),), i), points)).cost
        expected = costs[0] if torch.isfinite(costs[0]) else costs.min()
        assert found.cost[i] == expected
        lost += int(torch.isinf(expected))
        if torch.isfinite(expected):
            assert (found.x[i] == points[costs == expected]).all(dim=1).any()
    assert 0 < lost < 40


def test_a_row_without_a_neighbour_is_searched_again_deeper_inside():
    task, dense = on_grid_rows()
    found = put_on_grid(task, dense)
    again = torch.isfinite(found.cost)
    assert torch.equal(found.cost[again], task.check(found[again]).cost)
    assert again.double().mean() > 0.9
    assert torch.equal(found.x[again] * 8, (found.x[again] * 8).round())


def test_of_an_answered_row_only_cheaper_candidates_are_searched_again(monkeypatch):
    x = torch.tensor([[0.0, 0.0, 0.0]])
    task = task_of(COARSE, x, [1.0] * 3, plausibility=Ball([0, 1, 2], [0.5, 0.5, 0.5], 0.01))
    fine, wrong = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.9, 0.9, 0.9])
    asked = []
    monkeypatch.setattr(type(task), "solve", lambda self, given, **_: asked.append(len(given)) or given)
    both = task.candidates(torch.tensor([0, 0]), torch.stack([fine, wrong]))
    dearer, cheaper = (replace(both, cost=torch.tensor([0.8, cost])) for cost in (1.0, 0.7))
    assert torch.isfinite(put_on_grid(task, dearer).cost).tolist() == [True, False]
    assert asked == []
    assert torch.isfinite(put_on_grid(task, cheaper).cost).tolist() == [True, False]
    assert asked == [3]
    assert torch.isinf(put_on_grid(task, dearer[torch.tensor([1])]).cost).all()
    assert asked == [3, 3]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("rules", [(), RULES], ids=["free", "rules"])
def test_snapped_answers_are_what_they_decode_to(rules, missing):
    made = setup(applicants(missing=missing), rules, bar=6.0)
    x = made.x[:15]
    task = made.task(x)
    rows = torch.arange(15)[task.allowance.possible]
    dense = made.engine.strategy.dense(task, made.engine.bank, rows).cheapest(2)
    found = put_on_grid(task, dense).feasible
    assert len(found) > 10
    assert torch.equal(task.check(found).cost, found.cost)
    before = made.frame.iloc[found.rows.numpy()]
    decoded = made.encoder.decode(found.x, like=before)
    again = made.encoder.encode(decoded).x
    torch.testing.assert_close(again, found.x, rtol=0, atol=1e-9)
    assert not made.engine.rules.violations(before, decoded).to_numpy().any()
    gridded = [block for block in task.layout.blocks if block.scale is not None and block.scale.step]
    for block in gridded:
        moved = found.x[:, block.number] != x[found.rows][:, block.number]
        value = found.x[moved, block.number]
        torch.testing.assert_close(block.scale.snap(value), value, rtol=0, atol=1e-12)


def test_a_number_that_did_not_change_keeps_its_bits_off_the_grid_too():
    frame = applicants()
    made = setup(frame, bar=6.0)
    row = made.encoder.encode(frame.iloc[:30].assign(income=1234.5)).x
    task = made.task(row)
    dense = made.engine.strategy.dense(task, made.engine.bank, torch.arange(30)).cheapest(1)
    sparse = sparsify(task, dense, 2 * dense.cost)
    found = put_on_grid(task, sparse).feasible
    income = made.encoder.layout.block("income").number
    kept = sparse.x[:, income] == row[sparse.rows][:, income]
    kept = kept[torch.isin(sparse.rows, found.rows)]
    assert kept.any()
    assert torch.equal(found.x[kept, income], row[found.rows][kept, income])


def test_rounding_never_leaves_the_bounds():
    x = torch.tensor([[0.3, 0.5, 0.5]])  # 2.4, off the grid
    task = task_of(COARSE, x, [1.0] * 3)
    lower, upper = torch.tensor([[0.3, 0.0, 0.0]]), torch.tensor([[1.0, 0.70, 1.0]])
    task = replace(task, allowance=replace(task.allowance, lower=lower, upper=upper))
    start = task.candidates(torch.zeros(1).long(), torch.tensor([[0.302, 0.69, 0.5]]))
    found = put_on_grid(task, start)
    assert found.x.tolist() == [[3 / 8, 5 / 8, 0.5]]


# ---------------------------------------------------------------- equal candidates


def test_the_first_of_equal_candidates_of_a_row_stays():
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0], [0.5, 1.0], [0.0, 1.0]], dtype=torch.float64)
    candidates = Candidates(rows=torch.tensor([0, 0, 1, 0, 1]), x=x, cost=torch.arange(5.0))
    assert candidates.first_occurrences().tolist() == [0, 2, 3]
    assert candidates[torch.zeros(0, dtype=torch.long)].first_occurrences().tolist() == []
