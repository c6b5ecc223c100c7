"""Relaxed trees: hard splits predict as the model does, soft splits have the right gradients."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OrdinalEncoder,
    StandardScaler,
)

from plausiflow.errors import InvalidInputError
from plausiflow.models.surrogate import relax_trees
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from surrogates import (
    LIBRARIES,
    NUMBERS,
    TAKEN,
    answers,
    answers_at,
    booster,
    fitted,
    in_singles,
    new_rows,
    outcomes,
    preprocessing,
    scaled,
    table,
)


def assert_same_answers(model, frame, columns=TAKEN, as_array=False):
    """The coldest stand-in, on encoded rows, against the model on the rows themselves."""
    encoder = Encoder(Schema.infer(frame))
    surrogate = relax_trees(model, encoder, frame.iloc[:200])
    rows = pd.concat([frame, new_rows(frame)], ignore_index=True)
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    taken = rows[columns].to_numpy() if as_array else rows[columns]
    own = answers(model, taken)
    assert surrogate.n_outputs == own.shape[1]
    single = in_singles(model)
    np.testing.assert_allclose(
        answers_at(surrogate, encoded.x), own, rtol=1e-6 if single else 1e-12, atol=1e-6 if single else 1e-12
    )
    return surrogate


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("task", ["two classes", "three classes", "regression"])
def test_trees_answer_as_the_model_with_missing_cells_booleans_and_whole_numbers(library, task):
    frame = table()
    model = fitted(booster(library, task), frame[TAKEN], outcomes(frame, task))
    surrogate = assert_same_answers(model, frame)
    n_trees = 45 if task == "three classes" else 15
    assert surrogate.description == f"its own {n_trees} trees with soft splits"


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
    surrogate = assert_same_answers(model, frame)
    assert len(surrogate.forest.output) < 300


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_likeness_approaches_the_model_as_it_cools(library):
    frame = table()
    model = fitted(booster(library, "three classes"), frame[TAKEN], outcomes(frame, "three classes"))
    encoder = Encoder(Schema.infer(frame))
    surrogate = relax_trees(model, encoder, frame)
    fresh = new_rows(frame)
    x, own = encoder.encode(fresh).x, answers(model, fresh[TAKEN])
    errors = [np.abs(answers_at(surrogate, x, t) - own).mean() for t in (0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6)]
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
    outputs = relax_trees(model, encoder, frame).at(0.05)
    x = encoder.encode(frame.iloc[:6]).x
    numbers = torch.tensor(encoder.layout.numbers)

    def of_numbers(z):
        return outputs(x.index_copy(1, numbers, z))[:, 1]

    z = x[:, numbers].clone().requires_grad_()
    assert torch.autograd.gradcheck(of_numbers, (z,), eps=1e-6, atol=1e-5)
    (gradient,) = torch.autograd.grad(of_numbers(z).sum(), z)
    assert gradient.any(dim=0).all()


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize("behind", [False, True])
def test_the_closed_form_is_that_of_autograd(behind, precision):
    frame = table()
    steps = preprocessing("passthrough"), booster("hist", "three classes")
    columns = list(frame) if behind else TAKEN
    model = make_pipeline(*steps) if behind else steps[1]
    model = fitted(model, frame[columns], outcomes(frame, "three classes"))
    encoder = Encoder(Schema.infer(frame))
    surrogate = relax_trees(model, encoder, frame)
    x = encoder.encode(frame).x.to(precision).requires_grad_()
    share = torch.randn(len(x), 3).to(precision)
    expected = surrogate.at(0.03)(x)
    (gradient,) = torch.autograd.grad(expected, x, share)
    outputs, pullback = surrogate.value_and_grad_at(0.03)(x.detach())
    torch.testing.assert_close(outputs, expected.detach())
    torch.testing.assert_close(pullback(share), gradient)


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
    surrogate = relax_trees(model, encoder, frame)
    temperature = 0.01
    left, right = np.unique(model.predict(frame))
    x = torch.linspace(0, 1, 20001)[:, None].requires_grad_()
    outputs = surrogate.at(temperature)(x)
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
    found = answers_at(relax_trees(model, encoder, frame), encoder.encode(zero).x, 0.3)
    np.testing.assert_allclose(found, answers(model, zero), rtol=0, atol=1e-6)


def test_answers_follow_the_rows_dtype_and_do_not_depend_on_their_batch():
    frame = table()
    model = fitted(booster("hist", "three classes"), frame[TAKEN], outcomes(frame, "three classes"))
    encoder = Encoder(Schema.infer(frame))
    surrogate = relax_trees(model, encoder, frame)
    outputs, x = surrogate.at(0.03), encoder.encode(frame).x
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
        surrogate.at(0.0)
    assert repr(surrogate) == "Surrogate(its own 45 trees with soft splits; 3 outputs)"


def test_values_that_equal_a_threshold_up_to_a_rounding_go_the_way_of_the_model():
    # A model that was trained on a sample has thresholds in the middle of two values: at one it has not seen.
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"score": generator.integers(-150, 150, 400) / 100, "other": generator.random(400)})
    y = (table["score"] + 0.1 * generator.normal(size=400) > 0).astype(int)
    refused = 0
    for seed in range(8):
        rows = np.random.default_rng(seed).integers(0, 400, 400)
        model = HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=2, random_state=0)
        model.fit(table.iloc[rows], y.iloc[rows])
        encoder = Encoder(Schema.infer(table))
        surrogate = relax_trees(model, encoder, table)
        exact = surrogate.exact(encoder.encode(table).x).softmax(dim=1).numpy()
        refused += not np.allclose(exact, model.predict_proba(table), atol=1e-9)
    assert refused == 0
