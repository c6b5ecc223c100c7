"""Few actions for many rows: forms, members that are verified, invariance, words, files."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from explaining import stand_in
from plausiflow.constraints import Immutable, Increasing, Range
from plausiflow.errors import InvalidInputError
from plausiflow.groups.tree import describe_membership, map_uncovered
from searching import ORDERS, applicants

PUSH = {"income": 4.0, "savings": 2.0, "school": 1.0}
RULES = [Immutable("age"), Increasing("school"), Range("income", 0, 6000)]


pytestmark = pytest.mark.usefixtures("few_proposals")


@pytest.fixture(scope="module")
def frame():
    return applicants(160)


@pytest.fixture(scope="module")
def explainer(frame):
    return stand_in(frame, RULES, push=PUSH, radius=1.6, orders=ORDERS)


@pytest.fixture(scope="module")
def groups(explainer, frame):
    return explainer.explain_groups(frame.iloc[:40], "yes", groups=4)


def test_every_member_is_decided_as_wanted(groups, explainer):
    result = groups.explanations
    assert groups.covered > 0.5
    assert (explainer.predict(result.best_answers) == "yes").all()


def test_every_member_is_plausible_and_keeps_all_rules(groups, explainer):
    result = groups.explanations
    assert (result.figures["score"] >= 0).all()
    before = result.rows.iloc[result.of]
    broken = explainer.engine_.rules.violations(before, result.answers.set_axis(before.index))
    assert not broken.to_numpy().any()


def test_the_decision_needs_only_features_of_the_action(groups):
    changes = groups.explanations.changes
    positions = {label: i for i, label in enumerate(groups.explanations.rows.index)}
    for change in changes[changes["role"] == "needed"].itertuples():
        action = groups.action[positions[change.row]]
        assert change.feature in groups.features_of(action - 1)


def test_a_row_alone_gets_the_same_action_as_among_others(groups):
    rows = groups.explanations.rows
    for place in (*np.flatnonzero(groups.action > 0)[:3], *np.flatnonzero(groups.action == 0)[:2]):
        alone = groups.assign(rows.iloc[[place]])
        assert alone.action.tolist() == [groups.action[place]]
        if groups.action[place]:
            pd.testing.assert_frame_equal(
                alone.explanations.best_answers, groups.explanations.best_answers.loc[[rows.index[place]]]
            )


def test_new_rows_in_any_order_get_the_same_actions(groups, frame):
    new = frame.iloc[60:80]
    there, back = groups.assign(new), groups.assign(new.iloc[::-1])
    assert there.action.tolist() == back.action[::-1].tolist()


def test_all_members_of_a_shift_move_by_the_same_amount(explainer, frame):
    groups = explainer.explain_groups(frame.iloc[:40], "yes", groups=3, form="shift")
    result, layout = groups.explanations, groups.shared.layout
    x, x_cf, _ = result.encoded
    for i in range(len(groups)):
        members = np.flatnonzero(groups.action == i + 1)
        for block in (b for b in layout.blocks if b.number is not None):
            if groups.shared.moves[i, block.number] != 0 and len(members):
                moved = (x_cf[result.best[members]] - x[members])[:, block.number]
                step = block.scale.encoded_step
                assert float((moved - groups.shared.moves[i, block.number]).abs().max()) <= step + 1e-9


def test_a_reach_moves_only_rows_that_are_not_there(explainer, frame):
    groups = explainer.explain_groups(frame.iloc[:40], "yes", groups=3, form="reach")
    result = groups.explanations
    x, x_cf, _ = result.encoded
    for i in range(len(groups)):
        members = np.flatnonzero(groups.action == i + 1)
        for column in groups.shared.layout.numbers:
            move, value = groups.shared.moves[i, column], groups.shared.values[i, column]
            after, before = x_cf[result.best[members], column], x[members, column]
            if move > 0:
                there = before >= value
                assert (after[there] == before[there]).all()


def test_rows_without_an_action_have_a_reason(groups):
    assert (groups.uncovered["status"] == "infeasible").all()
    assert (groups.uncovered["reason"] != "").all()


def test_a_blocking_rule_is_named(frame):
    strict = stand_in(frame, [Range("income", 0, 1)], push={"income": 4.0}, orders=ORDERS)
    result = strict.explain_groups(frame.iloc[:20], "yes", groups=2)
    assert len(result) == 0
    assert set(result.uncovered["reason"]) == {"no action was found for this target"}


def test_the_actions_table_counts_members(groups):
    assert groups.actions["members"].sum() == (groups.action > 0).sum()
    assert groups.actions["what"].str.len().min() > 0
    assert groups.actions["plausible"].dropna().eq(1).all()


def test_the_tree_has_at_most_three_conditions(groups):
    assert 0 < groups.membership.accuracy <= 1
    assert all(text.count(" and ") <= 2 for text, _ in groups.membership.leaves)


def test_json_is_strict_and_complete(groups):
    document = json.loads(groups.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert [row["action"] for row in document["rows"]] == [n or None for n in groups.action.tolist()]
    assert len(document["actions"]) == len(groups)


def test_the_report_shows_actions(groups, tmp_path):
    groups.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Few actions for many rows" in page
    assert "Whom each action helps" in page


def test_the_table_has_the_action_of_every_row(groups):
    table = groups.to_frame()
    assert table["action"].fillna(0).tolist() == groups.action.tolist()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"groups": 0}, "`groups` must be a whole number"),
        ({"groups": 2.5}, "`groups` must be a whole number"),
        ({"form": "twist"}, "`form` must be 'auto'"),
    ],
)
def test_bad_arguments_are_refused(explainer, frame, arguments, text):
    with pytest.raises(InvalidInputError, match=text):
        explainer.explain_groups(frame.iloc[:5], "yes", **arguments)


def test_an_empty_table_has_no_actions(explainer, frame):
    result = explainer.explain_groups(frame.iloc[:0], "yes")
    assert len(result) == 0
    assert np.isnan(result.covered)


def test_the_tree_of_planted_members_says_the_planted_conditions(explainer, frame):
    encoder = explainer.encoder_
    x, income = encoder.encode(frame).x, frame["income"].to_numpy()
    action = np.where(income <= 2000, 0, np.where(income <= 4000, 1, 2))
    tree = describe_membership(encoder, x, action)
    assert tree.accuracy == 1.0
    assert len(tree.leaves) == 3
    low = int(tree.who(0).removeprefix("income ≤ ").replace(",", ""))
    assert income[income <= 2000].max() <= low < income[income > 2000].min()
    assert " > " in tree.who(1)
    assert " ≤ " in tree.who(1)
    assert tree.who(2).count("income") == 1


def test_leaves_with_the_same_action_are_one(explainer, frame):
    x = explainer.encoder_.encode(frame).x
    tree = describe_membership(explainer.encoder_, x, np.zeros(len(x), dtype=int))
    assert tree.leaves == (("everybody", 0),)
    action = np.where(frame["school"] == "phd", 1, 0)
    tree = describe_membership(explainer.encoder_, x, action)
    assert dict(map(reversed, tree.leaves)) == {0: "school is not phd", 1: "school is phd"}


def test_the_map_of_uncovered_rows_counts_them(explainer, frame):
    x = explainer.encoder_.encode(frame).x
    action = np.where(frame["job"] == "nurse", -1, 0)
    nurses = int((frame["job"] == "nurse").sum())
    assert map_uncovered(explainer.encoder_, x, action) == [("job is nurse", nurses, nurses)]
    assert map_uncovered(explainer.encoder_, x, np.zeros(len(x), dtype=int)) == []


def test_the_report_shows_where_uncovered_rows_are(explainer, frame, tmp_path):
    result = explainer.explain_groups(frame.iloc[:40], "yes", groups=1)
    action = result.action.copy()
    action[np.flatnonzero(action)[:4]] = 0
    replace(result, action=action).to_html(tmp_path / "report.html")
    assert "Where rows without an action are" in (tmp_path / "report.html").read_text()
