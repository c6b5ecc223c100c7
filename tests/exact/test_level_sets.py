"""Proofs about trees that split categories by sets of levels, against a list of all rows."""

import math

import numpy as np
import pytest
from test_soundness import FEW, check

from plausiflow.models import UnsupportedModelError
from proving import SmallCase, class_target, native, random_rules, scores, small_table

pytest.importorskip("ortools")

KINDS = ("hist", "xgboost", "lightgbm", "catboost")
CASES = [
    (kind, missing) for kind in KINDS for missing in (False, True) if (kind, missing) != ("catboost", True)
]
"""CatBoost takes no missing categories."""


def native_case(kind, seed, rules, *, classes=2, missing=False):
    rng = np.random.default_rng(seed)
    frame = small_table(rng, native=True, missing=missing)
    score = scores(rng, frame.assign(job=frame["job"].astype(object)))
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    return SmallCase.of(native(kind, seed), frame, y, rules)


@pytest.mark.parametrize(("kind", "missing"), CASES)
def test_the_proven_row_is_the_cheapest_of_all(kind, missing):
    case = native_case(kind, 4, FEW, missing=missing)
    assert case.prover.space.trees.sets.sets, "the trees must have sets of levels"
    row = case.frame.iloc[[5]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_no_proof_is_false_on_random_models_and_rules(seed):
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    classes, missing = 3 if seed // 4 % 4 == 3 else 2, seed // 4 % 2 == 1 and kind != "catboost"
    case = native_case(kind, seed, random_rules(rng), classes=classes, missing=missing)
    for i in rng.choice(len(case.frame), 8, replace=False).tolist():
        row = case.frame.iloc[[i]].reset_index(drop=True)
        check(case, row, class_target(case, row))


def test_a_number_of_the_table_that_is_split_by_sets_is_refused():
    rng = np.random.default_rng(0)
    frame = small_table(rng)
    model = native("hist", 0)
    model.model.set_params(categorical_features=["age"])
    numbers = frame[["age", "days", "amount"]]
    with pytest.raises(UnsupportedModelError, match="`age`, a number of the table, by sets of levels"):
        SmallCase.of(model, numbers, (numbers["age"] % 2).to_numpy())


def catboost_reason(**settings):
    """Why the trees of a CatBoost model with categories cannot be read."""
    rng = np.random.default_rng(1)
    frame = small_table(rng, native=True)
    model = native("catboost", 0)
    model.model.set_params(**settings)
    with pytest.raises(UnsupportedModelError) as raised:
        SmallCase.of(model, frame, (frame["job"] == frame["job"].iloc[0]).to_numpy().astype(int))
    return str(raised.value)


def test_statistics_of_categories_are_refused_with_the_way_out():
    reason = catboost_reason(one_hot_max_size=1)
    assert "OnlineCtr" in reason
    assert "statistics of categories, which depend on hashes" in reason
    assert "larger `one_hot_max_size`" in reason


def test_single_levels_in_trees_without_one_split_per_depth_are_refused():
    assert "OneHotFeature), in trees that do not have one split per depth" in catboost_reason(
        grow_policy="Depthwise"
    )
