"""Answers on a generated table: numbers in range and on their grid, learned rules and planted truths hold."""

import numpy as np
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from plausiflow import Explainer, MLPClassifier
from plausiflow.constraints import RowChanges
from plausiflow.datasets import contacts, orders
from plausiflow.densities import KDE
from plausiflow.tables import read_numbers, round_to_grid


def boosted_trees():
    text = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (text, make_column_selector(dtype_exclude="number")), remainder="passthrough"
    )
    return make_pipeline(columns, HistGradientBoostingClassifier(max_iter=30, random_state=0))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((contacts, "mlp"), id="contacts-mlp"),
        pytest.param((orders, "trees"), id="orders-trees", marks=pytest.mark.slow),
        pytest.param((contacts, "trees"), id="contacts-trees", marks=pytest.mark.slow),
        pytest.param((orders, "mlp"), id="orders-mlp", marks=pytest.mark.slow),
        pytest.param((orders, "trees", 400, 6), id="few-orders-trees"),
    ],
)
def answered(request):
    """A table, its explainer, rows, their answers and the training rows."""
    table, kind, n, asked = (*request.param, 900, 20)[:4]
    x, y = table.draw(n=n)
    model = MLPClassifier(random_state=0) if kind == "mlp" else boosted_trees().fit(x, y)
    explainer = Explainer(model, density=KDE(), confidence=None, judges=0).fit(x, y)
    rows = table.draw(n=asked, seed=1)[0]
    result = explainer.explain(rows)
    status = result.status["status"]
    assert (status.isin(["found", "already"])).mean() >= 0.9
    found = status.eq("found").to_numpy()
    return table, explainer, rows[found], result.counterfactuals[found], x


def test_changed_numbers_are_special_or_in_the_training_range_and_on_the_grid(answered):
    _, explainer, before, after, x = answered
    n_changed = 0
    for feature in explainer.encoder_.schema.features:
        if not feature.is_number:
            continue
        old, new, train = (read_numbers(frame[feature.name])[0] for frame in (before, after, x))
        changed = new[old != new]
        ordinary = train[~np.isin(train, feature.special)]
        special = np.isin(changed, feature.special)
        inside = (changed >= ordinary.min()) & (changed <= ordinary.max())
        assert (special | inside).all(), feature.name
        if feature.step:
            on_grid = round_to_grid(changed, feature.step, feature.decimals) == changed
            assert (special | on_grid).all(), feature.name
        n_changed += len(changed)
    assert n_changed >= min(10, len(before))


def test_changed_levels_are_those_of_training_rows(answered):
    _, explainer, _, after, x = answered
    for feature in explainer.encoder_.schema.features:
        if feature.has_levels:
            assert set(after[feature.name]) <= set(x[feature.name]), feature.name


def test_learned_rules_and_planted_truths_hold(answered):
    table, explainer, before, after, _ = answered
    features = {feature.name: feature for feature in explainer.encoder_.schema.features}
    changes = RowChanges(features, before, after)
    for rule in explainer.learned_rules:
        assert not rule.broken(changes).any(), rule.text
    for truth in table.TRUTHS:
        assert (truth.holds(after) | ~truth.holds(before)).all(), truth.description
