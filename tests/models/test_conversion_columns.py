"""Columns, levels and missing cells of converted models."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from conversion_tables import FILLED, LEVELS, NUMBERS, encoder_of, fitted, new_rows, preprocessing, table
from converted_classifiers import assert_same_answers, converted, outcomes, reason
from plausiflow.models.sklearn.preprocessing import column_positions
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema


@pytest.mark.parametrize("chosen", ["labels", "numbers", "slices", "masks", "selectors"])
def test_columns_are_found_however_they_are_chosen(chosen):
    frame = table()[[*NUMBERS, *LEVELS, "country"]]
    first, second = {
        "labels": (slice("age", "rate"), ["job"]),
        "numbers": ([0, 1, 2, -6], [-4]),
        "slices": (slice(0, 4), slice(5, 6)),
        "masks": ([name in NUMBERS for name in frame], np.array([name == "job" for name in frame])),
        "selectors": (make_column_selector("age|income|gain|rate"), make_column_selector("job")),
    }[chosen]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), first),
        (OneHotEncoder(), second),
        ("passthrough", ["owns"] if chosen == "labels" else [4]),
        ("drop", ["country"] if chosen == "labels" else [-1]),
        (StandardScaler(), []),
        remainder=make_pipeline(OrdinalEncoder(), SimpleImputer()),
    )
    columns.transformer_weights = {"onehotencoder": 3.0}
    model = fitted(make_pipeline(columns, LogisticRegression()), frame, outcomes(frame, ["a", "b"]))
    encoder = encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_positions_follow_pandas():
    names = list("abcde")
    frame = pd.DataFrame([range(5)], columns=names)
    assert column_positions(slice("b", "d"), names, 5) == frame.loc[0, "b":"d"].tolist()
    assert column_positions(slice("b", None, 2), names, 5) == frame.loc[0, "b"::2].tolist()
    assert column_positions(slice(-2, None), names, 5) == frame.iloc[0, -2:].tolist()
    assert column_positions([False, True, False, False, True], names, 5) == [1, 4]
    assert column_positions("c", names, 5) == column_positions(2, names, 5) == [2]


def test_a_model_of_an_array_takes_the_columns_in_the_order_of_the_table():
    frame = table(missing=0.0)[["age", "income", "gain", "owns", "lines"]]
    y = outcomes(table(missing=0.0), ["a", "b"])
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), frame.to_numpy(), y)
    encoder = encoder_of(frame)
    classifier = converted(model, frame[frame.columns[::-1]], encoder)
    rows = new_rows(table(missing=0.0))[frame.columns.tolist()]
    assert_same_answers(model, classifier, encoder, rows)


def test_a_model_of_an_array_of_objects_is_exact():
    frame = table()
    numbers = make_pipeline(SimpleImputer(), MinMaxScaler())
    columns = make_column_transformer((numbers, slice(0, 4)), (OneHotEncoder(), [4, 5, 6, 7]))
    model = make_pipeline(columns, LogisticRegression(max_iter=200))
    model, encoder = fitted(model, frame.to_numpy(), outcomes(frame, ["a", "b", "c"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))


def test_columns_may_come_in_another_order_and_fewer_may_be_used():
    frame = table()
    order = ["lines", "income", "job", "age"]
    level = make_pipeline(FILLED, OneHotEncoder())
    columns = make_column_transformer((level, ["job", "lines"]), remainder=StandardScaler())
    model = make_pipeline(columns, LogisticRegression())
    model, encoder = fitted(model, frame[order], outcomes(frame, ["a", "b"])), encoder_of(frame)
    shuffled = frame[np.random.default_rng(0).permutation(frame.columns)]
    assert_same_answers(model, converted(model, shuffled, encoder), encoder, new_rows(frame), order)


def test_a_level_that_only_the_table_knows_is_ignored_as_the_model_ignores_it():
    frame = table()
    known = frame[frame["job"] != "smith"]
    model = make_pipeline(preprocessing(), LogisticRegression())
    model, encoder = fitted(model, known, outcomes(known, ["a", "b"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, new_rows(frame))
    strict = make_pipeline(preprocessing(level=OneHotEncoder()), LogisticRegression())
    strict = fitted(strict, known, outcomes(known, ["a", "b"]))
    assert "unknown categories ['smith']" in reason(strict, frame, encoder)


def test_a_level_that_the_table_does_not_know_is_left_out_of_the_comparison():
    frame = table()
    model, encoder = make_pipeline(preprocessing(), LogisticRegression()), encoder_of(frame)
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    rows = frame.assign(job=["pilot", *frame["job"][1:]])
    assert not encoder.encode(rows).usable[0]
    assert_same_answers(model, converted(model, rows, encoder), encoder, new_rows(frame))


@pytest.mark.parametrize("cell", [None, np.nan], ids=["None", "nan"])
def test_a_missing_category_is_the_one_that_the_rows_hold(cell):
    frame = table()
    jobs = [cell if pd.isna(job) else job for job in frame["job"]]
    frame["job"] = pd.Series(jobs, dtype=object)
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["job"])), LogisticRegression())
    model, encoder = fitted(model, frame, outcomes(frame, ["a", "b"])), encoder_of(frame)
    assert_same_answers(model, converted(model, frame, encoder), encoder, frame)


def test_spellings_that_the_model_tells_apart_are_not_taken_for_one_level():
    frame = table(missing=0.0)
    frame["job"] = [f" {job}" if i % 3 == 0 else job for i, job in enumerate(frame["job"])]
    model = make_pipeline(make_column_transformer((OneHotEncoder(), ["job"])), LogisticRegression())
    assert "differ" in reason(fitted(model, frame, outcomes(frame, ["a", "b"])), frame)


def test_filled_cells_are_compared_as_filled():
    frame = table()
    model = make_pipeline(preprocessing(), LogisticRegression())
    model = fitted(model, frame, outcomes(frame, ["a", "b"]))
    encoder = Encoder(Schema.infer(frame), missing="impute")
    classifier = converted(model, frame, encoder)
    assert_same_answers(model, classifier, encoder, new_rows(table(missing=0.0)))
