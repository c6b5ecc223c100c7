"""The result: answers, changes and summaries against loops over cells and pandas; words, JSON, bad parts."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from plausiflow import metrics
from plausiflow.classifiers import LinearClassifier
from plausiflow.data.encoding import Encoder
from plausiflow.data.features import Feature
from plausiflow.data.schema import Schema
from plausiflow.densities import KDE, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import Explanations
from plausiflow.explanations.changes import find_changes
from plausiflow.explanations.document import json_value
from plausiflow.explanations.drawing import move
from plausiflow.explanations.wording import Wording, listed

FIGURES = ["cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged"]


def build(rows, answers, of, **parts) -> Explanations:
    """A result with figures that differ from answer to answer; rows without an answer are infeasible."""
    of = np.array(of, dtype=np.int64)
    status = np.where(np.isin(np.arange(len(rows)), of), "found", "infeasible").astype(object)
    figures = pd.DataFrame({name: np.arange(len(of)) + 10.0 * j for j, name in enumerate(FIGURES)})
    verdicts = pd.DataFrame(
        {
            "status": parts.pop("status", status),
            "reason": parts.pop("reason", ""),
            "predicted": 0,
            "target": parts.pop("target", 1),
            "probability": 0.25,
        },
        index=rows.index,
    )
    given = {"figures": figures, "verdicts": verdicts, "schema": schema_of(rows), "labels": (0, 1)} | parts
    return Explanations(rows=rows, answers=answers, of=of, **given)


def schema_of(rows) -> Schema:
    return Schema(
        tuple(Feature(name=name, kind="category", dtype=dtype) for name, dtype in rows.dtypes.items())
    )


def loans():
    """Three applicants; the first has two answers, the second none, the third one."""
    rows = pd.DataFrame(
        {
            "income": [31000, 42000, 18000],
            "open_lines": [4, 2, 9],
            "owns_home": [False, True, False],
            "job": ["clerk", "nurse", None],
            "rate": [0.25, 0.5, 0.125],
        },
        index=["Ann", "Bob", "Cid"],
    )
    answers = rows.iloc[[0, 0, 2]].reset_index(drop=True)
    answers["income"] = [38500, 31000, 18000]
    answers["open_lines"] = [3, 4, 9]
    answers["owns_home"] = [False, True, False]
    answers["job"] = ["clerk", "nurse", None]
    answers["rate"] = [0.25, 0.25, 0.1]
    features = (
        Feature(name="income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="open_lines", kind="ordered", dtype=np.dtype(int), levels=tuple(range(10))),
        Feature(name="owns_home", kind="boolean", dtype=np.dtype(bool), levels=(False, True)),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "nurse")),
        Feature(name="rate", kind="continuous", dtype=np.dtype(float), maximum=1.0),
    )
    return {"rows": rows, "answers": answers, "of": [0, 0, 2], "schema": Schema(features)}


# Random tables of every dtype


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
    assert list(changes.columns) == ["row", "rank", "feature", "from", "to"]
    assert changes[["from", "to"]].dtypes.tolist() == [object, object]
    found = list(changes.itertuples(index=False, name=None))
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
        ["a", 1, "income", 3100, 4500],
        ["b", 2, "job", "nurse", "clerk"],
    ]
    assert result.sentences.tolist()[:2] == ["income 3,100 → 4,500", "no change"]


# What people look at


def test_alternatives_are_all_answers_by_label_and_rank():
    found = build(**loans()).alternatives
    assert found.index.tolist() == [("Ann", 1), ("Ann", 2), ("Cid", 1)]
    assert found.index.names == ["row", "rank"]
    assert_frame_equal(found.reset_index(drop=True), loans()["answers"])


def test_an_index_of_several_levels_is_kept():
    parts = loans()
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["bank", None])
    parts["rows"] = parts["rows"].set_axis(index)
    result = build(**parts)
    assert result.counterfactuals.index.equals(index)
    assert result.alternatives.index.names == ["bank", None, "rank"]
    assert result.alternatives.index.tolist() == [("a", 1, 1), ("a", 1, 2), ("b", 1, 1)]
    assert result.changes["row"].tolist() == [("a", 1)] * 4 + [("b", 1)]
    assert result[2].row == ("b", 1)
    assert strict(result.to_json())["rows"][1]["row"] == ["a", 2]


def test_labels_that_repeat_stay_apart_by_position():
    parts = loans()
    parts["rows"] = parts["rows"].set_axis(["x", "x", "x"])
    result = build(**parts)
    assert result.counterfactuals["income"].tolist() == [38500, pd.NA, 18000]
    assert [one.status for one in result] == ["found", "infeasible", "found"]
    assert result.sentences.tolist() == build(**loans()).sentences.tolist()


def test_columns_keep_the_order_of_the_rows():
    parts = loans()
    order = ["rate", "job", "income", "owns_home", "open_lines"]
    parts |= {"rows": parts["rows"][order], "answers": parts["answers"][order]}
    result = build(**parts)
    assert list(result.counterfactuals.columns) == order
    assert result.changes["feature"].tolist() == ["income", "open_lines", "job", "owns_home", "rate"]
    assert result.sentences["Ann"] == "income 31,000 → 38,500 and open lines 4 → 3"


def test_status_has_a_line_for_each_row():
    result = build(**loans(), reason=["", "too far", ""])
    assert result.status["status"].tolist() == ["found", "infeasible", "found"]
    assert result.status["reason"].tolist() == ["", "too far", ""]
    assert result.status["answers"].tolist() == [2, 0, 1]
    assert result.status.index.tolist() == ["Ann", "Bob", "Cid"]


def test_no_rows_and_no_answers_are_results_too():
    parts = loans()
    none = build(parts["rows"], parts["answers"].iloc[:0], [], schema=parts["schema"])
    empty = build(parts["rows"].iloc[:0], parts["answers"].iloc[:0], [], schema=parts["schema"])
    assert none.counterfactuals.isna().all(axis=None)
    assert len(empty.counterfactuals) == 0
    assert empty.counterfactuals.dtypes.equals(parts["rows"].dtypes)
    assert repr(none) == "Explanations(3 rows: 3 infeasible)"
    assert repr(empty) == "Explanations(0 rows)"
    for result in (none, empty):
        assert len(result.changes) == len(result.alternatives) == 0
        assert len(result.summary(by="job").features) == 0
        assert len(strict(result.to_json())["rows"]) == len(result) == len(list(result))
        assert "<table>" in result._repr_html_()
        assert result.metrics().drop("coverage").isna().all()
    assert none.metrics()["coverage"] == 0
    assert np.isnan(empty.metrics()["coverage"])


def test_a_table_that_is_changed_later_changes_no_result():
    parts = loans()
    result = build(**parts)
    parts["rows"]["note"] = "seen"
    parts["rows"]["income"] = 0
    assert result.sentences["Ann"] == "income 31,000 → 38,500 and open lines 4 → 3"
    assert list(result.counterfactuals.columns) == list(result.rows.columns)


def test_one_row_keeps_the_types_of_its_cells():
    one = build(**loans(), labels=("no", "yes"), target="yes")[0]
    assert (one.row, one.status, one.reason, one.target) == ("Ann", "found", "", "yes")
    assert one.factual.name == "Ann"
    assert one.factual.tolist() == [31000, 4, False, "clerk", 0.25]
    assert isinstance(one.factual["income"], np.integer)
    assert [cf["income"] for cf in one.counterfactuals] == [38500, 31000]
    assert one.figures["cost"].to_dict() == {1: 0.0, 2: 1.0}
    assert one.changes.to_numpy().tolist() == [
        [1, "income", 31000, 38500],
        [1, "open_lines", 4, 3],
        [2, "owns_home", False, True],
        [2, "job", "clerk", "nurse"],
    ]
    assert repr(one) == "Explanation(row 'Ann', found: income 31,000 → 38,500 and open lines 4 → 3)"


def test_a_row_without_an_answer_shows_its_nearest_miss():
    parts = loans()
    miss = parts["rows"].iloc[[1]].reset_index(drop=True).assign(income=50000)
    result = build(**parts, misses=miss, misses_of=np.array([1]), misses_why=["not plausible"])
    one = result[-2]
    assert one.counterfactuals == []
    assert len(one.changes) == len(one.figures) == 0
    ((row, why),) = one.misses
    assert (row["income"], why) == (50000, "not plausible")
    assert result[0].misses == []
    assert strict(result.to_json())["rows"][1]["misses"][0]["why"] == "not plausible"


@pytest.mark.parametrize("i", [3, -4])
def test_a_position_beyond_the_rows_is_an_index_error(i):
    with pytest.raises(IndexError, match="not among 3 rows"):
        build(**loans())[i]


# Words


def number(**known):
    return Feature(**({"name": "net_income", "kind": "integer", "dtype": np.dtype(float)} | known))


def levels(kind, *values):
    return Feature(name="open_lines", kind=kind, dtype=np.dtype(object), levels=values)


PHRASES = {
    "thousands": (number(step=100.0, maximum=9e4), 31000, 38500, "net income 31,000 → 38,500"),
    "whole floats": (number(step=1.0, maximum=9e4), 31000.0, 900.0, "net income 31,000 → 900"),
    "cents": (number(step=0.01, decimals=2, maximum=9e4), 1200.5, 1300.0, "net income 1,200.50 → 1,300.00"),
    "single precision": (number(step=0.1, decimals=1), float(np.float32(0.1)), 0.3, "net income 0.1 → 0.3"),
    "half precision": (number(step=0.1, decimals=1), float(np.float16(0.1)), 0.3, "net income 0.1 → 0.3"),
    "off the grid": (number(step=1.0, maximum=90), 31.25, 38.0, "net income 31.25 → 38"),
    "off the range": (number(step=1.0, maximum=90), 1e6, 38.0, "net income 1,000,000 → 38"),
    "negative": (number(step=1.0, minimum=-5e3), -1500, 0, "net income -1,500 → 0"),
    "no negative zero": (number(kind="continuous", maximum=90.0), -0.001, 4.0, "net income 0.00 → 4.00"),
    "floats": (number(kind="continuous", maximum=1.0), 1 / 3, 0.5, "net income 0.333 → 0.500"),
    "large floats": (number(kind="continuous", maximum=5e4), 31000.4, 38500.2, "net income 31,000 → 38,500"),
    "floats that nearly agree": (number(kind="continuous", maximum=5e4), 7.2, 7.25, "net income 7.20 → 7.25"),
    "tiny floats": (number(kind="continuous", maximum=1e-9), 1e-10, 2.5e-10, "net income 1e-10 → 2.5e-10"),
    "huge floats": (number(kind="continuous", maximum=1e18), 1e17, 2.5e17, "net income 1e+17 → 2.5e+17"),
    "numbers as text": (number(step=1.0, maximum=9e4), "31000", "38500", "net income 31,000 → 38,500"),
    "decimals": (number(step=1.0, maximum=9e4), Decimal(31000), Decimal(900), "net income 31,000 → 900"),
    "a missing number": (number(step=1.0, maximum=9e4), pd.NA, 900, "net income missing → 900"),
    "years": (number(step=1.0, minimum=1950.0, maximum=2024.0), 2015, 2019, "net income 2015 → 2019"),
    "counts": (levels("ordered", 0, 1, 2, 3, 4), 4, 3, "open lines 4 → 3"),
    "counts as floats": (levels("ordered", 0.0, 1.0, 2.0), 2.0, 1.0, "open lines 2 → 1"),
    "halves": (levels("ordered", 0.5, 1.0, 1.5), 0.5, 1.0, "open lines 0.5 → 1.0"),
    "a missing count": (levels("ordered", 0.0, 1.0), np.nan, 1.0, "open lines missing → 1"),
    "ordered text": (levels("ordered", "S", "M", "L"), "S", "L", "open lines: S → L"),
    "booleans": (levels("boolean", False, True), False, True, "open lines: no → yes"),
    "NumPy's booleans": (levels("boolean", False, True), np.True_, np.False_, "open lines: yes → no"),
    "zero and one": (levels("boolean", 0, 1), 0, 1, "open lines: no → yes"),
    "two words": (levels("boolean", "f", "m"), "f", "m", "open lines: f → m"),
    "text": (levels("category", "clerk", "none"), " clerk", "none", "open lines: clerk → none"),
    "empty text": (levels("category", "clerk", ""), "clerk", "", 'open lines: clerk → ""'),
    "lines of text": (levels("category", "a\n b", "c"), "a\n b", "c", "open lines: a b → c"),
    "numbers without order": (levels("category", 1, 2.5), 1.0, 2.5, "open lines: 1 → 2.5"),
    "missing text": (levels("category", "clerk"), None, "clerk", "open lines: missing → clerk"),
}


@pytest.mark.parametrize("case", PHRASES)
def test_a_change_reads_as_people_write_it(case):
    feature, before, after, words = PHRASES[case]
    assert Wording(feature).phrase(before, after) == words


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e9))
def test_numbers_that_differ_read_differently(before, after, span):
    if abs(before - after) <= 1e-9 * max(abs(before), abs(after), 1.0):
        return
    texts = Wording(number(kind="continuous", maximum=span)).transition(before, after).split(" → ")
    assert texts[0] != texts[1]


def test_parts_are_listed_with_commas_and_and():
    assert [listed(list("abc")[:k]) for k in range(4)] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("already", "", "Already as wanted: loan type is granted."),
        ("infeasible", "", "No answer: nothing allowed is both decided as wanted and plausible."),
        ("infeasible", '`Immutable("age")` blocks.', 'No answer: `Immutable("age")` blocks.'),
        ("not_reached", "", "Not reached within the time limit."),
        ("not_reached", "12 s", "Not reached within the time limit: 12 s."),
        ("invalid_input", "`age` is missing", "Cannot be explained: `age` is missing."),
    ],
)
def test_a_row_without_an_answer_says_why(status, reason, words):
    parts = loans()
    result = build(
        parts["rows"].iloc[:1],
        parts["answers"].iloc[:0],
        [],
        status=status,
        reason=reason,
        schema=parts["schema"],
        target="granted",
        outcome="loan_type",
    )
    assert result.sentences.tolist() == [words]


def test_a_relaxed_answer_says_what_was_relaxed():
    result = build(**loans(), status=["relaxed", "infeasible", "found"], reason=["without x", "", ""])
    assert result.sentences["Ann"] == "income 31,000 → 38,500 and open lines 4 → 3 (relaxed: without x)"
    assert result.sentences["Cid"] == "rate 0.125 → 0.100"


def test_a_target_that_is_not_known_is_not_named():
    parts = loans()
    result = build(
        parts["rows"].iloc[:1],
        parts["answers"].iloc[:0],
        [],
        status="already",
        target=None,
        schema=parts["schema"],
    )
    assert result.sentences.tolist() == ["Already as wanted."]


# Many rows together


@pytest.fixture(scope="module")
def many():
    """300 rows with an answer each, or none: numbers that move, a category that flips, two classes."""
    rng = np.random.default_rng(0)
    n = 300
    rows = pd.DataFrame(
        {
            "income": rng.integers(100, 900, n) * 100,
            "job": rng.choice(["clerk", "nurse", "none"], n),
            "sex": rng.choice(["f", "m"], n),
        },
        index=rng.integers(0, 50, n),
    )
    of = np.flatnonzero(rng.random(n) < 0.8)
    answers = rows.iloc[of].reset_index(drop=True)
    answers["income"] += rng.integers(-3, 4, len(of)) * 100
    answers["job"] = np.where(rng.random(len(of)) < 0.5, "nurse", answers["job"])
    status = np.full(n, "infeasible", dtype=object)
    status[rng.random(n) < 0.5] = "already"
    status[of] = "found"
    features = (
        Feature(name="income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "none", "nurse")),
        Feature(name="sex", kind="category", dtype=rows["sex"].dtype, levels=("f", "m")),
    )
    target = rng.choice(["denied", "granted"], n).astype(object)
    return build(
        rows,
        answers,
        of,
        status=status,
        target=target,
        schema=Schema(features),
        labels=("granted", "denied"),
    )


def test_a_summary_counts_verdicts(many):
    expected = many.status["status"].value_counts()
    assert many.summary().statuses.to_dict() == expected.to_dict()
    assert sum(expected) == 300
    counts = f"{expected['found']} found, {expected['already']} already, {expected['infeasible']} infeasible"
    assert repr(many) == f"Explanations(300 rows: {counts})"
    assert str(many.summary()).startswith(f"300 rows: {counts}\n")


def test_a_summary_says_what_changes_towards_each_class(many):
    features = many.summary().features
    assert features.index.get_level_values(0).unique().tolist() == ["granted", "denied"]
    for target in ("granted", "denied"):
        chosen = (many.status["status"] == "found").to_numpy() & (many.status["target"] == target).to_numpy()
        before, after = many.rows[chosen], many.counterfactuals[chosen]
        moved = after["income"].to_numpy(float) - before["income"].to_numpy(float)
        line = features.loc[(target, "income")]
        assert line["share"] == pytest.approx((moved != 0).mean())
        assert (line["rises"], line["falls"]) == ((moved > 0).sum(), (moved < 0).sum())
        assert line["median_rise"] == np.median(moved[moved > 0])
        assert line["median_fall"] == np.median(-moved[moved < 0])
        moves = pd.Series([f"{a} → {b}" for a, b in zip(before["job"], after["job"], strict=True) if a != b])
        line = features.loc[(target, "job")]
        assert line["changed"] == len(moves)
        assert line["transitions"] == moves.value_counts().max()
        assert (moves == line["transition"]).sum() == line["transitions"]
        assert features.loc[(target, "sex"), "changed"] == 0
        assert f"{line['transition']} ({line['transitions']} of {line['changed']})" in str(many.summary())
    assert "towards granted" in str(many.summary())
    assert "sex" not in str(many.summary())


def test_groups_are_those_of_pandas(many):
    groups = many.summary(by="sex").groups
    for sex, line in groups.iterrows():
        status = many.status["status"][(many.rows["sex"] == sex).to_numpy()]
        assert line["rows"] == len(status)
        assert line["already"] == (status == "already").sum()
        assert line["found"] == (status == "found").sum()
        assert line["found_share"] == pytest.approx(line["found"] / (status != "already").sum())
        cost = many.figures["cost"][(many.rows["sex"].iloc[many.of] == sex).to_numpy()]
        assert line["mean_cost"] == pytest.approx(cost.mean())
    assert groups["rows"].sum() == 300
    assert "found_share" in str(many.summary(by="sex"))


def test_groups_may_come_as_a_series_by_position(many):
    by = pd.Series(many.rows["sex"].to_numpy(), index=range(1000, 1300), name="sex")
    assert_frame_equal(many.summary(by=by).groups, many.summary(by="sex").groups, check_index_type=False)
    missing = many.summary(by=["a"] * 150 + [None] * 150).groups
    assert missing["rows"].tolist() == [150, 150]


def test_a_group_that_needs_no_answer_has_no_share():
    parts = loans()
    result = build(**parts, status=["found", "already", "found"])
    groups = result.summary(by="job").groups
    assert np.isnan(groups["found_share"]["nurse"])
    assert groups["found_share"]["clerk"] == 1.0


@pytest.mark.parametrize(
    ("by", "message"), [("age", "one of income, job, sex.*'age'"), ([1, 2], "300 values")]
)
def test_groups_that_cannot_be_used_raise(many, by, message):
    with pytest.raises(InvalidInputError, match=message):
        many.summary(by=by)


def test_a_number_that_was_missing_neither_rises_nor_falls():
    parts = loans()
    parts["rows"].loc["Cid", "rate"] = np.nan
    summary = build(**parts).summary()
    line = summary.features.loc[(1, "rate")]
    assert (line["changed"], line["rises"], line["falls"]) == (1, 0, 0)
    assert "was missing" in str(summary)


def test_targets_that_are_no_labels_are_summed_up_together():
    result = build(**loans(), labels=(), target=[(0.0, 0.5), None, (0.5, 1.0)])
    assert result.summary().features.index.get_level_values(0).unique().tolist() == ["all"]
    assert "What changes:\n" in str(result.summary())


def test_metrics_without_a_context_are_means_of_the_figures(many):
    found = many.metrics()
    assert found["coverage"] == pytest.approx(len(many.of) / (many.status["status"] != "already").sum())
    for name in FIGURES:
        assert found[name] == pytest.approx(many.figures[name].mean())


def test_metrics_with_a_context_are_those_of_the_best_answers():
    rows = pd.DataFrame({"a": [0.1, 0.2, 0.9, 0.3], "b": [0.5, 0.4, 0.6, 0.1]})
    answers = pd.DataFrame({"a": [0.8, 0.9, 0.7], "b": [0.5, 0.4, 0.4]})
    x_train = torch.rand(60, 2)
    classifier = LinearClassifier.from_weights(torch.tensor([[4.0, 0.0]]), torch.tensor([-2.0]))
    density = KDE(bandwidth=0.2).fit(x_train, (x_train[:, 0] > 0.5).long())
    plausibility = Thresholded(density=density).fit(x_train, (x_train[:, 0] > 0.5).long())
    context = metrics.Context(
        classifier=classifier,
        plausibility=plausibility,
        x_train=x_train,
        y_train=(x_train[:, 0] > 0.5).long(),
    )
    x, x_cf = torch.tensor(rows.to_numpy()), torch.tensor(answers.to_numpy())
    result = build(
        rows,
        answers,
        [0, 0, 1],
        status=["found", "found", "already", "infeasible"],
        encoded=(x, x_cf, torch.ones(4, dtype=torch.long)),
        context=context,
    )
    found = result.metrics()
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["feasible"] == pytest.approx(found["plausibility"] * 2 / 3)
    assert found["validity"] == 1.0
    assert found["l2"] == pytest.approx((0.7 + 0.5) / 2)
    wanted = torch.ones(2, dtype=torch.long)
    assert found["log_density"] == pytest.approx(float(density.log_prob(x_cf[[0, 2]], wanted).mean()))
    assert found["judged"] == result.figures["judged"][[0, 2]].mean()
    assert "seconds" not in found
    with pytest.raises(InvalidInputError, match="variant"):
        result.metrics(variant="other")


# What leaves Python


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_has_the_documented_structure(tmp_path):
    result = build(**loans(), target="yes", outcome="loan", reason=["", "too far", ""])
    written = strict(result.to_json())
    assert (written["version"], written["outcome"], len(written["rows"])) == (1, "loan", 3)
    ann = written["rows"][0]
    assert (ann["row"], ann["status"], ann["reason"], ann["target"]) == ("Ann", "found", "", "yes")
    assert ann["factual"] == {
        "income": 31000,
        "open_lines": 4,
        "owns_home": False,
        "job": "clerk",
        "rate": 0.25,
    }
    assert ann["counterfactuals"][0] == {
        "values": {"income": 38500, "open_lines": 3, "owns_home": False, "job": "clerk", "rate": 0.25},
        "changes": [
            {"feature": "income", "from": 31000, "to": 38500},
            {"feature": "open_lines", "from": 4, "to": 3},
        ],
        "cost": 0.0,
        "probability": 40.0,
        "score": 60.0,
        "judged": 70.0,
        "sentence": "income 31,000 → 38,500 and open lines 4 → 3",
    }
    assert written["rows"][1]["counterfactuals"] == []
    assert written["rows"][1]["sentence"] == "No answer: too far."
    assert written["rows"][2]["factual"]["job"] is None
    assert result.to_json(tmp_path / "result.json") is None
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == result.to_json()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.int8(3), 3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.True_, True),
        (np.float32(0.1), 0.1),
        (np.float16(0.1), 0.1),
        (np.longdouble("0.5"), 0.5),
        (np.nan, None),
        (np.inf, None),
        (np.float32("-inf"), None),
        (None, None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.datetime64("NaT", "ns"), None),
        (np.datetime64("2024-02-29"), "2024-02-29"),
        (pd.Timestamp("2024-02-29 12:00", tz="UTC"), "2024-02-29T12:00:00+00:00"),
        (pd.Timedelta(hours=1), "P0DT1H0M0S"),
        (pd.Period("2024-02"), "2024-02"),
        (pd.Interval(0, 1), "(0, 1]"),
        (Decimal("0.10"), "0.10"),
        (np.array([1, np.nan]), [1.0, None]),
        ((1, "a", None), [1, "a", None]),
        ({1: np.nan}, {"1": None}),
        ("naïve", "naïve"),
    ],
)
def test_json_holds_every_type_of_value(value, written):
    assert json_value(value) == written
    strict(json.dumps(json_value(value), allow_nan=False))


def test_json_of_narrow_floats_is_as_they_are_written():
    rows = pd.DataFrame({"a": np.array([0.1, np.nan, np.inf], dtype=np.float32)})
    answers = pd.DataFrame({"a": np.array([0.3], dtype=np.float32)})
    written = strict(build(rows, answers, [0]).to_json())["rows"]
    assert written[0]["counterfactuals"][0]["changes"] == [{"feature": "a", "from": 0.1, "to": 0.3}]
    assert [row["factual"]["a"] for row in written] == [0.1, None, None]


def test_text_that_is_no_utf_8_is_escaped_in_a_file(tmp_path):
    rows = pd.DataFrame({"a": pd.Series(["\udc80", "b"], dtype=object)})
    result = build(rows, rows.iloc[:0], [])
    result.to_json(tmp_path / "result.json")
    assert strict((tmp_path / "result.json").read_text())["rows"][0]["factual"]["a"] == "\udc80"


def test_a_notebook_shows_the_first_rows_escaped():
    evil = "<script>alert('x')</script>"
    n = 14
    rows = pd.DataFrame({"a": [evil] * n}, index=[evil] * n)
    answers = pd.DataFrame({"a": ["<b>"]})
    html = build(rows, answers, [0], target=evil, reason=evil)._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert html.count("<tr>") == 11
    assert "and 4 more rows" in html


def test_a_plot_labels_what_changes():
    parts = loans()
    parts["answers"].loc[0, "job"] = "$5 or $6"
    figure = build(**parts, outcome="loan", target="granted").plot(0)
    (axes,) = figure.axes
    figure.canvas.draw()
    assert axes.get_title() == "loan is granted"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["income", "open lines", "job"]
    assert [text.get_text() for text in axes.texts][:2] == ["31,000 → 38,500", "4 → 3"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.075, -1 / 9, 0.0])


@pytest.mark.parametrize(
    ("i", "rank", "message"), [(1, 1, "no answer to draw. No answer: too far"), (0, 3, "1 to 2.*got 3")]
)
def test_a_plot_of_an_answer_that_is_not_there_raises(i, rank, message):
    with pytest.raises(InvalidInputError, match=message):
        build(**loans(), reason="too far").plot(i, rank=rank)


@pytest.mark.parametrize(
    ("feature", "before", "after", "expected"),
    [
        (number(step=1.0, minimum=10.0, maximum=60.0), 20, 45, 0.5),
        (number(step=1.0, minimum=3.0, maximum=3.0), 3, 5, 2.0),
        (levels("ordered", "S", "M", "L"), " L", "M", -0.5),
        (levels("category", "a", "b"), "a", "b", np.nan),
        (levels("ordered", "S", "M"), None, "M", np.nan),
        (number(step=1.0, maximum=60.0), None, 45, np.nan),
    ],
)
def test_a_move_is_in_units_of_the_range(feature, before, after, expected):
    assert move(feature, before, after) == pytest.approx(expected, nan_ok=True)


# Parts that do not fit


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"of": [0, 2, 1]}, "must not fall"),
        ({"of": [0, 0, 3]}, "positions 0 to 2; got 0 to 3"),
        ({"of": [0, 2]}, "3 integers.*got shape"),
        ({"answers": loans()["answers"][["rate", "job"]]}, "`answers` must have the columns.*got rate, job"),
        ({"schema": Schema(())}, "`rows` must have the columns"),
        ({"figures": pd.DataFrame({"cost": [1.0, 2.0, 3.0]})}, "`figures` lacks the columns l1, l2"),
        (
            {"figures": pd.DataFrame(0.0, index=range(2), columns=FIGURES)},
            "3 rows, one for each answer; got 2",
        ),
        ({"figures": pd.DataFrame({name: [2.0, 1.0, 3.0] for name in FIGURES})}, "must not fall: the best"),
        ({"status": ["found", "found", "found"]}, "without an answer are called found.*positions 1"),
        ({"status": ["found", "already", "already"]}, "neither found nor relaxed, at positions 2"),
        ({"status": ["found", "lost", "found"]}, "must be one of found, already.*got lost"),
        ({"verdicts": pd.DataFrame({"status": ["found"]})}, "lacks the columns reason.*\n.*index of `rows`"),
        ({"misses": loans()["rows"]}, "`misses_of` must be an array of 3.*\n.*`misses_why` must have 3"),
        ({"encoded": (torch.zeros(3, 2), torch.zeros(2, 2), torch.zeros(3))}, r"\(3, width\).*\(2, 2\)"),
    ],
)
def test_parts_that_do_not_fit_raise_with_what_is_wrong(changed, message):
    with pytest.raises(InvalidInputError, match=message):
        build(**loans() | changed)


def test_what_is_no_table_raises():
    with pytest.raises(InvalidInputError, match="`rows`: expected a pandas DataFrame; got list"):
        Explanations(
            rows=[1],
            answers=pd.DataFrame(),
            of=np.array([0]),
            figures=pd.DataFrame(),
            verdicts=pd.DataFrame(),
            schema=Schema(()),
        )


def test_every_problem_is_named_at_once():
    with pytest.raises(InvalidInputError) as error:
        build(**loans() | {"of": [0, 2, 1]}, status=["found", "lost", "found"], misses_why=["?"])
    assert str(error.value).count("\n- ") == 4


def test_nothing_can_be_reassigned():
    with pytest.raises(AttributeError):
        build(**loans()).rows = None
