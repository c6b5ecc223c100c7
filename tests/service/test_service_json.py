"""JSON rows become the data frame they were written from; anything but strict JSON is an error."""

import json
import time

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from plausiflow.service.errors import RequestError
from plausiflow.service.rows import RowReader
from plausiflow.service.strict_json import parse_json
from plausiflow.tables.schema import Schema
from serving import AT

# ---------------------------------------------------------------- rows

COLUMNS = {
    "whole": pd.Series([3, -7, 2**60], dtype="int64"),
    "small": pd.Series([3, 255, 0], dtype="uint8"),
    "nullable": pd.Series([3, None, -1], dtype="Int16"),
    "number": pd.Series([0.1, None, 1e300], dtype="float64"),
    "single": pd.Series([0.1, None, 3.4e38], dtype="float32"),
    "flag": pd.Series([True, False, True], dtype="bool"),
    "maybe": pd.Series([True, None, False], dtype="boolean"),
    "word": pd.Series(["a", None, "ü"], dtype="str"),
    "level": pd.Series(["low", None, "high"], dtype=pd.CategoricalDtype(["low", "high"], ordered=True)),
    "grade": pd.Series([1, 2, None], dtype=pd.CategoricalDtype([1, 2])),
    "mixed": pd.Series(["a", 1, np.nan], dtype="object"),
    "day": pd.Series(pd.to_datetime(["2024-02-29", None, "1999-12-31T23:59:59.5"], format="ISO8601")),
    "zoned": pd.Series(pd.to_datetime(["2024-02-29T12:00:00Z", None, "1999-12-31T00:00:00Z"])),
}
KINDS = dict.fromkeys(COLUMNS, "identifier")


def jsonable(cell):
    if cell is None or cell is pd.NA or cell is pd.NaT or cell != cell:
        return None
    return cell.isoformat() if isinstance(cell, pd.Timestamp) else getattr(cell, "item", lambda: cell)()


def test_json_rows_become_the_data_frame_they_were_written_from_with_its_dtypes():
    frame = pd.DataFrame(COLUMNS)
    reader = RowReader(Schema.infer(frame, kinds=KINDS))
    written = json.loads(
        json.dumps([{n: jsonable(frame[n][i]) for n in reversed(frame.columns)} for i in range(3)])
    )
    read = reader.read(written)
    assert {row.widened for row in read} == {()}
    assert_frame_equal(reader.frame(read), frame, check_freq=False)


@pytest.mark.parametrize(
    ("name", "cell", "cell_type", "widened"),
    [
        ("whole", 2.5, "number", "float64"),
        ("whole", None, "null", "float64"),
        ("whole", 2**70, "number", "float64"),
        ("whole", 10**400, "huge", "object"),
        ("whole", "3", "text", "object"),
        ("whole", True, "boolean", "object"),
        ("small", 256, "number", "float64"),
        ("nullable", 0.5, "number", "Float64"),
        ("number", "x", "text", "object"),
        ("number", 1e999, "huge", "object"),
        ("single", 1e39, "number", "float64"),
        ("flag", 1, "number", "object"),
        ("flag", None, "null", "object"),
        ("word", 7, "number", "object"),
        ("grade", True, "boolean", "object"),
        ("level", " low", "text", "category"),
        ("day", "yesterday", "text", "object"),
        ("day", 3, "number", "object"),
    ],
)
def test_a_cell_that_a_column_cannot_hold_widens_it_independent_of_other_rows(name, cell, cell_type, widened):
    frame = pd.DataFrame({name: COLUMNS[name]})
    reader = RowReader(Schema.infer(frame, kinds={name: "identifier"}))
    (row,) = reader.read([{name: cell}])
    assert row.widened == ((name, cell_type),)
    assert str(reader.frame([row]).dtypes[name]) == widened
    assert str(reader.frame([row, row]).dtypes[name]) == widened


def test_an_integer_may_be_written_with_a_decimal_point():
    reader = RowReader(Schema.infer(pd.DataFrame({"whole": [1, 2, 3]})))
    assert reader.frame(reader.read([{"whole": 3.0}]))["whole"].tolist() == [3]
    assert reader.read([{"whole": 3.0}])[0].widened == ()


# ---------------------------------------------------------------- bodies

MALFORMED = [
    b"",
    b"\xff\xfe",
    b"{",
    b'{"a": 1,}',
    b"{'a': 1}",
    b"nul",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": 01}',
    b'"\\ud800"',
    b'{"a": 1, "a": 2}',
    b"[" * 100_000,
    b"[" * 40 + b"]" * 40,
    b"1" * 5000,
    b'"\x01"',
    b"[1] [2]",
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_a_body_that_is_not_strict_json_is_an_error_with_the_reason(body):
    with pytest.raises(RequestError) as raised:
        parse_json(body)
    assert raised.value.status == 400
    assert len(raised.value.text) > 50


def test_large_invalid_bodies_are_refused_quickly(client):
    """Each of these once took time quadratic in its size."""
    names = [f"a meaningless name {i}" for i in range(30_000)]
    twice = "{" + ", ".join(f'"{name}": 1' for name in [*names, names[-1]]) + "}"
    bodies = [
        twice,
        json.dumps(dict.fromkeys(names, 1)),
        json.dumps({"instances": [dict.fromkeys(names[:20_000])]}),
    ]
    start = time.process_time()
    for body in bodies:
        assert len(body) < 1_000_000
        assert client.post(f"{AT}:explain", content=body).status_code in (400, 422)
    assert time.process_time() - start < 2


def test_json_in_any_language_is_parsed():
    value = {"instances": [{"größe": 1.5, "名": "\U0001f600 \x7f", "n": None, "t": True}]}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert parse_json(text.encode()) == value
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"
