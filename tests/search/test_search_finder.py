"""Several answers that differ, why there is none, and which outcome is wanted."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import Allowed, Immutable, Increasing, Linear, MaxChanges, Range, locked_mask
from plausiflow.core import Targets
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.search import diagnose
from plausiflow.search.candidates import Candidates
from plausiflow.search.diagnose import LOCKS, AlwaysPlausible, diagnose_rows, find_misses
from plausiflow.search.diverse import search_diverse
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.request import SearchRequest
from plausiflow.search.targets import target_classes
from searching import Ball, applicants, linear_validity, remade, setup

RULES = [Immutable("age", "owns"), Increasing("school"), Range("income", 0, 6000)]

# ---------------------------------------------------------------- several answers


@pytest.mark.parametrize("missing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_several_answers_hold_differ_and_begin_with_one_that_is_as_good_as_the_single_one(missing):
    made = setup(applicants(missing=missing), [Immutable("age")], bar=2.0)
    task = made.task(made.x[:10])
    single = made.engine.search(task).cheapest(1)
    found = made.engine.search(task, 3)
    assert torch.equal(task.check(found).cost, found.cost)
    assert len(found.unique()) == len(found)
    assert torch.equal(found.cheapest(3).x, found.x)
    first = found.cheapest(1)
    assert torch.equal(first.rows, single.rows)
    changes, most = (task.layout.changed(own.x, task.x[own.rows]).sum(dim=1) for own in (first, single))
    assert ((first.cost <= single.cost) | (changes < most)).all()
    assert torch.isclose(first.cost, single.cost, rtol=1e-3).double().mean() > 0.6
    counts = found.rows.bincount(minlength=10)
    assert counts.max() == 3
    assert counts[counts > 0].double().mean() > 2


def test_several_answers_are_apart_from_each_other():
    """Two features, each enough alone: the second answer uses the other one."""
    frame = pd.DataFrame(np.random.default_rng(0).random((300, 2)), columns=list("ab"))
    made = remade(
        setup(frame), linear_validity(torch.tensor([1.0, 0.9]), torch.tensor(-0.9)), AlwaysPlausible()
    )
    x = torch.tensor([[0.1, 0.1]])
    task = made.engine.task(x, torch.tensor([1]))
    found = made.engine.search(task, 2)
    changed = task.layout.changed(found.x, x.expand(len(found), -1))
    between = replace(task, x=found.x).costs(found.x.flip(0), torch.arange(2))
    assert len(found) == 2
    assert (between >= 0.5 * found.cost[1]).all()
    assert changed.any(dim=0).all()


@pytest.mark.slow
def test_several_answers_of_a_row_are_the_same_alone_and_in_a_batch():
    made = setup(applicants(), RULES, bar=2.0)
    x = made.x[:6]
    together = made.engine.search(made.task(x), 2)
    for i in (0, 4):
        alone = made.engine.search(made.task(x[i : i + 1]), 2)
        assert torch.equal(alone.x, together.x[together.rows == i])


def test_rows_without_any_answer_have_no_several_either():
    made = remade(setup(applicants(), bar=2.0), lambda x_cf, _: x_cf[:, 0] * 0 - 1, AlwaysPlausible())
    assert len(search_diverse(made.task(made.x[:5]), made.engine.bank, MixedSearch(), 3)) == 0


# ---------------------------------------------------------------- why there is none


def two_numbers(rules, validity, plausibility=None):
    """Rows at (0.2, 0.2) of two numbers and a category; a model and a density in closed form."""
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"a": draw.random(200), "b": draw.random(200), "c": draw.choice(["p", "q"], 200)})
    made = remade(setup(frame, rules), validity, plausibility or AlwaysPlausible())
    rows = pd.DataFrame({"a": [0.2, 0.2], "b": [0.2, 0.2], "c": ["p", "q"]})
    return made, rows, made.encoder.encode(rows).x, Targets(torch.ones(2).long())


def blame(rules, validity, plausibility=None, locked=None):
    made, rows, x, y = two_numbers(rules, validity, plausibility)
    mask = None if locked is None else locked_mask(locked, list(rows), 2)
    assert len(made.engine.search(made.engine.task(x, y, frame=rows, locked=mask)).feasible) == 0
    return reasons_of(made, rows, y, mask)


def request_of(made, rows, y, mask=None, **settings):
    """The request for rows that do not meet their targets."""
    already = torch.zeros(len(rows), dtype=torch.bool)
    encoded = made.encoder.encode(rows)
    return SearchRequest(frame=rows, encoded=encoded, already=already, targets=y, locked=mask, **settings)


def reasons_of(made, rows, y, mask=None):
    """Rules that block each row: a list if each blocks alone, a tuple if they block together."""
    request, everyone = request_of(made, rows, y, mask), torch.arange(len(rows))
    diagnosis = diagnose_rows(made.engine, made.encoder, request, everyone)
    assert len(diagnosis.answers.of) == 0
    named = []
    for text in (diagnosis.reasons[i] for i in range(len(rows))):
        text = text.removeprefix("each of ")
        alone, together = text.split(" blocks: ")[0], text.split(" block together: ")[0]
        names = [] if alone == text else split_names(alone)
        named.append(names if together == text else tuple(split_names(together)))
    return named


def split_names(text):
    """Names of rules, separated by commas outside parentheses, the last by a word."""
    return [part.strip() for part in re.split(r",(?![^(]*\))| and ", text)]


def needs_a(x_cf, _):
    return x_cf[:, 0] - 0.8


def needs_less_a(x_cf, _):
    return 0.05 - x_cf[:, 0]


def needs_both(x_cf, _):
    return torch.minimum(x_cf[:, 0], x_cf[:, 1]) - 0.8


def needs_either(x_cf, _):
    return torch.maximum(x_cf[:, 0], x_cf[:, 1]) - 0.8


@pytest.mark.parametrize(
    ("rules", "validity", "expected"),
    [
        ([Immutable("a")], needs_a, ['Immutable("a")']),
        ([Immutable("b"), Immutable("a")], needs_a, ['Immutable("a")']),
        ([Immutable("a", "b")], needs_both, ['Immutable("a", "b")']),
        ([Increasing("a")], needs_less_a, ['Increasing("a")']),
        ([Range("a", None, 0.5), Immutable("c")], needs_a, ['Range("a", None, 0.5)']),
        ([Linear("a + b <= 0.5"), Increasing("b")], needs_a, ['Linear("a + b <= 0.5")']),
        ([MaxChanges(1)], needs_both, ["MaxChanges(1)"]),
        ([Immutable("a"), Immutable("b")], needs_both, ('Immutable("a")', 'Immutable("b")')),
        ([Immutable("a"), Immutable("b")], needs_either, ['Immutable("a")', 'Immutable("b")']),
        ([Range("a", None, 0.5), Immutable("a")], needs_a, ('Range("a", None, 0.5)', 'Immutable("a")')),
        (
            [Immutable("a"), Range("b", None, 0.9), Immutable("b")],
            needs_both,
            ('Immutable("a")', 'Immutable("b")'),
        ),
    ],
)
def test_the_rule_without_which_there_is_an_answer_is_named(rules, validity, expected):
    assert blame(rules, validity) == [expected, expected]


@pytest.mark.parametrize(
    ("rules", "validity", "few", "many"),
    [
        # No rule alone is enough, so all are left out; locked categories do not need a search of their own.
        ([Range("a", None, 0.5), Range("b", None, 0.5), Immutable("c")], needs_both, 2, 2),
        # One rule is enough. Of many, the answer without any breaks the only one there is left to try.
        ([Range("a", None, 0.5), Immutable("c")], needs_a, 1, 2),
        ([Immutable("a"), Range("b", None, 0.5)], needs_both, 3, 3),
    ],
)
def test_rules_are_tried_together(monkeypatch, rules, validity, few, many):
    counts, searched = [], diagnose._Trials._searched

    def counted(self, trials):
        counts.append(len(trials))
        return searched(self, trials)

    monkeypatch.setattr(diagnose._Trials, "_searched", counted)
    first = blame(rules, validity)
    assert len(counts) == few
    counts.clear()
    monkeypatch.setattr(diagnose, "TOGETHER", 1)
    assert blame(rules, validity) == first
    assert len(counts) == many


def test_only_the_rows_that_a_rule_blocks_name_it():
    def needs_a_or_p(x_cf, _):
        return torch.where(x_cf[:, 2] == 1, x_cf[:, 1], x_cf[:, 0]) - 0.8

    rules = [Immutable("a"), Immutable("c"), Range("b", None, 0.5)]
    assert blame(rules, needs_a_or_p) == [['Range("b", None, 0.5)'], ['Immutable("a")']]


def test_a_category_that_may_not_move_is_named():
    def needs_q(x_cf, _):
        return x_cf[:, 3] - 0.5

    made, rows, _, y = two_numbers([Allowed("c", {"q": ["p"]})], needs_q)
    diagnosis = diagnose_rows(made.engine, made.encoder, request_of(made, rows, y), torch.arange(1))
    assert diagnosis.reasons == {0: 'Allowed("c", {"q": ["p"]}) blocks: without it there is an answer'}


def test_locks_are_named_beside_rules():
    assert blame([Immutable("b")], needs_a, locked=["a"]) == [[LOCKS], [LOCKS]]
    assert blame([Immutable("a")], needs_both, locked=["b"]) == [('Immutable("a")', LOCKS)] * 2
    assert blame([], needs_a, locked=["a"]) == [[LOCKS], [LOCKS]]


def test_no_rule_is_to_blame_where_the_density_is():
    assert blame([Immutable("c")], needs_a, Ball([0, 1], [0.2, 0.2], 0.3)) == [[], []]


def test_the_work_of_asking_why_is_bounded(monkeypatch):
    monkeypatch.setattr(diagnose, "MOST_ROWS", 1)
    assert blame([Immutable("a")], needs_a) == [['Immutable("a")'], []]
    monkeypatch.setattr(diagnose, "MOST_RULES", 1)
    assert blame([Immutable("b"), Immutable("a")], needs_a) == [['Immutable("a")'], []]
    monkeypatch.setattr(diagnose, "MOST_ROWS", 0)
    assert blame([Immutable("a")], needs_a) == [[], []]


class Blind:
    """A search that finds nothing while a rule limits the number of changes."""

    finalists = 2

    def lighter(self):
        return self

    quicker = lighter

    def prover(self, *, far=False):
        return self

    def run(self, task, bank, *, keep=1):
        found = MixedSearch().run(task, bank, keep=keep)
        return found if task.allowance.max_changes is None else found[found.rows < 0]


def test_an_answer_that_keeps_the_rule_is_used_and_the_rule_is_not_named():
    made, rows, _, y = two_numbers([Immutable("c"), MaxChanges(2)], needs_a)
    engine = replace(made.engine, strategy=Blind())
    diagnosis = diagnose_rows(engine, made.encoder, request_of(made, rows, y), torch.arange(2))
    assert diagnosis.answers.of.tolist() == [0, 1]
    assert diagnosis.reasons == {0: "", 1: ""}
    assert (diagnosis.answers.decoded["a"] >= 0.8).all()
    assert not engine.rules.violations(rows, diagnosis.answers.decoded).to_numpy().any()


LEVELS = ["u", "v", "w"]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(i, marks=pytest.mark.slow) for i in range(2, 8))])
def test_reasons_are_true_by_enumeration_of_every_row(seed):
    """Four categories, random models and rules: what is named is compared with all 81 rows."""
    draw = np.random.default_rng(seed)
    every = pd.DataFrame(list(product(LEVELS, repeat=4)), columns=list("abcd"))
    made = setup(every)
    wanted = torch.from_numpy(draw.random(81) < 0.06)
    codes = made.encoder.layout.codes(made.x) @ torch.tensor([27, 9, 3, 1])
    valid = torch.zeros(81, dtype=torch.bool)
    valid[codes] = wanted

    def validity(x_cf, _):
        own = made.encoder.layout.codes(x_cf) @ torch.tensor([27, 9, 3, 1])
        return torch.where(valid[own], 1.0, -1.0).to(x_cf)

    pool = [Immutable("a"), Allowed("b", ["u", "v"]), MaxChanges(2), Allowed("c", {"u": ["v"]})]
    rules = [rule for rule in [*pool, Immutable("d")] if draw.random() < 0.8]
    made = remade(setup(every, rules), validity, AlwaysPlausible())
    rows = every[(~wanted).numpy()].reset_index(drop=True)
    y = Targets(torch.ones(len(rows)).long())
    named = np.array([str(rule) for rule in rules])
    left, pairs = [], {}
    for i in range(len(rows)):
        before = rows.iloc[[i] * int(wanted.sum())].reset_index(drop=True)
        broken = made.engine.rules.violations(before, every[wanted.numpy()].reset_index(drop=True))
        pairs[i] = [frozenset(named[row]) for row in broken[list(named)].to_numpy(bool)]
        left += [i] if all(pairs[i]) else []
    if not left:
        return
    request = request_of(made, rows, y)
    diagnosis = diagnose_rows(made.engine, made.encoder, request, torch.tensor(left))
    assert len(diagnosis.answers.of) == 0
    complete = 0
    for i in left:
        smallest = min(map(len, pairs[i]))
        text = diagnosis.reasons[i]
        own = {name for name in named if name in text}
        alone = {next(iter(broken)) for broken in pairs[i] if len(broken) == 1}
        if "blocks: without it" in text:
            assert own <= alone
            complete += own == alone
        elif "block together" in text:
            assert frozenset(own) in pairs[i]
            complete += len(own) == smallest
    assert complete >= 0.9 * len(left)


def test_nearest_misses_are_valid_and_allowed_and_nothing_else_is_asked():
    validity = linear_validity(torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor(-1.0))
    made, rows, x, y = two_numbers([Immutable("c")], validity, Ball([0, 1], [0.2, 0.2], 0.1))
    found = find_misses(made.engine, made.encoder, request_of(made, rows, y), torch.arange(2))
    found = Candidates(rows=found.of, x=found.x_cf, cost=found.cost)
    task = made.engine.task(x, y, frame=rows)
    assert (made.engine.validity(found.x, y[found.rows]) >= 0).all()
    assert task.allowance.contains(found.x, found.rows).all()
    assert (task.scores.score(found.x, found.rows) < 0).all()
    assert found.cheapest(1).rows.tolist() == [0, 1]
    lack = 1 - x[:, :2].sum(dim=1)
    torch.testing.assert_close(found.cheapest(1).cost, lack / 2**0.5, rtol=0, atol=2e-3)
    mask = locked_mask(["a"], list(rows), 2)
    locked = find_misses(made.engine, made.encoder, request_of(made, rows, y, mask), torch.arange(2))
    torch.testing.assert_close(locked.cost, lack, rtol=0, atol=2e-3)


# ---------------------------------------------------------------- which outcome is wanted

PROBA = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])


def test_the_opposite_of_two_and_the_runner_up_of_many_come_from_the_model():
    two = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert target_classes("opposite", two, ("no", "yes")).tolist() == [1, 0]
    assert target_classes("runner_up", two, ("no", "yes")).tolist() == [1, 0]
    assert target_classes("runner_up", PROBA, ("a", "b", "c")).tolist() == [1, 1, 2]


@pytest.mark.parametrize("target", ["b", np.str_("b")])
def test_one_label_is_wanted_of_every_row(target):
    found = target_classes(target, PROBA, ("a", "b", "c"))
    assert found.tolist() == [1, 1, 1]
    assert found.dtype == torch.long


@pytest.mark.parametrize(
    "target",
    [
        ["c", "a", "b"],
        ("c", "a", "b"),
        np.array(["c", "a", "b"]),
        pd.Series(["c", "a", "b"], index=[5, 6, 7]),
        pd.Index(["c", "a", "b"]),
        pd.Categorical(["c", "a", "b"]),
    ],
)
def test_one_label_may_be_wanted_of_each_row(target):
    assert target_classes(target, PROBA, ("a", "b", "c")).tolist() == [2, 0, 1]


def test_a_label_called_like_a_policy_is_the_label():
    assert target_classes("opposite", PROBA, ("x", "opposite", "y")).tolist() == [1, 1, 1]


def test_numbers_and_booleans_are_not_taken_for_each_other():
    assert target_classes(1, PROBA[:, :2], (0, 1)).tolist() == [1, 1, 1]
    assert target_classes(np.int64(1), PROBA[:, :2], (0, 1)).tolist() == [1, 1, 1]
    assert target_classes(np.bool_(True), PROBA[:, :2], (False, True)).tolist() == [1, 1, 1]
    for target, labels in ((True, (0, 1)), (1, (False, True))):
        with pytest.raises(InvalidInputError, match=r"`target` must be 'opposite', 'runner_up', .*one of"):
            target_classes(target, PROBA[:, :2], labels)
    with pytest.raises(InvalidInputError, match="got True"):
        target_classes([True, 0, 1], PROBA[:, :2], (0, 1))


def test_a_wrong_target_is_an_error_that_names_the_outcomes():
    labels = ("a", "b", "c")
    with pytest.raises(InvalidInputError, match=r"needs two outcomes; this model has 3: 'a', 'b', 'c'"):
        target_classes("opposite", PROBA, labels)
    with pytest.raises(InvalidInputError, match="got 'd'"):
        target_classes("d", PROBA, labels)
    with pytest.raises(InvalidInputError, match=r"got \{'a': 1\}"):
        target_classes({"a": 1}, PROBA, labels)
    with pytest.raises(ShapeError, match="`target` must have 3 outcomes, one for each row; got 2"):
        target_classes(["a", "b"], PROBA, labels)
    with pytest.raises(InvalidInputError, match=r"got 'd', nan, \['a'\]\."):
        target_classes(["d", np.nan, ["a"]], PROBA, labels)
    with pytest.raises(InvalidInputError, match="and more"):
        target_classes(list(range(20)), PROBA.repeat(7, 1)[:20], labels)
