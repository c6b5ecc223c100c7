"""Few actions for few rows: none, one, all decided as wanted, missing values, saved explainers."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from explaining import stand_in
from plausiflow import GMM, Explainer
from searching import ORDERS, applicants

PUSH = {"income": 4.0, "savings": 2.0, "school": 1.0}


pytestmark = pytest.mark.usefixtures("few_proposals")


@pytest.fixture(scope="module")
def frame():
    return applicants(120)


@pytest.fixture(scope="module")
def explainer(frame):
    return stand_in(frame, push=PUSH, radius=1.6, orders=ORDERS)


def declined(explainer, frame):
    return frame[explainer.predict(frame) == "no"]


def test_one_row_has_one_action_that_helps_it(explainer, frame):
    rows = declined(explainer, frame).iloc[[0]]
    groups = explainer.explain_groups(rows, "yes", groups=1)
    assert (len(groups), groups.covered) == (1, 1.0)
    assert explainer.predict(groups.explanations.best_answers).tolist() == ["yes"]
    assert groups.membership.leaves == (("everybody", 0),)


def test_more_actions_than_rows_are_not_made_up(explainer, frame):
    rows = declined(explainer, frame).iloc[:3]
    groups = explainer.explain_groups(rows, "yes", groups=50)
    assert groups.covered == 1.0
    assert groups.action.max() <= len(groups)
    assert groups.actions["members"].sum() == 3


def test_rows_that_are_decided_as_wanted_need_no_action(explainer, frame, tmp_path):
    rows = frame[explainer.predict(frame) == "yes"].iloc[:5]
    groups = explainer.explain_groups(rows, "yes", groups=3)
    assert len(groups) == 0
    assert set(groups.explanations.status["status"]) == {"already"}
    assert np.isnan(groups.covered)
    assert len(groups.uncovered) == 0
    assert json.loads(groups.to_json())["covered"] is None
    groups.to_html(tmp_path / "report.html")
    assert "Few actions for many rows" in (tmp_path / "report.html").read_text()


def test_an_empty_table_can_be_written_and_assigned(explainer, frame, tmp_path):
    groups = explainer.explain_groups(frame.iloc[:0], "yes")
    assert json.loads(groups.to_json())["rows"] == []
    assert len(groups.to_frame()) == len(groups.actions) == len(groups.members) == 0
    groups.to_html(tmp_path / "report.html")
    later = groups.assign(declined(explainer, frame).iloc[:2])
    assert set(later.uncovered["reason"]) == {"no action was found for this target"}


def test_no_rows_can_be_assigned(explainer, frame):
    groups = explainer.explain_groups(declined(explainer, frame).iloc[:3], "yes", groups=2)
    assert len(groups.assign(frame.iloc[:0]).action) == 0


def test_a_row_that_cannot_be_read_is_named_and_changes_nothing_else(explainer, frame):
    rows = declined(explainer, frame).iloc[:5]
    broken = rows.astype(object)
    broken.iloc[3, broken.columns.get_loc("school")] = "kindergarten"
    groups = explainer.explain_groups(rows, "yes", groups=2)
    again = groups.assign(broken)
    assert again.explanations.status["status"].iloc[3] == "invalid_input"
    assert "kindergarten" in again.explanations.status["reason"].iloc[3]
    others = np.arange(5) != 3
    assert again.action[others].tolist() == groups.action[others].tolist()


def test_rows_with_missing_values_take_part():
    frame = applicants(160, missing=True)
    assert frame.isna().to_numpy().any()
    explainer = stand_in(frame, push=PUSH, radius=2.5, orders=ORDERS)
    rows = declined(explainer, frame)
    holes = rows[rows.isna().any(axis=1)].iloc[:8]
    groups = explainer.explain_groups(holes, "yes", groups=4)
    assert groups.covered > 0
    answers = groups.explanations.best_answers.loc[groups.action > 0]
    assert (explainer.predict(answers) == "yes").all()


def test_rows_with_the_same_label_are_told_apart(explainer, frame):
    rows = declined(explainer, frame).iloc[:3]
    same = rows.set_axis(["x"] * 3)
    groups, labelled = (explainer.explain_groups(some, "yes", groups=3) for some in (rows, same))
    assert labelled.action.tolist() == groups.action.tolist()
    assert len(labelled.members) == len(groups.members)


def test_two_calls_give_the_same_actions(explainer, frame):
    rows = declined(explainer, frame).iloc[:6]
    first, second = (explainer.explain_groups(rows, "yes", groups=3) for _ in range(2))
    assert first.to_json() == second.to_json()


@pytest.mark.slow
def test_all_forms_together_help_no_fewer_sampled_rows_than_one_form(explainer, frame):
    rows = declined(explainer, frame).iloc[:30]
    auto, *others = (
        explainer.explain_groups(rows, "yes", groups=3, form=form).covered
        for form in ("auto", "shift", "reach", "direction")
    )
    assert auto >= max(others) - 1 / 30


@pytest.mark.slow
def test_a_saved_explainer_chooses_the_same_actions(tmp_path):
    numbers = applicants(200)[["age", "income"]]
    labels = np.where(numbers["income"] > 4000, "yes", "no")
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, labels)
    explainer = Explainer(model, density=GMM(), confidence=None, judges=0)
    explainer.fit(numbers, pd.Series(labels, index=numbers.index), verbose=False)
    explainer.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved", model=model)
    rows = numbers[labels == "no"].iloc[:25]
    before, after = (one.explain_groups(rows, "yes", groups=3) for one in (explainer, loaded))
    assert before.to_json() == after.to_json()
    assert before.covered > 0.9
