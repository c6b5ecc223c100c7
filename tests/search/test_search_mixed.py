"""The whole search over a table: answers that hold, row by row; several of them; and why there is none."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import Allowed, Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.core.training import Training
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.search import mixed as mixed_module
from plausiflow.search import strategy as strategy_module
from plausiflow.search.bank import transplant
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.search.mixed import MixedSearch
from searching import applicants, linear_validity, remade, setup

CASES = {
    "free": ((), False),
    "rules": ([Immutable("age", "owns"), Increasing("school"), Range("income", 0, 6000)], False),
    "missing values": ([Immutable("age"), Allowed("job", ["clerk", "cook"])], True),
    "forced": ([Range("income", 3000, None)], False),
    "few changes": ([MaxChanges(2), Immutable("age")], False),
    "relation": ([Linear("savings <= income / 500"), Immutable("age")], False),
}
COLUMNS = {
    "categories": ["job", "school", "owns"],
    "one category": ["job"],
    "numbers": ["age", "income", "savings"],
    "one number": ["savings"],
    "one number with states": ["gain"],
    "one of each": ["age", "job"],
}


def made_for(case, **settings):
    rules, missing = CASES[case]
    return setup(applicants(missing=missing), rules, **{"bar": 2.0} | settings)


def searched(made, x, keep=1):
    task = made.task(x)
    return task, made.engine.strategy.run(task, made.engine.bank, keep=keep).feasible


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("case", CASES)
def test_every_answer_holds_costs_what_it_says_and_breaks_no_rule_when_decoded(case):
    made = made_for(case)
    task, found = searched(made, made.x[: 5 if case == "relation" else 14], keep=3)
    assert len(found.rows.unique()) > 3
    checked = task.check(found)
    assert torch.equal(checked.cost, found.cost)
    assert len(found.unique()) == len(found)
    assert torch.equal(found.cheapest(3).cost, found.cost)
    before = made.frame.iloc[found.rows.numpy()]
    decoded = made.encoder.decode(found.x, like=before)
    assert not made.engine.rules.violations(before, decoded).to_numpy().any()
    again = made.encoder.encode(decoded).x
    assert torch.equal(made.classes(again), task.y_target[found.rows])
    fixed = list(made.engine.rules.immutable)
    pd.testing.assert_frame_equal(decoded[fixed], before[fixed], check_exact=True)
    columns = [c for n in fixed for c in task.layout.block(n).columns]
    assert torch.equal(found.x[:, columns], task.x[found.rows][:, columns])


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_tables_of_every_shape_are_searched(columns):
    made = setup(applicants()[columns], bar=2.0, seed=4)
    task, found = searched(made, made.x[:30])
    assert torch.equal(task.check(found).cost, found.cost)
    assert len(found) == 30


def test_with_all_numbers_fixed_only_categories_change():
    made = setup(applicants()[["age", "income", "job", "school"]], [Immutable("age", "income")], bar=2.0)
    task, found = searched(made, made.x[:30])
    assert task.numbers == []
    assert len(found) > 5
    assert torch.equal(task.check(found).cost, found.cost)


@pytest.mark.parametrize("case", CASES)
def test_a_row_gets_the_same_answers_alone_as_in_a_batch(case):
    made = made_for(case)
    x = made.x[:5]
    _, together = searched(made, x, keep=2)
    for i in (4,) if case == "relation" else (0, 4):
        _, alone = searched(made, x[i : i + 1], keep=2)
        assert torch.equal(alone.x, together.x[together.rows == i])
        assert torch.equal(alone.cost, together.cost[together.rows == i])


def test_neither_order_nor_blocks_of_rows_matter(monkeypatch):
    made = made_for("rules")
    x = made.x[:8]
    order = torch.randperm(8)
    _, found = searched(made, x)
    _, shuffled = searched(made, x[order])
    back = replace(shuffled, rows=order[shuffled.rows]).cheapest(1)
    assert torch.equal(back.rows, found.rows)
    assert torch.equal(back.x, found.x)
    monkeypatch.setattr(strategy_module, "table_rows_per_search", lambda x, *, black_box: 3)
    _, blocked = searched(made, x)
    assert torch.equal(blocked.x, found.x)


def with_flows(made, members=2):
    """The same with a small trained ensemble instead of the bell."""
    x, layout, immutable = made.x, made.encoder.layout, made.engine.rules.immutable
    y = made.classes(x)
    brief = Training(epochs=8, batch_size=64, learning_rate=1e-2)
    base = replace(MixedDensity.from_layout(layout, immutable), transforms=2, hidden=(12,))
    base = replace(base, training=brief, levels_training=brief)
    context = ContextThreshold.from_layout(layout, immutable=immutable)
    ensemble = CrossFitEnsemble(members=members, base=base, context=context).fit(x.float(), y)
    return remade(made, made.engine.validity, ensemble)


def test_with_flows_too_a_row_gets_the_same_answers_alone_as_in_a_batch():
    made = with_flows(setup(applicants(), [Immutable("age", "job")]))
    x = made.x[:12]
    task, together = searched(made, x, keep=2)
    assert len(together.rows.unique()) > 8
    assert torch.equal(task.check(together).cost, together.cost)
    for i in (2, 9):
        _, alone = searched(made, x[i : i + 1], keep=2)
        assert torch.equal(alone.x, together.x[together.rows == i])


@pytest.mark.parametrize("flows", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_the_cheapest_feasible_candidates_are_those_of_a_full_check(flows, count):
    made = made_for("rules")
    made = with_flows(made) if flows else made
    task = made.task(made.x[:10])
    rows = torch.arange(10).repeat_interleave(len(made.x))
    many = task.candidates(rows, transplant(task, made.x.repeat(10, 1), rows))
    found = task.cheapest_feasible(many, count)
    expected = task.check(many).feasible.unique().cheapest(count)
    assert len(expected) > 0
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.cost, expected.cost)
    assert torch.equal(found.x, expected.x)


def test_a_scan_leaves_out_the_real_rows_that_were_checked():
    made = made_for("rules")
    task, rows = made.task(made.x[:20]), torch.arange(20)
    everything = made.engine.bank.scan(task, rows, 1)
    assert len(everything) > 0
    near = made.engine.bank.verified(task, rows, 1, among=30)
    missing = rows[~torch.isin(rows, near.rows)]
    rest = made.engine.bank.scan(task, missing, 1, checked=30)
    expected = everything[torch.isin(everything.rows, missing)]
    assert torch.equal(rest.rows, expected.rows)
    assert torch.equal(rest.x, expected.x)
    size = max(len(own) for own in made.engine.bank.rows.values())
    assert len(made.engine.bank.scan(task, rows, 1, checked=size)) == 0


@pytest.mark.parametrize("case", CASES)
def test_a_proof_is_an_answer_of_the_task_that_may_cost_more(case):
    made = made_for(case)
    task = made.task(made.x[:20])
    cheap = MixedSearch().run(task, made.engine.bank).feasible
    proofs = MixedSearch().prover().run(task, made.engine.bank).feasible
    assert torch.equal(task.check(proofs).cost, proofs.cost)
    assert len(proofs.rows.unique()) >= 0.9 * len(cheap.rows.unique())


def test_rows_without_an_answer_are_absent():
    made = made_for("free")
    x = made.x[:10]
    nobody = remade(made, lambda x_cf, _: x_cf[:, 0] * 0 - 1, AlwaysPlausible())
    assert len(searched(nobody, x)[1]) == 0
    task, found = searched(made, x)
    impossible = torch.ones(10, dtype=torch.bool)
    impossible[::2] = False
    fewer = replace(task, allowance=replace(task.allowance, possible=impossible))
    some = made.engine.strategy.run(fewer, made.engine.bank)
    assert torch.equal(some.rows, found.rows[found.rows % 2 == 1])
    assert torch.equal(some.x, found.x[found.rows % 2 == 1])
    assert len(made.engine.strategy.run(made.task(x[:0]), made.engine.bank)) == 0


def test_numbers_alone_are_moved_onto_the_hyperplane():
    frame = pd.DataFrame(np.random.default_rng(0).random((200, 3)), columns=list("abc"))
    made = setup(frame)
    normal = torch.tensor([1.0, 2.0, -1.0])
    made = remade(made, linear_validity(normal, torch.tensor(-1.0)), AlwaysPlausible())
    x = 0.3 + 0.2 * torch.rand(20, 3)
    task = made.engine.task(x, torch.ones(20).long())
    found = MixedSearch(max_extra_cost=0.0).run(task, made.engine.bank)
    optimum = (1 - x @ normal).clamp_min(0) / normal.norm()
    torch.testing.assert_close(found.cost, optimum, rtol=0, atol=2e-3)


def test_categories_alone_get_the_cheapest_setting_of_all():
    made = setup(applicants()[["job", "school", "owns"]], bar=0.2)
    task = made.task(made.x[:30])
    found = MixedSearch(max_extra_cost=0.0).run(task, made.engine.bank)
    codes = torch.tensor(list(itertools.product(range(4), range(4), range(2))))
    every = task.layout.with_codes(task.x[:1].repeat(32, 1), codes)
    for i in range(30):
        best = task.check(task.candidates(torch.full((32,), i), every)).cost.min()
        assert float(found.cost[found.rows == i].sum()) == (float(best) if torch.isfinite(best) else 0.0)
    assert len(found) > 20


def test_one_number_beside_one_category_gets_the_optimum_over_both():
    made = setup(applicants()[["savings", "job"]], worth=1.0, bar=0.0)
    task = made.task(made.x[:30])
    found = MixedSearch(max_extra_cost=0.0).run(task, made.engine.bank)
    grid = torch.linspace(0, 1, 801).repeat(4)[:, None]
    every = torch.cat([grid, torch.eye(4).repeat_interleave(801, dim=0)], dim=1)
    for i in range(30):
        best = float(task.check(task.candidates(torch.full((len(every),), i), every)).cost.min())
        own = found.cost[found.rows == i]
        assert len(own) == (best < np.inf)
        assert best == np.inf or float(own) <= best + 3e-3


def test_a_row_whose_search_fails_gets_the_cheapest_verified_real_row(monkeypatch):
    made = made_for("rules")
    task = made.task(made.x[:20])
    monkeypatch.setattr(
        MixedSearch, "dense", lambda self, task, bank, rows, **_: task.candidates(rows[:0], task.x[:0])
    )
    monkeypatch.setattr(mixed_module, "MORE", 1)
    found = made.engine.strategy.run(task, made.engine.bank)
    expected = made.engine.bank.verified(task, torch.arange(20), 1, among=10**6)
    order = expected.rows.argsort()
    assert torch.equal(found.rows, expected.rows[order])
    assert (found.cost >= expected.cost[order]).all()
    assert torch.equal(task.check(found).cost, found.cost)


def test_fewer_changes_are_bought_with_cost_and_a_limit_is_kept():
    free, limited = made_for("free"), made_for("few changes")
    x = free.x[:12]
    task = free.task(x)
    runs = [MixedSearch(max_extra_cost=s).run(task, free.engine.bank) for s in (0.0, 0.3)]
    changes = [task.layout.changed(found.x, x[found.rows]).sum(dim=1).double().mean() for found in runs]
    assert changes[1] < changes[0]
    assert runs[0].cost.mean() < runs[1].cost.mean() <= 1.4 * runs[0].cost.mean()
    task, found = searched(limited, x)
    assert (task.layout.changed(found.x, x[found.rows]).sum(dim=1) <= 2).all()


def test_flips_buy_cost():
    made = made_for("free")
    task = made.task(made.x[:24])
    costs = {}
    for flips in (True, False):
        found = MixedSearch(flips=flips, max_extra_cost=0.0).run(task, made.engine.bank)
        cost = torch.full((24,), 9.0)
        cost[found.rows] = found.cost
        costs[flips] = cost
    assert costs[True].mean() < costs[False].mean()


def test_leaving_a_special_value_costs_a_category_whatever_the_number():
    """To be positive is enough, and costs the weight of one category for every number."""
    gain = np.concatenate([np.zeros(200), np.linspace(60, 100, 100), [2.0]])
    frame = pd.DataFrame({"gain": gain, "b": np.linspace(0, 1, 301)})
    made = setup(frame)
    positive = made.encoder.layout.block("gain").levels[0]
    number = made.encoder.layout.block("b").number

    def validity(x_cf, _):
        return torch.maximum(x_cf[:, positive] - 0.5, x_cf[:, number] - 3)

    made = remade(made, validity, AlwaysPlausible())
    empty = replace(made.engine.bank, rows={})
    row = made.encoder.encode(pd.DataFrame({"gain": [0.0], "b": [0.2]})).x
    task = made.engine.task(row, torch.tensor([1]))
    found = MixedSearch().run(task, empty)
    assert float(found.cost) == 1.0
    assert made.encoder.decode(found.x)["gain"].between(2.0, 100.0).all()
