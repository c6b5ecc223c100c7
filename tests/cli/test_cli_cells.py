"""Text is parsed to values: cells and columns of a table, targets and ranges of a command."""

import numpy as np
import pandas as pd
import pytest

from plausiflow import Range
from plausiflow.cli.options import parse_cutoffs, parse_interval, parse_range, parse_target
from plausiflow.errors import InvalidInputError
from plausiflow.tables.schema import Schema
from plausiflow.tables.text import parse_column, parse_column_as


@pytest.mark.parametrize(
    ("texts", "values", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0], "int64"),
        (["1", "", "3"], [1.0, np.nan, 3.0], "float64"),
        (["1", "NA", "nan"], [1.0, np.nan, np.nan], "float64"),
        (["999999999999999999", "1"], [999999999999999999, 1], "int64"),
        (["9007199254740993", ""], [9007199254740993, pd.NA], "Int64"),
        (["0.1", "1e3", "-.5", "2."], [0.1, 1000.0, -0.5, 2.0], "float64"),
        (["True", "false", "TRUE"], [True, False, True], "bool"),
        (["true", ""], [True, np.nan], "object"),
        (["007", "12"], ["007", "12"], "str"),
        (["+49170", "+49171"], ["+49170", "+49171"], "str"),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"], "str"),
        (["2024-02-29", ""], ["2024-02-29", np.nan], "str"),
        (["NA", "DE"], ["NA", "DE"], "str"),
        (["1_000", "2"], ["1_000", "2"], "str"),
        (["", ""], [np.nan, np.nan], "str"),
        ([" 5", "6 "], [5, 6], "int64"),
        (["1,234", "a"], ["1,234", "a"], "str"),
    ],
)
def test_cells_are_what_people_mean(texts, values, expected):
    column = parse_column("c", texts)
    pd.testing.assert_series_equal(column, pd.Series(values, dtype=expected, name="c"), check_exact=True)


def test_numbers_are_read_to_the_last_bit():
    texts = ["0.30000000000000004", "2.2250738585072014e-308", "9007199254740993.0", "1.7976931348623157e308"]
    assert parse_column("c", texts).tolist() == [float(text) for text in texts]


def test_a_decimal_comma_is_told():
    with pytest.raises(InvalidInputError, match=r"got '1,5' with a decimal comma. Write '1\.5'"):
        parse_column("c", ["1,5", "2"])


def trained_on(column, **settings):
    return Schema.infer(pd.DataFrame({"c": column}), **settings).features[0]


@pytest.mark.parametrize(
    ("trained", "texts", "values", "expected"),
    [
        (pd.Series([*range(99), 0]), ["5", "7.0"], [5, 7], "int64"),
        (pd.Series([*range(99), 0]), ["5", ""], [5.0, np.nan], "float64"),
        (pd.Series([*range(99), 0]), ["5", "x"], [5, "x"], "object"),
        (pd.Series(np.linspace(0, 1, 99)), ["1", "0.5"], [1.0, 0.5], "float64"),
        (pd.Series(["1", "2"] * 30), ["1", "2"], ["1", "2"], "str"),
        (pd.Series(["01", "None"] * 30), ["01", "None"], ["01", "None"], "str"),
        (pd.Series([1, 2, 3] * 30), ["3", "2.0"], [3, 2], "int64"),
        (pd.Series([True, False] * 30), ["TRUE", "false"], [True, False], "bool"),
        (pd.Series([True, False, None] * 30, dtype="boolean"), ["true", "NA"], [True, pd.NA], "boolean"),
    ],
)
def test_rows_are_read_with_the_dtypes_of_the_training_table(trained, texts, values, expected):
    column = parse_column_as(trained_on(trained), texts)
    pd.testing.assert_series_equal(column, pd.Series(values, dtype=expected, name="c"), check_exact=True)


def test_categories_keep_their_order_and_a_new_one_is_not_lost():
    dtype = pd.CategoricalDtype(["low", "high"], ordered=True)
    feature = trained_on(pd.Series(["low", "high"] * 30, dtype=dtype))
    assert parse_column_as(feature, ["high", "low", ""]).dtype == dtype
    assert parse_column_as(feature, ["high", "other"]).tolist() == ["high", "other"]


def test_dates_are_dates_where_the_training_table_has_dates():
    days = pd.Series(pd.date_range("2024-01-01", periods=60))
    feature = trained_on(days, kinds={"c": "identifier"})
    read = parse_column_as(feature, ["2024-02-29", "", "2024-03-01 12:30"])
    assert read.dtype == days.dtype
    assert read.tolist()[::2] == [pd.Timestamp("2024-02-29"), pd.Timestamp("2024-03-01 12:30")]
    assert parse_column_as(feature, ["29.2.2024", "soon"]).tolist() == ["29.2.2024", "soon"]


def test_identifiers_are_read_as_they_were():
    text = trained_on(pd.Series([f"{i:05}" for i in range(60)]), kinds={"c": "identifier"})
    assert parse_column_as(text, ["00017", "18"]).tolist() == ["00017", "18"]
    number = trained_on(pd.Series(range(60)), kinds={"c": "identifier"})
    assert parse_column_as(number, ["17", "18"]).tolist() == [17, 18]
    assert parse_column_as(number, ["17", "x"]).tolist() == ["17", "x"]


@pytest.mark.parametrize(
    ("text", "labels", "wanted"),
    [
        ("granted", ("granted", "rejected"), "granted"),
        ("opposite", ("granted", "rejected"), "opposite"),
        ("runner-up", (0, 1, 2), "runner_up"),
        ("other", ("other", "else"), "other"),
        ("1", (0, 1), 1),
        ("1.0", (0, 1), 1),
        ("true", (False, True), True),
        ("1:2", ("1:2", "2:3"), "1:2"),
        ("100:150", (), (100.0, 150.0)),
        (":150", (), (None, 150.0)),
        ("-5.5:", (), (-5.5, None)),
    ],
)
def test_a_target_is_a_label_a_policy_or_an_interval(text, labels, wanted):
    found = parse_target(text, labels)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_range_is_a_column_and_its_bounds():
    assert parse_range("income=0:5000") == Range("income", 0, 5000)
    assert parse_range("a=b=:3") == Range("a=b", None, 3)
    assert parse_interval(":") is None
    for text in ("income", "income=5", "=1:2", "income=a:b", "income=:"):
        with pytest.raises(InvalidInputError, match="such as income=0:5000"):
            parse_range(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, None), ("0.3", 0.3), ("yes=0.3", {"yes": 0.3}), ("no=0.4, yes=0.2", {"no": 0.4, "yes": 0.2})],
)
def test_cutoffs_are_a_number_or_belong_to_outcomes(text, expected):
    assert parse_cutoffs(text, pd.Series(["no", "yes", None])) == expected


@pytest.mark.parametrize("text", ["half", "yes=", "perhaps=0.2"])
def test_a_cutoff_that_cannot_be_read_is_an_error(text):
    with pytest.raises(InvalidInputError, match="--decision-threshold must be"):
        parse_cutoffs(text, pd.Series(["no", "yes"]))
