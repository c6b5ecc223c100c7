"""Proofs against a list of all rows: the bound is never above the cheapest row, and the answer costs that."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import plausiflow as pf
from plausiflow.core import Targets
from proving import KINDS, SmallCase, class_target, estimator, pipeline, random_rules, scores, small_table

pytest.importorskip("ortools")


def small_case(kind, seed, *, classes=2, rules=(), regression=False, missing=False, scaled=False, **options):
    rng = np.random.default_rng(seed)
    frame = small_table(rng, missing=missing)
    score = scores(rng, frame)
    edges = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    y = score if regression else np.digitize(score, edges)
    model = pipeline(estimator(kind, seed, regression=regression), scaled=scaled)
    return SmallCase.of(model, frame, y, rules, **options)


def check(case, row, targets):
    """Compare a proof with the list of all rows, and return it with the cheapest cost."""
    proof, cheapest = case.prove(row, targets), case.cheapest(row, targets)
    assert proof.finished
    assert proof.bound <= cheapest + 1e-9
    assert proof.cost >= cheapest - 1e-9
    assert proof.infeasible == math.isinf(cheapest)
    return proof, cheapest


FEW = [pf.Immutable("age", "grade"), pf.Range("days", -1, 4), pf.Range("amount", 2.0, 4.0)]
"""Rules that leave few rows, so that listing them is fast."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_proven_row_of_each_model_is_the_cheapest_of_all(kind):
    case = small_case(kind, 3, rules=FEW, scaled=kind in ("hist", "xgboost"))
    row = case.frame.iloc[[5]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


@pytest.mark.parametrize("distance", ["l2", "l1", "l1-mad"])
def test_every_distance_and_weight_has_its_own_cheapest_row(distance):
    weights = torch.tensor([1.0, 0.5, 2.0, 0.7, 1.0, 0.2])
    case = small_case("hist", 4, rules=FEW, distance=distance, weights=weights)
    row = case.frame.iloc[[1]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row))
    assert proof.cost == pytest.approx(cheapest, rel=1e-3)


RULES = [
    pf.Linear("amount <= 0.1 * age"),
    pf.Implies('job == "cook"', "amount >= 3"),
    pf.Implies("days == -1", "amount <= 3"),
    pf.Implies('job == "cook"', "owner == True"),
    pf.WhenChanged("job", pf.Range("days", 0, 3)),
    pf.MaxChanges(1),
    pf.Price("job", {("clerk", "cook"): 0.1}),
]


@pytest.fixture(scope="module")
def boosted():
    return small_case("hist", 5)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_is_part_of_the_proof(boosted, rule):
    case = boosted.with_rules([*FEW, rule])
    row = case.frame.iloc[[7]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


@pytest.mark.parametrize("kind", ["hist", "xgboost", "forest"])
def test_three_classes_and_a_minimum_probability_are_proven(kind):
    case = small_case(kind, 6, classes=3, rules=FEW)
    row = case.frame.iloc[[2]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row, 0.55))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


def test_an_interval_of_a_regressor_is_proven():
    case = small_case("gradient", 7, regression=True, rules=FEW)
    row = case.frame.iloc[[3]].reset_index(drop=True)
    own = float(case.model.predict_outputs(case.encoder.encode(row).x, row)[0])
    targets = Targets(torch.tensor([0]), low=torch.tensor([own + 0.2]), high=torch.tensor([own + 0.6]))
    proof, cheapest = check(case, row, targets)
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


def test_a_missing_value_stays_and_follows_its_split():
    case = small_case("hist", 8, missing=True, rules=FEW)
    missing = case.frame["amount"].isna()
    row = case.frame[missing].iloc[[0]].reset_index(drop=True)
    proof, _ = check(case, row, class_target(case, row))
    if proof.answer is not None:
        decoded = case.encoder.decode(proof.answer, like=row, encoded=case.encoder.encode(row).x)
        assert pd.isna(decoded["amount"].iloc[0])


@pytest.mark.parametrize(("name", "value"), [("age", 40), ("amount", 3.3)])
def test_a_row_outside_the_range_or_off_the_grid_is_proven(name, value):
    case = small_case("hist", 9, rules=[*FEW[1:2], pf.MaxChanges(2), pf.Immutable("grade", "owner", "job")])
    row = case.frame.iloc[[4]].reset_index(drop=True).assign(**{name: value})
    check(case, row, class_target(case, row))


def test_a_row_at_a_special_value_may_move_to_the_number_next_to_it():
    """The encoded number of the special value is that of zero days, which a linear model may ask for."""
    case = small_case("linear", 20, rules=[pf.Range("days", 0, 8)])
    row = case.frame.iloc[[0]].reset_index(drop=True).assign(days=-1)
    proof, cheapest = check(case, row, class_target(case, row))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


def random_case(seed, kinds=KINDS):
    """A random model, rules and rows."""
    rng, kind = np.random.default_rng(seed), kinds[seed % len(kinds)]
    regression, classes = seed % 5 == 4, 3 if seed % 4 == 3 else 2
    distance = ("l2", "l1", "l1-mad")[seed % 3] if seed % 2 else "l2"
    weights = torch.from_numpy(rng.uniform(0.3, 3, 6)) if seed % 2 else None
    options = {"missing": seed % 3 == 2 and kind != "gradient", "scaled": seed % 2 == 0}
    case = small_case(
        kind,
        seed,
        classes=classes,
        rules=random_rules(rng),
        regression=regression,
        distance=distance,
        weights=weights,
        **options,
    )
    for i in rng.choice(len(case.frame), 10, replace=False).tolist():
        row = case.frame.iloc[[i]].reset_index(drop=True)
        if rng.random() < 0.15:
            row["age"] = 40
        if regression:
            own = float(case.model.predict_outputs(case.encoder.encode(row).x, row)[0])
            low, high = own + rng.uniform(0.1, 1.5), math.inf if rng.random() < 0.5 else own + 2
            yield case, row, Targets(torch.tensor([0]), low=torch.tensor([low]), high=torch.tensor([high]))
        else:
            least = float(rng.choice([0.6, 0.8])) if rng.random() < 0.3 else None
            yield case, row, class_target(case, row, least)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_no_proof_is_false_on_random_models_and_rules(seed):
    for case, row, targets in random_case(seed):
        check(case, row, targets)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_every_row_without_an_allowed_answer_is_proven(seed):
    """Features are kept until no listed row is left, three times for each model: the proof must find that."""
    kind, rng = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    case = small_case(kind, seed, classes=2 + seed % 2)
    names = rng.permutation(["age", "days", "amount", "job", "grade", "owner"]).tolist()
    proven = 0
    for i in range(3):
        row = case.frame.iloc[[i]].reset_index(drop=True)
        targets = class_target(case, row)
        for count in range(3, 7):
            tight = case.with_rules([pf.Immutable(*names[:count])])
            if math.isinf(tight.cheapest(row, targets)):
                assert tight.prove(row, targets).infeasible
                proven += 1
                break
    assert proven == 3


@pytest.mark.parametrize("kind", ["hist", "xgboost", "forest"])
def test_a_row_that_the_model_rejects_rules_out_the_rows_with_its_leaves_only(kind):
    """The model is made to reject the cheapest row, as rounding may do."""
    case = small_case(kind, 3, rules=FEW)
    row = case.frame.iloc[[5]].reset_index(drop=True)
    targets, x = class_target(case, row), case.encoder.encode(row).x
    rejected = []

    def confirm(x_cf):
        outputs = case.model.predict_outputs(x_cf, case.encoder.decode(x_cf, like=row, encoded=x))
        rejected.extend([] if rejected else [outputs])
        return "another outcome" if torch.equal(outputs, rejected[0]) else "accepted"

    first = case.prove(row, targets)
    proof = case.prover.prove(row, case.rules.for_rows(x, row), targets, confirm, 20.0)
    changed = case.all_changes(row)
    outputs = case.model.predict_outputs(case.encoder.encode(changed).x, changed)
    others = case.accepts(row, changed, targets) & (outputs != rejected[0]).any(dim=1).numpy()
    after = case.encoder.encode(changed[others]).x
    layout, before = case.encoder.layout, x.expand(len(after), -1)
    cheapest = float(case.costs((before, layout.codes(before)), (after, layout.codes(after))).min())
    assert proof.optimal
    assert first.cost <= proof.cost
    assert proof.cost == pytest.approx(cheapest, rel=1e-3)


@pytest.mark.parametrize(("kind", "seed", "some"), [("xgboost", 5, True), ("forest", 4, False)])
def test_an_answer_that_must_hold_near_by_is_the_cheapest_that_does(kind, seed, some):
    """Nobody may change the age, and an answer must hold for people who are a year younger or older, too."""
    case = small_case(kind, seed, rules=[pf.Immutable("age", "grade")])
    row = case.frame[case.frame["age"].between(22, 30)].iloc[[1]].reset_index(drop=True)
    targets, x = class_target(case, row), case.encoder.encode(row).x
    criterion = case.prover.without_margin().criterion

    def holds(changed):
        repeated = targets[torch.zeros(len(changed), dtype=torch.long)]
        outputs = case.model.predict_outputs(case.encoder.encode(changed).x, changed)
        return (criterion.value(outputs, repeated) >= 0).numpy()

    def aged(changed, years):
        return changed.assign(age=changed["age"] + years)

    def rejected(x_cf):
        changed = case.encoder.decode(x_cf, like=row, encoded=x)
        near = [aged(changed, years) for years in (-1, 1)]
        return next((case.encoder.encode(one).x for one in near if not holds(one)[0]), None)

    changed = case.all_changes(row)
    fine = changed[case.accepts(row, changed, targets)]
    steady = fine[holds(aged(fine, -1)) & holds(aged(fine, 1))]
    proof = case.prove(row, targets, rejected=rejected)
    assert 0 < len(fine) != len(steady)
    assert proof.infeasible == (not some)
    if some:
        after = case.encoder.encode(steady).x
        layout, before = case.encoder.layout, x.expand(len(after), -1)
        costs = case.costs((before, layout.codes(before)), (after, layout.codes(after)))
        assert case.cheapest(row, targets) < float(costs.min())
        assert proof.cost == pytest.approx(float(costs.min()), rel=1e-3)
