"""A table with all kinds of columns, and preprocessing of them, for the tests of conversions."""

import warnings

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema

ROWS = 150
NUMBERS = ["age", "income", "gain", "rate"]
LEVELS = ["owns", "job", "grade", "lines"]


def table(seed=0, n=ROWS, missing=0.15) -> pd.DataFrame:
    """Return whole numbers, a heavy tail, many zeros, missing cells, booleans, text, ordered levels."""
    rng = np.random.default_rng(seed)
    gone = [rng.random(n) < missing for _ in range(3)]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.lognormal(3, 1.5, n),
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 300, n)),
            "rate": np.where(gone[0], np.nan, rng.normal(size=n)),
            "owns": rng.random(n) < 0.4,
            "job": pd.Series(rng.choice(["clerk", "nurse", "smith"], n), dtype=object).mask(gone[1]),
            "grade": pd.Categorical(rng.choice(list("ABC"), n), categories=list("ABC"), ordered=True),
            "lines": pd.Series(rng.integers(0, 4, n), dtype=float).mask(gone[2]),
            "country": "X",
        }
    )


def new_rows(frame, seed=1, n=200) -> pd.DataFrame:
    """Return rows with independently drawn columns; numbers move, some beyond the table's range."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({name: frame[name].iloc[rng.integers(0, len(frame), n)].array for name in frame})
    for name in ("income", "rate"):
        rows[name] = rows[name] * rng.uniform(0.2, 1.6, n)
    rows["age"] = rows["age"] + rng.integers(-10, 10, n)
    return rows


def preprocessing(number=None, level=None) -> ColumnTransformer:
    number = number or make_pipeline(SimpleImputer(), StandardScaler())
    level = level or OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", number, NUMBERS), ("levels", level, LEVELS)])


def fitted(model, frame, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(frame, y)


def encoder_of(frame) -> Encoder:
    return Encoder(Schema.infer(frame))


NUMBER_STEPS = {
    "standard": make_pipeline(SimpleImputer(), StandardScaler()),
    "standard before filling": make_pipeline(
        StandardScaler(with_mean=False), SimpleImputer(strategy="median")
    ),
    "range": make_pipeline(SimpleImputer(strategy="constant", fill_value=-1), MinMaxScaler()),
    "clipped range": make_pipeline(MinMaxScaler((1, 3), clip=True), SimpleImputer(add_indicator=True)),
    "largest": make_pipeline(SimpleImputer(strategy="most_frequent"), MaxAbsScaler()),
    "robust": make_pipeline(RobustScaler(), "passthrough", SimpleImputer(strategy="constant", fill_value=0)),
    "robust, scaled only": make_pipeline(RobustScaler(with_centering=False), SimpleImputer()),
    "products": make_pipeline(SimpleImputer(), StandardScaler(), PolynomialFeatures(2)),
    "interactions": make_pipeline(
        SimpleImputer(), MinMaxScaler(), PolynomialFeatures(3, interaction_only=True, include_bias=False)
    ),
    "components": make_pipeline(SimpleImputer(), StandardScaler(), PCA(2, whiten=True)),
    "singular vectors": make_pipeline(SimpleImputer(), MaxAbsScaler(), TruncatedSVD(2, random_state=0)),
    "both": FeatureUnion(
        [
            ("mean", make_pipeline(SimpleImputer(), StandardScaler())),
            ("flags", make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler())),
            ("none", "drop"),
        ],
        transformer_weights={"flags": 0.5},
    ),
}
FILLED = SimpleImputer(strategy="most_frequent")
LEVEL_STEPS = {
    "one-hot": OneHotEncoder(handle_unknown="ignore"),
    "one-hot without the first": OneHotEncoder(drop="first", sparse_output=False),
    "one-hot without one of two": OneHotEncoder(drop="if_binary"),
    "one-hot of the frequent": OneHotEncoder(min_frequency=20, handle_unknown="infrequent_if_exist"),
    "one-hot of at most two": OneHotEncoder(max_categories=2),
    "filled one-hot": make_pipeline(FILLED, OneHotEncoder()),
    "constant and one-hot": make_pipeline(
        SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()
    ),
    "numbered": make_pipeline(OrdinalEncoder(encoded_missing_value=-2), StandardScaler()),
    "numbered and filled": make_pipeline(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), SimpleImputer()
    ),
    "numbered and cut": make_pipeline(
        FILLED, OrdinalEncoder(), KBinsDiscretizer(2, quantile_method="averaged_inverted_cdf")
    ),
    "by outcome": TargetEncoder(random_state=0),
    "selected": make_pipeline(OneHotEncoder(sparse_output=False), VarianceThreshold(0.1), SelectKBest(k=4)),
    "products": make_pipeline(OneHotEncoder(sparse_output=False), PolynomialFeatures(include_bias=False)),
}


def any_columns(order, number, level, remainder: bool, pandas: bool) -> ColumnTransformer:
    """Return a transformer of some columns, with one step for numbers and another for levels."""
    numbers, levels = ([name for name in order if name in group] for group in (NUMBERS, LEVELS))
    number, level = clone(number), clone(level)
    if numbers[1:] == []:
        number = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    steps = [("levels", level, levels)] + ([] if remainder else [("numbers", number, numbers)])
    columns = ColumnTransformer(
        [step for step in steps if step[2]],
        remainder=number if remainder and numbers else "drop",
        sparse_threshold=0,
    )
    if pandas and "sparse_output=False" in str(level):
        columns.set_output(transform="pandas")
    return columns
