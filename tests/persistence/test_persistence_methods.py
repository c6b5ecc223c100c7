"""Explainers with a solver or a method of the user, saved and loaded."""

import numpy as np
import pandas as pd
import pytest

import plausiflow as pf
from plausiflow.errors import InvalidInputError
from plausiflow.methods import FACE, Nearest, NearestDense


@pytest.fixture(scope="module")
def table():
    x = pd.DataFrame(np.random.default_rng(0).random((120, 2)), columns=["a", "b"])
    return x, pd.Series(np.where(x["a"] + x["b"] > 1, "yes", "no"))


@pytest.mark.parametrize("method", [Nearest, NearestDense, FACE])
def test_an_explainer_with_a_method_answers_the_same_after_loading(method, table, tmp_path):
    x, y = table
    explainer = pf.Explainer(pf.LinearClassifier(), method=method, confidence=None, judges=0).fit(x, y)
    rows = x[explainer.predict(x) == "no"].iloc[:6]
    result = explainer.explain(rows, target="yes")
    assert set(result.status["status"]) <= {"found", "infeasible"}
    assert (explainer.predict(result.answers) == "yes").all()
    assert (explainer.score(result.answers, "yes") >= 0).all()
    if method is NearestDense:
        assert (result.status["status"] == "found").all()
        known = {tuple(row) for row in x.to_numpy().round(9)}
        assert all(tuple(row) in known for row in result.answers.to_numpy().round(9))
    explainer.save(tmp_path / "saved", training_rows=True)
    loaded = pf.Explainer.load(tmp_path / "saved", method=method)
    pd.testing.assert_frame_equal(loaded.explain(rows, target="yes").answers, result.answers)


def test_a_method_needs_the_training_rows(table, tmp_path):
    x, y = table
    explainer = pf.Explainer(pf.LinearClassifier(), method=Nearest, confidence=None, judges=0).fit(x, y)
    explainer.save(tmp_path / "saved")
    with pytest.raises((InvalidInputError, ValueError), match="training_rows=True"):
        pf.Explainer.load(tmp_path / "saved", method=Nearest)


def test_the_papers_solver_explains_a_table_and_is_given_again(table, tmp_path):
    x, y = table
    solver = pf.PenaltyAdam(steps=100, learning_rate=0.04)
    explainer = pf.Explainer(pf.LinearClassifier(), solver=solver, confidence=None, judges=0).fit(x, y)
    rows = x[explainer.predict(x) == "no"].iloc[:3]
    result = explainer.explain(rows, target="yes")
    assert (result.status["status"] == "found").all()
    explainer.save(tmp_path / "saved")
    loaded = pf.Explainer.load(tmp_path / "saved", solver=solver)
    pd.testing.assert_frame_equal(loaded.explain(rows, target="yes").answers, result.answers)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"density": 3}, "`density` must be"),
        ({"solver": None}, "`solver` must be"),
        ({"method": "face"}, "`method` must be"),
        ({"plausibility": "dense"}, "`plausibility` must be"),
    ],
)
def test_what_is_no_density_solver_or_method_is_an_error(settings, expected):
    with pytest.raises(InvalidInputError, match=expected):
        pf.Explainer(pf.LinearClassifier(), **settings).fit(pd.DataFrame({"income": [1, 2]}), ["a", "b"])
