"""The study of models without gradients, on few rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from plausiflow import Explainer
from plausiflow.core.training import Training
from plausiflow.densities import flows, mixed
from plausiflow.errors import InvalidInputError
from plausiflow.models import black_box, students, surrogate
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting
from plausiflow.search.evolution import Evolution
from plausiflow_bench.models import regressors
from plausiflow_bench.models import trees as models


def make_small(patch):
    """Few trees, in models and in what imitates them, which learns from few rows; short searches."""
    boosted = HistGradientBoostingClassifier
    patch.setattr(models, boosted.__name__, lambda **given: boosted(**given | {"max_iter": 15}))
    for place, forest in ((models, RandomForestClassifier), (regressors, RandomForestRegressor)):
        patch.setattr(place, forest.__name__, lambda n, forest=forest, **given: forest(20, **given))
    patch.setattr(black_box, "MIN_SURROGATE_ROWS", 2000)
    patch.setattr(students, "MIN_ROWS", 2000)
    for place, name in ((surrogate, "imitate_classifier"), (students, "imitate_regressor")):
        patch.setattr(place, name, partial(getattr(place, name), n_trees=25, n_leaves=15))
    patch.setattr(verified, "ITERATIONS", 8)
    patch.setattr(fitting, "BlackBoxSearch", partial(verified.BlackBoxSearch, evolution=Evolution(rounds=4)))


@pytest.fixture(scope="module", autouse=True, params=["small", pytest.param("whole", marks=pytest.mark.slow)])
def quick(request):
    """Densities with a very short training; small models but in the slow tests. The number of rows."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "small":
            make_small(patch)
        patch.setattr(flows, "FLOW_TRAINING", Training(epochs=3))
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=3), raising=False)
        yield 4 if request.param == "small" else 6


@pytest.fixture(scope="module")
def rows(quick):
    selection = models.ModelSelection(tables=(), numbers=("wine",), models=("hgb", "rf"), rows=quick)
    return list(models.run(selection))


def test_every_answer_is_verified_and_measured_beside_the_others(rows):
    assert [row["model"] for row in rows] == ["hgb", "rf"]
    assert [row["model_type"] for row in rows] == ["own trees", "surrogate"]
    for row in rows:
        missing = set(models.COLUMNS) - set(row)
        assert not missing
        assert row["validity"] == row["plausible"] == row["rounded_valid"] == 1.0
        assert row["rules_broken"] == 0.0
        assert 0 < row["l2_over_nearest"] <= 1.0 + 1e-9
        assert row["model_rows"] > 0
        assert row["model_calls"] <= 75


def test_rows_that_hold_nothing_but_the_smallest_values_are_left_out():
    frame = pd.DataFrame({"a": [1.0, 1.5, 1.005], "b": [1.0, 1.0, 1.0]})
    assert models._all_missing(frame).tolist() == [True, False, True]


def test_names_that_are_not_known_are_listed():
    with pytest.raises(InvalidInputError, match=r"'mars' is not one of the tables.*'svm' is not one of the"):
        models.ModelSelection(tables=("mars",), models=("svm",))


def test_predictions_of_answers_lie_in_the_interval(quick, monkeypatch):
    monkeypatch.setattr(regressors, "Explainer", partial(Explainer, confidence=None, judges=0))
    found = list(regressors.run(rows=quick))
    assert [row["dataset"] for row in found] == ["diabetes"] * 2
    assert all(row["validity"] == 1.0 and row["rules_broken"] == 0.0 for row in found)
    assert np.mean([row["found"] for row in found]) > 0.5


def test_the_page_keeps_its_text(rows, tmp_path):
    page = tmp_path / "models.md"
    page.write_text(f"before\n{models.MARK}\nold\n<!-- end -->\nafter\n")
    models.write_page(rows, page)
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| one flow | wine | hgb |" in text
