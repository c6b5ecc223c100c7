"""Models that misbehave are refused when fitting, or each row has a verdict and no wrong answer is found."""

import numpy as np
import pandas as pd
import pytest
import torch

from blackboxes import SETTINGS, outcomes, people, probabilities, score
from explaining import STATUSES, survives
from plausiflow import Explainer, Immutable
from plausiflow.errors import ModelError
from plausiflow.explanations import drop_unsteady
from plausiflow.search import SearchResult
from plausiflow.search.true_model import Oracle


def raising(frame):
    raise KeyError("no such column")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (raising, r"raised KeyError for rows of shape .*no such column"),
        (lambda rows: np.full(len(rows), np.nan), r"are not finite"),
        (lambda rows: np.random.default_rng().random(len(rows)), r"changes its predictions between calls"),
        (lambda rows: score(rows).rank(pct=True), r"depends on the other rows of the batch"),
        (lambda rows: np.zeros((len(rows), 3)), r"must return .* for n = "),
        (lambda rows: None, r"must return .* for n = "),
        (lambda rows: score(rows) * 9, r"are outside \[0, 1\]"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused_when_fitting(model, message):
    frame = people(200)
    with pytest.raises(ModelError, match=message):
        Explainer(model, **SETTINGS).fit(frame, outcomes(frame))


def test_a_row_that_the_model_cannot_take_has_a_verdict_and_the_others_theirs():
    frame = people()
    odd = frame[:5].copy()
    odd.loc[2, "age"] = 99

    def picky(rows):
        if (rows["age"] == 99).any():
            raise ValueError("nobody is that old")
        return probabilities(rows)

    explainer = Explainer(picky, constraints=[Immutable("age")], **SETTINGS).fit(frame, outcomes(frame))
    result = survives(lambda: explainer.explain(odd), 5)
    assert result.status["status"].tolist().index("invalid_input") == 2
    plain = explainer.explain(frame[:5].drop(2))
    pd.testing.assert_frame_equal(result.answers, plain.answers)
    assert explainer.predict_proba(odd).isna().all(axis=1).tolist() == [False, False, True, False, False]


def test_points_for_which_the_model_has_nothing_are_no_answers():
    frame = people()

    def holes(rows):
        return probabilities(rows).where((rows["income"] // 100) % 3 != 0, np.nan)

    fine = frame[(frame["income"] // 100) % 3 != 0].reset_index(drop=True)
    explainer = Explainer(holes, **SETTINGS).fit(fine, outcomes(fine))
    result = explainer.explain(fine[:5])
    assert (result.status["status"] == "found").sum() > 3
    assert holes(result.answers).notna().all()
    assert ((holes(result.answers) > 0.5) == (result.status["target"].to_numpy()[result.of] == "yes")).all()


class Changing:
    """A model that is as it seems until it is told to change."""

    def __init__(self):
        self.behave = probabilities
        self.seen = set()

    def __call__(self, frame):
        return self.behave(frame)

    def randomly(self, frame):
        return np.random.default_rng().random(len(frame))

    def first_time_only(self, frame):
        """As ever when it is first asked about a row, and no from then on."""
        rows = list(map(tuple, frame.to_numpy().tolist()))
        again = np.array([row in self.seen for row in rows], dtype=bool)
        self.seen.update(rows)
        return np.where(again, 0.0, probabilities(frame))

    def raising(self, frame):
        raise ConnectionError("the service is gone")


@pytest.fixture
def changing():
    frame, model = people(), Changing()
    explainer = Explainer(model, **SETTINGS).fit(frame, outcomes(frame))
    return model, frame, explainer


def test_a_model_that_becomes_random_gets_verdicts(changing):
    model, frame, explainer = changing
    model.behave = model.randomly
    result = survives(lambda: explainer.explain(frame[:3]), 3)
    assert set(result.status["status"]) <= STATUSES
    assert result.figures["steady"].between(0, 1).all()


def test_an_answer_that_the_last_check_does_not_confirm_is_not_called_found(changing):
    model, frame, explainer = changing
    model.behave = model.first_time_only
    rows = frame[probabilities(frame) < 0.4][:3]
    result = survives(lambda: explainer.explain(rows, relaxed=True), 3)
    assert (result.status["status"] == "infeasible").all()
    assert len(result.answers) == 0
    assert len(model.seen) > 20


@pytest.fixture
def nowhere_steady(monkeypatch):
    """Let the last corners of the answers of every other row all fail."""
    own = Oracle.stability

    def stability(self, x_cf, rows, *, salt, **options):
        shares = own(self, x_cf, rows, salt=salt, **options)
        return shares.where(rows % 2 == 1, 0.0) if salt == 4 else shares

    monkeypatch.setattr(Oracle, "stability", stability)


def test_an_answer_that_holds_nowhere_around_itself_is_not_called_found(changing, nowhere_steady):
    _, frame, explainer = changing
    rows = frame[probabilities(frame) < 0.4][:4]
    result = survives(lambda: explainer.explain(rows), 4)
    assert result.status["status"].tolist() == ["infeasible", "found"] * 2
    assert result.status["reason"].iloc[0].endswith("none of 32 rows a thousandth of each range away")
    assert (result.figures["steady"] > 0).all()
    assert result.of.tolist() == [1, 3]
    ((miss, why),) = result[0].misses
    assert "none of 32 rows" in why
    assert probabilities(pd.DataFrame([miss])).iloc[0] > 0.5
    relaxed = explainer.explain(rows, relaxed=True)
    assert relaxed.status["status"].tolist() == ["relaxed", "found"] * 2
    assert relaxed.figures["steady"].tolist() == [0.0, 1.0, 0.0, 1.0]


def test_of_several_answers_only_those_that_hold_nowhere_are_left_out():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]})
    found = SearchResult(
        status=np.array(["found", "already", "found"], dtype=object),
        reason=np.array(["", "", ""], dtype=object),
        of=torch.tensor([0, 0, 2, 2]),
        x_cf=torch.arange(4.0)[:, None],
        decoded=frame,
        cost=torch.arange(4.0),
        score=torch.ones(4),
        misses=frame[:0],
        misses_of=np.zeros(0, dtype=np.int64),
        misses_why=[],
    )
    figures = pd.DataFrame({"cost": range(4), "steady": [0.0, 0.5, 0.0, 0.0]})
    kept, left = drop_unsteady(found, figures, relaxed=False)
    assert kept.status.tolist() == ["found", "already", "infeasible"]
    assert (kept.of.tolist(), kept.decoded["a"].tolist()) == ([0], [1.0])
    assert (kept.misses_of.tolist(), kept.misses["a"].tolist()) == ([2], [2.0])
    assert left["cost"].tolist() == [1]
    relaxed, left = drop_unsteady(found, figures, relaxed=True)
    assert relaxed.status.tolist() == ["found", "already", "relaxed"]
    assert (relaxed.of.tolist(), left["cost"].tolist()) == ([0, 2], [1, 2])
    same, _ = drop_unsteady(found, figures.drop(columns="steady"), relaxed=False)
    assert same is found


def test_a_model_that_is_gone_is_an_error_and_not_bad_input(changing):
    model, frame, explainer = changing
    model.behave = model.raising
    with pytest.raises(ModelError, match="fails for a row that it predicted before"):
        explainer.explain(frame[:3])
