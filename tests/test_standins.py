"""Likenesses of models without gradients: the models' own answers, closed forms and pandas are the truth."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import SVC

from plausiflow.classifiers.columns import Refused
from plausiflow.classifiers.standins import own_trees, pool, student_of
from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Schema
from plausiflow.errors import InvalidInputError, ShapeError

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


def answers_at(stand_in, x, temperature=COLDEST) -> np.ndarray:
    outputs = stand_in.at(temperature)(x).detach()
    return (outputs.softmax(dim=1) if stand_in.n_outputs > 1 else outputs).numpy()


def assert_same_answers(model, frame, columns=TAKEN, as_array=False):
    """The coldest stand-in, on encoded rows, against the model on the rows themselves."""
    encoder = Encoder(Schema.infer(frame))
    stand_in = own_trees(model, encoder, frame.iloc[:200])
    rows = pd.concat([frame, new_rows(frame)], ignore_index=True)
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    taken = rows[columns].to_numpy() if as_array else rows[columns]
    own = answers(model, taken)
    assert stand_in.n_outputs == own.shape[1]
    single = in_singles(model)
    np.testing.assert_allclose(
        answers_at(stand_in, encoded.x), own, rtol=1e-6 if single else 1e-12, atol=1e-6 if single else 1e-12
    )
    return stand_in


def preprocessing(number, level=None) -> ColumnTransformer:
    level = level or OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", number, NUMBERS), ("levels", level, LEVELS)])


def scaled() -> object:
    return make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("task", ["two classes", "three classes", "regression"])
def test_trees_answer_as_the_model_with_missing_cells_booleans_and_whole_numbers(library, task):
    frame = table()
    model = fitted(booster(library, task), frame[TAKEN], outcomes(frame, task))
    stand_in = assert_same_answers(model, frame)
    n_trees = 45 if task == "three classes" else 15
    assert stand_in.says == f"its own {n_trees} trees, relaxed"


@pytest.mark.parametrize("library", [*LIBRARIES, "gradient"])
@pytest.mark.parametrize("task", ["two classes", "three classes", "regression"])
def test_trees_behind_imputers_scalers_and_one_hot_columns_answer_as_the_pipeline(library, task):
    frame = table()
    model = make_pipeline(preprocessing(scaled()), booster(library, task))
    assert_same_answers(fitted(model, frame, outcomes(frame, task)), frame, list(frame))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "prepared",
    [
        preprocessing("passthrough"),
        preprocessing("passthrough", OrdinalEncoder()),
        preprocessing(MinMaxScaler(clip=True)),
        preprocessing(make_pipeline(SimpleImputer(), StandardScaler(), PCA(3))),
    ],
    ids=["one-hot", "ordinal", "clipped", "projected"],
)
def test_trees_behind_other_preprocessing_answer_as_the_pipeline(library, prepared):
    frame = table()
    model = fitted(make_pipeline(prepared, booster(library)), frame, outcomes(frame, "two classes"))
    assert_same_answers(model, frame, list(frame))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_model_fitted_on_an_array_takes_the_columns_in_the_order_of_the_table(library):
    frame = table()[NUMBERS].astype(float)
    y = outcomes(table(), "two classes")
    assert_same_answers(fitted(booster(library), frame.to_numpy(), y), frame, NUMBERS, as_array=True)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_model_takes_some_columns_in_its_own_order(library):
    frame = table()
    columns = ["lines", "the income", "age"]
    assert_same_answers(
        fitted(booster(library), frame[columns], outcomes(frame, "two classes")), frame, columns
    )


def test_a_model_that_a_search_has_found_is_read():
    frame = table()
    search = GridSearchCV(booster("hist"), {"max_leaf_nodes": [4, 8]}, cv=2)
    assert_same_answers(search.fit(frame[TAKEN], outcomes(frame, "two classes")), frame)


@pytest.mark.parametrize("library", LIBRARIES)
def test_of_a_model_that_stopped_early_only_its_best_trees_are_read(library):
    frame = table()
    y = np.unique(outcomes(frame, "two classes"), return_inverse=True)[1]
    train, held_out = frame[TAKEN].iloc[:250], frame[TAKEN].iloc[250:]
    shown = {"X": train, "y": y[:250], "eval_set": [(held_out, y[250:])]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if library == "hist":
            model = booster(library, max_iter=300, early_stopping=True, n_iter_no_change=3).fit(
                train, y[:250]
            )
        elif library == "xgboost":
            model = booster(library, n_estimators=300, early_stopping_rounds=3).fit(**shown, verbose=False)
        elif library == "lightgbm":
            model = booster(library, n_estimators=300, early_stopping_round=3).fit(**shown)
        else:
            model = booster(library, iterations=300, early_stopping_rounds=3).fit(**shown)
    stand_in = assert_same_answers(model, frame)
    assert len(stand_in.forest.output) < 300


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_likeness_approaches_the_model_as_it_cools(library):
    frame = table()
    model = fitted(booster(library, "three classes"), frame[TAKEN], outcomes(frame, "three classes"))
    encoder = Encoder(Schema.infer(frame))
    stand_in = own_trees(model, encoder, frame)
    fresh = new_rows(frame)
    x, own = encoder.encode(fresh).x, answers(model, fresh[TAKEN])
    errors = [np.abs(answers_at(stand_in, x, t) - own).mean() for t in (0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < 0.15
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("behind", [False, True])
def test_gradients_agree_with_finite_differences(library, behind):
    frame = table()
    model = make_pipeline(preprocessing("passthrough"), booster(library)) if behind else booster(library)
    columns = list(frame) if behind else TAKEN
    model = fitted(model, frame[columns], outcomes(frame, "two classes"))
    encoder = Encoder(Schema.infer(frame))
    outputs = own_trees(model, encoder, frame).at(0.05)
    x = encoder.encode(frame.iloc[:6]).x
    numbers = torch.tensor(encoder.layout.numbers)

    def of_numbers(z):
        return outputs(x.index_copy(1, numbers, z))[:, 1]

    z = x[:, numbers].clone().requires_grad_()
    assert torch.autograd.gradcheck(of_numbers, (z,), eps=1e-6, atol=1e-5)
    (gradient,) = torch.autograd.grad(of_numbers(z).sum(), z)
    assert gradient.any(dim=0).all()


@pytest.mark.parametrize("scaler", [None, StandardScaler()])
@pytest.mark.parametrize("heavy_tail", [False, True])
def test_a_temperature_is_in_units_of_the_encoded_range(scaler, heavy_tail):
    """At a threshold a soft split has the slope (right - left) / 4T, whatever the units of the column."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(5, 2, 500) if heavy_tail else rng.normal(size=500) * 300 + 1e4
    frame = pd.DataFrame({"value": values})
    encoder = Encoder(Schema.infer(frame))
    assert encoder.layout.blocks[0].scale.log == heavy_tail
    stump = HistGradientBoostingRegressor(max_iter=1, max_leaf_nodes=2)
    model = make_pipeline(scaler, stump).fit(frame, values > np.quantile(values, 0.7))
    stand_in = own_trees(model, encoder, frame)
    temperature = 0.01
    left, right = np.unique(model.predict(frame))
    x = torch.linspace(0, 1, 20001)[:, None].requires_grad_()
    outputs = stand_in.at(temperature)(x)
    (slope,) = torch.autograd.grad(outputs.sum(), x)
    middle = (outputs - (left + right) / 2).abs().argmin()
    assert slope[middle].item() == pytest.approx((right - left) / (4 * temperature), rel=1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
def test_states_and_levels_are_decided_however_soft_the_splits(library):
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 300, n) + 1e-3),
            "owns": rng.random(n) < 0.5,
            "lines": pd.Series(rng.integers(0, 3, n), dtype=float),
        }
    )
    model = fitted(booster(library), frame, (frame["gain"] > 0) ^ frame["owns"] ^ (frame["lines"] > 1))
    encoder = Encoder(Schema.infer(frame))
    assert len(encoder.layout.block("gain").levels) == 2
    zero = frame[frame["gain"] == 0]
    found = answers_at(own_trees(model, encoder, frame), encoder.encode(zero).x, 0.3)
    np.testing.assert_allclose(found, answers(model, zero), rtol=0, atol=1e-6)


def test_answers_follow_the_rows_dtype_and_do_not_depend_on_their_batch():
    frame = table()
    model = fitted(booster("hist", "three classes"), frame[TAKEN], outcomes(frame, "three classes"))
    encoder = Encoder(Schema.infer(frame))
    stand_in = own_trees(model, encoder, frame)
    outputs, x = stand_in.at(0.03), encoder.encode(frame).x
    together = outputs(x)
    assert together.dtype == torch.float64
    assert outputs(x.float()).dtype == torch.float32
    torch.testing.assert_close(outputs(x.float()).double(), together, rtol=0, atol=1e-4)
    for i in (0, 100, 399):
        torch.testing.assert_close(outputs(x[i : i + 1])[0], together[i], rtol=0, atol=1e-12)
    assert outputs(x[:0]).shape == (0, 3)
    assert not together.requires_grad
    assert outputs(x.clone().requires_grad_()).requires_grad
    with pytest.raises(InvalidInputError, match="temperature"):
        stand_in.at(0.0)
    assert repr(stand_in) == "StandIn(its own 45 trees, relaxed; 3 outputs)"


def refusal(model, frame, sample=None) -> str:
    with pytest.raises(Refused) as caught:
        own_trees(model, Encoder(Schema.infer(frame)), frame if sample is None else sample)
    return str(caught.value)


def test_what_cannot_be_read_is_refused_with_its_reason():
    frame = table()
    y = outcomes(frame, "two classes")
    numbers = frame[["age", "cents"]]
    forest = RandomForestClassifier(5).fit(numbers, y)
    assert "RandomForestClassifier is no estimator whose trees can be read" in refusal(forest, frame)
    assert "SVC is no estimator" in refusal(make_pipeline(StandardScaler(), SVC()).fit(numbers, y), frame)
    unknown = make_pipeline(FunctionTransformer(np.log1p), booster("hist")).fit(numbers, y)
    assert "FunctionTransformer calls <ufunc 'log1p'>" in refusal(unknown, frame)
    assert "function is no estimator" in refusal(lambda rows: rows["age"], frame)
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
    assert own_trees(useless, Encoder(schema), frame).n_outputs == 2
    used = booster("hist", max_iter=1, max_leaf_nodes=2).fit(frame[columns], frame["number"] > 10**6)
    with pytest.raises(Refused, match="the model uses `number`, an identifier"):
        own_trees(used, Encoder(schema), frame)


def test_a_model_that_answers_otherwise_than_its_trees_is_refused():
    class Shifted(HistGradientBoostingClassifier):
        def predict_proba(self, rows):
            proba = super().predict_proba(rows)
            return 0.999 * proba + 0.0005

    Shifted.__name__, Shifted.__module__ = "HistGradientBoostingClassifier", "sklearn.ensemble"
    frame = table()
    model = Shifted(max_iter=5).fit(frame[TAKEN], outcomes(frame, "two classes"))
    reason = refusal(model, frame)
    assert "and its trees as read differ by up to" in reason
    assert "e-04" in reason


def test_a_regressor_that_predicts_through_a_link_is_refused():
    frame = table()
    model = booster("xgboost", "regression", objective="binary:logistic")
    model.fit(frame[["age", "cents"]], frame["owns"].astype(float))
    assert "through a link" in refusal(model, frame)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_value_on_a_threshold_whose_side_only_rounding_tells_is_no_reason_to_refuse(library, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"amount {i}": rng.integers(0, 500, 300) * 0.25 + 1000 for i in range(3)})
    y = frame.sum(axis=1) + rng.normal(size=300) * 20 > 3180
    model = fitted(make_pipeline(StandardScaler(), booster(library)), frame, y.to_numpy())
    encoder = Encoder(Schema.infer(frame))
    stand_in = own_trees(model, encoder, frame)
    found = answers_at(stand_in, encoder.encode(frame).x)
    np.testing.assert_allclose(found, answers(model, frame), rtol=0, atol=1e-6)


def test_a_sample_of_another_table_is_named():
    frame = table()
    model = booster("hist").fit(frame[TAKEN], outcomes(frame, "two classes"))
    with pytest.raises(InvalidInputError, match="'age'"):
        own_trees(model, Encoder(Schema.infer(frame)), frame.drop(columns="age"))


def taught(model, frame, encoder, size=6000):
    """A student of a model that takes the whole table through a pipeline."""
    x = encoder.encode(frame).x
    own = answers(model, frame)
    classes = own.argmax(axis=1) if own.shape[1] > 1 else (own[:, 0] > np.median(own)).astype(int)
    rows = pool(x, torch.from_numpy(classes), encoder.layout, size=size)
    outputs = torch.from_numpy(answers(model, encoder.decode(rows)))
    return student_of(rows, outputs if own.shape[1] > 1 else outputs[:, 0], encoder.layout)


@pytest.mark.parametrize("task", ["two classes", "three classes"])
def test_a_student_decides_as_a_random_forest_on_fresh_rows(task):
    frame = table(n=1500)
    forest = RandomForestClassifier(60, min_samples_leaf=3, random_state=0)
    model = make_pipeline(preprocessing(scaled()), forest).fit(frame, outcomes(frame, task))
    encoder = Encoder(Schema.infer(frame))
    stand_in = taught(model, frame, encoder)
    fresh = table(seed=7, n=1000)
    x, own = encoder.encode(fresh).x, answers(model, fresh)
    clear = np.diff(np.sort(own, axis=1)[:, -2:], axis=1)[:, 0] > 0.1
    for temperature in (COLDEST, 0.01, 0.03):
        agrees = answers_at(stand_in, x, temperature).argmax(axis=1) == own.argmax(axis=1)
        assert agrees.mean() > (0.93 if task == "two classes" else 0.88)
        assert agrees[clear].mean() > 0.95
    assert stand_in.says == f"a student of {300 if task == 'three classes' else 100} trees, relaxed"


def test_a_student_learns_from_labels_alone():
    frame = table(n=1000)
    encoder = Encoder(Schema.infer(frame))
    rows = pool(
        encoder.encode(frame).x, torch.from_numpy(scores(frame) > 9).long(), encoder.layout, size=4000
    )
    labels = torch.from_numpy(scores(encoder.decode(rows)) > 9).long()
    stand_in = student_of(rows, torch.nn.functional.one_hot(labels).double(), encoder.layout)
    fresh = table(seed=7, n=1000)
    decided = answers_at(stand_in, encoder.encode(fresh).x, 0.01).argmax(axis=1)
    assert (decided == (scores(fresh) > 9)).mean() > 0.9


def test_a_student_of_a_regressor_is_close_in_its_units():
    frame = table(n=1500)
    forest = RandomForestRegressor(40, min_samples_leaf=3, random_state=0)
    model = make_pipeline(preprocessing(scaled()), forest).fit(frame, outcomes(frame, "regression"))
    encoder = Encoder(Schema.infer(frame))
    stand_in = taught(model, frame, encoder)
    fresh = table(seed=7, n=1000)
    own = answers(model, fresh)
    error = answers_at(stand_in, encoder.encode(fresh).x, 0.01) - own
    assert stand_in.n_outputs == 1
    assert (error**2).mean() < 0.04 * own.var()


def test_a_student_on_a_grid_is_as_sure_at_each_value_as_the_hard_student():
    frame = pd.DataFrame({"count": np.arange(2000) % 9})
    encoder = Encoder(Schema.infer(frame, kinds={"count": "integer"}))
    x = encoder.encode(frame).x
    proba = torch.where(x > 0.5, torch.tensor([0.1, 0.9]), torch.tensor([0.8, 0.2]))
    stand_in = student_of(x, proba, encoder.layout)
    np.testing.assert_allclose(answers_at(stand_in, x, 0.005), proba.numpy(), atol=0.01)


def test_wrong_outputs_are_named():
    frame = table(n=50)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    with pytest.raises(ShapeError, match=r"\(n, k\) or \(n,\); got"):
        student_of(x, torch.ones(49, 2), encoder.layout)
    with pytest.raises(InvalidInputError, match="probabilities"):
        student_of(x, -torch.ones(50, 2), encoder.layout)
    with pytest.raises(ShapeError, match="one for each row"):
        pool(x, torch.ones(49), encoder.layout, size=10)
    with pytest.raises(InvalidInputError, match="0 rows"):
        pool(x[:0], torch.ones(0), encoder.layout, size=10)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 400), n=st.integers(1, 150))
def test_a_pool_can_be_decoded_and_comes_back_the_same(seed, size, n):
    frame = table(seed=seed, n=200)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame.iloc[:n]).x
    classes = torch.from_numpy(scores(frame) > 9)[:n].long()
    rows = pool(x, classes, encoder.layout, size=size, seed=seed)
    assert rows.shape == (size, x.shape[1])
    again = encoder.encode(encoder.decode(rows))
    assert again.usable.all()
    torch.testing.assert_close(again.x, rows, rtol=0, atol=1e-9)
    assert torch.equal(encoder.layout.codes(again.x), encoder.layout.codes(rows))
    assert torch.equal(rows, pool(x, classes, encoder.layout, size=size, seed=seed))
    assert rows[:, encoder.layout.numbers].min() >= 0
    assert rows[:, encoder.layout.numbers].max() <= 1


def test_a_pool_depends_on_its_seed_and_holds_the_rows():
    frame = table()
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    classes = torch.from_numpy(scores(frame) > 9).long()
    first, second = (pool(x, classes, encoder.layout, size=2000, seed=seed) for seed in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first[:400], x)
    few = pool(x, classes, encoder.layout, size=300)
    assert len(few[:100].unique(dim=0)) == 100


def test_a_pool_never_enters_or_leaves_a_missing_cell():
    frame = table(missing=0.5)
    encoder = Encoder(Schema.infer(frame))
    missing = frame["rate"].isna() & frame["job"].isna()
    present = frame["rate"].notna() & frame["job"].notna()
    classes = torch.from_numpy(scores(frame) > 9).long()
    for chosen, expected in ((missing, True), (present, False)):
        x = encoder.encode(frame[chosen]).x
        rows = encoder.decode(pool(x, classes[: len(x)], encoder.layout, size=500))
        assert (rows[["rate", "job"]].isna() == expected).all(axis=None)
    mixed = encoder.decode(pool(encoder.encode(frame).x, classes, encoder.layout, size=500))
    assert 0.3 < mixed["rate"].isna().mean() < 0.7


def test_noise_has_three_sizes_and_leaves_rows_outside_where_they_are():
    frame = pd.DataFrame({"a": np.linspace(0, 1, 300) ** 1.1, "b": np.linspace(5, 7, 300) ** 1.3})
    encoder = Encoder(Schema.infer(frame))
    x = torch.full((1, 2), 0.5)
    rows = pool(x, torch.zeros(1), encoder.layout, size=9001)
    moved = rows[1:] - 0.5
    for i, size in enumerate((0.01, 0.03, 0.08)):
        assert moved[i::3].std().item() == pytest.approx(size, rel=0.05)
    outside = pool(torch.tensor([[1.7, 0.5]]), torch.zeros(1), encoder.layout, size=500)
    assert outside[:, 0].max() <= 1.7
    assert (outside[:, 0] == 1.7).float().mean() > 0.4


def test_other_points_lie_on_segments_to_one_of_the_ten_nearest_of_another_class():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    encoder = Encoder(Schema.infer(frame))
    x, classes = encoder.encode(frame).x, torch.from_numpy(rng.integers(0, 3, 60))
    between = pool(x, classes, encoder.layout, size=360)[60 + 150 :]
    assert len(between) == 150
    distance = torch.cdist(x, x)
    for point in between:
        ends = x - point  # two rows on either side of the point, in one line with it
        cross = (ends[:, None, 0] * ends[None, :, 1] - ends[:, None, 1] * ends[None, :, 0]).abs()
        opposite = (ends[:, None] * ends[None]).sum(dim=-1) <= 0
        candidates = ((cross < 1e-12) & opposite & (classes[:, None] != classes)).nonzero()
        near = [
            (distance[i][classes != classes[i]] < distance[i, j]).sum() < 10 for i, j in candidates.tolist()
        ]
        assert any(near)


def test_rows_of_one_class_only_get_noise():
    frame = table(n=60)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    rows = pool(x, torch.zeros(60), encoder.layout, size=240)
    assert rows.shape == (240, x.shape[1])
