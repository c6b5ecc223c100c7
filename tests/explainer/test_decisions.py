"""The decision is the model's own: what is found, already holds or is predicted equals `predict`."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from plausiflow import Explainer
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models import DecisionWarning
from sampling import slow

FAST = {"confidence": None, "judges": 0, "model_rows": 200}
N = 160


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    x = pd.DataFrame({"a": rng.normal(size=N).round(2), "b": rng.normal(size=N).round(2)})
    x["c"] = rng.integers(0, 5, N)
    y = np.where(x.a + 0.5 * x.b + 0.3 * x.c + 0.7 * rng.normal(size=N) > 1.2, "yes", "no")
    return x, pd.Series(y, name="loan")


def chance(frame):
    return 1 / (1 + np.exp(-(frame["a"] + 0.5 * frame["b"] + 0.3 * frame["c"] - 1.2)))


def module():
    linear = torch.nn.Linear(3, 1).double()
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 0.5, 0.3]]))
        linear.bias.fill_(-1.2)
    return linear


class Odd(ClassifierMixin, BaseEstimator):
    """A classifier whose labels no cut-off explains: it refuses large values of b."""

    classes_ = np.array(["no", "yes"])

    def predict_proba(self, frame):
        share = chance(frame).to_numpy()
        return np.column_stack([1 - share, share])

    def predict(self, frame):
        return np.where((chance(frame) >= 0.4) & (frame["b"] < 1), "yes", "no")


class Strict(Odd):
    """A classifier with a cut-off of its own that nothing states."""

    def predict(self, frame):
        return np.where(chance(frame) >= 0.3, "yes", "no")


def svc(x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn will remove `probability`
        return SVC(probability=True, random_state=0).fit(x, y)


def xgboost(x, y):
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, max_depth=3).fit(x, y == "yes")


def lightgbm(x, y):
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=10, verbose=-1).fit(x, y)


def catboost(x, y):
    make = pytest.importorskip("catboost").CatBoostClassifier
    return make(iterations=10, verbose=0, allow_writing_files=False).fit(x, y)


LOGISTIC = LogisticRegression()
FOREST = RandomForestClassifier(10, min_samples_leaf=5, random_state=0)
QUICK = ("fixed on scores", "tuned", "pipeline", "xgboost", "strict")
MODELS = {
    "fixed": lambda x, y: FixedThresholdClassifier(LOGISTIC, threshold=0.25).fit(x, y),
    "fixed for the first label": lambda x, y: FixedThresholdClassifier(
        LOGISTIC, threshold=0.25, pos_label="no"
    ).fit(x, y),
    "fixed on scores": lambda x, y: FixedThresholdClassifier(
        LOGISTIC, threshold=0.4, response_method="decision_function"
    ).fit(x, y),
    "fixed forest": lambda x, y: FixedThresholdClassifier(FOREST, threshold=0.3).fit(x, y),
    "fixed machine": lambda x, y: FixedThresholdClassifier(SVC(), threshold=0.5).fit(x, y),
    "tuned": lambda x, y: TunedThresholdClassifierCV(LOGISTIC, cv=3).fit(x, y),
    "pipeline": lambda x, y: make_pipeline(
        StandardScaler(), FixedThresholdClassifier(LOGISTIC, threshold=0.7)
    ).fit(x, y),
    "search": lambda x, y: GridSearchCV(
        FixedThresholdClassifier(LOGISTIC, threshold=0.2), {"estimator__C": [0.1, 1.0]}, cv=2
    ).fit(x, y),
    "svc": svc,
    "calibrated": lambda x, y: CalibratedClassifierCV(FOREST, cv=2, method="isotonic").fit(x, y),
    "xgboost": xgboost,
    "lightgbm": lightgbm,
    "catboost": catboost,
    "strict": lambda x, y: Strict(),
    "odd": lambda x, y: Odd(),
}


def labels_of(name, y):
    return y == "yes" if name == "xgboost" else y


def fitted(model, x, y, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecisionWarning)
        return Explainer(model, density=KDE(), **FAST, **settings).fit(x, y)


def require_agreement(explainer, predict, rows, y, *, found=0.9):
    """Check that all that an explainer says equals a function of rows that returns labels."""
    np.testing.assert_array_equal(explainer.predict(rows), predict(rows))
    opposite = explainer.explain(rows)
    np.testing.assert_array_equal(opposite.status["predicted"], predict(rows))
    wanted = opposite.status["target"].to_numpy()[opposite.of]
    np.testing.assert_array_equal(predict(opposite.answers), wanted)
    assert (opposite.status["status"] == "found").mean() >= found
    for label in y.unique():
        one = explainer.explain(rows, target=label)
        np.testing.assert_array_equal(one.status["status"] == "already", predict(rows) == label)
        assert (predict(one.answers) == label).all()


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_everything_agrees_with_predict(table, name):
    x, y = table
    y = labels_of(name, y)
    model = MODELS[name](x, table[1])
    explainer = fitted(model, x, y)
    require_agreement(explainer, lambda rows: np.ravel(model.predict(rows)), x[:6], y)
    assert "decides by `predict`" in repr(explainer)


def test_a_function_with_a_cutoff_agrees(table):
    x, y = table
    explainer = fitted(chance, x, y, decision_threshold=0.3)
    assert "a cut-off of 0.3 on the probability of 'yes'" in repr(explainer)
    require_agreement(explainer, lambda rows: np.where(chance(rows) >= 0.3, "yes", "no"), x[:6], y)


@pytest.mark.parametrize("threshold", [0.3, slow({"yes": 0.3}), slow({"no": 0.7}), {"no": 0.35, "yes": 0.15}])
def test_a_torch_module_with_a_cutoff_agrees(table, threshold):
    x, y = table
    explainer = fitted(module(), x, y, decision_threshold=threshold)

    def predict(rows):
        return np.where(chance(rows) >= 0.3, "yes", "no")

    require_agreement(explainer, predict, x[:6], y)


@pytest.mark.slow
def test_a_cutoff_for_each_of_three_outcomes(table):
    x, _ = table
    cuts = np.array([0.2, 0.5, 0.3])

    def probabilities(frame):
        scores = np.column_stack([frame["a"], frame["b"], frame["c"] / 2 - 1])
        shares = np.exp(scores)
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(rows):
        return np.array(["u", "v", "w"])[(probabilities(rows) / cuts).argmax(axis=1)]

    explainer = fitted(
        probabilities,
        x,
        pd.Series(predict(x)),
        decision_threshold=dict(zip("uvw", cuts.tolist(), strict=True)),
    )
    rows = x[:12]
    np.testing.assert_array_equal(explainer.predict(x), predict(x))
    for target in ("runner_up", "other", "v"):
        result = explainer.explain(rows, target=target)
        wanted = result.status["target"].to_numpy()[result.of]
        np.testing.assert_array_equal(predict(result.answers), wanted)
        assert (wanted != predict(rows)[result.of]).all()


def test_the_stated_cutoff_is_used_and_not_a_guess(table):
    x, y = table
    model = MODELS["tuned"](x, y)
    cutoffs = fitted(model, x, y).model_.decision.cutoffs
    assert cutoffs[1] == pytest.approx(model.best_threshold_)


def test_an_unstated_cutoff_is_the_one_with_fewest_digits_that_separates_the_decisions(table):
    x, y = table
    assert fitted(Strict(), x, y).model_.decision.cutoffs == (0.7, 0.3)


def test_labels_that_no_cutoff_explains_cause_a_warning_and_decide(table):
    x, y = table
    with pytest.warns(DecisionWarning, match=r"`predict` of Odd contradicts its largest probability for \d+"):
        explainer = Explainer(Odd(), density=KDE(), **FAST).fit(x, y)
    assert "are only shown" in repr(explainer)
    np.testing.assert_allclose(explainer.predict_proba(x)["yes"], chance(x), atol=1e-12)
    rows = x[:5]
    result = explainer.explain(rows)
    shown = chance(result.answers).to_numpy()
    share = np.where(result.status["target"].to_numpy()[result.of] == "yes", shown, 1 - shown)
    np.testing.assert_allclose(result.figures["probability"], share, atol=1e-9)
    with pytest.raises(InvalidInputError, match="`min_probability` must be None for a model whose `predict`"):
        explainer.explain(rows, min_probability=0.9)


def test_density_and_bank_follow_the_decision(table):
    x, y = table
    explainer = fitted(chance, x, y, decision_threshold=0.3, labels="model")
    decided = (chance(x) >= 0.3).to_numpy()
    assert explainer.context_.y_train.tolist() == decided.astype(int).tolist()
    granted = explainer.encoder_.decode(explainer.engine_.bank.rows[1])
    assert (chance(granted) >= 0.3).all()
    assert (chance(granted) < 0.5).any()


def test_metrics_follow_the_decision(table):
    x, y = table
    explainer = fitted(chance, x, y, decision_threshold=0.2)
    result = explainer.explain(x[(chance(x) < 0.2).to_numpy()][:8], target="yes")
    assert (chance(result.answers) < 0.5).any()
    assert result.metrics()["validity"] == 1.0


def test_a_minimum_probability_below_the_cutoff_is_an_error_and_above_it_is_kept(table):
    x, y = table
    explainer = fitted(MODELS["pipeline"](x, y), x, y)
    with pytest.raises(InvalidInputError, match=r"at least 0\.7 for 'yes'.*got 0\.6"):
        explainer.explain(x[:5], target="yes", min_probability=0.6)
    result = explainer.explain(x[:8], target="yes", min_probability=0.8)
    assert (result.figures["probability"] >= 0.8 - 1e-9).all()
    below = explainer.explain(x[:8], target="no", min_probability=0.4)  # "no" is decided for from 0.3
    assert (below.figures["probability"] >= 0.4 - 1e-9).all()


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        (0.0, "`decision_threshold` must be a cut-off between 0 and 1"),
        (1.5, "`decision_threshold` must be a cut-off between 0 and 1"),
        ("high", "`decision_threshold` must be a cut-off between 0 and 1"),
        ({}, "`decision_threshold` must be a cut-off between 0 and 1"),
        ({"yes": 2}, "`decision_threshold` must be a cut-off between 0 and 1"),
        ({"perhaps": 0.2}, "a cut-off for each of the outcomes 'no', 'yes'"),
    ],
)
def test_a_cutoff_that_is_none_is_an_error(table, threshold, message):
    with pytest.raises(InvalidInputError, match=message):
        Explainer(chance, density=KDE(), **FAST, decision_threshold=threshold).fit(*table)


def test_a_cutoff_is_for_models_that_do_not_decide_themselves(table):
    x, y = table
    settings = {**FAST, "density": KDE(), "decision_threshold": 0.3}
    with pytest.raises(InvalidInputError, match=r"None for a model that decides itself.*FixedThreshold"):
        Explainer(LogisticRegression().fit(x, y), **settings).fit(x, y)
    with pytest.raises(InvalidInputError, match=r"it returns labels, which are the decision"):
        Explainer(lambda frame: np.where(chance(frame) > 0.5, "yes", "no"), **settings).fit(x, y)
    with pytest.raises(InvalidInputError, match=r"must be None for a model that predicts a number"):
        Explainer(LinearRegression().fit(x, x["a"]), **settings).fit(x, x["a"] + 0.001)
    three = pd.Series(np.resize(["u", "v", "w"], len(x)))
    with pytest.raises(InvalidInputError, match=r"a cut-off for each of the 3 outcomes"):
        Explainer(lambda frame: np.full((len(frame), 3), 1 / 3), **settings).fit(x, three)


def test_a_row_alone_is_decided_and_explained_as_in_a_batch(table):
    x, y = table
    explainer = fitted(MODELS["fixed"](x, y), x, y)
    together = explainer.explain(x[:6])
    for row in range(6):
        alone = explainer.explain(x[row : row + 1])
        pd.testing.assert_frame_equal(alone.counterfactuals, together.counterfactuals[row : row + 1])


@pytest.mark.parametrize(
    "name",
    [
        "fixed",
        "function",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("fixed forest", "svc", "odd", "module")),
    ],
)
def test_a_loaded_explainer_decides_as_before(table, tmp_path, name):
    x, y = table
    own = {"function": chance, "module": module()}
    model = own[name] if name in own else MODELS[name](x, y)
    settings = {"decision_threshold": {"yes": 0.3}} if name in own else {}
    explainer = fitted(model, x, y, **settings)
    explainer.save(tmp_path / "saved")
    stored = name in ("fixed", "fixed forest")
    loaded = Explainer.load(tmp_path / "saved", model=None if stored else model)
    assert repr(loaded) == repr(explainer)
    assert loaded.decision_threshold == explainer.decision_threshold
    before, after = explainer.explain(x[:3]), loaded.explain(x[:3])
    pd.testing.assert_frame_equal(before.status, after.status)
    pd.testing.assert_frame_equal(before.answers, after.answers)
    pd.testing.assert_series_equal(explainer.predict(x), loaded.predict(x))
    pd.testing.assert_frame_equal(explainer.predict_proba(x), loaded.predict_proba(x))


def test_a_model_with_another_cutoff_is_not_the_one_that_was_saved(table, tmp_path):
    x, y = table
    explainer = fitted(MODELS["fixed"](x, y), x, y)
    explainer.save(tmp_path / "saved")
    other = FixedThresholdClassifier(LOGISTIC, threshold=0.26).fit(x, y)
    with pytest.raises(ModelError, match=r"states another cut-off than the saved 0\.25 for 'yes'"):
        Explainer.load(tmp_path / "saved", model=other)


def test_trees_with_a_cutoff_are_their_own_surrogate(table):
    x, y = table
    trees = HistGradientBoostingClassifier(max_iter=10, random_state=0)
    explainer = fitted(FixedThresholdClassifier(trees, threshold=0.3).fit(x, y), x, y)
    assert "its own 10 trees" in repr(explainer)
    assert "a cut-off of 0.3" in repr(explainer)


@pytest.mark.parametrize("kind", ["converted", "trees", "regressor", "scores"])
def test_a_row_that_cannot_be_encoded_is_predicted_by_the_model_itself(table, kind):
    x, y = table
    numbers = x.a + 0.5 * x.b + 0.3 * x.c
    model = {
        "converted": lambda: LogisticRegression().fit(x, y),
        "trees": lambda: RandomForestClassifier(10, random_state=0).fit(x, y),
        "regressor": lambda: RandomForestRegressor(10, random_state=0).fit(x, numbers),
        "scores": lambda: svc(x, y),
    }[kind]()
    explainer = Explainer(model, density=KDE(), **FAST).fit(x, numbers if kind == "regressor" else y)
    rows = x.iloc[:6].copy()
    rows.loc[rows.index[[1, 4]], "c"] = 9  # a count that no training row has
    result = explainer.explain(rows, (0.0, None) if kind == "regressor" else "yes")
    assert (result.status["status"] == "invalid_input").to_numpy().nonzero()[0].tolist() == [1, 4]
    expected, predicted = model.predict(rows).tolist(), explainer.predict(rows).tolist()
    assert predicted == (pytest.approx(expected) if kind == "regressor" else expected)


def test_a_row_that_the_model_cannot_read_has_no_prediction(table):
    x, y = table
    x = x.assign(job=np.where(x.b > 0, "clerk", "cook"))
    columns = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(x, y)
    explainer = Explainer(model, density=KDE(), **FAST).fit(x, y)
    rows = x.iloc[:4].assign(job=["clerk", "king", "cook", "king"])
    assert explainer.predict(rows).isna().tolist() == [False, True, False, True]


def test_validity_of_a_result_is_the_decision_about_the_whole_row():
    """An identifier is not encoded, but a model may depend on it."""
    random = np.random.default_rng(0)
    x = pd.DataFrame({f"x{i}": random.normal(size=300).round(2) for i in range(3)})
    x["number"] = np.arange(300) + 5000
    y = np.where(x["x0"] + x["x2"] + (x["number"] - 5150) / 100 > 0, "yes", "no")
    model = RandomForestClassifier(25, random_state=0).fit(x, y)
    explainer = Explainer(model, confidence=None, judges=0)
    with pytest.warns(UserWarning, match="identifier"):
        explainer.fit(x, y, effort="quick")
    result = explainer.explain(x.iloc[::7], "yes")
    found = result.is_found
    assert found.sum() >= 10
    assert result.figures["valid"].all()
    assert (
        result.metrics()["validity"] == (model.predict(result.counterfactuals[found]) == "yes").mean() == 1.0
    )
