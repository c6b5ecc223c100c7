"""Black boxes: whatever a model resolves to, its own decision for a found counterfactual is the target."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from blackboxes import CASES, SETTINGS, outcomes, people
from explaining import broken_rules, survives, unlike_training
from plausiflow import Explainer
from plausiflow.errors import InvalidInputError
from plausiflow.search.black_box import FINAL_CORNERS
from sampling import slow, slow_unless

every_case = pytest.mark.parametrize("name", slow_unless(set(CASES) - {"lightgbm", "catboost"}, CASES))

# What holds for every model


@every_case
def test_the_model_itself_decides_every_answer_as_wanted(cases, name):
    case = cases(name)
    result = case.result
    found = result.status["status"] == "found"
    assert found.mean() >= 0.5
    assert result.answers.dtypes.equals(case.frame.dtypes)
    wanted = result.status["target"].to_numpy()[result.of]
    assert case.decide(result.answers).tolist() == wanted.tolist()
    np.testing.assert_array_equal(case.decide(case.rows), result.status["predicted"].to_numpy())
    assert (result.status["predicted"] != result.status["target"]).all()
    assert {type(label) for label in result.status["target"]} == {type(label) for label in result.labels}


@every_case
def test_answers_keep_the_rules_and_the_grids(cases, name):
    case = cases(name)
    assert broken_rules(case.explainer, case.result, case.orders or {}) == []
    assert unlike_training(case.frame, case.result) == []
    for column in ("income", "debt"):
        if column in case.frame:
            assert (case.result.answers[column] % 100 == 0).all()


@every_case
def test_figures_are_those_of_the_model_itself(cases, name):
    case = cases(name)
    result, figures = case.result, case.result.figures
    assert (figures["probability"] >= (0.52 if len(result.labels) == 2 else 0.34)).all()
    assert figures["steady"].between(0, 1).all()
    assert (figures["steady"] * FINAL_CORNERS % 1 == 0).all()
    assert (figures["score"] >= 0).all()
    assert (figures["n_changes"] >= 1).all()
    if hasattr(case.model, "predict_proba"):
        theirs = case.model.predict_proba(result.answers)
        order = [list(result.labels).index(label) for label in result.status["target"].iloc[result.of]]
        np.testing.assert_allclose(figures["probability"], theirs[np.arange(len(order)), order], atol=1e-6)
        ours = case.explainer.predict_proba(case.rows)
        np.testing.assert_allclose(ours.to_numpy(), case.model.predict_proba(case.rows), atol=1e-6)
        assert list(ours.columns) == list(case.model.classes_)
    assert (case.explainer.predict(case.rows).to_numpy() == case.decide(case.rows)).all()


@every_case
def test_repr_says_what_the_model_resolves_to(cases, name):
    case = cases(name)
    text = repr(case.explainer)
    assert text.startswith(f"Explainer({type(case.model).__name__}, resolved as: ")
    assert case.description in text
    assert "every answer is verified on the model itself" in text


@pytest.mark.parametrize(
    "name", slow_unless(["boosting", "neighbours", "labelling", "three_classes", "mixed_table"], CASES)
)
def test_answers_do_not_depend_on_the_batch_or_its_order(cases, name):
    case = cases(name)
    some = [4, 1]
    again = case.explainer.explain(case.rows.iloc[some], case.target)
    for place, row in enumerate(some):
        assert again.status["status"].iloc[place] == case.result.status["status"].iloc[row]
        own, before = again.answers[again.of == place], case.result.answers[case.result.of == row]
        pd.testing.assert_frame_equal(
            own.reset_index(drop=True), before.reset_index(drop=True), check_exact=True
        )


def test_a_row_alone_is_explained_as_among_others(cases):
    case = cases("mixed_table")
    alone = case.explainer.explain(case.rows.iloc[[3]], case.target)
    before = case.result.answers[case.result.of == 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.answers, before, check_exact=True)


def test_rows_turned_upside_down_have_the_same_answers(cases):
    case = cases("boosting")
    turned = case.explainer.explain(case.rows.iloc[::-1])
    pd.testing.assert_frame_equal(
        turned.counterfactuals.iloc[::-1], case.result.counterfactuals, check_exact=True
    )


def test_another_order_of_columns_has_the_same_answers(cases):
    case = cases("function")
    turned = case.explainer.explain(case.rows[case.rows.columns[::-1]])
    assert list(turned.answers.columns) == list(case.rows.columns[::-1])
    pd.testing.assert_frame_equal(turned.answers[case.rows.columns], case.result.answers)


def test_a_cell_that_cannot_be_read_spoils_its_own_row_only(cases):
    case = cases("xgboost")
    rows = case.rows.astype(object)
    rows.iloc[1, 0] = "many"
    spoiled = case.explainer.explain(rows, case.target)
    assert (spoiled.status["status"] == "invalid_input").tolist() == [i == 1 for i in range(len(rows))]
    others = case.result.counterfactuals.drop(index=case.rows.index[1])
    kept = spoiled.counterfactuals.drop(index=case.rows.index[1]).astype(others.dtypes)
    pd.testing.assert_frame_equal(kept, others)


@pytest.mark.parametrize("name", ["labelling", "three_classes", "mixed_table"])
def test_results_can_be_passed_on(cases, name):
    case = cases(name)
    result = survives(lambda: case.result, case.asked)
    metrics = result.metrics()
    assert metrics["validity"] == metrics["plausibility"] == 1.0
    document = json.loads(result.to_json())
    assert len(document["rows"]) == case.asked


# What the model resolves to


@pytest.mark.parametrize(
    ("model_type", "says"),
    [
        ("surrogate", "a surrogate of 25 trees"),
        slow("trees", "its own 15 trees"),
        ("auto", "its own 15 trees"),
    ],
)
def test_trees_can_be_relaxed_or_imitated(cases, model_type, says):
    case = cases("boosting")
    explainer = Explainer(case.model, model_type=model_type, **SETTINGS).fit(case.frame, case.y)
    assert says in repr(explainer)
    result = explainer.explain(case.rows[:3])
    wanted = result.status["target"].to_numpy()[result.of]
    assert len(result.answers) == 3
    assert case.model.predict(result.answers).tolist() == wanted.tolist()


def test_a_model_that_could_be_converted_may_have_a_surrogate_instead():
    frame = people()
    model = LogisticRegression(max_iter=1000).fit(frame / 1000, outcomes(frame))
    explainer = Explainer(model, model_type="surrogate", **SETTINGS).fit(frame / 1000, outcomes(frame))
    assert "a surrogate of 25 trees" in repr(explainer)
    exact = Explainer(model, model_type="exact", **SETTINGS).fit(frame / 1000, outcomes(frame))
    assert "converted exactly" in repr(exact)
    rows = frame[:4] / 1000
    asked, converted = explainer.explain(rows), exact.explain(rows)
    for result in (asked, converted):
        assert (model.predict(result.answers) == result.status["target"].to_numpy()[result.of]).all()
    # The same problem: with gradients it costs no more, without them little more.
    ratio = asked.figures["cost"].mean() / converted.figures["cost"].mean()
    assert 0.95 < ratio < 1.3
    # The model itself is only asked what it decides: for the rows, and for what was found.
    assert 0 < converted.model_calls <= 4
    assert converted.model_rows <= 10 * len(rows)


@pytest.mark.parametrize(
    ("name", "model_type", "message"),
    [
        ("forest", "exact", r"needs a model that can be converted exactly; RandomForestClassifier cannot"),
        ("forest", "trees", r"needs a model whose trees can be read; RandomForestClassifier cannot"),
        ("function", "trees", r"needs a model whose trees can be read; function cannot"),
        ("function", "exact", r"only scikit-learn models can"),
        ("forest", "wood", r"`model_type` must be one of auto, .*got 'wood'"),
    ],
)
def test_a_model_type_that_does_not_fit_is_an_error(cases, name, model_type, message):
    case = cases(name)
    with pytest.raises(InvalidInputError, match=message):
        Explainer(case.model, model_type=model_type, **SETTINGS).fit(case.frame, case.y)
