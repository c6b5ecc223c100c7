"""Outcomes that a model which only answers is asked for, and outcomes that it teaches a density itself."""

import numpy as np
import pandas as pd
import pytest

from blackboxes import SETTINGS, outcomes, people, probabilities, score
from explaining import survives
from plausiflow import Explainer, LinearClassifier
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.errors import InvalidInputError

# Targets


@pytest.mark.parametrize("least", [0.75, 0.9])
def test_a_least_probability_is_the_models_own(cases, least):
    case = cases("forest")
    explainer = case.explainer
    already = explainer.explain(case.rows, "yes", min_probability=least)
    proba = case.model.predict_proba(case.rows)[:, 1]
    assert ((already.status["status"] == "already") == (proba >= least - 1e-9)).all()
    assert len(already.answers) > 0
    assert (case.model.predict_proba(already.answers)[:, 1] >= least - 1e-9).all()
    assert (already.figures["probability"] >= least - 1e-9).all()


def test_a_probability_of_exactly_the_least_one_is_enough():
    frame = people()

    def steps(rows):
        return np.select([score(rows) < 0.7, score(rows) < 0.95], [0.1, 0.75], 1.0)

    explainer = Explainer(steps, **SETTINGS).fit(frame, outcomes(frame))
    rows = frame[(score(frame) > 0.75) & (score(frame) < 0.9)][:3]
    assert (explainer.explain(rows, "yes", min_probability=0.75).status["status"] == "already").all()
    below = frame[score(frame) < 0.6][:6]
    result = explainer.explain(below, "yes", min_probability=0.75)
    assert (steps(result.answers) == 0.75).any(), "a certain model is asked for more than was wanted"


def test_other_is_the_cheapest_of_the_outcomes(cases):
    case = cases("three_classes")
    explainer, rows = case.explainer, case.rows
    other = explainer.explain(rows, "other")
    decided = case.decide(rows)
    single = {label: explainer.explain(rows, label) for label in range(3)}
    for row in range(case.asked):
        costs = {
            label: result.figures["cost"][result.of == row].min()
            for label, result in single.items()
            if label != decided[row] and result.status["status"].iloc[row] == "found"
        }
        verdict = other.status.iloc[row]
        if not costs:
            assert verdict["status"] == "infeasible"
            assert verdict["reason"].startswith("no other outcome has an answer")
            continue
        assert verdict["status"] == "found"
        assert verdict["target"] == min(costs, key=costs.get)
        mine = other.answers[other.of == row].reset_index(drop=True)
        theirs = single[verdict["target"]]
        pd.testing.assert_frame_equal(mine, theirs.answers[theirs.of == row].reset_index(drop=True))
    for label, result in single.items():
        assert ((result.status["status"] == "already") == (decided == label)).all()


def test_each_row_may_have_its_own_target(cases):
    case = cases("three_classes")
    decided = case.decide(case.rows)
    wanted = [(int(label) + 1) % 3 for label in decided[:-1]] + [int(decided[-1])]
    result = case.explainer.explain(case.rows, wanted)
    assert result.status["target"].tolist() == wanted
    assert result.status["status"].iloc[-1] == "already"
    assert case.decide(result.answers).tolist() == [wanted[row] for row in result.of]


def test_several_outcomes_and_no_time_left_is_not_called_infeasible(cases):
    case = cases("three_classes")
    result = case.explainer.explain(case.rows, "other", time_limit=0)
    assert (result.status["status"] == "not_reached").all()


# Outcomes of the model


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_a_model_teaches_the_density_where_there_are_no_outcomes(cases, labels):
    case = cases("forest")
    explainer = Explainer(case.model, labels=labels, **SETTINGS).fit(case.frame)
    assert list(explainer.predict_proba(case.rows).columns) == list(case.model.classes_)
    result = explainer.explain(case.rows)
    assert (result.status["status"] == "found").mean() > 0.5
    wanted = result.status["target"].to_numpy()[result.of]
    assert case.decide(result.answers).tolist() == wanted.tolist()


def test_missing_outcomes_are_filled_by_the_model(cases):
    case = cases("function")
    some = pd.Series(case.y, dtype=object).where(np.arange(len(case.y)) < 30, None)
    explainer = Explainer(probabilities, labels="model", **SETTINGS).fit(case.frame, some)
    assert list(explainer.predict_proba(case.rows).columns) == ["no", "yes"]
    result = explainer.explain(case.rows)
    assert case.decide(result.answers).tolist() == result.status["target"].to_numpy()[result.of].tolist()


def test_a_network_learns_from_the_labelled_rows_alone():
    frame = people()
    y = pd.Series(outcomes(frame), dtype=object)
    known = np.arange(len(y)) < 120
    # Rows without an outcome lie where everything is a no; they must not count as any class.
    shifted = frame.assign(income=frame["income"].where(known, 1000), debt=frame["debt"].where(known, 0))
    explainer = Explainer(LinearClassifier(), labels="model", **SETTINGS).fit(shifted, y.where(known, None))
    correct = explainer.predict(shifted[known]).to_numpy() == y[known].to_numpy()
    assert correct.mean() > 0.9
    result = explainer.explain(shifted[:4])
    wanted = result.status["target"].to_numpy()[result.of]
    assert explainer.predict(result.answers).tolist() == wanted.tolist()


def test_outcomes_that_nobody_names_are_asked_for(cases):
    case = cases("function")
    with pytest.raises(InvalidInputError, match=r"`y` must name the outcomes that function decides between"):
        Explainer(probabilities, labels="model", **SETTINGS).fit(case.frame)
    with pytest.raises(InvalidInputError, match=r"`y` must hold the outcomes of the rows; it is None"):
        Explainer(probabilities, **SETTINGS).fit(case.frame)
    with pytest.raises(InvalidInputError, match=r"`labels` must be 'given'"):
        Explainer(probabilities, labels="mine", **SETTINGS).fit(case.frame)


@pytest.mark.parametrize("absent", [0, 2])
def test_an_outcome_that_no_training_row_has_can_still_be_asked_for(cases, absent):
    case = cases("three_classes")
    some = case.y != absent
    with pytest.warns(PlausibilityWarning, match=f"training rows for {absent}, "):
        explainer = Explainer(case.model, **SETTINGS).fit(case.frame[some], case.y[some])
    result = survives(lambda: explainer.explain(case.frame[some][:2], absent), 2)
    assert case.decide(result.answers).tolist() == [absent] * len(result.answers)
