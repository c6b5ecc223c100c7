"""What can be asked of a model that only answers, and what it costs: calls, rows, a budget."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from blackboxes import SETTINGS, outcomes, people, probabilities
from explaining import broken_rules, survives
from plausiflow import Explainer, Immutable
from plausiflow.search.black_box import FINAL_CORNERS
from sampling import slow


class Recorder:
    """A model that keeps what it was asked, row by row."""

    def __init__(self, decide=probabilities):
        self.decide, self.calls, self.frames = decide, 0, []

    def __call__(self, frame):
        self.calls += 1
        self.frames.append(frame.copy())
        return self.decide(frame)

    def forget(self):
        self.calls, self.frames = 0, []

    @property
    def rows(self):
        return sum(map(len, self.frames))


@pytest.fixture(scope="module")
def recorded():
    """A free search of a model that counts."""
    frame, model = people(), Recorder()
    return model, frame, Explainer(model, **SETTINGS).fit(frame, outcomes(frame))


# What it costs


@pytest.mark.parametrize("settings", [{}, {"k": 3}, {"target": "yes"}, {"locked": ["income"]}])
def test_calls_and_rows_are_those_that_the_model_counts(recorded, settings):
    model, frame, explainer = recorded
    model.forget()
    result = explainer.explain(frame[:3], **settings)
    assert result.model_calls == model.calls > 0
    assert result.model_rows == model.rows > 0


def test_the_model_is_asked_in_the_dtypes_of_the_table():
    frame = people(200)
    frame = frame.assign(
        age=frame["age"].astype("int8"),
        savings=frame["savings"].astype("float32"),
        job=pd.Categorical(np.resize(["clerk", "nurse", "cook"], 200)),
        owns=np.resize([True, False, False], 200),
        town=np.resize(["Ulm", "Bonn"], 200),
        number=[f"N{i}" for i in range(200)],
        year=2024,
    )
    model = Recorder(lambda rows: probabilities(rows) * np.where(rows["owns"], 1.0, 0.9))
    kinds = {"number": "identifier"}
    explainer = Explainer(model, kinds=kinds, **SETTINGS).fit(frame, outcomes(frame))
    result = explainer.explain(frame[:3])
    assert (result.status["status"] == "found").any()
    for asked in model.frames:
        assert list(asked.columns) == list(frame.columns)
        different = asked.dtypes != frame.dtypes
        assert not different.any(), f"{asked.dtypes[different]} instead of {frame.dtypes[different]}"
        assert asked.index.equals(pd.RangeIndex(len(asked)))
        assert set(asked["number"]) <= set(frame["number"])
        assert (asked["year"] == 2024).all()


@pytest.mark.parametrize("cap", [1, slow(20), 60])
def test_a_small_budget_is_kept_and_every_row_has_a_verdict(recorded, cap):
    model, frame, explainer = recorded
    few = Explainer(model, model_rows=cap, **SETTINGS)
    small = replace(explainer.engine_, true_model=replace(explainer.engine_.true_model, budget=cap))
    few.encoder_, few.model_, few.engine_ = explainer.encoder_, explainer.model_, small
    few.criterion_, few.context_ = explainer.criterion_, explainer.context_
    finalists = small.strategy.finalists
    for row in range(2):
        model.forget()
        result = few.explain(frame.iloc[[row]])
        assert result.status["status"].iloc[0] in ("found", "infeasible")
        # The row itself; three searches at most (with a margin, without, and for the nearest miss), and what
        # they find checked once more; then the answer and its corners; each change undone and made alone, and
        # the row once more.
        roles = 1 + 2 * len(result.changes)
        most = 1 + 3 * cap + 3 * finalists + 1 + FINAL_CORNERS + roles
        if result.status["status"].iloc[0] == "found":
            most = 1 + 2 * cap + 2 * finalists + 1 + FINAL_CORNERS + roles
        assert result.model_rows <= most
        wanted = result.status["target"].to_numpy()[result.of]
        assert np.where(probabilities(result.answers) > 0.5, "yes", "no").tolist() == wanted.tolist()


def test_a_budget_for_some_corners_does_not_make_answers_unsteady():
    frame = people()

    def plain(rows):
        return (rows["income"] > 4000).astype(float)

    explainer = Explainer(plain, model_rows=FINAL_CORNERS - 8, **SETTINGS).fit(frame, outcomes(frame))
    result = explainer.explain(frame[:12])
    assert len(result.answers) > 0
    # Incomes are on a grid of hundreds, a corner is seven away: no corner is beyond the boundary.
    assert (result.figures["steady"] == 1).all()


# What can be asked


def test_several_answers_are_different_and_all_decided_as_wanted(recorded):
    model, frame, explainer = recorded
    result = explainer.explain(frame[:4], k=3)
    assert (result.status["answers"] == 3).all()
    wanted = result.status["target"].to_numpy()[result.of]
    assert np.where(model.decide(result.answers) > 0.5, "yes", "no").tolist() == wanted.tolist()
    for row in range(4):
        own = result.answers[result.of == row]
        assert len(own.drop_duplicates()) == 3
        assert result.figures["cost"][result.of == row].is_monotonic_increasing


def test_locked_features_stay_bit_for_bit(recorded):
    _, frame, explainer = recorded
    locked = pd.DataFrame(False, index=range(4), columns=frame.columns)
    locked.loc[[0, 1], "income"] = True
    locked.loc[2, ["savings", "age"]] = True
    result = explainer.explain(frame[:4], locked=locked)
    assert len(result.answers) == 4
    for row in range(4):
        for name in frame.columns[locked.iloc[row]]:
            assert result.answers[name].iloc[row] == frame[name].iloc[row]


def test_a_row_without_an_answer_has_a_reason_and_perhaps_a_miss():
    frame = people()
    rules = [Immutable("income", "debt", "age")]

    def strict(rows):
        return (rows["income"] + 100 * rows["savings"] > 5000).astype(float)

    explainer = Explainer(strict, constraints=rules, **SETTINGS).fit(frame, outcomes(frame))
    result = explainer.explain(frame[:8])
    status = result.status
    assert set(status["status"]) == {"found", "infeasible"}
    without = status["status"] == "infeasible"
    assert (status["reason"][without].str.len() > 20).all()
    blocked = status["reason"][without].str.contains("Immutable")
    assert blocked.any(), "without the rule there would be answers"
    assert (strict(result.answers).to_numpy() == (status["target"].to_numpy()[result.of] == "yes")).all()


def test_a_relaxed_answer_is_valid_and_allowed_but_less_plausible():
    frame = people()
    rules, settings = [Immutable("age", "debt")], SETTINGS | {"plausibility": 0.97}
    explainer = Explainer(probabilities, constraints=rules, **settings)
    explainer.fit(frame, outcomes(frame))
    plain, relaxed = (explainer.explain(frame[:6], relaxed=choice) for choice in (False, True))
    lost = plain.status["status"] == "infeasible"
    assert lost.any()
    assert len(plain.misses) > 0
    assert set(relaxed.status["status"][lost]) <= {"relaxed", "infeasible"}
    assert (relaxed.status["status"] == "relaxed").any()
    wanted = relaxed.status["target"].to_numpy()[relaxed.of]
    assert np.where(probabilities(relaxed.answers) > 0.5, "yes", "no").tolist() == wanted.tolist()
    assert broken_rules(explainer, relaxed) == []
    of_relaxed = relaxed.status["status"].to_numpy()[relaxed.of] == "relaxed"
    assert (relaxed.figures["score"][of_relaxed] < 0).all()
    assert (relaxed.figures["score"][~of_relaxed] >= 0).all()


def test_without_time_nothing_is_searched(recorded):
    model, frame, explainer = recorded
    model.forget()
    wanted = outcomes(frame[:5])
    result = explainer.explain(frame[:5], target=wanted[[0, 1, 2, 3, 3]], time_limit=0)
    assert set(result.status["status"]) <= {"already", "not_reached"}
    assert (result.status["status"][:4] == "already").sum() >= 3
    assert result.model_rows == model.rows == 5


def test_no_rows_have_no_answers(recorded):
    _, frame, explainer = recorded
    result = survives(lambda: explainer.explain(frame[:0]), 0)
    assert len(result.answers) == 0
    assert result.model_calls == 0


def test_rows_keep_their_index(recorded):
    _, frame, explainer = recorded
    rows = frame[:3].set_axis(["a", "a", "b"], axis=0)
    result = explainer.explain(rows)
    assert result.counterfactuals.index.equals(rows.index)
    plain = explainer.explain(frame[:3])
    pd.testing.assert_frame_equal(result.answers, plain.answers)
