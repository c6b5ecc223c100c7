"""Rows as JSON values: cells, dtypes and index come back as they were."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.persistence import restore_rows, store_rows

COLUMNS = {
    "floats": pd.Series([0.1, np.nan, np.inf, -np.inf, 1e-300]),
    "single": pd.Series([0.1, 2.5, np.nan, 3.0, -0.0], dtype="float32"),
    "integers": pd.Series([1, -2, 2**62, 0, 5]),
    "bytes": pd.Series([1, 2, 3, 255, 0], dtype="uint8"),
    "booleans": pd.Series([True, False, True, True, False]),
    "nullable": pd.Series([1, None, 3, 4, None], dtype="Int64"),
    "nullable floats": pd.Series([0.1, None, 3, 4, None], dtype="Float64"),
    "nullable booleans": pd.Series([True, None, False, True, None], dtype="boolean"),
    "text": pd.Series(["a", "ä", "", "NaN", "x"], dtype="str"),
    "text with gaps": pd.Series(["a", None, "", "NaN", "x"], dtype="string"),
    "levels": pd.Series(["b", "a", None, "b", "a"], dtype=pd.CategoricalDtype(["b", "a", "c"], ordered=True)),
    "numbers as levels": pd.Series([1.5, 2.5, None, 1.5, 2.5], dtype="category"),
    "objects": pd.Series(["a", 1, 2.5, True, None], dtype=object),
    "missing": pd.Series([None, np.nan, pd.NA, pd.NaT, "x"], dtype=object),
    "dates": pd.to_datetime(
        pd.Series(["2026-01-31", None, "1999-12-31 23:59:59.123456789", "2000-01-01", None]), format="ISO8601"
    ),
    "zoned": pd.Series(pd.date_range("2026-01-31", periods=5, tz="Europe/Berlin")),
}  # fmt: skip
INDEXES = {
    "range": pd.RangeIndex(10, 20, 2, name="number"),
    "text": pd.Index(list("abcab"), name=None),
    "numbers": pd.Index([5, 3, 3, 1, 0]),
    "several": pd.MultiIndex.from_product([["a"], range(5)], names=["name", None]),
    "dates": pd.date_range("2026-01-31", periods=5, name="day"),
}


def back(frame):
    return restore_rows(json.loads(json.dumps(store_rows(frame), allow_nan=False)))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(name):
    frame = COLUMNS[name].to_frame(name)
    again = back(frame)
    pd.testing.assert_frame_equal(again, frame, check_exact=True, check_freq=False)
    if frame[name].dtype == object:
        kinds = [[type(cell) for cell in one[name]] for one in (frame, again)]
        assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_comes_back_as_it_was(name):
    frame = pd.DataFrame({"a": range(5), 7: list("abcde")}, index=INDEXES[name])
    pd.testing.assert_frame_equal(back(frame), frame, check_freq=False)
    assert back(frame).index.equals(frame.index)


def test_empty_tables_come_back():
    for frame in (pd.DataFrame({"a": pd.Series([], dtype="float32")}), pd.DataFrame(index=range(3))):
        pd.testing.assert_frame_equal(back(frame), frame)


def test_equal_names_of_columns_are_told_apart_by_position():
    frame = pd.DataFrame([[1, "x"], [2, "y"]], columns=["a", "a"])
    pd.testing.assert_frame_equal(back(frame), frame)


def test_a_cell_that_json_cannot_hold_is_named():
    frame = pd.DataFrame({"a": [1, datetime.date(2026, 1, 31)]}, dtype=object)
    with pytest.raises(InvalidInputError, match="column 'a' has a date"):
        store_rows(frame)
