"""The search for models without gradients, on small tables where the truth can be counted out."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import CompiledRules, Immutable, Increasing, MaxChanges, Range
from plausiflow.core import TargetCriterion, Targets
from plausiflow.search.bank import Bank
from plausiflow.search.black_box import BlackBoxSearch
from plausiflow.search.candidates import Candidates
from plausiflow.search.costs import CostModel
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.search.engine import Engine
from plausiflow.search.evolution import Evolution
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.true_model import TrueModel
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from searching import ORDERS, applicants, as_validity, setup

DENSE = MixedSearch(max_extra_cost=0.0)


class Recorder:
    """A model that says yes by a rule of the table; counts the rows it is asked about."""

    def __init__(self, rule):
        self.rule, self.rows = rule, 0

    def __call__(self, frame):
        self.rows += len(frame)
        yes = torch.tensor(np.array(self.rule(frame), dtype=np.float64))
        return torch.stack([1 - yes, yes], dim=1).clamp_min(1e-300).log()


def towards(weight, bias):
    """A likeness: logits for yes that are linear in the encoded row, turned around for no."""
    weight = torch.as_tensor(weight, dtype=torch.float64)

    def validity(x, wanted):
        y = wanted.y if isinstance(wanted, Targets) else wanted
        value = torch.where(y == 1, 1.0, -1.0) * (x @ weight + bias)
        extra_margin = wanted.extra_margin if isinstance(wanted, Targets) else None
        return value if extra_margin is None else value - extra_margin

    return validity


def finder_of(frame, rule, likeness, rules=(), *, budget=600, search=DENSE, plausibility=None):
    """A engine that knows the model by a rule of the table, and by its likeness."""
    schema = Schema.infer(frame)
    encoder = Encoder(schema)
    model, x = Recorder(rule), encoder.encode(frame).x
    true_model = TrueModel(outputs=model, criterion=TargetCriterion(), encoder=encoder, budget=budget)
    decided = np.asarray(rule(frame), dtype=bool)
    bank = {k: torch.unique(x[torch.from_numpy(decided == bool(k))], dim=0) for k in range(2)}
    engine = Engine(
        rules=CompiledRules(rules, schema, encoder.layout),
        validity=as_validity(likeness),
        plausibility=plausibility or AlwaysPlausible(),
        bank=Bank(bank, *Bank.free_numbers(encoder.layout, x)),
        cost_model=CostModel.plain(encoder.layout),
        strategy=BlackBoxSearch(hot=as_validity(likeness), cold=as_validity(likeness), base=search),
        true_model=true_model,
    )
    return model, encoder, engine


def best_of(engine, encoder, frame, wanted):
    """The cheapest answer of each row, decoded, and what it costs."""
    x = encoder.encode(frame).x
    task = engine.task(x, torch.as_tensor(wanted), frame=frame)
    found = engine.strategy.run(task, engine.bank)
    return found, encoder.decode(found.x, like=frame.iloc[found.rows.numpy()])


def grid_table(n=60, seed=0):
    draw = np.random.default_rng(seed)
    return pd.DataFrame({"a": draw.integers(0, 31, n), "b": draw.integers(0, 31, n)})


def corner(frame):
    """An L-shaped region: no hyperplane."""
    return (frame["a"] >= 19) | ((frame["b"] >= 23) & (frame["a"] >= 6))


def cheapest_on_grid(frame, rule, row):
    """The least cost of any grid point that the model says yes to."""
    a, b = np.meshgrid(np.arange(31), np.arange(31), indexing="ij")
    points = pd.DataFrame({"a": a.ravel(), "b": b.ravel()})
    points = points[np.asarray(rule(points), dtype=bool)]
    spans = frame.max() - frame.min()
    return np.sqrt((((points - row) / spans) ** 2).sum(axis=1)).min()


def test_answers_are_near_the_cheapest_point_of_the_grid():
    frame = grid_table()
    _, encoder, engine = finder_of(frame, corner, towards([8.0, 3.0], -6.5))
    rows = frame[~corner(frame)][:25]
    found, decoded = best_of(engine, encoder, rows, torch.ones(len(rows), dtype=torch.long))
    assert found.rows.tolist() == list(range(len(rows)))
    assert corner(decoded).all()
    truth = np.array([cheapest_on_grid(frame, corner, row) for _, row in rows.iterrows()])
    ratio = found.cost.numpy() / truth
    assert (ratio >= 1 - 1e-9).all(), "an answer is cheaper than any that there is"
    assert ratio.mean() < 1.1
    assert np.median(ratio) == pytest.approx(1)


@pytest.mark.parametrize(
    "likeness", [towards([-8.0, -8.0], 4.0), towards([0.0, 0.0], 5.0), towards([0.0, 0.0], -5.0)]
)
def test_a_likeness_that_is_wrong_makes_no_answer_wrong(likeness):
    frame = grid_table(seed=1)
    model, encoder, engine = finder_of(frame, corner, likeness)
    wanted = torch.from_numpy((~corner(frame)).to_numpy().astype(np.int64))
    found, decoded = best_of(engine, encoder, frame, wanted)
    assert found.rows.tolist() == list(range(len(frame))), "verified real rows are answers at least"
    np.testing.assert_array_equal(corner(decoded), wanted.numpy() == 1)
    assert model.rows <= 600 * len(frame)


def test_an_island_without_real_rows_is_reached_by_the_likeness_alone():
    frame = pd.DataFrame({"a": np.arange(40) % 20, "b": np.arange(40) * 7 % 31})

    def island(asked):
        return (asked["a"] >= 17) & (asked["b"] >= 24)

    rows = frame[~island(frame)].reset_index(drop=True)
    _, encoder, engine = finder_of(frame, island, towards([9.0, 7.0], -13.5))
    engine = replace(engine, bank=replace(engine.bank, rows={0: engine.bank.rows[0]}))
    found, decoded = best_of(engine, encoder, rows, torch.ones(len(rows), dtype=torch.long))
    assert len(found.rows.unique()) > 0.9 * len(rows)
    assert island(decoded).all()


def test_a_model_that_never_agrees_has_no_answers():
    frame = grid_table(30)
    model, encoder, engine = finder_of(frame, lambda asked: asked["a"] < -1, towards([1.0, 1.0], 0.0))
    found, _ = best_of(engine, encoder, frame, torch.ones(30, dtype=torch.long))
    assert len(found) == 0
    assert model.rows > 0


@pytest.mark.parametrize("budget", [1, 7, 30, 120])
def test_the_budget_of_every_row_is_kept(budget):
    frame = grid_table(20)
    model, encoder, engine = finder_of(frame, corner, towards([8.0, 3.0], -6.5), budget=budget)
    wanted = torch.from_numpy((~corner(frame)).to_numpy().astype(np.int64))
    task = engine.task(encoder.encode(frame).x, wanted, frame=frame)
    found = engine.strategy.run(task, engine.bank, keep=3)
    assert task.oracle.spent.max() <= budget
    assert model.rows == task.oracle.spent.sum()
    decoded = encoder.decode(found.x, like=frame.iloc[found.rows.numpy()])
    np.testing.assert_array_equal(corner(decoded), wanted[found.rows].numpy() == 1)


def test_a_thin_line_is_no_answer_while_there_is_a_steady_one():
    draw = np.random.default_rng(2)
    frame = pd.DataFrame({"a": draw.uniform(0, 1, 80), "b": draw.uniform(0, 1, 80)})

    def line(asked):
        return (asked["a"] >= 0.7) | ((asked["a"] - 0.35).abs() < 2e-4)

    rows = frame[frame["a"] < 0.3]
    _, encoder, engine = finder_of(frame, line, towards([9.0, 0.0], -3.15))
    found, decoded = best_of(engine, encoder, rows, torch.ones(len(rows), dtype=torch.long))
    assert found.rows.tolist() == list(range(len(rows)))
    assert (decoded["a"] >= 0.7).all()
    # Not at the very edge either: a thousandth of the range is to spare.
    reach = 1e-3 * np.ptp(frame["a"])
    assert (decoded["a"] - 0.7 >= 0.9 * reach).mean() > 0.9


def short(likeness):
    """A search that ends early."""
    return BlackBoxSearch(
        hot=as_validity(likeness), cold=as_validity(likeness), evolution=Evolution(rounds=4)
    )


RULES = [Immutable("age"), Increasing("school"), Range("income", 1500, 6500)]


@pytest.fixture(scope="module")
def mixed():
    """A table of all kinds, and a linear model that is also asked like one without gradients."""
    made = setup(applicants(200, missing=True), RULES, bar=4.0)
    classifier = made.classifier

    def answer(frame):
        return classifier.logits(made.encoder.encode(frame).x).log_softmax(dim=1)

    true_model = TrueModel(outputs=answer, criterion=TargetCriterion(), encoder=made.encoder, budget=600)
    search = short(made.engine.validity)
    return made, replace(made.engine, strategy=search, true_model=true_model)


def explained(mixed, rows, *, keep=1, search=None, engine=None):
    made, own = mixed
    engine = engine or own
    frame = made.frame.iloc[rows]
    x = made.x[rows]
    task = engine.task(x, 1 - made.classes(x), frame=frame)
    return task, (search or engine.strategy).run(task, engine.bank, keep=keep)


def test_with_a_true_likeness_answers_are_as_cheap_as_with_gradients(mixed):
    made, _ = mixed
    rows = list(range(12))
    _, verified = explained(mixed, rows)
    _, exact = explained(mixed, rows, engine=made.engine)
    costs = [dict(zip(f.rows.tolist(), f.cost.tolist(), strict=True)) for f in (verified, exact)]
    assert set(costs[0]) == set(costs[1])
    assert len(costs[1]) > 7
    ratio = np.array([costs[0][row] / costs[1][row] for row in costs[1]])
    assert np.median(ratio) < 1.05
    assert ratio.max() < 1.6


def test_answers_keep_the_rules_on_the_decoded_rows(mixed):
    made, engine = mixed
    rows = list(range(12))
    _, found = explained(mixed, rows, keep=3)
    before = made.frame.iloc[[rows[i] for i in found.rows]].reset_index(drop=True)
    after = made.encoder.decode(found.x, like=before)
    assert not engine.rules.violations(before, after, None).to_numpy().any()
    assert (after["age"] == before["age"]).all()
    changed = after["income"] != before["income"]
    assert after["income"][changed].between(1500, 6500).all()
    order = {level: i for i, level in enumerate(ORDERS["school"])}
    assert (after["school"].map(order) >= before["school"].map(order)).all()
    assert (after["gain"].isna() == before["gain"].isna()).all()


def test_answers_of_a_row_are_different_and_cheapest_first(mixed):
    task, found = explained(mixed, list(range(9)), keep=3)
    assert len(found.unique()) == len(found)
    assert found.rows.bincount(minlength=9).max() <= 3
    for row in range(9):
        costs = found.cost[found.rows == row]
        assert (costs.diff() >= 0).all()
    torch.testing.assert_close(found.cost, task.costs(found.x, found.rows))
    assert torch.isfinite(task.check(found).cost).all()


def test_a_row_alone_has_the_answer_that_it_has_among_others(mixed):
    _, together = explained(mixed, list(range(10)))
    _, turned = explained(mixed, [7, 3])
    for place, row in enumerate([7, 3]):
        alone = explained(mixed, [row])[1]
        torch.testing.assert_close(turned.x[turned.rows == place], alone.x, rtol=0, atol=1e-12)
        torch.testing.assert_close(together.x[together.rows == row], alone.x, rtol=0, atol=1e-12)


def test_more_changes_than_allowed_are_no_answer():
    made = setup(applicants(150), [*RULES, MaxChanges(2)], bar=4.0)

    def answer(frame):
        return made.classifier.logits(made.encoder.encode(frame).x)

    true_model = TrueModel(outputs=answer, criterion=TargetCriterion(), encoder=made.encoder, budget=600)
    search = short(made.engine.validity)
    engine = replace(made.engine, strategy=search, true_model=true_model)
    task, found = explained((made, engine), list(range(16)))
    assert len(found) > 4
    assert task.layout.changed(found.x, task.x[found.rows]).sum(dim=1).max() <= 2


def test_sparse_answers_change_no_more_and_cost_little_more(mixed):
    _, engine = mixed
    dense = replace(engine.strategy, base=replace(engine.strategy.base, max_extra_cost=0.0))
    rows = list(range(8))
    task, sparse = explained(mixed, rows)
    _, plain = explained(mixed, rows, search=dense)
    changes = [task.layout.changed(f.x, task.x[f.rows]).sum(dim=1).double().mean() for f in (sparse, plain)]
    assert changes[0] <= changes[1]
    assert sparse.cost.mean() < 1.25 * plain.cost.mean()


def test_a_row_that_the_rules_leave_nothing_has_no_answer_and_is_not_asked_about():
    frame = grid_table(20)
    rules = [Immutable("a"), Immutable("b")]
    model, encoder, engine = finder_of(frame, corner, towards([8.0, 3.0], -6.5), rules)
    wanted = torch.from_numpy((~corner(frame)).to_numpy().astype(np.int64))
    found, _ = best_of(engine, encoder, frame, wanted)
    assert len(found) == 0
    assert model.rows <= 600 * len(frame)


def test_no_rows_have_no_answers():
    frame = grid_table(20)
    _, encoder, engine = finder_of(frame, corner, towards([8.0, 3.0], -6.5))
    found, decoded = best_of(engine, encoder, frame[:0], torch.zeros(0, dtype=torch.long))
    assert len(found) == len(decoded) == 0


def test_a_lighter_search_has_no_evolution_and_a_wider_one_keeps_more():
    search = BlackBoxSearch(hot=towards([1.0], 0.0), cold=towards([1.0], 0.0))
    assert search.lighter().evolution is None
    assert search.lighter().finalists <= search.finalists
    assert search.wider(9).base == search.base.wider(9)
    assert search.wider(9).evolution == search.evolution


# Evolution


@pytest.fixture(scope="module")
def started(mixed):
    """Real rows as first answers: dear ones."""
    made, engine = mixed
    x = made.x[:20]
    task = engine.task(x, 1 - made.classes(x), frame=made.frame[:20])
    first = engine.bank.verified(task, torch.arange(20), 1)
    assert len(first) > 12
    return task, first


@pytest.mark.parametrize("sparse", [False, True])
def test_evolution_only_makes_answers_cheaper(started, sparse):
    task, first = started
    better = Evolution().run(task, first, sparse=sparse)
    assert better.rows.tolist() == first.rows.tolist()
    assert (better.cost <= first.cost).all()
    assert better.cost.mean() < 0.95 * first.cost.mean()
    assert torch.isfinite(replace(task, oracle=None).check(better).cost).all()
    torch.testing.assert_close(better.cost, task.costs(better.x, better.rows))
    assert torch.equal(task.layout.codes(better.x), task.layout.codes(first.x)), "levels stay"
    again = Evolution().run(task, better, sparse=sparse)
    assert (again.cost <= better.cost).all(), "where there is little to gain, nothing is lost"


@pytest.mark.parametrize("sparse", [False, True])
def test_only_a_sparse_evolution_leaves_other_numbers_alone(sparse):
    draw = np.random.default_rng(4)
    frame = pd.DataFrame({"a": draw.uniform(0, 1, 60), "b": draw.uniform(0, 1, 60)})

    def beyond(asked):
        return asked["a"] + asked["b"] >= 1  # the shortest way there changes both

    _, encoder, engine = finder_of(frame, beyond, towards([5.0, 5.0], -5.0))
    rows = frame[(frame["a"] + frame["b"] < 0.9) & (frame["b"] > 0.3)].reset_index(drop=True)
    x = encoder.encode(rows).x
    task = engine.task(x, torch.ones(len(rows), dtype=torch.long), frame=rows)
    first = encoder.encode(rows.assign(a=1.02 - rows["b"])).x
    first = task.check(task.candidates(torch.arange(len(rows)), first))
    assert len(first.feasible) == len(rows) > 5
    better = Evolution().run(task, first, sparse=sparse)
    assert (better.cost < first.cost).any()
    assert bool((better.x[:, 1] != x[:, 1]).any()) != sparse


def test_evolution_asks_no_more_than_it_says():
    frame = grid_table(30)
    model, encoder, engine = finder_of(frame, corner, towards([8.0, 3.0], -6.5), budget=10_000)
    rows = frame[~corner(frame)].reset_index(drop=True)
    task = engine.task(encoder.encode(rows).x, torch.ones(len(rows), dtype=torch.long), frame=rows)
    first = engine.bank.verified(task, torch.arange(len(rows)), 1)
    before = task.oracle.spent.clone()
    evolution = Evolution(rounds=5, proposals=10, checked=2)
    evolution.run(task, first, sparse=False)
    assert (task.oracle.spent - before).max() <= 5 * (2 + 8)
    assert model.rows == task.oracle.spent.sum()


def test_evolution_of_a_row_does_not_depend_on_the_others(started):
    task, first = started
    every = Evolution(rounds=6).run(task, first, sparse=False)
    some = torch.tensor([11, 4])
    few = Evolution(rounds=6).run(task, first[some], sparse=False)
    torch.testing.assert_close(few.x, every.x[some], rtol=0, atol=1e-12)


def test_evolution_without_answers_or_numbers_has_nothing_to_do(started):
    task, first = started
    none = first[torch.zeros(0, dtype=torch.long)]
    assert len(Evolution().run(task, none, sparse=False)) == 0
    names = frozenset(block.name for block in task.layout.blocks)
    fixed = replace(task, immutable=names)
    same = Evolution().run(fixed, first, sparse=False)
    assert isinstance(same, Candidates)
    assert torch.equal(same.x, first.x)
