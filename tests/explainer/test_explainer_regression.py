"""The explainer with models that predict a number: answers are predicted inside the bounds."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression

from explaining import broken_rules, survives, unlike_training
from plausiflow import Explainer, Immutable, Linear, Range
from plausiflow.core.training import Training
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, PlausiflowError, ShapeError
from plausiflow.models import black_box, surrogate
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting
from plausiflow.search import learn
from plausiflow.search.evolution import Evolution
from sampling import slow_unless

SETTINGS = {"confidence": None, "judges": 0, "plausibility": 0.1, "max_extra_cost": 0.0}
RULES = [Immutable("age"), Range("savings", 0.5, None), Linear("debt <= income")]
ASKED = 6


@pytest.fixture(scope="module", autouse=True)
def brief():
    """Densities and surrogates that learn for a moment only, and short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(learn, "MEMBERS", 2)
        patch.setattr(black_box, "MIN_SURROGATE_ROWS", 2000)
        student = partial(surrogate.imitate_regressor, n_trees=25, n_leaves=15)
        patch.setattr(surrogate, "imitate_regressor", student)
        patch.setattr(verified, "ITERATIONS", 8)
        short = partial(verified.BlackBoxSearch, evolution=Evolution(rounds=4))
        patch.setattr(fitting, "BlackBoxSearch", short)
        yield


@pytest.fixture(scope="module")
def frame():
    """Numbers on grids and off them; debts do not exceed incomes."""
    draw = np.random.default_rng(0)
    income = draw.integers(10, 80, 240)
    return pd.DataFrame(
        {
            "age": draw.integers(20, 70, 240),
            "income": income * 100,
            "debt": (income * draw.random(240)).astype(np.int64) * 100,
            "savings": draw.uniform(0.5, 9, 240),
        }
    )


def limit(rows):
    """What a bank lends, in thousands."""
    return rows["income"] / 800 + 0.5 * rows["savings"] - rows["debt"] / 1600


class Lending(torch.nn.Module):
    """The same as a torch module of the table's columns."""

    def forward(self, x):
        return x[:, 1] / 800 + 0.5 * x[:, 3] - x[:, 2] / 1600


MODELS = {
    "forest": RandomForestRegressor(15, random_state=0),
    "boosting": HistGradientBoostingRegressor(max_iter=15),
    "linear": LinearRegression(),
    "torch": Lending(),
    "function": limit,
    "catboost": None,
    "xgboost": None,
}
SAYS = {
    "forest": "a surrogate of 25 trees",
    "boosting": "its own 15 trees with soft splits",
    "linear": "LinearRegression, converted exactly",
    "torch": "a torch module that returns numbers",
    "function": "a function `limit`, which returns values",
    "catboost": "its own 15 trees with soft splits",
    "xgboost": "its own 15 trees with soft splits",
}


def booster(name):
    if name == "catboost":
        library = pytest.importorskip("catboost")
        return library.CatBoostRegressor(
            iterations=15, depth=3, verbose=False, allow_writing_files=False, thread_count=1
        )
    return pytest.importorskip("xgboost").XGBRegressor(n_estimators=15, n_jobs=1)


def ask(model, rows):
    """What a model predicts, asked by hand."""
    if isinstance(model, torch.nn.Module):
        return model(torch.tensor(rows.to_numpy(np.float64))).numpy()
    return np.asarray(model.predict(rows) if hasattr(model, "predict") else model(rows))


@pytest.fixture(scope="module")
def explained(frame):
    """The model, its explainer, and the rows with bounds in which some of them are already."""
    made = {}

    def get(name):
        if name not in made:
            model = booster(name) if MODELS[name] is None else MODELS[name]
            if hasattr(model, "fit"):
                model = model.fit(frame, limit(frame))
            explainer = Explainer(model, constraints=RULES, **SETTINGS).fit(frame, limit(frame))
            made[name] = model, explainer, explainer.explain(frame[:ASKED], (5.0, 6.5))
        return made[name]

    return get


every_model = pytest.mark.parametrize("name", slow_unless(set(MODELS) - {"catboost", "forest"}, MODELS))


@every_model
def test_the_model_itself_predicts_every_answer_inside_the_bounds(explained, frame, name):
    model, _, result = explained(name)
    before = ask(model, frame[:ASKED])
    inside = (before >= 5) & (before <= 6.5)
    assert ((result.status["status"] == "already") == inside).all()
    assert (result.status["status"] == "found").sum() >= 0.6 * (~inside).sum()
    predicted = ask(model, result.answers)
    assert ((predicted >= 5) & (predicted <= 6.5)).all()
    np.testing.assert_allclose(result.figures["prediction"], predicted, rtol=1e-6)
    np.testing.assert_allclose(result.status["predicted"].astype(float), before, rtol=1e-6)
    assert result.figures["probability"].isna().all()
    assert result.status["probability"].isna().all()
    assert (result.status["target"] == "5 to 6.5").all()


@every_model
def test_answers_keep_the_rules_and_the_grids(explained, frame, name):
    _, explainer, result = explained(name)
    assert broken_rules(explainer, result) == []
    assert unlike_training(frame, result) == []
    assert result.answers.dtypes.equals(frame.dtypes)
    assert (result.figures["score"] >= 0).all()


@every_model
def test_results_can_be_passed_on(explained, name):
    _, explainer, result = explained(name)
    survives(lambda: result, ASKED)
    assert SAYS[name] in repr(explainer)
    document = json.loads(result.to_json())
    assert [row["target"] for row in document["rows"]] == ["5 to 6.5"] * ASKED
    metrics = result.metrics()
    assert metrics["plausibility"] == 1.0
    assert 0 < metrics["coverage"] <= 1
    summary = str(result.summary())
    assert f"{ASKED} rows" in summary
    assert "What changes:" in summary
    for row, sentence in enumerate(result.sentences):
        if result.status["status"].iloc[row] == "already":
            assert sentence == "No change needed: outcome is already 5 to 6.5."
        else:
            assert sentence
    assert ("steady" in result.figures) == ("without gradients" in repr(explainer))


@every_model
def test_predictions_are_those_of_the_model(explained, frame, name):
    model, explainer, _ = explained(name)
    rows = frame[10:14].set_axis(list("abcd"), axis=0)
    predicted = explainer.predict(rows)
    assert predicted.index.equals(rows.index)
    np.testing.assert_allclose(predicted, ask(model, rows), rtol=1e-6)
    with pytest.raises(InvalidInputError, match=r"this one predicts a number\. Use `predict`"):
        explainer.predict_proba(rows)
    with pytest.raises(
        InvalidInputError, match=r"`min_probability` must be .*None for a model that predicts a number"
    ):
        explainer.explain(rows, (5, 6), min_probability=0.9)


@pytest.mark.parametrize("name", ["boosting", "linear"])
@pytest.mark.parametrize("target", [(8.0, None), (None, 4.5)])
def test_one_bound_is_enough(explained, frame, name, target):
    model, explainer, _ = explained(name)
    result = explainer.explain(frame[:4], target)
    low, high = (-np.inf if target[0] is None else target[0]), (np.inf if target[1] is None else target[1])
    before = ask(model, frame[:4])
    assert ((result.status["status"] == "already") == ((before >= low) & (before <= high))).all()
    assert len(result.answers) > 0
    predicted = ask(model, result.answers)
    assert ((predicted >= low) & (predicted <= high)).all()
    words = "at least 8" if target[1] is None else "at most 4.5"
    assert (result.status["target"] == words).all()


@pytest.mark.parametrize("make", [list, np.array, pd.DataFrame])
def test_every_row_may_have_its_own_bounds(explained, frame, make):
    model, explainer, _ = explained("linear")
    bounds = [(7.0, 8.0), (np.nan, 4.0), (9.0, np.nan), (4.0, 6.0)]
    result = explainer.explain(frame[:4], make(bounds))
    predicted = ask(model, result.answers)
    for answer, row in enumerate(result.of):
        low, high = bounds[row]
        assert not predicted[answer] < low
        assert not predicted[answer] > high
    assert result.status["target"].tolist() == ["7 to 8", "at most 4", "at least 9", "4 to 6"]
    assert len(result.answers) >= 2


def test_a_row_alone_is_explained_as_among_others(explained, frame):
    for name in ("forest", "linear"):
        _, explainer, together = explained(name)
        row = int(together.of[-1])
        alone = explainer.explain(frame.iloc[[row]], (5.0, 6.5))
        before = together.answers[together.of == row].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone.answers, before, check_exact=True)


def test_several_answers_are_all_inside(explained, frame):
    model, explainer, _ = explained("boosting")
    rows = frame[ask(model, frame) < 4.5][:2]
    result = explainer.explain(rows, (5.0, 6.5), k=3)
    predicted = ask(model, result.answers)
    assert ((predicted >= 5) & (predicted <= 6.5)).all()
    assert len(result.answers.drop_duplicates()) == len(result.answers) >= 4


def test_bounds_that_nothing_reaches_have_a_reason(explained, frame):
    _, explainer, _ = explained("boosting")
    result = survives(lambda: explainer.explain(frame[:2], (90.0, 100.0), relaxed=True), 2)
    assert (result.status["status"] == "infeasible").all()
    assert (result.status["reason"].str.len() > 20).all()


def test_narrow_bounds_are_met_or_said_to_be_out_of_reach(explained, frame):
    model, explainer, _ = explained("function")
    result = explainer.explain(frame[:2], (5.0, 5.05))
    predicted = ask(model, result.answers)
    assert ((predicted >= 5) & (predicted <= 5.05)).all()
    assert (result.status["reason"].str.len() > 20)[result.status["status"] != "found"].all()


def test_without_time_nothing_is_searched(explained, frame):
    _, explainer, result = explained("forest")
    late = explainer.explain(frame[:ASKED], (5.0, 6.5), time_limit=0)
    already = result.status["status"] == "already"
    assert (late.status["status"][already] == "already").all()
    assert (late.status["status"][~already] == "not_reached").all()


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("opposite", InvalidInputError),
        (5.0, InvalidInputError),
        ((6, 5), InvalidInputError),
        ((None, None), InvalidInputError),
        (("a", "b"), InvalidInputError),
        ([(1, 2)] * 3, ShapeError),
    ],
)
def test_a_target_that_is_no_bounds_is_refused(explained, frame, target, error):
    _, explainer, _ = explained("linear")
    with pytest.raises(error, match=r"`target` must be the smallest and the largest number wanted"):
        explainer.explain(frame[:2], target)


def test_rows_that_cannot_be_read_are_invalid(explained, frame):
    for name in ("forest", "linear"):
        _, explainer, _ = explained(name)
        rows = frame[:3].astype({"savings": object})
        rows.loc[1, "savings"] = "plenty"
        result = survives(lambda rows=rows, explainer=explainer: explainer.explain(rows, (5.0, 6.5)), 3)
        assert result.status["status"].iloc[1] == "invalid_input"
        assert np.isnan(result.status["predicted"].astype(float).iloc[1])


# Outcomes


def test_a_model_teaches_the_density_where_there_are_no_outcomes(explained, frame):
    model, _, _ = explained("forest")
    explainer = Explainer(model, labels="model", **SETTINGS).fit(frame)
    result = explainer.explain(frame[:4], (5.0, 6.5))
    predicted = ask(model, result.answers)
    assert len(predicted) > 0
    assert ((predicted >= 5) & (predicted <= 6.5)).all()
    edges = np.quantile(ask(model, frame), [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_allclose(explainer.criterion_.edges[1:-1], edges, rtol=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda y: None, r"`y` must"),
        (lambda y: y[:-1], r"must have 240 outcomes, one for each row; got 239"),
        (lambda y: y.where(y < 9), r"must hold finite numbers"),
        (lambda y: y * 0 + 3, r"finite numbers that differ"),
        (lambda y: ["text"] * 240, r"must hold finite numbers"),
    ],
)
def test_outcomes_that_are_no_numbers_are_refused(explained, frame, make, message):
    model, _, _ = explained("forest")
    with pytest.raises(PlausiflowError, match=message):
        Explainer(model, **SETTINGS).fit(frame, make(limit(frame)))


def test_whole_numbers_are_predicted_too(frame):
    y = (limit(frame) * 10).round().astype(int)
    model = RandomForestRegressor(10, random_state=0).fit(frame, y)
    explainer = Explainer(model, **SETTINGS).fit(frame, y)
    result = explainer.explain(frame[:3], (50, 65))
    assert ((ask(model, result.answers) >= 50) & (ask(model, result.answers) <= 65)).all()
    assert explainer.predict(frame[:3]).dtype == np.float64


def test_few_different_outcomes_have_a_density_each(frame):
    y = np.digitize(limit(frame), [4.0, 6.0]).astype(float)
    model = RandomForestRegressor(10, random_state=0).fit(frame, y)
    explainer = Explainer(model, **SETTINGS).fit(frame, y)
    assert explainer.criterion_.edges[1:-1] == (1.0, 2.0)
    result = explainer.explain(frame[:4], (1.7, None))
    assert (ask(model, result.answers) >= 1.7).all()
    assert len(result.answers) > 0


def test_a_regressor_is_none_of_classes_and_a_classifier_predicts_no_numbers(explained, frame):
    model, _, _ = explained("forest")
    with pytest.raises(PlausiflowError):
        Explainer(model, **SETTINGS).fit(frame, np.where(limit(frame) > 5, "much", "little"))
    decider = RandomForestClassifier(5, random_state=0).fit(frame, limit(frame) > 5)
    with pytest.raises(PlausiflowError):
        Explainer(decider, **SETTINGS).fit(frame, limit(frame))


@pytest.mark.parametrize("kind", ["constant", "holes"])
def test_predictions_that_teach_nothing_are_refused(frame, kind):
    absent = float(frame["savings"].iloc[1])  # not among the rows that are asked about first

    def model(rows):
        if kind == "constant":
            return np.full(len(rows), 5.5)
        return limit(rows).where(rows["savings"] != absent, np.nan)

    more = pd.concat([frame] * 3, ignore_index=True)
    more.loc[240:, "savings"] += 0.01
    y = limit(more)
    with pytest.raises(PlausiflowError, match="finite numbers that differ"):
        Explainer(model, labels="model", **SETTINGS).fit(more, y)


def test_a_function_is_given_the_dtypes_of_the_table(frame):
    seen = []

    def recorder(rows):
        seen.append(rows.dtypes)
        return limit(rows)

    own = frame.astype({"age": "int16", "savings": "float32"})
    explainer = Explainer(recorder, **SETTINGS).fit(own, limit(own).astype(float))
    result = explainer.explain(own[:2], (5.0, 6.5))
    assert result.model_calls > 0
    assert all(dtypes.equals(own.dtypes) for dtypes in seen)
