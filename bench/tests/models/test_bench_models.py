"""The study of models without gradients, on few rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer
from plausiflow.core.training import Training
from plausiflow.densities import flows, mixed
from plausiflow.errors import InvalidInputError
from plausiflow_bench.models import regressors
from plausiflow_bench.models import trees as models


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Densities with a very short training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "FLOW_TRAINING", Training(epochs=3))
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=3), raising=False)
        yield


@pytest.fixture(scope="module")
def rows(quick):
    selection = models.ModelSelection(tables=(), numbers=("wine",), models=("hgb", "rf"), rows=6)
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


def test_predictions_of_answers_lie_in_the_interval(monkeypatch):
    monkeypatch.setattr(regressors, "Explainer", partial(Explainer, confidence=None, judges=0))
    found = list(regressors.run(rows=6))
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
