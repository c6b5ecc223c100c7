"""Predictors of fitted models: the libraries' own predictions on the same rows are the truth."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from plausiflow.errors import InvalidInputError
from plausiflow.models.predictor import make_predictor
from predictors import (
    FRAME,
    NAMES,
    NEW,
    NO_YES,
    NUMBERS,
    THREE,
    assert_equal,
    chance,
    outcomes,
    pipeline,
    score,
    two,
)


def quiet(call, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)


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
    made = make_predictor(model, FRAME, labels)
    assert made.labels == labels
    assert [type(label) for label in made.labels] == [type(label) for label in labels]
    assert made.output_kind == "probabilities"
    assert_equal(made.outputs(NEW), model.predict_proba(NEW))


@pytest.mark.parametrize("fit_on", [NUMBERS, NUMBERS.to_numpy(dtype=float)], ids=["table", "array"])
def test_a_model_is_given_the_columns_that_it_was_fitted_on(fit_on):
    model = RandomForestClassifier(5, random_state=0).fit(fit_on, outcomes(FRAME, THREE))
    made = make_predictor(model, NUMBERS, THREE)
    rows = NEW[NUMBERS.columns]
    truth = model.predict_proba(rows if fit_on is NUMBERS else rows.to_numpy(dtype=float))
    assert_equal(made.outputs(rows), truth)
    assert_equal(made.outputs(rows[["owns", "age", "the income"]]), truth)
    assert repr(made) == "Predictor(RandomForestClassifier, 3 classes; probabilities)"


def test_a_model_of_some_columns_is_given_these():
    model = KNeighborsClassifier().fit(FRAME[["the income", "age"]], outcomes(FRAME, NO_YES))
    assert_equal(
        make_predictor(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW[["the income", "age"]])
    )


def test_a_model_tells_columns_with_a_space_from_others_with_a_line():
    frame = pd.DataFrame({"the_income": FRAME["age"] * 1.0, "the income": FRAME["the income"]})
    model = KNeighborsClassifier().fit(frame, outcomes(FRAME, NO_YES))
    assert_equal(make_predictor(model, frame, NO_YES).outputs(frame), model.predict_proba(frame))


def test_a_model_that_does_not_name_its_columns_gets_a_table_or_else_an_array():
    class OfTables:
        def predict_proba(self, rows):
            return two(chance(rows))

    class OfArrays:
        def predict_proba(self, rows):
            return two(rows[:, 0].astype(float) / 100)

    assert_equal(make_predictor(OfTables(), FRAME, NO_YES).outputs(NEW), two(chance(NEW)))
    assert_equal(make_predictor(OfArrays(), FRAME, NO_YES).outputs(NEW), two(NEW["age"] / 100))


def test_a_pipeline_that_was_fitted_on_an_array_of_objects_is_given_one():
    steps = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [0, 2, 3]), remainder="passthrough"
    )
    model = make_pipeline(steps, RandomForestClassifier(5, random_state=0))
    model.fit(FRAME.to_numpy(), outcomes(FRAME, NO_YES))
    assert_equal(make_predictor(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW.to_numpy()))


def test_a_pipeline_whose_first_step_names_no_columns_gets_the_table():
    class Choosing(TransformerMixin):
        def fit(self, rows, y=None):
            return self

        def transform(self, rows):
            return rows[["age", "owns"]]

    model = make_pipeline(Choosing(), GaussianNB()).fit(FRAME, outcomes(FRAME, NO_YES))
    assert_equal(make_predictor(model, FRAME, NO_YES).outputs(NEW), model.predict_proba(NEW))


def test_the_order_of_the_classes_is_the_model_s():
    class Backwards:
        classes_ = np.array(["yes", "no", "never"])

        def predict_proba(self, rows):
            return np.column_stack([chance(rows), 1 - chance(rows), np.zeros(len(rows))])

    made = make_predictor(Backwards(), FRAME, NO_YES)
    assert made.labels == ("yes", "no", "never")
    assert_equal(made.outputs(NEW)[:, 0], chance(NEW))


@pytest.mark.parametrize("model", [LinearSVC(), RidgeClassifier(), SVC()])
def test_a_binary_model_without_probabilities_answers_with_scores(model):
    model.fit(NUMBERS, outcomes(FRAME, NO_YES))
    made = make_predictor(model, FRAME, NO_YES)
    outputs = made.outputs(NEW)
    assert made.output_kind == "scores"
    assert_equal(outputs[:, 1], 1 / (1 + np.exp(-model.decision_function(NEW[NUMBERS.columns]))))
    assert [made.labels[i] for i in outputs.argmax(dim=1)] == list(model.predict(NEW[NUMBERS.columns]))


def test_an_outlier_detector_predicts_with_its_scores():
    model = IsolationForest(n_estimators=10, random_state=0).fit(NUMBERS)
    made = make_predictor(model, FRAME, (-1, 1))
    assert made.output_kind == "scores"
    assert (made.outputs(FRAME).argmax(dim=1) * 2 - 1).tolist() == model.predict(NUMBERS).tolist()


def one_hot(found, labels) -> np.ndarray:
    return (np.asarray(found, dtype=object)[:, None] == np.array(labels, dtype=object)).astype(float)


@pytest.mark.parametrize("labels", [THREE, (2, 5, 7)])
def test_a_model_of_three_classes_without_probabilities_answers_with_labels(labels):
    model = SVC().fit(NUMBERS, outcomes(FRAME, labels))
    made = make_predictor(model, FRAME, labels)
    assert made.output_kind == "labels"
    assert_equal(made.outputs(NEW), one_hot(model.predict(NEW[NUMBERS.columns]), labels))


def test_scores_that_disagree_with_the_prediction_are_not_used():
    class Odd(LinearSVC):
        def predict(self, X):
            return self.classes_[(self.decision_function(X) > 0.5).astype(int)]

    model = Odd().fit(NUMBERS, outcomes(FRAME, NO_YES))
    made = make_predictor(model, FRAME, NO_YES)
    assert made.output_kind == "labels"
    assert_equal(made.outputs(NEW), one_hot(model.predict(NEW[NUMBERS.columns]), NO_YES))


@pytest.mark.parametrize("as_column", [False, True])
def test_a_regressor_answers_with_values(as_column):
    y = score(FRAME) * 1e5
    model = pipeline(KNeighborsRegressor()).fit(FRAME, y[:, None] if as_column else y)
    made = make_predictor(model, FRAME, None)
    assert (made.output_kind, made.labels) == ("values", ())
    assert repr(made) == "Predictor(Pipeline, values)"
    assert_equal(made.outputs(NEW), model.predict(NEW).ravel())


def labels_of(n_classes):
    return {2: (0, 1), 3: (0, 1, 2)}[n_classes]


@pytest.mark.parametrize("k", [2, 3])
def test_xgboost_works_as_a_classifier_a_booster_and_a_regressor(k):
    xgboost = pytest.importorskip("xgboost")
    y, rows = outcomes(FRAME, labels_of(k)), NEW[NUMBERS.columns]
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(NUMBERS, y)
    assert_equal(make_predictor(model, FRAME, labels_of(k)).outputs(NEW), model.predict_proba(rows))
    regressor = xgboost.XGBRegressor(n_estimators=5, n_jobs=1).fit(NUMBERS, score(FRAME))
    assert_equal(make_predictor(regressor, FRAME, None).outputs(NEW), regressor.predict(rows))
    made = make_predictor(model.get_booster(), FRAME, labels_of(k))
    assert (made.name, made.output_kind) == ("xgboost.Booster", "probabilities")
    assert_equal(made.outputs(NEW), model.predict_proba(rows))
    assert_equal(make_predictor(regressor.get_booster(), FRAME, None).outputs(NEW), regressor.predict(rows))
    unnamed = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(NUMBERS.to_numpy(dtype=float), y)
    for made in (
        make_predictor(unnamed, NUMBERS, labels_of(k)),
        make_predictor(unnamed.get_booster(), NUMBERS, labels_of(k)),
    ):
        assert_equal(made.outputs(rows), unnamed.predict_proba(rows.to_numpy(dtype=float)))


def test_xgboost_names_booleans_as_in_the_outcomes_and_knows_no_text():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(NUMBERS, outcomes(FRAME, (False, True)))
    assert make_predictor(model, FRAME, (False, True)).labels == (False, True)
    assert type(make_predictor(model, FRAME, (False, True)).labels[0]) is bool
    with pytest.raises(InvalidInputError, match="outcomes that the model knows, 0, 1; got 'no', 'yes'"):
        make_predictor(model, FRAME, NO_YES)


@pytest.mark.parametrize("k", [2, 3])
def test_lightgbm_works_as_a_classifier_a_booster_and_a_regressor(k):
    lightgbm = pytest.importorskip("lightgbm")
    labels = THREE if k == 3 else NO_YES
    frame, new = (some.astype({"job": "category"}) for some in (FRAME, NEW))
    settings = {"n_estimators": 5, "n_jobs": 1, "verbose": -1, "min_child_samples": 5}
    model = lightgbm.LGBMClassifier(**settings).fit(frame, outcomes(frame, labels))
    truth = model.predict_proba(new)
    assert_equal(make_predictor(model, frame, labels).outputs(new), truth)
    made = make_predictor(model.booster_, frame, labels)
    assert (made.name, made.output_kind) == ("lightgbm.Booster", "probabilities")
    assert_equal(made.outputs(new[["job", "owns", "age", "the income"]]), truth)
    regressor = lightgbm.LGBMRegressor(**settings).fit(frame, score(frame))
    for one in (regressor, regressor.booster_):
        assert_equal(make_predictor(one, frame, None).outputs(new), regressor.predict(new))
    unnamed = lightgbm.LGBMClassifier(**settings).fit(NUMBERS.to_numpy(dtype=float), outcomes(frame, labels))
    rows = new[NUMBERS.columns]
    truth = quiet(unnamed.predict_proba, rows.to_numpy(dtype=float))
    for one in (unnamed, unnamed.booster_):
        assert_equal(make_predictor(one, NUMBERS, labels).outputs(rows), truth)


@pytest.mark.parametrize("labels", [NO_YES, THREE, (False, True)])
def test_catboost_is_given_its_columns_in_its_order(labels):
    catboost = pytest.importorskip("catboost")
    settings = {"iterations": 5, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    order = ["owns", "job", "the income", "age"]
    model = catboost.CatBoostClassifier(**settings, cat_features=["job"])
    model.fit(FRAME[order], outcomes(FRAME, labels))
    made = make_predictor(model, FRAME, labels)
    assert made.labels == labels
    assert_equal(made.outputs(NEW), model.predict_proba(NEW[order]))
    regressor = catboost.CatBoostRegressor(**settings).fit(NUMBERS.to_numpy(dtype=float), score(FRAME))
    assert_equal(
        make_predictor(regressor, NUMBERS, None).outputs(NEW[NUMBERS.columns]),
        regressor.predict(NEW[NUMBERS.columns].to_numpy(dtype=float)),
    )
    with pytest.raises(InvalidInputError, match="CatBoostRegressor is a regressor"):
        make_predictor(regressor, NUMBERS, labels)
    inner = catboost.CatBoostClassifier(**settings)
    search, calibrated = GridSearchCV(inner, {"depth": [2]}, cv=2), CalibratedClassifierCV(inner, cv=2)
    for outer, frame in ((search, FRAME), (calibrated, FRAME[["age", "owns"]])):
        outer.fit(FRAME[["owns", "age"]], outcomes(FRAME, labels))
        assert_equal(
            make_predictor(outer, frame, labels).outputs(NEW), outer.predict_proba(NEW[["owns", "age"]])
        )


def test_an_object_that_calls_itself_a_regressor_is_one():
    class Own(RegressorMixin):
        def predict(self, rows):
            return np.where(rows["owns"], 1.0, 0.0)

    assert_equal(make_predictor(Own(), FRAME, None).outputs(NEW), NEW["owns"])
    with pytest.raises(InvalidInputError, match="Own is a regressor"):
        make_predictor(Own(), FRAME, (0, 1))


def test_an_object_with_predict_only_is_read_by_its_answers():
    class Labels(ClassifierMixin, BaseEstimator):
        def predict(self, rows):
            return np.where(rows["owns"], "yes", "no")

    class Probabilities:
        def predict(self, rows):
            return two(chance(rows))

    assert make_predictor(Labels(), FRAME, NO_YES).output_kind == "labels"
    assert_equal(make_predictor(Labels(), FRAME, NO_YES).outputs(NEW), two(NEW["owns"]))
    assert_equal(make_predictor(Probabilities(), FRAME, NO_YES).outputs(NEW), two(chance(NEW)))
