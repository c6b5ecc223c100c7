"""Answers that may be missed by a little, on the model itself, by other samples than the search uses."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from plausiflow import Explainer
from plausiflow.datasets import loans_table
from plausiflow.errors import InvalidInputError

NUMBERS = ["income", "debt_ratio", "loan_amount", "credit_score"]


@pytest.fixture(scope="module", params=["linear", "tree"])
def explained(request):
    table = loans_table(400)
    x, y = table.x[NUMBERS], table.y
    model = make_pipeline(StandardScaler(), LogisticRegression())
    if request.param == "tree":
        model = DecisionTreeClassifier(max_depth=4, random_state=0)
    model.fit(x, y)
    explainer = Explainer(model, confidence=None, judges=0).fit(x, y, effort="quick", verbose=False)
    return model, explainer, x, x[model.predict(x) == "rejected"].iloc[:10]


def share_that_holds(model, x, result, tolerance, generator):
    """Return the share of random misses of each answer that the model decides as wanted."""
    span = x.max() - x.min()
    rows = result.rows.iloc[result.of]
    changed = result.answers.to_numpy() != rows.to_numpy()
    votes = []
    for _ in range(60):
        miss = generator.uniform(-1, 1, result.answers.shape) * changed * tolerance * span.to_numpy()
        votes.append(model.predict(result.answers + miss) == "granted")
    return np.mean(votes, axis=0)


def test_answers_hold_if_changed_numbers_are_missed(explained):
    model, explainer, x, rows = explained
    plain, result = explainer.explain(rows, "granted"), explainer.explain(rows, "granted", tolerance=0.03)
    assert result.is_found.tolist() == plain.is_found.tolist()
    before = share_that_holds(model, x, plain, 0.03, np.random.default_rng(0))
    after = share_that_holds(model, x, result, 0.03, np.random.default_rng(0))
    assert after.mean() > before.mean()
    assert after[result.figures["tolerant"] == 1].mean() > 0.98
    assert (result.figures["tolerant"] == 1).mean() >= 0.5
    assert "tolerant" not in plain.figures


def test_answers_of_trees_hold_if_a_number_is_missed_by_less_than_the_tolerance():
    table = loans_table(400)
    x, y = table.x[NUMBERS], table.y
    model = HistGradientBoostingClassifier(min_samples_leaf=3, random_state=0).fit(x, y)
    explainer = Explainer(model, confidence=None, judges=0).fit(x, y, effort="quick", verbose=False)
    result = explainer.explain(x.iloc[:40], "opposite", tolerance={"income": 0.1})
    before = result.rows["income"].to_numpy()[result.of]
    held = (result.figures["tolerant"] == 1).to_numpy() & (result.answers["income"] != before).to_numpy()
    answers, wanted = result.answers[held], result.verdicts["target"].to_numpy()[result.of][held]
    assert len(answers) >= 5
    reach = 0.1 * (x["income"].max() - x["income"].min())
    votes = [
        model.predict(answers.assign(income=answers["income"] + share * reach)) == wanted
        for share in np.linspace(-1, 1, 81)
    ]
    assert np.mean(votes, axis=0).mean() > 0.98


def test_a_tolerance_may_be_for_single_numbers(explained):
    _, explainer, _, rows = explained
    result = explainer.explain(rows.iloc[:3], "granted", tolerance={"income": 0.05})
    assert result.figures["tolerant"].between(0, 1).all()


@pytest.mark.parametrize("tolerance", [0, 0.7, -1, "much", {"height": 0.1}, {"income": None}])
def test_what_is_no_tolerance_is_an_error(explained, tolerance):
    _, explainer, _, rows = explained
    with pytest.raises(InvalidInputError, match="`tolerance` must be a share of the range"):
        explainer.explain(rows, "granted", tolerance=tolerance)
