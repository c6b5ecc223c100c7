"""A search asks the trees of a model instead of the model, which has the last word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)

from plausiflow.datasets import loans_table
from plausiflow.explainer import Explainer

NUMBERS = ["age", "income", "debt_ratio", "loan_amount", "credit_score"]


def fitted(model, y=None):
    table = loans_table(400)
    x, y = table.x[NUMBERS].iloc[:300], table.y.iloc[:300] if y is None else y
    explainer = Explainer(model.fit(x, y), judges=0, confidence=None)
    return explainer.fit(x, y, effort="quick"), table.x[NUMBERS].iloc[300:340]


@pytest.fixture(scope="module")
def boosted():
    return fitted(HistGradientBoostingClassifier(max_iter=30, random_state=0))


def test_the_trees_give_the_outputs_of_the_model(boosted):
    explainer, rows = boosted
    x = explainer.encoder_.encode(rows).x
    own = explainer.engine_.true_model.tree_outputs(x).exp()
    np.testing.assert_allclose(own, explainer.model.predict_proba(rows), atol=1e-9)


def test_the_trees_of_a_regressor_give_its_values():
    income = loans_table(400).x["income"].iloc[:300]
    explainer, rows = fitted(HistGradientBoostingRegressor(max_iter=30, random_state=0), income)
    own = explainer.engine_.true_model.tree_outputs(explainer.encoder_.encode(rows).x)
    np.testing.assert_allclose(own, explainer.model.predict(rows), rtol=1e-9)


@pytest.mark.slow
def test_the_model_is_called_only_to_read_and_to_verify(boosted):
    """For probabilities and decisions: the rows, answers, answers without a change (twice), figures; once
    each for changes alone and for rows near by. The search itself asks the trees, however many rows."""
    explainer, rows = boosted
    asked = [explainer.explain(rows.iloc[:n]).model_calls for n in (1, 10, 40)]
    assert max(asked) <= 5 * 2 + 2


def test_a_model_whose_trees_are_not_read_is_asked_itself():
    explainer, _ = fitted(RandomForestClassifier(20, random_state=0))
    assert explainer.engine_.true_model.tree_outputs is None


def test_trees_that_are_wrong_give_no_wrong_answers(boosted):
    explainer, rows = boosted
    right, labels = explainer.engine_, explainer.model_.labels

    def partly_wrong(x):
        outputs = right.true_model.tree_outputs(x)
        wrong = (1e4 * x.sum(dim=1)).long() % 4 == 0
        return torch.where(wrong[:, None], outputs.flip(1), outputs)

    lying = replace(right.true_model, tree_outputs=partly_wrong)
    explainer.engine_ = replace(right, true_model=lying)
    try:
        result = explainer.explain(rows, diagnose=False)
    finally:
        explainer.engine_ = right
    found = result.is_found
    assert found.any()
    before = explainer.model.predict(rows)
    after = explainer.model.predict(result.counterfactuals[found])
    wanted = [labels[1 - labels.index(label)] for label in before[found]]
    assert after.tolist() == wanted
    assert explainer.explain(rows).is_found.sum() >= found.sum()
