"""What each change is for, by brute force on the model: needed, accompanying, adverse; and different ways."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer
from plausiflow.constraints import Equal, Immutable, Increasing, Linear, MaxChanges
from plausiflow.datasets import load_table, loans_table

NUMBERS = ["age", "income", "debt_ratio", "loan_amount", "credit_score", "open_lines", "years_employed"]


@pytest.fixture(scope="module", params=["linear", "forest"])
def explained(request):
    """A model, rejected rows, and what an explainer says of them, with one answer and with three."""
    table = loans_table(500)
    x, y = table.x[NUMBERS], table.y
    model = make_pipeline(StandardScaler(), LogisticRegression())
    if request.param == "forest":
        model = RandomForestClassifier(20, max_depth=5, random_state=0)
    model.fit(x, y)
    rules = [Increasing("age"), Linear("loan_amount <= 0.9 * income")]
    explainer = Explainer(model, constraints=rules, confidence=None, judges=0)
    explainer.fit(x, y, effort="quick", verbose=False)
    rows = x[model.predict(x) == "rejected"].iloc[:12]
    return explainer, model, rows, explainer.explain(rows, "granted")


def undone(result, change):
    """Return the answer of a change without it."""
    mine = (result.rows.index[result.of] == change.row) & (result.rank == change.rank)
    answer = result.answers[mine].copy()
    answer[change.feature] = result.rows.loc[change.row, change.feature]
    return answer


def test_undoing_a_needed_change_takes_the_decision_back_and_undoing_another_does_not(explained):
    _, model, _, result = explained
    assert {"needed", "accompanying"} >= set(result.changes["role"])
    for change in result.changes.itertuples(index=False):
        answer = undone(result, change)
        (decided,) = model.predict(answer[NUMBERS])
        assert (decided == "rejected") == (change.role == "needed")
        assert (change.serves == "decision") == (change.role == "needed")


@pytest.mark.parametrize("most", [2, 3])
def test_a_limit_keeps_rows_with_few_changes_at_their_cost_and_is_served_by_no_change(explained, most):
    explainer, model, rows, result = explained
    if isinstance(model, RandomForestClassifier):
        pytest.skip("the search for models without gradients makes no such promise")
    limited = explainer.explain(rows, "granted", constraints=[MaxChanges(most)])
    few = result.found_figures("n_changes") <= most
    assert few.any()
    assert (limited.found_figures("cost")[few] <= result.found_figures("cost")[few] * (1 + 1e-9)).all()
    assert (limited.found_figures("n_changes")[limited.is_found] <= most).all()
    assert not limited.changes["serves"].str.contains("MaxChanges").any()


def test_a_change_that_only_makes_the_decision_more_certain_is_not_needed(explained):
    explainer, model, rows, _ = explained
    result = explainer.explain(rows.iloc[:8], "granted", min_probability=0.75)
    assert len(result.changes)
    for change in result.changes.itertuples(index=False):
        (decided,) = model.predict(undone(result, change)[NUMBERS])
        assert (decided == "rejected") == (change.role == "needed")
    assert (result.changes["role"] == "accompanying").any()


def test_without_an_accompanying_change_something_else_suffers(explained):
    explainer, _, rows, result = explained
    others = result.changes[result.changes["role"] == "accompanying"]
    for change in others.itertuples(index=False):
        answer = undone(result, change)
        if change.serves == "plausibility":
            assert explainer.score(answer, "granted")[0] < 0
        elif change.serves.startswith("Linear"):
            assert float(answer["loan_amount"].iloc[0]) > 0.9 * float(answer["income"].iloc[0])
        elif change.serves.startswith("Increasing"):
            assert float(answer["age"].iloc[0]) < float(rows.loc[change.row, "age"])
        else:
            assert change.serves == "certainty"


def test_an_adverse_change_alone_lowers_the_probability_of_the_target(explained):
    _, model, rows, result = explained
    granted = list(model.classes_).index("granted")
    for change in result.changes.itertuples(index=False):
        alone = rows.loc[[change.row]].copy()
        alone[change.feature] = change.to
        before = model.predict_proba(rows.loc[[change.row]])[0, granted]
        after = model.predict_proba(alone[NUMBERS])[0, granted]
        assert change.adverse == (after < before - 1e-9) or abs(after - before) < 1e-6


def test_sentences_and_json_tell_needed_changes_from_others(explained):
    _, _, _, result = explained
    written = json.loads(result.to_json())["rows"]
    for i, row in enumerate(written):
        (answer,) = row["counterfactuals"]
        own = result[i].changes
        assert [change["role"] for change in answer["changes"]] == own["role"].tolist()
        assert [change["adverse"] for change in answer["changes"]] == own["adverse"].tolist()
        if {"needed", "accompanying"} <= set(own["role"]):
            needed, along = answer["sentence"].split("; along with that, ", 1)
            for change in own.itertuples():
                assert f"{change.feature}: " in (needed if change.role == "needed" else along)
        assert answer["sentence"].count("(unfavourable by itself)") == own["adverse"].sum()


def test_alternatives_differ_in_what_they_need_or_it_is_said(explained):
    explainer, _, rows, _ = explained
    result = explainer.explain(rows.iloc[:6], "granted", k=3)
    for i in range(len(result)):
        ways = [way_of(own) for _, own in result[i].changes.groupby("rank")]
        assert len(set(ways)) == len(ways)
        if len(ways) < 3:
            assert "only: no counterfactual was found that needs other changes" in result[i].reason
        costs = result[i].figures["cost"].tolist()
        assert costs == sorted(costs)


def test_a_change_that_a_rule_asks_for_names_the_rule():
    generator = np.random.default_rng(0)
    x = pd.DataFrame({"a": generator.integers(0, 50, 300), "b": generator.integers(0, 50, 300)})
    x["total"] = x["a"] + x["b"]
    y = np.where(x["a"] > 25, "yes", "no")
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(x[["a", "b", "total"]].assign(b=0, total=0), y)
    explainer = Explainer(model, constraints=[Equal("total", "a + b")], confidence=None, judges=0)
    explainer.fit(x, y, effort="quick", verbose=False)
    result = explainer.explain(x[x["a"] < 20].iloc[:4], "yes")
    changes = result.changes
    assert (changes.loc[changes["feature"] == "a", "role"] == "needed").all()
    others = changes[changes["feature"] != "a"]
    assert len(others)
    assert (others["role"] == "accompanying").all()
    assert others["serves"].str.contains("total").any()
    assert "to keep Equal" in result.sentences.iloc[0]


def way_of(changes):
    """Return what an answer needs, and in which direction; all of its changes if it needs none alone."""
    if (changes["role"] == "needed").any():
        changes = changes[changes["role"] == "needed"]
    cells = zip(changes["feature"], changes["from"], changes["to"], strict=True)
    return frozenset(
        (name, np.sign(float(new) - float(old)) if isinstance(new, int | float) else str(new))
        for name, old, new in cells
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["german_credit", "law", "loans"])
def test_alternatives_differ_on_several_tables_or_the_reason_says_so(name):
    train, test = load_table(name).split(300, 8)
    steps = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    model = make_pipeline(steps, LogisticRegression(max_iter=500)).fit(train.x, train.y)
    explainer = Explainer(model, confidence=None, judges=0, orders=train.orders)
    result = explainer.fit(train.x, train.y, effort="quick", verbose=False).explain(test.x, "opposite", k=3)
    assert result.is_found.any()
    for i in np.flatnonzero(result.is_found):
        ways = [way_of(own) for _, own in result[i].changes.groupby("rank")]
        assert len(set(ways)) == len(ways)
        assert len(ways) == 3 or result[i].reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The confidence of")
def test_hardly_an_answer_advises_a_lower_income_fewer_years_more_debt_or_a_lower_score():
    table = load_table("loans")
    train, test = table.split(1500, 1000)
    steps = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    model = make_pipeline(steps, MLPClassifier((64, 64), early_stopping=True, random_state=0))
    model.fit(train.x, train.y)
    rules = [Immutable("age", "sex"), Increasing("education")]
    explainer = Explainer(model, constraints=rules, orders=table.orders, random_state=0)
    explainer.fit(train.x, train.y, verbose=False)
    rows = test.x[model.predict(test.x) == "rejected"].iloc[:401]
    result = explainer.explain(rows, "granted", verbose=False)
    assert result.is_found.all()
    signs = {"income": 1, "years_employed": 1, "debt_ratio": -1, "credit_score": 1}
    own = result.changes[result.changes["feature"].isin(signs)]
    gain = (own["to"] - own["from"]).astype(float) * own["feature"].map(signs)
    assert own[(gain < 0) & own["adverse"]]["row"].nunique() / len(rows) <= 0.025
