"""Shared by the tests of surrogates: a table, models of it, and the predictions of model and surrogate."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    StandardScaler,
)

COLDEST = 1e-12
NUMBERS = ["age", "the income", "gain", "rate", "cents"]
LEVELS = ["owns", "lines", "job", "grade"]
TAKEN = [*NUMBERS, "owns", "lines"]
"""Columns that trees take as they are."""


LIBRARIES = ["hist", "xgboost", "lightgbm", "catboost"]


def table(seed=0, n=400, missing=0.15) -> pd.DataFrame:
    """Whole numbers, a heavy tail, many zeros, missing cells, a fine grid, booleans, few values, levels."""
    rng = np.random.default_rng(seed)
    gone = [rng.random(n) < missing for _ in range(3)]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "the income": rng.lognormal(3, 1.5, n),
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 300, n)),
            "rate": np.where(gone[0], np.nan, rng.normal(size=n)),
            "cents": rng.integers(0, 5000, n) / 100,
            "owns": rng.random(n) < 0.4,
            "lines": pd.Series(rng.integers(0, 4, n), dtype=float).mask(gone[1]),
            "job": pd.Series(rng.choice(["clerk", "nurse", "smith"], n), dtype=object).mask(gone[2]),
            "grade": pd.Categorical(rng.choice(list("ABC"), n), categories=list("ABC"), ordered=True),
        }
    )


def scores(frame, seed=1) -> np.ndarray:
    """Something that has to do with every column."""
    noise = np.random.default_rng(seed).normal(size=len(frame)) * 0.5
    score = frame["age"] / 20 + np.log(frame["the income"]) + (frame["gain"] > 0) + frame["cents"] / 20
    return (score + frame["rate"].fillna(0.3) + frame["owns"] + frame["lines"].fillna(0) + noise).to_numpy()


def outcomes(frame, task) -> np.ndarray:
    score = scores(frame)
    if task == "regression":
        return 1000 * score
    k = {"two classes": 2, "three classes": 3}[task]
    return np.array(["no", "yes", "perhaps"])[:k][pd.qcut(score, k, labels=False)]


def booster(library, task="two classes", **settings):
    """An estimator, small and quiet."""
    regression = task == "regression"
    if library == "hist":
        made = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
        return made(**{"max_iter": 15, "random_state": 0, **settings})
    if library == "gradient":
        made = GradientBoostingRegressor if regression else GradientBoostingClassifier
        return made(**{"n_estimators": 10, "random_state": 0, **settings})
    module = pytest.importorskip(library, reason="needs the extra `trees`")
    if library == "xgboost":
        made = module.XGBRegressor if regression else module.XGBClassifier
        return made(**{"n_estimators": 15, "max_depth": 4, "n_jobs": 1, **settings})
    if library == "lightgbm":
        made = module.LGBMRegressor if regression else module.LGBMClassifier
        return made(**{"n_estimators": 15, "num_leaves": 15, "n_jobs": 1, "verbose": -1, **settings})
    made = module.CatBoostRegressor if regression else module.CatBoostClassifier
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return made(**{"iterations": 15, "depth": 4, **quiet, **settings})


def in_singles(model) -> bool:
    """Whether it is XGBoost, perhaps in a pipeline."""
    return type(getattr(model, "steps", [(0, model)])[-1][1]).__name__.startswith("XGB")


def fitted(model, rows, y):
    """XGBoost takes classes as numbers."""
    if in_singles(model) and y.dtype.kind != "f":
        y = np.unique(y, return_inverse=True)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, y)


def new_rows(frame, seed=5, n=300) -> pd.DataFrame:
    """Every column drawn by itself; numbers moved, some beyond the table's range."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({name: frame[name].iloc[rng.integers(0, len(frame), n)].array for name in frame})
    for name in ("the income", "rate", "gain"):
        rows[name] = rows[name] * rng.uniform(0.2, 1.6, n)
    rows["age"] = rows["age"] + rng.integers(-10, 10, n)
    return rows


def answers(model, rows) -> np.ndarray:
    """Probabilities of a classifier, or values of a regressor; shape (n, k) or (n, 1)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)[:, None]


def answers_at(surrogate, x, temperature=COLDEST) -> np.ndarray:
    outputs = surrogate.at(temperature)(x).detach()
    return (outputs.softmax(dim=1) if surrogate.n_outputs > 1 else outputs).numpy()


def preprocessing(number, level=None) -> ColumnTransformer:
    level = level or OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", number, NUMBERS), ("levels", level, LEVELS)])


def scaled() -> object:
    return make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
