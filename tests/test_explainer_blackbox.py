"""The explainer with models that only answer: whatever it calls found, the model itself decides as wanted."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from explaining import STATUSES, broken_rules, survives, unlike_training
from plausiflow import (
    Explainer,
    Immutable,
    Increasing,
    Linear,
    LinearClassifier,
    MaxChanges,
    Range,
)
from plausiflow import explainer as explainer_module
from plausiflow.classifiers import blackbox, standins
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.search import fitting, verified
from plausiflow.search.evolution import Evolution
from plausiflow.search.verified import FINAL_CORNERS
from plausiflow.training import Training
from searching import ORDERS, applicants

TREES = 25
SETTINGS = {"confidence": None, "judges": 0, "plausibility": 0.1, "sparsity": None}
RULES = [
    Immutable("age"),
    Increasing("income"),
    Range("savings", 0.5, None),
    Linear("debt <= income"),
]


def remembered(densities):
    """The same densities for the same rows and rules; without a second opinion nothing changes them."""
    known = {}

    def get(rows, *, rules, encoder, settings):
        parts = (rows.x.numpy().tobytes(), rows.classes.numpy().tobytes(), str(rules.constraints), settings)
        if rows.outcome is not None:
            return densities(rows, rules=rules, encoder=encoder, settings=settings)
        if parts not in known:
            known[parts] = densities(rows, rules=rules, encoder=encoder, settings=settings)
        return known[parts]

    return get


@pytest.fixture(scope="module", autouse=True)
def brief():
    """Densities and students that learn for a moment only, once for the same rows; short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(fitting, "MEMBERS", 2)
        patch.setattr(blackbox, "FEWEST", 2000)
        patch.setattr(standins, "student", partial(standins.student, n_trees=TREES, n_leaves=15))
        patch.setattr(explainer_module, "densities", remembered(explainer_module.densities))
        patch.setattr(verified, "ITERATIONS", 8)
        short = partial(verified.VerifiedSearch, evolution=Evolution(rounds=4))
        patch.setattr(fitting, "VerifiedSearch", short)
        yield


def people(n=240, seed=0):
    """Numbers on grids and off them; debts do not exceed incomes."""
    draw = np.random.default_rng(seed)
    income = draw.integers(10, 80, n)
    return pd.DataFrame(
        {
            "age": draw.integers(20, 70, n),
            "income": income * 100,
            "debt": (income * draw.random(n)).astype(np.int64) * 100,
            "savings": draw.uniform(0.5, 9, n),
        }
    )


def score(frame):
    return frame["income"] / 8000 + frame["savings"] / 9 - frame["debt"] / 16000


def outcomes(frame, no="no", yes="yes"):
    return np.where(score(frame) > 0.85, yes, no)


@dataclass(eq=False)
class Case:
    """A model, and what is explained of it.

    Attributes:
        model: As the explainer is given it.
        frame: Training rows.
        y: Their outcomes.
        decide: What the model decides for rows of the table, asked by hand.
        says: Words of what it is taken for.
        target: What is asked for.
        rules: What may change.
        orders: Of categories.
        sparsity: How much more fewer changes may cost.
        asked: Rows that are explained.
    """

    model: Any
    frame: pd.DataFrame
    y: Any
    decide: Callable[[pd.DataFrame], np.ndarray]
    says: str = "a student of 25 trees, relaxed"
    target: Any = "opposite"
    rules: Any = tuple(RULES)
    orders: Any = None
    sparsity: float | None = None
    asked: int = 6

    @cached_property
    def explainer(self):
        settings = {"constraints": self.rules, "orders": self.orders, "sparsity": self.sparsity}
        return Explainer(self.model, **SETTINGS | settings).fit(self.frame, self.y)

    @property
    def rows(self):
        return self.frame[: self.asked]

    @cached_property
    def result(self):
        return self.explainer.explain(self.rows, self.target)


def fitted(model, frame=None, y=None, **settings):
    frame = people() if frame is None else frame
    y = outcomes(frame) if y is None else y
    model = model.fit(frame, y)

    def decide(rows):
        return np.asarray(model.predict(rows)).ravel() if len(rows) else np.zeros(0)

    return Case(model, frame, y, decide, **settings)


def forest():
    return fitted(RandomForestClassifier(15, random_state=0), rules=(*RULES, MaxChanges(3)), sparsity=0.1)


def boosting():
    frame = people()
    draw = np.random.default_rng(5)
    frame.loc[draw.random(len(frame)) < 0.15, "savings"] = np.nan
    y = outcomes(frame.fillna({"savings": 3.0}), no=False, yes=True)
    model = HistGradientBoostingClassifier(max_iter=15)
    return fitted(model, frame, y, says="its own 15 trees, relaxed")


def xgboost():
    library = pytest.importorskip("xgboost")
    frame = people()
    y = outcomes(frame, no=0, yes=1)
    model = library.XGBClassifier(n_estimators=15, n_jobs=1)
    return fitted(model, frame, y, says="its own 15 trees, relaxed")


def lightgbm():
    library = pytest.importorskip("lightgbm")
    model = library.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1)
    return fitted(model, says="its own 15 trees, relaxed")


def catboost():
    library = pytest.importorskip("catboost")
    model = library.CatBoostClassifier(
        iterations=15, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    )
    return fitted(model, says="its own 15 trees, relaxed")


def support_vectors():
    frame = people()
    y = outcomes(frame, no=1, yes=2)
    return fitted(scaled(SVC()), frame, y, says="asked for scores, without gradients")


def scaled(model):
    return make_pipeline(StandardScaler(), model)


def neighbours():
    return fitted(scaled(KNeighborsClassifier(5)), says="asked for probabilities")


def probabilities(frame):
    return 1 / (1 + np.exp(-12 * (score(frame) - 0.85)))


def labels_only(frame):
    return np.where(score(frame) + 0.2 * np.sin(9 * frame["savings"]) > 0.85, "yes", "no")


def function():
    frame = people()
    says = "a function `probabilities`, asked for probabilities"
    decide = lambda rows: np.where(probabilities(rows) > 0.5, "yes", "no")  # noqa: E731
    return Case(probabilities, frame, outcomes(frame), decide, says=says)


def labelling():
    frame = people()
    says = "a function `labels_only`, asked for labels"
    return Case(labels_only, frame, labels_only(frame), labels_only, says=says)


def three_classes():
    frame = people()
    y = np.digitize(score(frame), [0.7, 1.0])
    model = RandomForestClassifier(15, random_state=0)
    rules = (Immutable("age"),)
    return fitted(model, frame, y, target="runner_up", says="a student of 75 trees", rules=rules, asked=5)


MIXED_RULES = (Immutable("age"), Increasing("school"), Range("income", 800, 7500), MaxChanges(3))


def mixed_table():
    frame = applicants(260, missing=True)
    worth = frame["income"] / 8000 + frame["savings"] / 9 + 0.3 * (frame["job"] == "nurse")
    worth += 0.2 * frame["owns"] + 0.1 * frame["school"].map(ORDERS["school"].index)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "school"]), remainder="passthrough"
    )
    model = make_pipeline(columns, RandomForestClassifier(15, random_state=0))
    y = np.where(worth > worth.median(), "yes", "no")
    return fitted(model, frame, y, rules=MIXED_RULES, orders=ORDERS, sparsity=0.1)


CASES = {
    make.__name__: make
    for make in (
        forest,
        boosting,
        xgboost,
        lightgbm,
        catboost,
        support_vectors,
        neighbours,
        function,
        labelling,
        three_classes,
        mixed_table,
    )
}


@pytest.fixture(scope="module")
def cases():
    """Makes each case once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = CASES[name]()
        return made[name]

    return get


every_case = pytest.mark.parametrize("name", CASES)


# What holds for every model


@every_case
def test_the_model_itself_decides_every_answer_as_wanted(cases, name):
    case = cases(name)
    result = case.result
    found = result.status["status"] == "found"
    assert found.mean() >= 0.5
    assert result.answers.dtypes.equals(case.frame.dtypes)
    wanted = result.status["target"].to_numpy()[result.of]
    assert case.decide(result.answers).tolist() == wanted.tolist()
    np.testing.assert_array_equal(case.decide(case.rows), result.status["predicted"].to_numpy())
    assert (result.status["predicted"] != result.status["target"]).all()
    assert {type(label) for label in result.status["target"]} == {type(label) for label in result.labels}


@every_case
def test_answers_keep_the_rules_and_the_grids(cases, name):
    case = cases(name)
    assert broken_rules(case.explainer, case.result, case.orders or {}) == []
    assert unlike_training(case.frame, case.result) == []
    for column in ("income", "debt"):
        if column in case.frame:
            assert (case.result.answers[column] % 100 == 0).all()


@every_case
def test_figures_are_those_of_the_model_itself(cases, name):
    case = cases(name)
    result, figures = case.result, case.result.figures
    assert (figures["probability"] >= (0.52 if len(result.labels) == 2 else 0.34)).all()
    assert figures["steady"].between(0, 1).all()
    assert (figures["steady"] * FINAL_CORNERS % 1 == 0).all()
    assert (figures["score"] >= 0).all()
    assert (figures["n_changes"] >= 1).all()
    if hasattr(case.model, "predict_proba"):
        theirs = case.model.predict_proba(result.answers)
        order = [list(result.labels).index(label) for label in result.status["target"].iloc[result.of]]
        np.testing.assert_allclose(figures["probability"], theirs[np.arange(len(order)), order], atol=1e-6)
        ours = case.explainer.predict_proba(case.rows)
        np.testing.assert_allclose(ours.to_numpy(), case.model.predict_proba(case.rows), atol=1e-6)
        assert list(ours.columns) == list(case.model.classes_)
    assert (case.explainer.predict(case.rows).to_numpy() == case.decide(case.rows)).all()


@every_case
def test_repr_tells_what_the_model_was_taken_for(cases, name):
    case = cases(name)
    text = repr(case.explainer)
    assert text.startswith(f"Explainer({type(case.model).__name__}, taken for: ")
    assert case.says in text
    assert text.endswith("every answer is verified on the model itself)")


@every_case
def test_answers_do_not_depend_on_the_batch_or_its_order(cases, name):
    case = cases(name)
    some = [4, 1]
    again = case.explainer.explain(case.rows.iloc[some], case.target)
    for place, row in enumerate(some):
        assert again.status["status"].iloc[place] == case.result.status["status"].iloc[row]
        own, before = again.answers[again.of == place], case.result.answers[case.result.of == row]
        pd.testing.assert_frame_equal(
            own.reset_index(drop=True), before.reset_index(drop=True), check_exact=True
        )


def test_a_row_alone_is_explained_as_among_others(cases):
    case = cases("mixed_table")
    alone = case.explainer.explain(case.rows.iloc[[3]], case.target)
    before = case.result.answers[case.result.of == 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone.answers, before, check_exact=True)


def test_rows_turned_upside_down_have_the_same_answers(cases):
    case = cases("boosting")
    turned = case.explainer.explain(case.rows.iloc[::-1])
    pd.testing.assert_frame_equal(
        turned.counterfactuals.iloc[::-1], case.result.counterfactuals, check_exact=True
    )


def test_another_order_of_columns_has_the_same_answers(cases):
    case = cases("function")
    turned = case.explainer.explain(case.rows[case.rows.columns[::-1]])
    assert list(turned.answers.columns) == list(case.rows.columns[::-1])
    pd.testing.assert_frame_equal(turned.answers[case.rows.columns], case.result.answers)


def test_a_cell_that_cannot_be_read_spoils_its_own_row_only(cases):
    case = cases("xgboost")
    rows = case.rows.astype(object)
    rows.iloc[1, 0] = "many"
    spoiled = case.explainer.explain(rows, case.target)
    assert (spoiled.status["status"] == "invalid_input").tolist() == [i == 1 for i in range(len(rows))]
    others = case.result.counterfactuals.drop(index=case.rows.index[1])
    kept = spoiled.counterfactuals.drop(index=case.rows.index[1]).astype(others.dtypes)
    pd.testing.assert_frame_equal(kept, others)


@pytest.mark.parametrize("name", ["labelling", "three_classes", "mixed_table"])
def test_results_can_be_passed_on(cases, name):
    case = cases(name)
    result = survives(lambda: case.result, case.asked)
    metrics = result.metrics()
    assert metrics["validity"] == metrics["plausibility"] == 1.0
    document = json.loads(result.to_json())
    assert len(document["rows"]) == case.asked


# What the model is taken for


@pytest.mark.parametrize(
    ("taken_for", "says"),
    [("student", "a student of 25 trees"), ("trees", "its own 15 trees"), ("auto", "its own 15 trees")],
)
def test_trees_can_be_taken_for_themselves_or_for_a_student(cases, taken_for, says):
    case = cases("boosting")
    explainer = Explainer(case.model, taken_for=taken_for, **SETTINGS).fit(case.frame, case.y)
    assert says in repr(explainer)
    result = explainer.explain(case.rows[:3])
    wanted = result.status["target"].to_numpy()[result.of]
    assert len(result.answers) == 3
    assert case.model.predict(result.answers).tolist() == wanted.tolist()


def test_a_model_that_could_be_converted_may_be_asked_instead():
    frame = people()
    model = LogisticRegression(max_iter=1000).fit(frame / 1000, outcomes(frame))
    explainer = Explainer(model, taken_for="student", **SETTINGS).fit(frame / 1000, outcomes(frame))
    assert "a student of 25 trees" in repr(explainer)
    exact = Explainer(model, taken_for="exact", **SETTINGS).fit(frame / 1000, outcomes(frame))
    assert "converted exactly" in repr(exact)
    rows = frame[:4] / 1000
    asked, converted = explainer.explain(rows), exact.explain(rows)
    for result in (asked, converted):
        assert (model.predict(result.answers) == result.status["target"].to_numpy()[result.of]).all()
    # The same problem: with gradients it costs no more, without them little more.
    ratio = asked.figures["cost"].mean() / converted.figures["cost"].mean()
    assert 0.95 < ratio < 1.3
    assert (converted.model_calls, converted.model_rows) == (0, 0)


@pytest.mark.parametrize(
    ("name", "taken_for", "message"),
    [
        ("forest", "exact", r"to be converted exactly.*RandomForestClassifier"),
        ("forest", "trees", r"taken for its trees, and RandomForestClassifier cannot"),
        ("function", "trees", r"taken for its trees, and function cannot"),
        ("function", "exact", r"only scikit-learn models can"),
        ("forest", "wood", r"`taken_for` must be one of auto, .*got 'wood'"),
    ],
)
def test_what_a_model_cannot_be_taken_for_is_said(cases, name, taken_for, message):
    case = cases(name)
    with pytest.raises(InvalidInputError, match=message):
        Explainer(case.model, taken_for=taken_for, **SETTINGS).fit(case.frame, case.y)


# What it costs


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


@pytest.mark.parametrize("cap", [1, 20, 60])
def test_a_small_budget_is_kept_and_every_row_has_a_verdict(recorded, cap):
    model, frame, explainer = recorded
    few = Explainer(model, model_rows=cap, **SETTINGS)
    small = replace(explainer.finder_, itself=replace(explainer.finder_.itself, budget=cap))
    few.encoder_, few.model_, few.finder_ = explainer.encoder_, explainer.model_, small
    few.aim_, few.context_ = explainer.aim_, explainer.context_
    finalists = small.search.finalists
    for row in range(2):
        model.forget()
        result = few.explain(frame.iloc[[row]])
        assert result.status["status"].iloc[0] in ("found", "infeasible")
        # The row itself; three searches at most (with a margin, without, and for the nearest miss), and what
        # they find checked once more; then the answer and its corners.
        most = 1 + 3 * cap + 3 * finalists + 1 + FINAL_CORNERS
        if result.status["status"].iloc[0] == "found":
            most = 1 + 2 * cap + 2 * finalists + 1 + FINAL_CORNERS
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


# Targets


@pytest.mark.parametrize("least", [0.75, 0.9])
def test_a_least_probability_is_the_models_own(cases, least):
    case = cases("forest")
    explainer = case.explainer
    already = explainer.explain(case.rows, "yes", min_probability=least)
    proba = case.model.predict_proba(case.rows)[:, 1]
    assert ((already.status["status"] == "already") == (proba >= least - 1e-9)).all()
    assert len(already.answers) > 0
    assert (case.model.predict_proba(already.answers)[:, 1] >= least - 1e-9).all()
    assert (already.figures["probability"] >= least - 1e-9).all()


def test_a_probability_of_exactly_the_least_one_is_enough():
    frame = people()

    def steps(rows):
        return np.select([score(rows) < 0.7, score(rows) < 0.95], [0.1, 0.75], 1.0)

    explainer = Explainer(steps, **SETTINGS).fit(frame, outcomes(frame))
    rows = frame[(score(frame) > 0.75) & (score(frame) < 0.9)][:3]
    assert (explainer.explain(rows, "yes", min_probability=0.75).status["status"] == "already").all()
    below = frame[score(frame) < 0.6][:6]
    result = explainer.explain(below, "yes", min_probability=0.75)
    assert (steps(result.answers) == 0.75).any(), "a certain model is asked for more than was wanted"


def test_other_is_the_cheapest_of_the_outcomes(cases):
    case = cases("three_classes")
    explainer, rows = case.explainer, case.rows
    other = explainer.explain(rows, "other")
    decided = case.decide(rows)
    single = {label: explainer.explain(rows, label) for label in range(3)}
    for row in range(case.asked):
        costs = {
            label: result.figures["cost"][result.of == row].min()
            for label, result in single.items()
            if label != decided[row] and result.status["status"].iloc[row] == "found"
        }
        verdict = other.status.iloc[row]
        if not costs:
            assert verdict["status"] == "infeasible"
            assert verdict["reason"].startswith("no other outcome has an answer")
            continue
        assert verdict["status"] == "found"
        assert verdict["target"] == min(costs, key=costs.get)
        mine = other.answers[other.of == row].reset_index(drop=True)
        theirs = single[verdict["target"]]
        pd.testing.assert_frame_equal(mine, theirs.answers[theirs.of == row].reset_index(drop=True))
    for label, result in single.items():
        assert ((result.status["status"] == "already") == (decided == label)).all()


def test_each_row_may_have_its_own_target(cases):
    case = cases("three_classes")
    decided = case.decide(case.rows)
    wanted = [(int(label) + 1) % 3 for label in decided[:-1]] + [int(decided[-1])]
    result = case.explainer.explain(case.rows, wanted)
    assert result.status["target"].tolist() == wanted
    assert result.status["status"].iloc[-1] == "already"
    assert case.decide(result.answers).tolist() == [wanted[row] for row in result.of]


def test_several_outcomes_and_no_time_left_is_not_called_infeasible(cases):
    case = cases("three_classes")
    result = case.explainer.explain(case.rows, "other", time_limit=0)
    assert (result.status["status"] == "not_reached").all()


# Outcomes of the model


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_a_model_teaches_the_density_where_there_are_no_outcomes(cases, labels):
    case = cases("forest")
    explainer = Explainer(case.model, labels=labels, **SETTINGS).fit(case.frame)
    assert list(explainer.predict_proba(case.rows).columns) == list(case.model.classes_)
    result = explainer.explain(case.rows)
    assert (result.status["status"] == "found").mean() > 0.5
    wanted = result.status["target"].to_numpy()[result.of]
    assert case.decide(result.answers).tolist() == wanted.tolist()


def test_missing_outcomes_are_filled_by_the_model(cases):
    case = cases("function")
    some = pd.Series(case.y, dtype=object).where(np.arange(len(case.y)) < 30, None)
    explainer = Explainer(probabilities, labels="model", **SETTINGS).fit(case.frame, some)
    assert list(explainer.predict_proba(case.rows).columns) == ["no", "yes"]
    result = explainer.explain(case.rows)
    assert case.decide(result.answers).tolist() == result.status["target"].to_numpy()[result.of].tolist()


def test_a_network_learns_from_the_labelled_rows_alone():
    frame = people()
    y = pd.Series(outcomes(frame), dtype=object)
    known = np.arange(len(y)) < 120
    # Rows without an outcome lie where everything is a no; they must not count as any class.
    shifted = frame.assign(income=frame["income"].where(known, 1000), debt=frame["debt"].where(known, 0))
    explainer = Explainer(LinearClassifier(), labels="model", **SETTINGS).fit(shifted, y.where(known, None))
    correct = explainer.predict(shifted[known]).to_numpy() == y[known].to_numpy()
    assert correct.mean() > 0.9
    result = explainer.explain(shifted[:4])
    wanted = result.status["target"].to_numpy()[result.of]
    assert explainer.predict(result.answers).tolist() == wanted.tolist()


def test_outcomes_that_nobody_names_are_asked_for(cases):
    case = cases("function")
    with pytest.raises(InvalidInputError, match=r"`y` must tell the outcomes that function decides between"):
        Explainer(probabilities, labels="model", **SETTINGS).fit(case.frame)
    with pytest.raises(InvalidInputError, match=r"`y` must hold the outcomes of the rows; it was left out"):
        Explainer(probabilities, **SETTINGS).fit(case.frame)
    with pytest.raises(InvalidInputError, match=r"`labels` must be 'given'"):
        Explainer(probabilities, labels="mine", **SETTINGS)


@pytest.mark.parametrize("absent", [0, 2])
def test_an_outcome_that_no_training_row_has_can_still_be_asked_for(cases, absent):
    case = cases("three_classes")
    some = case.y != absent
    explainer = Explainer(case.model, **SETTINGS).fit(case.frame[some], case.y[some])
    result = survives(lambda: explainer.explain(case.frame[some][:2], absent), 2)
    assert case.decide(result.answers).tolist() == [absent] * len(result.answers)


# Models that misbehave


def raising(frame):
    raise KeyError("no such column")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (raising, r"raised KeyError for rows of shape .*no such column"),
        (lambda rows: np.full(len(rows), np.nan), r"are not finite"),
        (lambda rows: np.random.default_rng().random(len(rows)), r"changes its answers between calls"),
        (lambda rows: score(rows).rank(pct=True), r"depends on the rows asked with it"),
        (lambda rows: np.zeros((len(rows), 3)), r"must answer n = "),
        (lambda rows: None, r"must answer n = "),
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


def test_a_model_that_is_gone_makes_rows_invalid(changing):
    model, frame, explainer = changing
    model.behave = model.raising
    result = survives(lambda: explainer.explain(frame[:3]), 3)
    assert (result.status["status"] == "invalid_input").all()
