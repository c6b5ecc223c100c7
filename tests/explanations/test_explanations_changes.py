"""Changes and answers of random tables of every dtype, against loops over their cells."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plausiflow.explanations.changes import find_changes
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from results import build, strict


def _values(dtype):
    if dtype in ("bool", "boolean"):
        return st.booleans()
    if dtype.lower().startswith(("int", "uint")):
        return st.integers(0, 3)
    if dtype.lower().startswith("float"):
        return st.sampled_from([0.0, -0.0, 0.1, 1 / 3, 2.0])
    if dtype == "datetime64[ns]":
        return st.sampled_from([pd.Timestamp("2024-01-01"), pd.Timestamp("2024-02-29")])
    if dtype == "object":
        return st.sampled_from(["a", " a", 1, 2.5, "1", True])
    return st.sampled_from(["a", " a", "b", ""])


HOLD_MISSING = [
    *("Int64", "boolean", "float64", "float32", "Float64", "str", "string", "object"),
    *("category", "ordered", "datetime64[ns]"),
]
DTYPES = [*HOLD_MISSING, "int64", "int8", "uint16", "bool"]


@st.composite
def columns(draw, n):
    dtype = draw(st.sampled_from(DTYPES))
    values = _values(dtype)
    if dtype in HOLD_MISSING:
        values = st.one_of(values, st.none())
    drawn = draw(st.lists(values, min_size=n, max_size=n))
    if dtype == "ordered":
        return pd.Series(pd.Categorical(drawn, categories=["b", "", " a", "a"], ordered=True))
    if dtype in ("float64", "float32"):
        drawn = [np.nan if value is None else value for value in drawn]
    return pd.Series(drawn, dtype=dtype)


@st.composite
def results(draw):
    """Rows and answers cut from the same columns, for some of the rows or all of them."""
    n, m = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    frame = pd.DataFrame({f"c{j}": draw(columns(n + m)) for j in range(draw(st.integers(1, 4)))})
    of = sorted(draw(st.lists(st.integers(0, n - 1), min_size=m, max_size=m))) if n else []
    rows = frame.iloc[:n].set_axis(draw(st.lists(st.sampled_from("xyz"), min_size=n, max_size=n)))
    return rows, frame.iloc[n : n + len(of)].reset_index(drop=True), of


def same(a, b):
    return (pd.isna(a) and pd.isna(b)) or (not pd.isna(a) and not pd.isna(b) and a == b)


@settings(max_examples=40)
@given(results())
def test_changes_are_the_cells_that_differ_one_by_one(drawn):
    rows, answers, of = drawn
    expected, ranks = [], {}
    for a, i in enumerate(of):
        ranks[i] = ranks.get(i, 0) + 1
        for name in rows.columns:
            before, after = rows[name].iloc[i], answers[name].iloc[a]
            if not same(before, after):
                expected.append((rows.index[i], ranks[i], name, before, after))
    changes = build(rows, answers, of).changes
    assert list(changes.columns) == ["row", "rank", "feature", "from", "to", "role", "serves", "adverse"]
    assert changes[["from", "to"]].dtypes.tolist() == [object, object]
    found = list(changes.iloc[:, :5].itertuples(index=False, name=None))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert all(same(a, b) for a, b in zip(one, other, strict=True))


@settings(max_examples=40)
@given(results())
def test_counterfactuals_hold_the_first_answer_of_each_row_or_nothing(drawn):
    rows, answers, of = drawn
    found = build(rows, answers, of).counterfactuals
    assert found.index.equals(rows.index)
    assert found.columns.equals(rows.columns)
    if set(of) == set(range(len(rows))):
        assert found.dtypes.equals(rows.dtypes)
    for i in range(len(rows)):
        for name in rows.columns:
            cell = found[name].iloc[i]
            assert same(cell, answers[name].iloc[of.index(i)]) if i in of else pd.isna(cell)


@settings(max_examples=40)
@given(results())
def test_json_is_strict_and_holds_every_row_and_answer(drawn):
    rows, answers, of = drawn
    written = strict(build(rows, answers, of).to_json())
    assert [len(row["counterfactuals"]) for row in written["rows"]] == [of.count(i) for i in range(len(rows))]
    assert [list(row["factual"]) for row in written["rows"]] == [list(rows.columns)] * len(rows)


@pytest.mark.parametrize(
    ("own", "nullable"),
    [
        ("int64", "Int64"),
        ("int8", "Int8"),
        ("uint64", "UInt64"),
        ("bool", "boolean"),
        *(
            (name, name)
            for name in ("float32", "float64", "Int16", "boolean", "string", "object", "category")
        ),
    ],
)
def test_a_row_without_an_answer_makes_a_dtype_nullable_and_no_wider(own, nullable):
    rows = pd.DataFrame({"a": pd.Series([1, 0], dtype=own)})
    largest = rows.iloc[[0]].reset_index(drop=True)
    if own == "uint64":
        largest["a"] = np.array([2**64 - 1], dtype="uint64")
    found = build(rows, largest, [0]).counterfactuals["a"]
    assert found.dtype == (rows["a"].dtype if own == nullable else nullable)
    assert found.iloc[0] == largest["a"].iloc[0]
    assert pd.isna(found.iloc[1])


def test_cells_are_compared_exactly_when_an_answer_needs_a_wider_dtype():
    rows = pd.DataFrame({"a": pd.Series([2**53 + 1, 7]), "b": pd.Categorical(["x", "y"])})
    answers = pd.DataFrame({"a": [2.0**53, 7.0], "b": pd.Categorical(["x", "z"])})
    found = find_changes(rows, answers, np.array([0, 1]))
    assert found.answer.tolist() == [0, 1]
    assert found.before.tolist() == [2**53 + 1, "y"]
    assert found.after.tolist() == [2.0**53, "z"]


def test_cells_that_hold_arrays_are_compared_as_they_read():
    cells = [np.array([1, 2]), [3], pd.NA, None]
    rows = pd.DataFrame({"a": pd.Series(cells, dtype=object)})
    answers = pd.DataFrame({"a": pd.Series([np.array([1, 2]), [4], None, "x"], dtype=object)})
    assert find_changes(rows, answers, np.arange(4)).answer.tolist() == [1, 3]


def test_answers_of_the_encoder_differ_where_they_were_moved():
    rows = pd.DataFrame(
        {
            "income": [3100, 800, 2000, 4500],
            "job": ["clerk", "nurse", "clerk", "nurse"],
            "rate": [0.125, np.nan, 0.5, 0.75],
        },
        index=list("abca"),
    )
    encoder = Encoder(Schema.infer(rows))
    of = np.array([0, 1, 1, 3])
    x = encoder.encode(rows).x[of]
    x[0, encoder.layout.block("income").number] = 1.0
    x[2, list(encoder.layout.block("job").levels)] = torch.tensor([1.0, 0.0])
    answers = encoder.decode(x, like=rows.iloc[of]).reset_index(drop=True)
    result = build(rows, answers, of, schema=encoder.schema)
    assert result.changes.to_numpy().tolist() == [
        ["a", 1, "income", 3100, 4500, "", "", False],
        ["b", 2, "job", "nurse", "clerk", "", "", False],
    ]
    assert result.sentences.tolist()[:2] == ["income: 3,100 → 4,500", "no change"]
