"""Models that are only asked: the libraries' own answers on the same rows are the truth."""

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from plausiflow.classifiers.asked import Asked, asked, non_deterministic
from plausiflow.errors import InvalidInputError, ModelError

NAMES = {"text": ("no", "yes"), "integers": (-1, 4), "zero and one": (0, 1), "booleans": (False, True)}
NO_YES = ("no", "yes")
THREE = ("high", "low", "middle")


def table(n=120, seed=0) -> pd.DataFrame:
    """Whole numbers, a float, a boolean, text; the index is not that of the rows."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.integers(18, 90, n),
        "the income": rng.normal(50, 10, n),
        "owns": rng.random(n) < 0.5,
        "job": rng.choice(["clerk", "nurse", "smith"], n),
    }
    return pd.DataFrame(columns, index=pd.Index(np.arange(n) * 3 + 7))


FRAME = table()
NUMBERS = FRAME[["age", "the income", "owns"]]
NEW = table(50, seed=1)


def score(frame) -> np.ndarray:
    return np.asarray(frame["age"] / 30 + frame["the income"] / 20 + frame["owns"], dtype=float)


def outcomes(frame, labels) -> np.ndarray:
    rng = np.random.default_rng(2)
    codes = pd.qcut(score(frame) + rng.normal(size=len(frame)), len(labels), labels=False)
    return np.array(labels)[codes]


def chance(frame) -> np.ndarray:
    """A probability that a function may answer with, shape (n,)."""
    return 1 / (1 + np.exp(5 - score(frame)))


def pipeline(model):
    columns = make_column_transformer(
        (StandardScaler(), ["the income", "age"]), (OneHotEncoder(sparse_output=False), ["job", "owns"])
    )
    return make_pipeline(columns, model)


def quiet(call, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)


def two(p) -> np.ndarray:
    return np.column_stack([1 - p, p])


def assert_equal(outputs, truth):
    assert outputs.dtype == torch.float64
    np.testing.assert_allclose(outputs.numpy(), truth, atol=1e-7, rtol=0)


MODELS = {
    "forest": RandomForestClassifier(8, random_state=0),
    "search": GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [2, 3]}, cv=2),
    "vote": VotingClassifier([("a", LogisticRegression()), ("b", KNeighborsClassifier())], voting="soft"),
    "boosting": HistGradientBoostingClassifier(max_iter=5),
}


@pytest.mark.parametrize("labels", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("name", MODELS)
def test_a_pipeline_answers_as_predict_proba_with_the_labels_of_its_classes(name, labels):
    model = pipeline(MODELS[name]).fit(FRAME, outcomes(FRAME, labels))
    made = asked(model, FRAME, labels)
    assert made.labels == labels
    assert [type(label) for label in made.labels] == [type(label) for label in labels]
    assert made.answers == "probabilities"
    assert_equal(made.outputs(NEW), model.predict_proba(NEW))


@pytest.mark.parametrize("fit_on", [NUMBERS, NUMBERS.to_numpy(dtype=float)], ids=["table", "array"])
def test_a_model_is_given_the_columns_that_it_was_fitted_on(fit_on):
    model = RandomForestClassifier(5, random_state=0).fit(fit_on, outcomes(FRAME, THREE))
    made = asked(model, NUMBERS, THREE)
    rows = NEW[NUMBERS.columns]
    truth = model.predict_proba(rows if fit_on is NUMBERS else rows.to_numpy(dtype=float))
    assert_equal(made.outputs(rows), truth)
    assert_equal(made.outputs(rows[["owns", "age", "the income"]]), truth)
    assert repr(made) == "Asked(RandomForestClassifier, 3 classes; probabilities)"


def test_a_model_of_some_columns_is_given_these():
    model = KNeighborsClassifier().fit(FRAME[["the income", "age"]], outcomes(FRAME, NO_YES))
    assert_equal(asked(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW[["the income", "age"]]))


def test_a_model_tells_columns_with_a_space_from_others_with_a_line():
    frame = pd.DataFrame({"the_income": FRAME["age"] * 1.0, "the income": FRAME["the income"]})
    model = KNeighborsClassifier().fit(frame, outcomes(FRAME, NO_YES))
    assert_equal(asked(model, frame, NO_YES).outputs(frame), model.predict_proba(frame))


def test_a_model_that_does_not_tell_what_it_takes_is_given_a_table_or_else_an_array():
    class OfTables:
        def predict_proba(self, rows):
            return two(chance(rows))

    class OfArrays:
        def predict_proba(self, rows):
            return two(rows[:, 0].astype(float) / 100)

    assert_equal(asked(OfTables(), FRAME, NO_YES).outputs(NEW), two(chance(NEW)))
    assert_equal(asked(OfArrays(), FRAME, NO_YES).outputs(NEW), two(NEW["age"] / 100))


def test_a_pipeline_that_was_fitted_on_an_array_of_objects_is_given_one():
    steps = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [0, 2, 3]), remainder="passthrough"
    )
    model = make_pipeline(steps, RandomForestClassifier(5, random_state=0))
    model.fit(FRAME.to_numpy(), outcomes(FRAME, NO_YES))
    assert_equal(asked(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW.to_numpy()))


def test_a_pipeline_whose_first_step_does_not_tell_what_it_takes_is_given_the_table():
    class Choosing(TransformerMixin):
        def fit(self, rows, y=None):
            return self

        def transform(self, rows):
            return rows[["age", "owns"]]

    model = make_pipeline(Choosing(), GaussianNB()).fit(FRAME, outcomes(FRAME, NO_YES))
    assert_equal(asked(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW))


def test_the_order_of_the_classes_is_the_model_s():
    class Backwards:
        classes_ = np.array(["yes", "no", "never"])

        def predict_proba(self, rows):
            return np.column_stack([chance(rows), 1 - chance(rows), np.zeros(len(rows))])

    made = asked(Backwards(), FRAME, NO_YES)
    assert made.labels == ("yes", "no", "never")
    assert_equal(made.outputs(NEW)[:, 0], chance(NEW))


@pytest.mark.parametrize("model", [LinearSVC(), RidgeClassifier(), SVC()])
def test_a_binary_model_without_probabilities_answers_with_scores(model):
    model.fit(NUMBERS, outcomes(FRAME, NO_YES))
    made = asked(model, FRAME, NO_YES)
    outputs = made.outputs(NEW)
    assert made.answers == "scores"
    assert_equal(outputs[:, 1], 1 / (1 + np.exp(-model.decision_function(NEW[NUMBERS.columns]))))
    assert [made.labels[i] for i in outputs.argmax(dim=1)] == list(model.predict(NEW[NUMBERS.columns]))


def test_a_detector_of_outliers_is_asked_for_its_scores():
    model = IsolationForest(n_estimators=10, random_state=0).fit(NUMBERS)
    made = asked(model, FRAME, (-1, 1))
    assert made.answers == "scores"
    assert (made.outputs(FRAME).argmax(dim=1) * 2 - 1).tolist() == model.predict(NUMBERS).tolist()


def one_hot(found, labels) -> np.ndarray:
    return (np.asarray(found, dtype=object)[:, None] == np.array(labels, dtype=object)).astype(float)


@pytest.mark.parametrize("labels", [THREE, (2, 5, 7)])
def test_a_model_of_three_classes_without_probabilities_answers_with_labels(labels):
    model = SVC().fit(NUMBERS, outcomes(FRAME, labels))
    made = asked(model, FRAME, labels)
    assert made.answers == "labels"
    assert_equal(made.outputs(NEW), one_hot(model.predict(NEW[NUMBERS.columns]), labels))


def test_scores_that_disagree_with_the_prediction_are_not_used():
    class Odd(LinearSVC):
        def predict(self, X):
            return self.classes_[(self.decision_function(X) > 0.5).astype(int)]

    model = Odd().fit(NUMBERS, outcomes(FRAME, NO_YES))
    made = asked(model, FRAME, NO_YES)
    assert made.answers == "labels"
    assert_equal(made.outputs(NEW), one_hot(model.predict(NEW[NUMBERS.columns]), NO_YES))


@pytest.mark.parametrize("as_column", [False, True])
def test_a_regressor_answers_with_values(as_column):
    y = score(FRAME) * 1e5
    model = pipeline(KNeighborsRegressor()).fit(FRAME, y[:, None] if as_column else y)
    made = asked(model, FRAME, None)
    assert (made.answers, made.labels) == ("values", ())
    assert repr(made) == "Asked(Pipeline, values)"
    assert_equal(made.outputs(NEW), model.predict(NEW).ravel())


def labels_of(n_classes):
    return {2: (0, 1), 3: (0, 1, 2)}[n_classes]


@pytest.mark.parametrize("k", [2, 3])
def test_xgboost_is_asked_as_a_classifier_a_booster_and_a_regressor(k):
    xgboost = pytest.importorskip("xgboost")
    y, rows = outcomes(FRAME, labels_of(k)), NEW[NUMBERS.columns]
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(NUMBERS, y)
    assert_equal(asked(model, FRAME, labels_of(k)).outputs(NEW), model.predict_proba(rows))
    regressor = xgboost.XGBRegressor(n_estimators=5, n_jobs=1).fit(NUMBERS, score(FRAME))
    assert_equal(asked(regressor, FRAME, None).outputs(NEW), regressor.predict(rows))
    made = asked(model.get_booster(), FRAME, labels_of(k))
    assert (made.name, made.answers) == ("xgboost.Booster", "probabilities")
    assert_equal(made.outputs(NEW), model.predict_proba(rows))
    assert_equal(asked(regressor.get_booster(), FRAME, None).outputs(NEW), regressor.predict(rows))
    unnamed = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(NUMBERS.to_numpy(dtype=float), y)
    for made in (asked(unnamed, NUMBERS, labels_of(k)), asked(unnamed.get_booster(), NUMBERS, labels_of(k))):
        assert_equal(made.outputs(rows), unnamed.predict_proba(rows.to_numpy(dtype=float)))


def test_xgboost_names_booleans_as_in_the_outcomes_and_knows_no_text():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(NUMBERS, outcomes(FRAME, (False, True)))
    assert asked(model, FRAME, (False, True)).labels == (False, True)
    assert type(asked(model, FRAME, (False, True)).labels[0]) is bool
    with pytest.raises(InvalidInputError, match="outcomes that the model knows, 0, 1; got 'no', 'yes'"):
        asked(model, FRAME, NO_YES)


@pytest.mark.parametrize("k", [2, 3])
def test_lightgbm_is_asked_as_a_classifier_a_booster_and_a_regressor(k):
    lightgbm = pytest.importorskip("lightgbm")
    labels = THREE if k == 3 else NO_YES
    frame, new = (some.astype({"job": "category"}) for some in (FRAME, NEW))
    settings = {"n_estimators": 5, "n_jobs": 1, "verbose": -1, "min_child_samples": 5}
    model = lightgbm.LGBMClassifier(**settings).fit(frame, outcomes(frame, labels))
    truth = model.predict_proba(new)
    assert_equal(asked(model, frame, labels).outputs(new), truth)
    made = asked(model.booster_, frame, labels)
    assert (made.name, made.answers) == ("lightgbm.Booster", "probabilities")
    assert_equal(made.outputs(new[["job", "owns", "age", "the income"]]), truth)
    regressor = lightgbm.LGBMRegressor(**settings).fit(frame, score(frame))
    for one in (regressor, regressor.booster_):
        assert_equal(asked(one, frame, None).outputs(new), regressor.predict(new))
    unnamed = lightgbm.LGBMClassifier(**settings).fit(NUMBERS.to_numpy(dtype=float), outcomes(frame, labels))
    rows = new[NUMBERS.columns]
    truth = quiet(unnamed.predict_proba, rows.to_numpy(dtype=float))
    for one in (unnamed, unnamed.booster_):
        assert_equal(asked(one, NUMBERS, labels).outputs(rows), truth)


@pytest.mark.parametrize("labels", [NO_YES, THREE, (False, True)])
def test_catboost_is_given_its_columns_in_its_order(labels):
    catboost = pytest.importorskip("catboost")
    settings = {"iterations": 5, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    order = ["owns", "job", "the income", "age"]
    model = catboost.CatBoostClassifier(**settings, cat_features=["job"])
    model.fit(FRAME[order], outcomes(FRAME, labels))
    made = asked(model, FRAME, labels)
    assert made.labels == labels
    assert_equal(made.outputs(NEW), model.predict_proba(NEW[order]))
    regressor = catboost.CatBoostRegressor(**settings).fit(NUMBERS.to_numpy(dtype=float), score(FRAME))
    assert_equal(
        asked(regressor, NUMBERS, None).outputs(NEW[NUMBERS.columns]),
        regressor.predict(NEW[NUMBERS.columns].to_numpy(dtype=float)),
    )
    with pytest.raises(InvalidInputError, match="CatBoostRegressor is a regressor"):
        asked(regressor, NUMBERS, labels)
    inner = catboost.CatBoostClassifier(**settings)
    search, calibrated = GridSearchCV(inner, {"depth": [2]}, cv=2), CalibratedClassifierCV(inner, cv=2)
    for outer, frame in ((search, FRAME), (calibrated, FRAME[["age", "owns"]])):
        outer.fit(FRAME[["owns", "age"]], outcomes(FRAME, labels))
        assert_equal(asked(outer, frame, labels).outputs(NEW), outer.predict_proba(NEW[["owns", "age"]]))


FORMS = {
    "array": lambda frame: two(chance(frame)),
    "single precision": lambda frame: two(chance(frame)).astype(np.float32),
    "list": lambda frame: two(chance(frame)).tolist(),
    "tensor": lambda frame: torch.tensor(two(chance(frame)), requires_grad=True),
    "half tensor": lambda frame: torch.tensor(chance(frame)).bfloat16(),
    "table": lambda frame: pd.DataFrame(two(chance(frame))),
    "named": lambda frame: pd.DataFrame({"no": 1 - chance(frame), "yes": chance(frame)}),
    "shuffled": lambda frame: pd.DataFrame({"yes": chance(frame), "no": 1 - chance(frame)}),
    "nullable": lambda frame: pd.Series(chance(frame), dtype="Float64"),
    "column": lambda frame: chance(frame)[:, None],
    "series": lambda frame: pd.Series(chance(frame), index=frame.index[::-1]),
    "column of tensors": lambda frame: [torch.tensor(p) for p in chance(frame)],
    "squeezed": lambda frame: two(chance(frame)).squeeze(),
    "squeezed column": lambda frame: torch.tensor(chance(frame)).squeeze(),
    "percent off": lambda frame: two(chance(frame)) * 1.0005,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_may_answer_with_probabilities_in_many_forms(form):
    made = asked(FORMS[form], FRAME, NO_YES)
    assert made.answers == "probabilities"
    outputs = made.outputs(NEW)
    np.testing.assert_allclose(outputs.numpy(), two(chance(NEW)), atol=0.01 if "half" in form else 1e-7)
    torch.testing.assert_close(outputs.sum(dim=1), torch.ones(len(NEW)), atol=1e-12, rtol=0)
    assert_equal(made.outputs(NEW.iloc[[3]]), outputs[[3]])


@pytest.mark.parametrize("labels", [*NAMES.values(), THREE, (1.5, 2.5)])
@pytest.mark.parametrize(
    "form", [np.asarray, list, pd.Series, lambda found: np.asarray(found)[:, None], pd.Categorical]
)
def test_a_function_may_answer_with_labels(labels, form):
    def label(frame):
        return form([labels[int(age) % len(labels)] for age in frame["age"]])

    made = asked(label, FRAME, labels)
    assert made.answers == "labels"
    assert repr(made) == f"Asked(a function `label`, {len(labels)} classes; labels)"
    assert_equal(made.outputs(NEW), np.eye(len(labels))[NEW["age"] % len(labels)])


def test_zeros_and_ones_stay_probabilities_where_a_sure_model_becomes_unsure():
    model = ExtraTreesClassifier(8, random_state=0).fit(NUMBERS, outcomes(FRAME, (0, 1)))
    made = asked(lambda frame: model.predict_proba(frame[NUMBERS.columns])[:, 1], FRAME, (0, 1))
    truth = model.predict_proba(NEW[NUMBERS.columns])
    assert made.answers == "labels"
    assert ((truth > 0) & (truth < 1)).any()
    assert_equal(made.outputs(NEW), truth)


def test_zeros_and_ones_are_probabilities_of_the_second_of_two_names():
    made = asked(lambda frame: frame["owns"], FRAME, NO_YES)
    assert made.answers == "probabilities"
    assert made.outputs(NEW).argmax(dim=1).bool().tolist() == NEW["owns"].tolist()


@pytest.mark.parametrize("form", [np.asarray, list, pd.Series, torch.as_tensor, lambda found: found[:, None]])
def test_a_function_may_answer_with_numbers(form):
    made = asked(lambda frame: form(score(frame) - 4), FRAME, None)
    assert_equal(made.outputs(NEW), score(NEW) - 4)


def test_a_function_is_given_every_column_as_in_training_and_numbered_anew():
    seen = []

    def positions(frame):
        seen.append(frame)
        return frame.to_numpy()[:, 0].astype(float) / 100

    made = asked(positions, FRAME, NO_YES)
    assert_equal(made.outputs(NEW[NEW.columns[::-1]])[:, 1], NEW["age"] / 100)
    pd.testing.assert_frame_equal(seen[-1], NEW.reset_index(drop=True))


def test_what_a_function_is_called():
    class Scorer:
        def __call__(self, frame):
            return chance(frame)

    assert asked(chance, FRAME, NO_YES).name == "a function `chance`"
    assert asked(Scorer(), FRAME, NO_YES).name == "a function `Scorer`"
    assert asked(partial(chance), FRAME, NO_YES).name == "a function `partial`"
    assert asked(lambda frame: chance(frame), FRAME, NO_YES).name == "a function `<lambda>`"


def test_calls_and_rows_are_counted_from_zero_and_an_empty_table_costs_none():
    made = asked(chance, FRAME, NO_YES)
    assert (made.calls, made.rows) == (0, 0)
    assert made.outputs(NEW.iloc[:0]).shape == (0, 2)
    assert asked(score, FRAME, None).outputs(NEW.iloc[:0]).shape == (0,)
    assert made.calls == 0
    made.outputs(NEW)
    made.outputs(NEW.iloc[:7])
    assert (made.calls, made.rows) == (2, 57)


def test_an_asked_model_can_be_sent_to_another_process():
    model = pipeline(RandomForestClassifier(3, random_state=0)).fit(FRAME, outcomes(FRAME, NO_YES))
    made = asked(model, FRAME, NO_YES)
    assert_equal(pickle.loads(pickle.dumps(made)).outputs(NEW), model.predict_proba(NEW))


def poor(frame):
    """Raises for some rows, and has no answer for others."""
    if (frame["age"] > 90).any():
        raise ValueError("too old")
    return np.where(frame["owns"], np.nan, chance(frame))


def changing(change):
    """A probability that is changed where rows are younger than 18: not in training."""
    return lambda frame: np.where(frame[["age"]] < 18, change, two(chance(frame)))


@pytest.mark.parametrize("change", [np.nan, np.inf, [-0.5, 1.5], [0.3, 0.3], [1.2, -0.2], [0.5, np.nan]])
def test_a_row_without_an_answer_is_nan_and_the_others_are_not(change):
    made = asked(changing(change), FRAME, NO_YES)
    rows = NEW.assign(age=NEW["age"].where(np.arange(len(NEW)) != 3, 17))
    outputs = made.outputs(rows)
    assert outputs[3].isnan().all()
    others = np.arange(len(NEW)) != 3
    assert_equal(outputs[torch.from_numpy(others)], two(chance(NEW))[others])


def test_a_little_outside_is_put_inside_and_more_is_none_in_every_class():
    def three(frame):
        return np.array([[1.0005, -0.0005, 0.0], [1.2, -0.2, 0.0], [0.2, 0.3, 0.5]])[frame["age"] % 3]

    made = asked(three, FRAME[FRAME["age"] % 3 != 1], THREE)
    outputs = made.outputs(NEW.iloc[:3].assign(age=[30, 31, 32]))
    assert_equal(outputs[::2], [[1, 0, 0], [0.2, 0.3, 0.5]])
    assert outputs[1].isnan().all()


def test_a_value_that_is_not_finite_and_a_label_that_is_unknown_are_nan():
    values = asked(lambda frame: np.where(frame["age"] < 18, np.inf, 2.0), FRAME, None)
    labels = asked(lambda frame: np.where(frame["age"] < 18, "never", "no"), FRAME, NO_YES)
    rows = NEW.iloc[:2].assign(age=[17, 30])
    assert values.outputs(rows).isnan().tolist() == [True, False]
    assert labels.outputs(rows).isnan().all(dim=1).tolist() == [True, False]


def raising(frame):
    if (frame["age"] < 18).any():
        raise RuntimeError("too young")
    return chance(frame)


@settings(max_examples=40)
@given(st.sets(st.integers(0, 49), max_size=2))
def test_rows_that_raise_are_nan_and_no_others(bad):
    made = asked(raising, FRAME, NO_YES)
    rows = NEW.assign(age=[17 if i in bad else age for i, age in enumerate(NEW["age"])])
    outputs = made.outputs(rows)
    assert set(outputs.isnan().any(dim=1).nonzero()[:, 0].tolist()) == bad
    good = [i for i in range(len(NEW)) if i not in bad]
    assert_equal(outputs[good], two(chance(NEW))[good])
    assert made.calls <= 1 + 2 * 6 * len(bad)


def test_a_model_that_raises_for_most_rows_is_asked_at_most_65_times():
    made = asked(raising, FRAME, NO_YES)
    rows = table(1000, seed=3)
    rows.iloc[100:900, 0] = 17
    outputs = made.outputs(rows)
    assert made.calls == 65
    assert outputs[100:900].isnan().all()
    assert not outputs[:60].isnan().any()
    assert not outputs[940:].isnan().any()


@pytest.mark.parametrize("wrong", [lambda p: two(p)[:-1], lambda p: np.zeros((len(p), 3)), lambda p: None])
def test_an_answer_of_a_wrong_shape_raises_later_too(wrong):
    made = asked(lambda f: wrong(chance(f)) if (f["age"] < 18).any() else two(chance(f)), FRAME, NO_YES)
    with pytest.raises(ModelError, match=r"a function `<lambda>` must answer n = 50 rows with probabilities"):
        made.outputs(NEW.assign(age=17))


def noisy(frame):
    return chance(frame) + np.random.uniform(0, 1e-6, len(frame))  # noqa: NPY002


def centred(frame):
    return 1 / (1 + np.exp(-(score(frame) - score(frame).mean())))


def comparing(frame):
    return chance(frame) * 0.9 + 0.05 * (frame["age"].iloc[0] < frame["age"].iloc[-1]) * (len(frame) > 1)


def sorting(frame):
    return np.sort(chance(frame))


class Counting:
    """Changes with every call."""

    n = 0

    def __call__(self, frame):
        self.n += 1
        return chance(frame) * 0.9 + self.n * 1e-3


def of_several_rows(frame):
    if len(frame) == 1:
        raise IndexError("one row only")
    return chance(frame)


BAD = {
    "raises": (
        lambda f: 1 / 0,
        r"raised ZeroDivisionError for rows of shape \(120, 4\), first columns age int64",
    ),
    "alone": (of_several_rows, r"raised IndexError for rows of shape \(1, 4\).* any number of rows"),
    "NaN": (poor, r"of its answers for 120 training rows \d+ are not finite"),
    "infinite": (lambda f: two(chance(f)) * np.inf, "120 are not finite"),
    "negative": (lambda f: two(-chance(f)), "120 are outside"),
    "logits": (lambda f: score(f) - 5, r"are outside \[0, 1\]"),
    "sum": (lambda f: two(chance(f)) * 0.9, "120 do not sum to one"),
    "rows": (lambda f: two(chance(f))[1:], r"must answer n = 120 rows .*got ndarray of shape \(119, 2\)"),
    "columns": (
        lambda f: np.full((len(f), 3), 1 / 3),
        r"shape \(n, 2\), in the order 'no', 'yes', or \(n,\)",
    ),
    "cube": (lambda f: two(chance(f))[None], r"got ndarray of shape \(1, 120, 2\)"),
    "nothing": (lambda f: None, "got NoneType"),
    "dictionary": (lambda f: {"no": chance(f)}, "got dict"),
    "ragged": (lambda f: [[0.5, 0.5]] * (len(f) - 1) + [[1.0]], "got list"),
    "other names": (lambda f: pd.DataFrame({"a": chance(f), "b": 1 - chance(f)}), "with columns 'a', 'b'"),
    "other labels": (
        lambda f: np.where(f["owns"], "Yes", "no"),
        r"out of 'no', 'yes'; .* are none of the outc",
    ),
    "random": (noisy, "changes its answers between calls: .* random state"),
    "counting": (Counting(), "a function `Counting` changes its answers between calls: those for 120 of 120"),
    "centred": (centred, "depends on the rows asked with it"),
    "comparing": (comparing, "depends on the rows asked with it"),
    "sorting": (sorting, "depends on the rows asked with it"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_function_is_refused_with_the_reason(bad):
    function, reason = BAD[bad]
    with pytest.raises(ModelError, match=reason):
        asked(function, FRAME, NO_YES)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda f: two(chance(f)),
            r"must answer n = 120 rows with finite numbers of shape \(n,\); got ndarray",
        ),
        (lambda f: f["job"], "120 are not finite"),
        (lambda f: score(f) / np.where(f["owns"], 1, 0), "are not finite"),
        (lambda f: score(f) - score(f).mean(), "depends on the rows"),
    ],
)
def test_a_bad_function_of_a_number_is_refused_with_the_reason(function, reason):
    with np.errstate(divide="ignore"), pytest.raises(ModelError, match=reason):
        asked(function, FRAME, None)


def test_a_label_that_depends_on_the_other_rows_is_refused():
    with pytest.raises(ModelError, match="depends on the rows asked with it"):
        asked(lambda f: np.where(score(f) > score(f).mean(), "yes", "no"), FRAME, NO_YES)


def test_a_model_that_writes_into_its_rows_harms_no_one():
    def writing(frame):
        answer = chance(frame)
        frame.loc[:, "age"] = 0
        frame["job"] = "none"
        frame.drop(columns="owns", inplace=True)
        return answer

    class WritesIntoArrays:
        n_features_in_ = 3

        def predict(self, rows):
            answer = rows[:, 0] * 2.0
            rows[:] = 0
            return answer

    before, numbers = FRAME.copy(), NUMBERS.astype(float)
    assert_equal(asked(writing, FRAME, NO_YES).outputs(FRAME), two(chance(FRAME)))
    pd.testing.assert_frame_equal(FRAME, before)
    assert_equal(asked(WritesIntoArrays(), numbers, None).outputs(numbers), FRAME["age"] * 2.0)
    pd.testing.assert_frame_equal(numbers, NUMBERS.astype(float))


def test_a_model_s_warnings_are_not_shown():
    def warning(frame):
        warnings.warn("do not look", stacklevel=1)
        return chance(frame)

    assert_equal(asked(warning, FRAME, NO_YES).outputs(NEW), two(chance(NEW)))


def test_a_model_in_single_precision_may_differ_a_little_between_batches():
    layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).float()

    def value(frame):
        with torch.no_grad():
            return layers(torch.tensor(frame[["age", "the income"]].to_numpy()).float()) * 1e5

    assert_equal(asked(value, FRAME, None).outputs(NEW), value(NEW)[:, 0].double())


REFUSED = {
    "a class": (RandomForestClassifier, NO_YES, "got the class RandomForestClassifier. Fit it"),
    "a word": ("forest", NO_YES, "a function of the table's rows; got str"),
    "a regressor": (LinearRegression().fit(NUMBERS, score(FRAME)), NO_YES, "LinearRegression is a regressor"),
    "a pipeline": (
        pipeline(RandomForestRegressor(3)).fit(FRAME, score(FRAME)),
        NO_YES,
        "Pipeline is a regressor",
    ),
    "a classifier": (
        LogisticRegression().fit(NUMBERS, outcomes(FRAME, NO_YES)),
        None,
        "LogisticRegression is a classifier",
    ),
    "margins": (LinearSVC().fit(NUMBERS, outcomes(FRAME, NO_YES)), None, "LinearSVC is a classifier"),
    "unknown": (
        SVC().fit(NUMBERS, outcomes(FRAME, NO_YES)),
        ("no", "si", "yes"),
        "knows, 'no', 'yes'; got 'si'",
    ),
    "other columns": (
        SVC().fit(NUMBERS.rename(columns={"age": "years"}), outcomes(FRAME, NO_YES)),
        NO_YES,
        "not have: years",
    ),
    "fewer columns": (
        SVC().fit(NUMBERS.to_numpy(dtype=float), outcomes(FRAME, NO_YES)),
        NO_YES,
        "an array of 3 columns",
    ),
    "two outcomes": (
        MultiOutputClassifier(DecisionTreeClassifier()).fit(
            NUMBERS, np.column_stack([outcomes(FRAME, NO_YES), outcomes(FRAME, THREE)])
        ),
        NO_YES,
        "must predict one outcome; MultiOutputClassifier predicts 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_of_the_table_is_refused(case):
    model, labels, reason = REFUSED[case]
    with pytest.raises(InvalidInputError, match=reason):
        asked(model, FRAME, labels)


def test_an_object_that_calls_itself_a_regressor_is_one():
    class Own(RegressorMixin):
        def predict(self, rows):
            return np.where(rows["owns"], 1.0, 0.0)

    assert_equal(asked(Own(), FRAME, None).outputs(NEW), NEW["owns"])
    with pytest.raises(InvalidInputError, match="Own is a regressor"):
        asked(Own(), FRAME, (0, 1))


def test_an_object_with_predict_only_is_read_by_its_answers():
    class Labels(ClassifierMixin, BaseEstimator):
        def predict(self, rows):
            return np.where(rows["owns"], "yes", "no")

    class Probabilities:
        def predict(self, rows):
            return two(chance(rows))

    assert asked(Labels(), FRAME, NO_YES).answers == "labels"
    assert_equal(asked(Labels(), FRAME, NO_YES).outputs(NEW), two(NEW["owns"]))
    assert_equal(asked(Probabilities(), FRAME, NO_YES).outputs(NEW), two(chance(NEW)))


@pytest.mark.parametrize("model", [RandomForestClassifier(), pipeline(SVC()), LinearRegression()])
def test_a_model_that_is_not_fitted_is_refused(model):
    labels = None if isinstance(model, LinearRegression) else NO_YES
    with pytest.raises(ModelError, match=r"raised NotFittedError .*It must be fitted"):
        asked(model, FRAME, labels)


def test_a_table_without_rows_is_refused():
    with pytest.raises(InvalidInputError, match="must hold training rows"):
        asked(chance, FRAME.iloc[:0], NO_YES)


def test_one_training_row_is_enough():
    assert asked(chance, FRAME.iloc[:1], NO_YES).outputs(NEW).shape == (50, 2)


def test_a_large_table_is_asked_about_a_few_of_its_rows():
    sizes = []

    def counting(frame):
        sizes.append(len(frame))
        return chance(frame)

    asked(counting, table(5000), NO_YES)
    assert max(sizes) == 256
    assert len(sizes) <= 10


def test_rows_with_other_outputs_are_told_from_the_same():
    first = torch.tensor([[0.5, 0.5], [0.2, 0.8], [torch.nan] * 2, [torch.nan] * 2, [0.1, 0.9]])
    again = torch.tensor([[0.5, 0.5], [0.3, 0.7], [torch.nan] * 2, [0.4, 0.6], [0.1 + 1e-8, 0.9 - 1e-8]])
    assert non_deterministic(first, again).tolist() == [False, True, False, True, False]
    assert non_deterministic(first, again, tolerance=1e-9).tolist() == [False, True, False, True, True]
    values = torch.tensor([1e6, 1e6, 0.0])
    assert non_deterministic(values, values + torch.tensor([0.1, 10, 0.1])).tolist() == [False, True, True]
    assert non_deterministic(torch.zeros(0, 2), torch.zeros(0, 2)).tolist() == []


def test_an_asked_model_can_be_made_of_any_respond():
    made = Asked(name="mine", answers="scores", labels=NO_YES, respond=lambda frame: score(frame) - 5)
    assert_equal(made.outputs(NEW), two(chance(NEW)))
