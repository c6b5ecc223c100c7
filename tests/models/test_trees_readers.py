"""Boosted trees as tensors, compared with their libraries; unsupported trees raise errors."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression

from boosted_trees import QUIET, SCALES, at_thresholds, boosted, classes, rows
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.trees.readers import (
    read_catboost,
    read_gradient_boosting,
    read_hist_gradient_boosting,
    read_lightgbm,
    read_xgboost,
)
from plausiflow.models.trees.relaxation import RelaxedForest


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_forest_answers_as_hist_gradient_boosting(k, missing):
    model = boosted(k, missing)
    forest = read_hist_gradient_boosting(model)
    x = at_thresholds(forest, rows(seed=2, missing=0.2))
    raw = model.decision_function(x)
    values = forest.values(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(values[:, 1] if k == 2 else values, raw, rtol=0, atol=1e-12)
    proba = torch.from_numpy(values).softmax(dim=1).numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=0, atol=1e-12)


def test_a_forest_answers_as_a_regressor():
    x = rows()
    model = HistGradientBoostingRegressor(max_iter=10).fit(x, x[:, 0] ** 2 + x[:, 1])
    values = read_hist_gradient_boosting(model).values(torch.from_numpy(x))
    np.testing.assert_allclose(values[:, 0].numpy(), model.predict(x), rtol=0, atol=1e-12)


def test_trees_that_never_split_are_read():
    model = HistGradientBoostingClassifier(max_iter=3).fit(np.zeros((40, 4)), np.arange(40) % 2)
    forest, x = read_hist_gradient_boosting(model), rows(5)
    values = forest.values(torch.from_numpy(x))
    np.testing.assert_allclose(values.softmax(dim=1).numpy(), model.predict_proba(x), atol=1e-12)
    torch.testing.assert_close(RelaxedForest(forest, SCALES, 0.1)(torch.from_numpy(x)), values)


def test_categorical_splits_are_refused():
    x = rows()
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features=[1]).fit(x, classes(x, 2))
    with pytest.raises(UnsupportedModelError, match="1 categorical columns by sets of levels"):
        read_hist_gradient_boosting(model)


def test_a_logarithmic_link_and_a_model_that_is_not_fitted_are_refused():
    x = rows()
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(x, x[:, 1])
    with pytest.raises(UnsupportedModelError, match="logarithm"):
        read_hist_gradient_boosting(model)
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        read_hist_gradient_boosting(HistGradientBoostingClassifier())


@pytest.mark.parametrize(("k", "loss"), [(2, "log_loss"), (2, "exponential"), (3, "log_loss")])
@pytest.mark.parametrize("init", [None, "zero"])
def test_a_forest_answers_as_gradient_boosting(k, loss, init):
    x = rows()
    model = GradientBoostingClassifier(n_estimators=8, loss=loss, init=init).fit(x, classes(x, k))
    forest = read_gradient_boosting(model)
    x = at_thresholds(forest, rows(seed=2))
    proba = forest.values(torch.from_numpy(x)).softmax(dim=1).numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=0, atol=1e-12)


def test_a_forest_answers_as_a_regressor_of_gradient_boosting_that_stopped_early():
    x = rows()
    model = GradientBoostingRegressor(n_estimators=80, n_iter_no_change=2, random_state=0).fit(
        x, x[:, 1] ** 2
    )
    forest = read_gradient_boosting(model)
    assert len(forest.root) < 80
    values = forest.values(torch.from_numpy(x))[:, 0].numpy()
    np.testing.assert_allclose(values, model.predict(x), rtol=0, atol=1e-12)


def test_gradient_boosting_on_top_of_another_model_is_refused():
    x = rows()
    model = GradientBoostingClassifier(n_estimators=2, init=LogisticRegression(max_iter=1000))
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        read_gradient_boosting(model)
    with pytest.raises(UnsupportedModelError, match="starts from the answers of LogisticRegression"):
        read_gradient_boosting(model.fit(x[:, :3], classes(x, 2)))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_a_forest_answers_as_xgboost(k, booster):
    xgboost = pytest.importorskip("xgboost", reason="needs the extra `trees`")
    x = rows(missing=0.1)
    settings = {"rate_drop": 0.3} if booster == "dart" else {}
    model = xgboost.XGBClassifier(n_estimators=12, max_depth=4, booster=booster, n_jobs=1, **settings)
    model.fit(x, classes(x, k))
    forest = read_xgboost(model)
    x = at_thresholds(forest, rows(seed=2, missing=0.2))
    raw = model.predict(x, output_margin=True)
    values = forest.values(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(values[:, 1] if k == 2 else values, raw, rtol=0, atol=1e-6)
    proba = torch.from_numpy(values).softmax(dim=1).numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=0, atol=1e-6)


def test_of_a_model_that_stopped_early_only_the_trees_it_uses_are_read():
    xgboost = pytest.importorskip("xgboost", reason="needs the extra `trees`")
    x, y = rows(), classes(rows(), 3)
    model = xgboost.XGBClassifier(n_estimators=80, early_stopping_rounds=2, num_parallel_tree=2, n_jobs=1)
    model.fit(x[:200], y[:200], eval_set=[(x[200:], y[200:])], verbose=False)
    forest = read_xgboost(model)
    assert len(forest.root) == 6 * (model.best_iteration + 1) < len(model.get_booster().get_dump())
    proba = forest.values(torch.from_numpy(x)).softmax(dim=1)
    np.testing.assert_allclose(proba.numpy(), model.predict_proba(x), rtol=0, atol=1e-6)


def test_a_forest_answers_as_a_regressor_of_xgboost():
    xgboost = pytest.importorskip("xgboost", reason="needs the extra `trees`")
    x = rows(missing=0.1)
    model = xgboost.XGBRegressor(n_estimators=10, n_jobs=1).fit(x, np.nan_to_num(x[:, 1]))
    values = read_xgboost(model).values(torch.from_numpy(x))
    np.testing.assert_allclose(values[:, 0].numpy(), model.predict(x), rtol=1e-6, atol=1e-6)


def test_xgboost_with_what_a_forest_cannot_hold_is_refused():
    xgboost = pytest.importorskip("xgboost", reason="needs the extra `trees`")
    x, y = rows(), classes(rows(), 2)
    level = pd.DataFrame({"level": pd.Categorical(x[:, 1].astype(int)), "number": x[:, 0]})
    odd = x[:, 1].astype(int) % 2
    refused = {
        "sets of levels": xgboost.XGBClassifier(
            n_estimators=3, enable_categorical=True, max_cat_to_onehot=1
        ).fit(level, odd),
        "not fitted": xgboost.XGBClassifier(),
        "has no trees": xgboost.XGBClassifier(n_estimators=3, booster="gblinear").fit(x, y),
        "takes -1.0 for missing": xgboost.XGBClassifier(n_estimators=3, missing=-1.0).fit(x, y),
        "count:poisson": xgboost.XGBRegressor(n_estimators=3, objective="count:poisson").fit(x, y),
        "several values": xgboost.XGBClassifier(n_estimators=3, multi_strategy="multi_output_tree").fit(
            x, classes(x, 3)
        ),
    }
    for reason, model in refused.items():
        with pytest.raises(UnsupportedModelError, match=reason):
            read_xgboost(model)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("boosting", ["gbdt", "rf"])
def test_a_forest_answers_as_lightgbm(k, missing, boosting):
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra `trees`")
    x = rows(missing=missing)
    settings = {"subsample": 0.7, "subsample_freq": 1} if boosting == "rf" else {}
    model = lightgbm.LGBMClassifier(
        n_estimators=10, num_leaves=8, boosting_type=boosting, n_jobs=1, verbose=-1, **settings
    ).fit(x, classes(x, k))
    forest = read_lightgbm(model)
    x = at_thresholds(forest, rows(seed=2, missing=0.2))
    values = forest.values(torch.from_numpy(x))
    own = model.booster_.predict(x)
    own = np.column_stack([1 - own, own]) if k == 2 else own
    np.testing.assert_allclose(values.softmax(dim=1).numpy(), own, rtol=0, atol=1e-12)
    if boosting == "gbdt":  # raw scores of a random forest are sums, its predictions means
        raw = model.booster_.predict(x, raw_score=True)
        np.testing.assert_allclose(values[:, 1] if k == 2 else values, raw, rtol=0, atol=1e-12)


def test_lightgbm_with_what_a_forest_cannot_hold_is_refused():
    lightgbm = pytest.importorskip("lightgbm", reason="needs the extra `trees`")
    x, y = rows(), classes(rows(), 2)
    quiet = {"n_estimators": 3, "verbose": -1, "n_jobs": 1}
    level = pd.DataFrame({"level": pd.Categorical(x[:, 1].astype(int)), "number": x[:, 0]})
    refused = {
        "sets of levels": lightgbm.LGBMClassifier(**quiet).fit(level, x[:, 1].astype(int) % 2),
        "not fitted": lightgbm.LGBMClassifier(),
        "zero for missing": lightgbm.LGBMClassifier(zero_as_missing=True, **quiet).fit(x * (x > 0), y),
        "linear models": lightgbm.LGBMRegressor(linear_tree=True, **quiet).fit(x, x[:, 0]),
        "poisson": lightgbm.LGBMRegressor(objective="poisson", **quiet).fit(x, y),
    }
    for reason, model in refused.items():
        with pytest.raises(UnsupportedModelError, match=reason):
            read_lightgbm(model)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
def test_a_forest_answers_as_catboost(k, nan_mode, policy):
    catboost = pytest.importorskip("catboost", reason="needs the extra `trees`")
    x = rows(missing=0.2)
    x[:, 2] = rows()[:, 2]  # a column that no training row misses
    model = catboost.CatBoostClassifier(nan_mode=nan_mode, grow_policy=policy, **QUIET).fit(x, classes(x, k))
    forest = read_catboost(model)
    x = at_thresholds(forest, rows(seed=2, missing=0.2))
    raw = model.predict(x, prediction_type="RawFormulaVal")
    values = forest.values(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(values[:, 1] if k == 2 else values, raw, rtol=0, atol=1e-12)
    proba = torch.from_numpy(values).softmax(dim=1).numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=0, atol=1e-12)


def test_a_forest_answers_as_a_regressor_of_catboost_that_stopped_early():
    catboost = pytest.importorskip("catboost", reason="needs the extra `trees`")
    x = rows()
    y = 1e5 + x[:, 1] + np.random.default_rng(3).normal(size=len(x))
    model = catboost.CatBoostRegressor(early_stopping_rounds=2, **{**QUIET, "iterations": 200})
    model.fit(x[:200], y[:200], eval_set=(x[200:], y[200:]))
    forest = read_catboost(model)
    assert len(forest.root) == model.best_iteration_ + 1 < 200
    values = forest.values(torch.from_numpy(x))[:, 0].numpy()
    np.testing.assert_allclose(values, model.predict(x), rtol=1e-14)


def test_catboost_with_what_a_forest_cannot_hold_is_refused():
    catboost = pytest.importorskip("catboost", reason="needs the extra `trees`")
    x = rows()
    level = pd.DataFrame({"level": x[:, 1].astype(int).astype(str), "number": x[:, 0]})
    odd = x[:, 1].astype(int) % 2
    refused = {
        "OneHotFeature": catboost.CatBoostClassifier(
            cat_features=["level"], one_hot_max_size=20, **QUIET
        ).fit(level, odd),
        "OnlineCtr": catboost.CatBoostClassifier(cat_features=["level"], **QUIET).fit(level, odd),
        "not fitted": catboost.CatBoostClassifier(),
        "Poisson": catboost.CatBoostRegressor(loss_function="Poisson", **QUIET).fit(x, x[:, 1]),
        "MultiClassOneVsAll": catboost.CatBoostClassifier(loss_function="MultiClassOneVsAll", **QUIET).fit(
            x, classes(x, 3)
        ),
    }
    for reason, model in refused.items():
        with pytest.raises(UnsupportedModelError, match=reason):
            read_catboost(model)
