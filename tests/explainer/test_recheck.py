"""Counterfactuals that were given out, checked against another model."""

import json

import pandas as pd
import pytest
from scipy.stats import binomtest

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.errors import InvalidInputError
from searching import ORDERS, applicants


@pytest.fixture(scope="module")
def given():
    """Answers of an explainer, and their rows."""
    frame = applicants(120)
    result = stand_in(frame, push={"income": 4.0}, orders=ORDERS).explain(frame.iloc[:30], "yes")
    return frame, result.rows.iloc[result.of], result.answers.set_axis(result.rows.index[result.of])


def test_answers_still_hold_for_the_explainer_that_gave_them(given):
    frame, before, answers = given
    found = stand_in(frame, push={"income": 4.0}, orders=ORDERS).recheck(answers, "yes", before=before)
    assert found.rows["holds"].all()
    assert len(found.to_notify) == 0


def test_answers_that_a_new_model_decides_otherwise_are_to_be_written_to(given):
    frame, _, answers = given
    other = stand_in(frame, push={"income": -4.0}, orders=ORDERS)
    found = other.recheck(answers, "yes")
    expected = other.predict(answers) == "yes"
    assert found.rows["valid"].tolist() == expected.tolist()
    assert found.to_notify["reason"].str.contains("no longer decides").all()


def test_new_rules_are_checked_with_the_rows_before(given):
    frame, before, answers = given
    other = stand_in(frame, [Immutable("income")], push={"income": 4.0}, orders=ORDERS)
    assert not other.recheck(answers, "yes", before=before).rows["rules_kept"].any()
    assert other.recheck(answers, "yes").rows["rules_kept"].isna().all()


@pytest.mark.parametrize("target", ["opposite", "runner_up", "other"])
def test_an_outcome_that_depends_on_the_row_was_not_promised(given, target):
    frame, _, answers = given
    with pytest.raises(InvalidInputError, match="the outcome that was promised"):
        stand_in(frame, push={"income": 4.0}, orders=ORDERS).recheck(answers, target)


def test_shares_by_age_have_wilson_intervals(given):
    frame, _, answers = given
    dates = ["2026-01-01"] * 5 + ["2026-06-25"] * (len(answers) - 5)
    other = stand_in(frame, push={"income": 4.0}, orders=ORDERS)
    found = other.recheck(answers, "yes", issued=dates, today="2026-07-01")
    assert found.by_age.index.tolist() == ["0 to 29 days", "180 to 364 days", "all"]
    line, interval = found.by_age.loc["180 to 364 days"], binomtest(5, 5).proportion_ci(method="wilson")
    assert line["counterfactuals"] == 5
    assert (line["low"], line["high"]) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"issued": ["2026-01-01"]}, "`issued` must have"), ({"before": pd.DataFrame()}, "`before` must have")],
)
def test_wrong_lengths_are_refused(given, settings, text):
    frame, _, answers = given
    with pytest.raises(InvalidInputError, match=text):
        stand_in(frame, push={"income": 4.0}, orders=ORDERS).recheck(answers, "yes", **settings)


def test_dates_that_cannot_be_read_are_refused(given):
    frame, _, answers = given
    with pytest.raises(InvalidInputError, match="must have a date"):
        stand_in(frame, orders=ORDERS).recheck(answers, "yes", issued=["?"] * len(answers))


@pytest.mark.parametrize("date", [1352, "1352", 20260101, "yesterday", None])
def test_what_is_no_day_is_refused_as_a_date(given, date):
    frame, _, answers = given
    other = stand_in(frame, push={"income": 4.0}, orders=ORDERS)
    with pytest.raises(InvalidInputError, match=r"`issued` must have a date .* Write dates as 2026-03-31"):
        other.recheck(answers, "yes", issued=[date] * len(answers), today="2026-07-01")


def test_days_and_timestamps_are_dates(given):
    frame, _, answers = given
    other = stand_in(frame, push={"income": 4.0}, orders=ORDERS)
    dates = [pd.Timestamp("2026-06-01", tz="UTC"), "2026-06-01T10:00:00"] + ["20260601"] * (len(answers) - 2)
    assert other.recheck(answers, "yes", issued=dates, today="2026-07-01").rows["age"].eq(30).all()


def test_dates_after_today_are_refused(given):
    frame, _, answers = given
    other = stand_in(frame, push={"income": 4.0}, orders=ORDERS)
    with pytest.raises(InvalidInputError, match="must have dates up to 2026-07-01"):
        other.recheck(answers, "yes", issued=["2026-07-02"] * len(answers), today="2026-07-01")


def test_json_has_every_answer_and_all_shares(given, tmp_path):
    frame, _, answers = given
    found = stand_in(frame, push={"income": -4.0}, orders=ORDERS).recheck(answers, "yes")
    found.to_json(tmp_path / "recheck.json")
    document = json.loads((tmp_path / "recheck.json").read_text(), parse_constant=lambda n: pytest.fail(n))
    assert document == json.loads(found.to_json())
    assert [row["holds"] for row in document["rows"]] == found.rows["holds"].tolist()
    assert {row["rules_kept"] for row in document["rows"]} == {None}
    assert document["by_age"][0]["holds"] == found.rows["holds"].mean()
