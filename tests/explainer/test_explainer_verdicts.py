"""Verdicts in closed form: what is found, what blocks, and by how much the nearest row misses."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from explaining import STATUSES, stand_in
from plausiflow.constraints import Allowed, Decreasing, Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.errors import InvalidInputError
from plausiflow.report.overview import _SHORTFALL
from plausiflow.search import diagnose
from plausiflow.search.mixed import MixedSearch
from searching import ORDERS

BOTH = torch.tensor([[0.0] * 4, [0.0, 1.0, 0.0, 1.0]])
"""A model that says yes where both of two booleans are true."""


def poor(frame, explainer, n=2):
    """Rows that the model rejects."""
    return frame[(explainer.predict(frame) == "no").to_numpy()].head(n)


def test_the_cost_is_the_distance_to_the_hyperplane():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.uniform(0, 1, (200, 3)), columns=list("abc"))
    frame.iloc[0], frame.iloc[1] = 0.0, 1.0  # encoded numbers are the numbers
    explainer = stand_in(
        frame, push={"a": 2.0, "b": -1.0, "c": 0.5}, strategy=MixedSearch(max_extra_cost=0.0)
    )
    rows = frame.iloc[((frame - 0.5).abs().max(axis=1) < 0.3).to_numpy()].head(6)
    result = explainer.explain(rows)
    logits = np.log(explainer.predict_proba(rows)["yes"] / explainer.predict_proba(rows)["no"])
    distance = logits.abs() / np.sqrt(2.0**2 + 1 + 0.5**2)
    np.testing.assert_allclose(result.figures["cost"], distance, atol=1e-3)


@pytest.mark.parametrize(
    "index",
    [
        [7, 7, 7],
        ["b", None, "a"],
        pd.MultiIndex.from_tuples([(1, "x"), (1, "x"), (0, "y")], names=["rank", None]),
        pd.date_range("2020", periods=3),
        pd.CategoricalIndex(["u", "v", "u"]),
    ],
    ids=["duplicates", "mixed", "levels", "dates", "categories"],
)
def test_any_index_is_kept(by_income, frame, index):
    rows = frame.iloc[:3].set_axis(pd.Index(index), axis=0)
    result = by_income.explain(rows)
    plain = by_income.explain(frame.iloc[:3])
    assert result.status.index.equals(rows.index)
    assert result.counterfactuals.index.equals(rows.index)
    assert_frame_equal(result.counterfactuals.reset_index(drop=True), plain.counterfactuals)
    assert by_income.predict(rows).index.equals(rows.index)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows_are_fine(by_income, frame, n):
    result = by_income.explain(frame.iloc[:n])
    assert len(result) == n
    assert result.counterfactuals.shape == (n, frame.shape[1])
    assert result.status["status"].tolist() == ["found"] * n
    assert by_income.predict_proba(frame.iloc[:n]).shape == (n, 2)


@pytest.mark.parametrize("column", ["income", "savings", "job", "owns", "school", "gain"])
def test_a_table_of_one_column_is_fine(frame, column):
    explainer = stand_in(
        frame[[column]], push={column: 3.0}, orders={k: v for k, v in ORDERS.items() if k == column}
    )
    result = explainer.explain(frame[[column]].iloc[:4])
    assert result.status["status"].tolist() == ["found"] * 4
    assert (explainer.predict(result.counterfactuals) == result.status["target"]).all()


def test_what_is_decided_as_wanted_already_is_not_searched(by_income, frame):
    decided = by_income.predict(frame.iloc[:6])
    result = by_income.explain(frame.iloc[:6], decided)
    assert result.status["status"].tolist() == ["already"] * 6
    assert result.counterfactuals.isna().all(axis=None)
    assert len(result.answers) == 0


def test_without_time_no_row_is_reached_but_others_have_their_verdict(by_income, frame):
    rows = frame.iloc[:5].astype({"job": object})
    rows.iloc[2, rows.columns.get_loc("job")] = "astronaut"
    target = by_income.predict(frame.iloc[:5]).replace({"no": "yes", "yes": "no"}).to_numpy()
    target[4] = by_income.predict(frame.iloc[[4]]).iloc[0]
    result = by_income.explain(rows, target, time_limit=0)
    reached = ["not_reached", "not_reached", "invalid_input", "not_reached", "already"]
    assert result.status["status"].tolist() == reached
    assert "time limit" in result.status["reason"].iloc[0]
    assert by_income.explain(rows.iloc[:1], time_limit=60).status["status"].tolist() == ["found"]


def test_when_the_time_is_over_nothing_more_is_searched(frame, monkeypatch):
    explainer = stand_in(frame, [Range("income", None, 2000)], push={"income": 8.0})  # no row has an answer
    searched, finished = [], []
    monkeypatch.setattr("plausiflow.search.request.time.monotonic", lambda: len(finished))
    strategy = type(explainer.engine_.strategy)
    run = strategy.run

    def noted(self, task, bank, *, keep=1):
        searched.append(len(task))
        found = run(self, task, bank, keep=keep)
        finished.append(len(found))
        return found

    monkeypatch.setattr(strategy, "run", noted)
    # Each search takes a second: only the first one, with and without the margin, is in time.
    result = explainer.explain(frame.iloc[:4], time_limit=1)
    assert len(searched) == 1
    assert (result.status["status"] == "infeasible").all()
    assert result.status["reason"].str.contains("the time was over before the reason was looked for").all()


@pytest.mark.parametrize(
    ("rules", "blamed"),
    [
        ([Immutable("income")], 'Immutable("income")'),
        ([Immutable(*ORDERS, "age", "income", "savings", "job", "owns", "gain")], "Immutable("),
        ([Decreasing("income"), Increasing("age")], 'Decreasing("income")'),
        ([Range("income", None, 2000)], 'Range("income", None, 2000)'),
        ([Linear("income <= 2000")], 'Linear("income <= 2000")'),
    ],
    ids=["immutable", "all immutable", "one way", "range", "relation"],
)
def test_the_rule_that_blocks_is_named(frame, rules, blamed):
    explainer = stand_in(frame, rules, push={"income": 4.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    assert result.status["status"].tolist() == ["infeasible"]
    assert result.status["reason"].iloc[0].startswith(blamed)
    assert result.status["reason"].iloc[0].endswith("blocks: without it there is an answer")


def test_a_level_that_may_not_be_left_is_named(frame):
    stay = Allowed("job", {})
    explainer = stand_in(frame, [stay], push={"job": 3.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    assert result.status["reason"].tolist() == [f"{stay} blocks: without it there is an answer"]


def test_locks_that_block_are_named(by_income, frame):
    result = by_income.explain(poor(frame, by_income), "yes", locked=[["income"], ["age"]])
    assert result.status["status"].tolist() == ["infeasible", "found"]
    assert (
        result.status["reason"].iloc[0] == "the lock on some features blocks: without it there is an answer"
    )


def test_locks_that_block_a_single_row_are_named(by_income, frame):
    status = by_income.explain(poor(frame, by_income, 1), "yes", locked=["income"]).status
    assert status["reason"].tolist() == ["the lock on some features blocks: without it there is an answer"]


def test_where_no_single_rule_blocks_the_set_of_rules_is_named(frame):
    rules = [Decreasing("income"), Range("income", None, 2000)]
    explainer = stand_in(frame, rules, push={"income": 4.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    together = 'Decreasing("income") and Range("income", None, 2000) block together'
    assert result.status["reason"].tolist() == [f"{together}: without them there is an answer"]


def test_reasons_can_be_switched_off(frame):
    explainer = stand_in(frame, [Decreasing("income")], push={"income": 4.0}, orders=ORDERS)
    rows = poor(frame, explainer, 2)
    plain, quiet = (explainer.explain(rows, "yes", diagnose=asked) for asked in (True, False))
    assert plain.status["status"].tolist() == quiet.status["status"].tolist() == ["infeasible"] * 2
    assert set(quiet.status["reason"]) == {"no answer was found; reasons were not asked for"}
    assert len(quiet.misses) == 0
    with pytest.raises(InvalidInputError, match="`diagnose` must be True or False"):
        explainer.explain(rows, "yes", diagnose="no")


@pytest.mark.parametrize("answers", [1, 3])
def test_a_row_that_needs_two_changes_has_no_answer_where_one_is_allowed(answers):
    frame = pd.DataFrame({"a": [True, False] * 40, "b": [True, True, False, False] * 20})
    explainer = stand_in(frame, [MaxChanges(1)], push={"a": 1.0, "b": 1.0})
    explainer.model_.model.load_state({"weight": BOTH, "bias": torch.tensor([0.0, -1.5])})
    rows = pd.DataFrame({"a": [False, True, True], "b": [False, False, True]})
    assert explainer.predict(rows).tolist() == ["no", "no", "yes"]
    result = explainer.explain(rows, "yes", k=answers)
    assert result.status["status"].tolist() == ["infeasible", "found", "already"]
    assert result.status["reason"].iloc[0] == "MaxChanges(1) blocks: without it there is an answer"
    assert result.answers.to_dict("records") == [{"a": True, "b": True}]


def test_an_answer_beyond_the_limit_on_changes_is_the_proof_that_the_limit_blocks(monkeypatch):
    """No further search is needed: the one without the limit has been done."""
    frame = pd.DataFrame({"a": [True, False] * 40, "b": [True, True, False, False] * 20})
    explainer = stand_in(frame, [MaxChanges(1)], push={"a": 1.0, "b": 1.0})
    explainer.model_.model.load_state({"weight": BOTH, "bias": torch.tensor([0.0, -1.5])})
    monkeypatch.setattr(diagnose, "MOST_ROWS", 0)
    result = explainer.explain(pd.DataFrame({"a": [False], "b": [False]}), "yes")
    assert result.status["reason"].tolist() == ["MaxChanges(1) blocks: without it there is an answer"]
    assert len(result.answers) == 0


@pytest.fixture(scope="module")
def tight(frame):
    """What the model wants is not plausible: the ball about the mean row is small."""
    return stand_in(frame[["income", "savings"]], push={"income": 4.0}, radius=0.3)


def test_the_nearest_miss_is_kept_and_says_how_much_it_lacks(frame, tight):
    rows = frame[["income", "savings"]].assign(savings=9.9)  # far from the ball, where it may not move to
    result = tight.explain(poor(rows, tight), "yes", locked=["savings"])
    assert result.status["status"].tolist() == ["infeasible"] * 2
    assert len(result.answers) == 0
    assert result.misses_of.tolist() == [0, 1]
    assert (tight.predict(result.misses) == "yes").all()
    assert (result.misses["savings"] == 9.9).all()
    score = tight.engine_.plausibility.score(tight.encoder_.encode(result.misses).x, torch.ones(2))
    for i, (short, said) in enumerate(zip((-score).tolist(), result.misses_why, strict=True)):
        assert said.endswith(f"is {short:.2f} below the plausibility threshold")
        assert result[i].misses[0][1] == said


@pytest.mark.parametrize(
    ("gap", "said"),
    [(0.204, "0.20"), (51.237, "51.24"), (31234.5, "31,200"), (152490612352714.3, "more than 1,000,000")],
)
def test_how_far_a_row_is_from_plausible_is_said_in_few_digits(gap, said):
    assert diagnose.describe_lack(-gap).endswith(f" is {said} below the plausibility threshold")
    assert _SHORTFALL.sub("", diagnose.describe_lack(-gap)).endswith(" is below the plausibility threshold")


def test_a_relaxed_answer_is_the_nearest_miss(frame, tight):
    rows = poor(frame[["income", "savings"]].assign(savings=9.9), tight)
    strict = tight.explain(rows, "yes", locked=["savings"])
    relaxed = tight.explain(rows, "yes", locked=["savings"], relaxed=True)
    assert relaxed.status["status"].tolist() == ["relaxed"] * 2
    assert_frame_equal(relaxed.answers, strict.misses)
    assert (relaxed.figures["score"] < 0).all()
    assert len(relaxed.misses_of) == 0


def test_the_set_of_verdicts_is_the_documented_one():
    from plausiflow.explanations.checks import STATUSES as documented

    assert set(documented) == STATUSES
