"""Fewer changes: the choice among answers, and limits on the number of changes, against brute force."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import torch

from plausiflow.constraints import Range
from plausiflow.search import MixedSearch
from plausiflow.search.candidates import Candidates
from plausiflow.search.sparsify import adverse_changes, preferred
from searching import applicants, setup

ROWS = 24


@pytest.fixture(scope="module")
def made():
    return setup(applicants(), bar=0.5)


def limited(task, most):
    return replace(task, allowance=replace(task.allowance, max_changes=most))


def changes(task, found):
    return task.layout.changed(found.x, task.x[found.rows]).sum(dim=1)


def by_row(found, values, n=ROWS):
    out = torch.full((n,), torch.inf, dtype=torch.float64)
    out[found.rows] = values.double()
    return out


@pytest.mark.parametrize("extra", [0.0, 0.1, 0.5])
def test_the_preferred_answer_has_the_fewest_changes_within_the_extra_cost(made, extra):
    task = made.task(made.x[:10])
    draw = torch.Generator().manual_seed(1)
    rows = torch.randint(10, (200,), generator=draw)
    x = task.x[torch.randint(10, (200,), generator=draw)]
    x = torch.where(torch.rand(200, 1, generator=draw) < 0.5, x, task.x[rows])
    answers = Candidates(rows=rows, x=x, cost=1 + torch.rand(200, generator=draw).double())
    chosen = preferred(task, answers, extra, 3)
    first, count = chosen.cheapest(1), changes(task, answers)
    for i in rows.unique().tolist():
        own = [
            (int(c), float(cost)) for c, cost in zip(count[rows == i], answers.cost[rows == i], strict=True)
        ]
        limit = (1 + extra) * min(cost for _, cost in own)
        expected = min(pair for pair in own if pair[1] <= limit)
        assert float(first.cost[first.rows == i]) == expected[1]
        assert (chosen.cost[chosen.rows == i] >= expected[1]).all()


def test_an_answer_with_fewer_changes_costs_at_most_the_stated_extra(made):
    task = made.task(made.x[:ROWS])
    cheap, few = (MixedSearch(max_extra_cost=e).run(task, made.engine.bank) for e in (0.0, 0.3))
    assert torch.equal(cheap.rows, few.rows)
    # The cheapest answer of a search for few changes is at most as expensive as that of another search.
    assert (few.cost <= 1.3 * cheap.cost + 1e-9).all()
    assert changes(task, few).sum() <= changes(task, cheap).sum()


@pytest.mark.parametrize("most", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_row_whose_answer_has_few_enough_changes_keeps_it_under_a_limit(made, most):
    task = made.task(made.x[:ROWS])
    free = MixedSearch().run(task, made.engine.bank)
    found = MixedSearch().run(limited(task, most), made.engine.bank).feasible
    assert (changes(task, found) <= most).all()
    kept = free[changes(task, free) <= most]
    assert len(kept)
    assert (by_row(found, found.cost)[kept.rows] <= kept.cost).all()


def test_more_allowed_changes_never_cost_more(made):
    task = made.task(made.x[:ROWS])
    costs = []
    for most in (1, 2, 3, 4):
        found = MixedSearch().run(limited(task, most), made.engine.bank).feasible
        costs.append(by_row(found, found.cost))
    for fewer, more in pairwise(costs):
        # An answer within a limit may have been chosen for its few changes.
        assert (more <= 1.3 * fewer + 1e-9).all()


def every_pair(task, row, steps=9):
    """Return the row with any two features changed: levels, or numbers on a grid."""
    options = []
    for block in task.layout.blocks:
        values = []
        for level in block.levels:
            x = task.x[row].clone()
            x[block.level_slice] = 0.0
            x[level] = 1.0
            values.append(x)
        if block.number is not None and not len(block.levels):
            for value in torch.linspace(0, 1, steps):
                x = task.x[row].clone()
                x[block.number] = value
                values.append(x)
        options.append((block.columns, values))
    for (first, ones), (second, others) in combinations(options, 2):
        for one in ones:
            for other in others:
                x = task.x[row].clone()
                x[first], x[second] = one[first], other[second]
                yield x


def test_where_brute_force_over_pairs_finds_an_answer_the_search_finds_one():
    made = setup(applicants()[["income", "savings", "job", "school", "owns"]], bar=0.5)
    task = limited(made.task(made.x[:ROWS]), 2)
    found = MixedSearch().run(task, made.engine.bank)
    there = []
    for row in range(ROWS):
        x = torch.stack(list(every_pair(task, row)))
        there.append(
            bool(torch.isfinite(task.check(task.candidates(torch.full((len(x),), row), x)).cost).any())
        )
    there = torch.tensor(there)
    assert there.sum() > ROWS / 2
    assert torch.isin(torch.arange(ROWS), found.rows)[there].double().mean() >= 0.97


def test_quantiles_of_the_bank_are_numbers_of_its_rows_within_the_bounds_of_a_row():
    made = setup(applicants(), [Range("income", 0, 4000)], bar=2.0)
    task = made.task(made.x[:5])
    found = made.engine.bank.quantiles(task, torch.arange(5), 4)
    assert sorted(found.rows.tolist()) == [row for row in range(5) for _ in range(4)]
    column = task.layout.block("income").number
    for row in range(5):
        values = found.x[found.rows == row, column]
        bank = made.engine.bank.rows[int(task.y_target[row])][:, column]
        upper = task.allowance.upper[row, column]
        assert (values.diff() >= 0).all()
        assert all(bool((bank == value).any()) or value == upper for value in values)
        assert (values <= upper).all()
    assert len(made.engine.bank.quantiles(task, torch.arange(0), 4)) == 0


def test_a_change_is_adverse_where_it_alone_lowers_the_value_of_the_model(made):
    task = made.task(made.x[:10])
    rows = torch.arange(10)
    answers = task.candidates(rows, made.x[20:30])
    changed = task.layout.changed(answers.x, task.x)
    found = adverse_changes(task, answers, changed)
    for i in range(10):
        own = float(task.validity(task.x[i : i + 1], task.targets, rows[i : i + 1]))
        for j, block in enumerate(task.layout.blocks):
            alone = task.x[i : i + 1].clone()
            alone[:, block.columns] = answers.x[i : i + 1][:, block.columns]
            lower = float(task.validity(alone, task.targets, rows[i : i + 1])) < own - 1e-9
            assert bool(found[i, j]) == (lower and bool(changed[i, j]))
    assert found.any()
    assert (changed & ~found).any()
