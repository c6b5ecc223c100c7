"""Few actions for few rows: none, one, all decided as wanted, missing values, saved explainers."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from explaining import stand_in
from plausiflow import GMM, Explainer
from plausiflow.groups import assignment
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


def test_an_action_without_members_has_no_cost_in_the_report(explainer, frame, tmp_path):
    groups = explainer.explain_groups(declined(explainer, frame).iloc[:3], "yes", groups=2)
    groups.assign(frame.iloc[:0]).to_html(tmp_path / "report.html")
    assert ">nan<" not in (tmp_path / "report.html").read_text()


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


def test_a_feature_may_be_called_action(tmp_path):
    numbers = applicants(120)[["age", "income"]].rename(columns={"income": "action"})
    explainer = stand_in(numbers, push={"action": 4.0}, radius=1.6)
    rows = declined(explainer, numbers).iloc[:5]
    groups = explainer.explain_groups(rows, "yes", groups=2)
    table = groups.to_frame()
    assert table["plausiflow_action"].fillna(0).tolist() == groups.action.tolist()
    pd.testing.assert_series_equal(
        table["action"], groups.explanations.to_frame()["action"], check_index=False
    )


def test_a_row_whose_number_is_missing_is_told_that_actions_move_it():
    frame = applicants(160, missing=True)
    explainer = stand_in(frame, push={"income": 4.0}, radius=2.5, orders=ORDERS)
    rows = declined(explainer, frame)
    rows = rows[rows.notna().all(axis=1)].iloc[:6]
    groups = explainer.explain_groups(rows, "yes", groups=1, form="shift")
    feature = groups.features_of(0)[0]
    assert feature == "income"
    holes = rows.astype({feature: float})
    holes[feature] = np.nan
    reasons = groups.assign(holes).uncovered["reason"]
    if "missing" in explainer.encoder_.level_names(feature):
        assert reasons.str.endswith(f"the cheapest one moves {feature}, which is missing").all()
    else:
        assert reasons.str.contains(feature).all()


def test_blocks_do_not_change_who_takes_which(explainer, frame, monkeypatch):
    rows = declined(explainer, frame).iloc[:12]
    groups = explainer.explain_groups(rows, "yes", groups=3)
    monkeypatch.setattr(assignment, "ROWS_AT_ONCE", 5)
    for threads in (1, 3):
        monkeypatch.setattr(assignment, "MOST_THREADS", threads)
        monkeypatch.setattr(assignment.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
        again = groups.assign(rows)
        assert again.action.tolist() == groups.action.tolist()
        pd.testing.assert_frame_equal(again.explanations.best_answers, groups.explanations.best_answers)


def test_the_figure_has_a_bar_for_each_action_and_for_rows_without_one(explainer, frame):
    pytest.importorskip("matplotlib")
    groups = explainer.explain_groups(declined(explainer, frame).iloc[:8], "yes", groups=2)
    (axes,) = groups.plot().axes
    counts = [round(bar.get_width()) for bar in axes.patches]
    assert counts == [*groups.actions["members"], len(groups.uncovered)]
    assert axes.get_yticklabels()[-1].get_text() == "no action"


def test_an_action_that_leaves_rows_as_they_are_is_not_said_to_break_a_rule(explainer, frame):
    rows = declined(explainer, frame).iloc[:6]
    groups = explainer.explain_groups(rows, "yes", groups=1, form="reach")
    actions, assigner = groups.shared, groups.assigner
    everybody_is_there = replace(
        actions, moves=actions.moves.abs(), values=torch.zeros_like(actions.values),
        codes=torch.full_like(actions.codes, -1),
    )  # fmt: skip
    later = replace(assigner, fixed=replace(assigner.fixed, actions=everybody_is_there))(rows)
    assert later.covered == 0
    assert set(later.uncovered["reason"]) == {"no action changes its decision"}
