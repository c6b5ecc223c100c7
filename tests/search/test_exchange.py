"""Exchanges of changes, on tables of categories where every row can be counted out."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import CompiledRules, Immutable
from plausiflow.core import TargetCriterion
from plausiflow.search.bank import Bank
from plausiflow.search.candidates import Candidates
from plausiflow.search.costs import CostModel
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.search.engine import Engine
from plausiflow.search.exchange import Exchange
from plausiflow.search.sparsify import burden
from plausiflow.search.true_model import TrueModel
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from searching import as_validity

LEVELS = ["p", "q", "r"]
FEATURES = ["a", "b", "c", "d"]
EVERY = pd.DataFrame(list(product(LEVELS, repeat=4)), columns=FEATURES)
EVERY["n"] = np.random.default_rng(0).random(len(EVERY))

THOROUGH = Exchange(depth=4, rounds=4, width=64, evaluated=128)
"""Decisions at random follow no sum of what steps do alone, so that nearly all combinations are evaluated."""


def engine_of(decides, rules=(), plausibility=None, frame=EVERY):
    """An engine for a model that decides by a function of the levels ``(p, features)``."""
    schema = Schema.infer(frame)
    encoder = Encoder(schema)
    layout, x = encoder.layout, encoder.encode(frame).x

    def trees(rows):
        yes = decides(layout.codes(rows)).to(torch.float64)
        return torch.stack([1 - yes, yes], dim=1).clamp_min(1e-300).log()

    chosen = decides(layout.codes(x))
    true_model = TrueModel(
        outputs=lambda asked: trees(encoder.encode(asked).x),
        criterion=TargetCriterion(),
        encoder=encoder,
        budget=600,
        tree_outputs=trees,
    )
    return encoder, Engine(
        rules=CompiledRules(rules, schema, layout),
        validity=as_validity(lambda rows, *_: rows[:, 0] * 0),
        plausibility=plausibility or AlwaysPlausible(),
        bank=Bank({0: x[~chosen], 1: x[chosen]}, Bank.free_numbers(layout, x)),
        cost_model=CostModel.plain(layout),
        true_model=true_model,
    )


def task_of(engine, encoder, rows):
    """The task of reaching class one."""
    x = encoder.encode(rows).x
    return engine.task(x, torch.ones(len(x), dtype=torch.long), frame=rows)


def answers_of(task, encoder, rows, changed):
    """The rows of a table as answers of a task."""
    x = encoder.encode(changed).x
    checked = task.check(task.candidates(torch.arange(len(rows)), x))
    assert torch.isfinite(checked.cost).all(), "the answer that is exchanged must be one"
    return checked


def two_or_one(codes):
    """Yes where both a and b are at another level, or c alone."""
    return ((codes[:, 0] == 1) & (codes[:, 1] == 1)) | (codes[:, 2] == 2)


def test_two_changes_are_exchanged_for_one_that_does_the_same():
    encoder, engine = engine_of(two_or_one)
    rows = EVERY.iloc[:1]
    task = task_of(engine, encoder, rows)
    before = answers_of(task, encoder, rows, rows.assign(a="q", b="q"))
    after = Exchange().run(task, engine.bank, before, sparse=True)
    decoded = encoder.decode(after.x, like=rows)
    assert decoded.loc[:, ["a", "b", "c"]].to_numpy().tolist() == [["p", "p", "r"]]
    assert float(after.cost[0]) == pytest.approx(float(before.cost[0]) / 2)


def test_what_the_rules_forbid_is_not_exchanged():
    encoder, engine = engine_of(two_or_one, [Immutable("c")])
    rows = EVERY.iloc[:1]
    task = task_of(engine, encoder, rows)
    before = answers_of(task, encoder, rows, rows.assign(a="q", b="q"))
    after = Exchange().run(task, engine.bank, before, sparse=True)
    assert torch.equal(after.x, before.x)
    assert torch.equal(after.cost, before.cost)


class NotC:
    """A density in which a changed c is implausible."""

    def score(self, x, y):
        """Shape ``(n,)``."""
        return torch.where(x[:, 6:9].argmax(dim=1) == 2, -1.0, 1.0).to(x)


def test_what_is_not_plausible_is_not_exchanged():
    encoder, engine = engine_of(two_or_one, plausibility=NotC())
    rows = EVERY.iloc[:1]
    task = task_of(engine, encoder, rows)
    before = answers_of(task, encoder, rows, rows.assign(a="q", b="q"))
    after = Exchange().run(task, engine.bank, before, sparse=True)
    assert torch.equal(after.x, before.x)


def test_a_model_whose_trees_are_unknown_keeps_its_answers():
    encoder, engine = engine_of(two_or_one)
    engine = replace(engine, true_model=replace(engine.true_model, tree_outputs=None))
    rows = EVERY.iloc[:1]
    task = task_of(engine, encoder, rows)
    before = answers_of(task, encoder, rows, rows.assign(a="q", b="q"))
    assert Exchange().run(task, engine.bank, before, sparse=True) is before


def random_model(seed):
    """A model that says yes to a quarter of all combinations of levels."""
    table = torch.rand((3,) * 4, generator=torch.Generator().manual_seed(seed)) < 0.25
    return lambda codes: table[tuple(codes.T)]


def exchanged(seed, sparse):
    """A task with a random yes for each no, the answers before and after, and the optimum of each."""
    decides = random_model(seed)
    encoder, engine = engine_of(decides)
    x = encoder.encode(EVERY).x
    yes = decides(encoder.layout.codes(x)).numpy()
    rows = EVERY[~yes].reset_index(drop=True)
    chosen = EVERY[yes].sample(len(rows), replace=True, random_state=seed).reset_index(drop=True)
    task = task_of(engine, encoder, rows)
    before = answers_of(task, encoder, rows, chosen.assign(n=rows["n"]))
    after = THOROUGH.run(task, engine.bank, before, sparse=sparse)
    goals = EVERY[yes][FEATURES].to_numpy()
    optimum = np.array([(goals != row).sum(axis=1).min() for row in rows[FEATURES].to_numpy()])
    return task, before, after, optimum


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sparse", [True, False])
def test_answers_get_cheaper_stay_answers_and_reach_the_optimum_of_all_combinations(seed, sparse):
    task, before, after, optimum = exchanged(seed, sparse)
    order = torch.argsort(after.rows)
    cost = after.cost[order]
    assert after.rows[order].tolist() == before.rows.tolist()
    assert (cost <= before.cost + 1e-12).all()
    torch.testing.assert_close(task.check(after).cost, after.cost)
    assert (cost.numpy() >= optimum - 1e-9).all()
    assert (before.cost.numpy() > optimum + 0.5).mean() > 0.5, "the case is too easy to tell anything"
    assert (cost.numpy() < optimum + 0.5).mean() > 0.95


def test_sparse_exchanges_make_no_answer_harder_to_follow():
    task, before, after, _ = exchanged(3, sparse=True)
    after = after[torch.argsort(after.rows)]
    assert (burden(task, after) <= burden(task, before)).all()


def test_a_row_alone_gets_what_it_gets_in_a_batch():
    task, before, after, _ = exchanged(4, sparse=True)
    encoder, engine = engine_of(random_model(4))
    rows = task.oracle.frame
    for i in (0, 7, 20):
        alone = task_of(engine, encoder, rows.iloc[[i]].reset_index(drop=True))
        one = Candidates(rows=torch.tensor([0]), x=before.x[i : i + 1], cost=before.cost[i : i + 1])
        found = THOROUGH.run(alone, engine.bank, one, sparse=True)
        assert torch.equal(found.x, after.x[after.rows == i])
