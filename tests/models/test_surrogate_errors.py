"""Models whose trees cannot be read raise an error that says why; rounding alone is no error."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from plausiflow.errors import InvalidInputError
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.surrogate import relax_trees
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from surrogates import LIBRARIES, TAKEN, answers, answers_at, booster, fitted, outcomes, table


def refusal(model, frame, sample=None) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        relax_trees(model, Encoder(Schema.infer(frame)), frame if sample is None else sample)
    return str(caught.value)


def test_what_cannot_be_read_is_refused_with_its_reason():
    frame = table()
    y = outcomes(frame, "two classes")
    numbers = frame[["age", "cents"]]
    forest = RandomForestClassifier(5).fit(numbers, y)
    assert "CatBoost; RandomForestClassifier is not one of them" in refusal(forest, frame)
    assert "SVC is not one of them" in refusal(make_pipeline(StandardScaler(), SVC()).fit(numbers, y), frame)
    unknown = make_pipeline(FunctionTransformer(np.log1p), booster("hist")).fit(numbers, y)
    assert "FunctionTransformer calls <ufunc 'log1p'>" in refusal(unknown, frame)
    assert "function is not one of them" in refusal(lambda rows: rows["age"], frame)
    other = booster("hist").fit(numbers.rename(columns={"age": "years"}), y)
    assert "the table does not have: years" in refusal(other, frame)
    other = booster("hist").fit(numbers.to_numpy(), y)
    assert "an array of 2 columns without names; the table has 9" in refusal(other, frame)


@pytest.mark.parametrize("library", [*LIBRARIES, "gradient"])
def test_a_model_that_is_not_fitted_is_refused(library):
    assert "is not fitted" in refusal(booster(library), table())
    pipeline = make_pipeline(StandardScaler(), booster(library))
    assert "is not fitted" in refusal(pipeline, table())


@pytest.mark.parametrize("library", LIBRARIES)
def test_categories_that_trees_split_themselves_are_refused(library):
    frame = table()
    y = np.unique(outcomes(frame, "two classes"), return_inverse=True)[1]
    categories = frame[["age", "grade"]].assign(job=frame["job"].fillna("none").astype("category"))
    y = y ^ (categories["job"] == "smith")
    given_settings = {
        "hist": {"categorical_features": "from_dtype"},
        "xgboost": {"enable_categorical": True, "max_cat_to_onehot": 1},
        "lightgbm": {},
        "catboost": {"cat_features": ["grade", "job"]},
    }
    model = booster(library, **given_settings[library]).fit(categories, y)
    expected = "features that are not numbers" if library == "catboost" else "by sets of levels"
    assert expected in refusal(model, categories)


def test_an_identifier_is_refused_only_where_a_tree_splits_it():
    frame = table().assign(number=np.random.default_rng(3).permutation(400) * 7919)
    schema = Schema.infer(frame, kinds={"number": "identifier"})
    columns = ["age", "number"]
    useless = booster("hist", max_iter=1, max_leaf_nodes=2).fit(frame[columns], frame["age"] > 50)
    assert relax_trees(useless, Encoder(schema), frame).n_outputs == 2
    used = booster("hist", max_iter=1, max_leaf_nodes=2).fit(frame[columns], frame["number"] > 10**6)
    with pytest.raises(UnsupportedModelError, match="the model uses `number`, an identifier"):
        relax_trees(used, Encoder(schema), frame)


def test_a_model_that_answers_otherwise_than_its_trees_is_refused():
    class Shifted(HistGradientBoostingClassifier):
        def predict_proba(self, rows):
            proba = super().predict_proba(rows)
            return 0.999 * proba + 0.0005

    Shifted.__name__, Shifted.__module__ = "HistGradientBoostingClassifier", "sklearn.ensemble"
    frame = table()
    model = Shifted(max_iter=5).fit(frame[TAKEN], outcomes(frame, "two classes"))
    reason = refusal(model, frame)
    assert "HistGradientBoostingClassifier and of its trees differ by up to" in reason
    assert "e-04" in reason


def test_a_regressor_that_predicts_through_a_link_is_refused():
    frame = table()
    model = booster("xgboost", "regression", objective="binary:logistic")
    model.fit(frame[["age", "cents"]], frame["owns"].astype(float))
    assert "through a link function" in refusal(model, frame)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_value_on_a_threshold_whose_side_only_rounding_tells_is_no_reason_to_refuse(library, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"amount {i}": rng.integers(0, 500, 300) * 0.25 + 1000 for i in range(3)})
    y = frame.sum(axis=1) + rng.normal(size=300) * 20 > 3180
    model = fitted(make_pipeline(StandardScaler(), booster(library)), frame, y.to_numpy())
    encoder = Encoder(Schema.infer(frame))
    surrogate = relax_trees(model, encoder, frame)
    found = answers_at(surrogate, encoder.encode(frame).x)
    np.testing.assert_allclose(found, answers(model, frame), rtol=0, atol=1e-6)


def test_a_sample_of_another_table_is_named():
    frame = table()
    model = booster("hist").fit(frame[TAKEN], outcomes(frame, "two classes"))
    with pytest.raises(InvalidInputError, match="'age'"):
        relax_trees(model, Encoder(Schema.infer(frame)), frame.drop(columns="age"))
