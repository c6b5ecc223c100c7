"""Encoding: round trips of random tables in every dtype and of the real tables, changes, bad rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal, assert_series_equal

from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Schema, SchemaWarning
from plausiflow.errors import InvalidInputError, ShapeError

INTEGERS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "Int8",
    "Int64",
    "UInt16",
]
FLOATS = ["float16", "float32", "float64", "Float32", "Float64"]
TEXTS = ["str", "string", "object", "category"]
WORDS = ["red", "green", " red", "blue ", "", "1", "missing", "zero", "Grün"]
HOLD_NO_MISSING = [name for name in INTEGERS if name[0] in "iu"] + ["bool"]


def quietly(frame, **chosen) -> Schema:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        return Schema.infer(frame, **chosen)


def cells(dtype):
    """A strategy for the values of a column of this dtype."""
    if dtype in ("bool", "boolean"):
        return st.booleans()
    if dtype in INTEGERS:
        info = np.iinfo(dtype.lower())
        small = st.integers(max(info.min, -3), 3)
        wide = st.integers(int(info.min), int(info.max))
        return st.sampled_from([small, small.map(lambda v: 20 * abs(v)), wide]).flatmap(lambda chosen: chosen)
    if dtype in FLOATS:
        width = int(dtype[-2:])
        grid = st.integers(-300, 300).map(lambda k: k / 10)
        return st.one_of(grid, st.floats(-1e3, 1e3, width=width), st.just(0.0))
    return st.sampled_from(WORDS)


@st.composite
def columns(draw, n):
    dtype = draw(
        st.sampled_from([*INTEGERS, *FLOATS, *TEXTS, "bool", "boolean", "ordered", "mixed", "money"])
    )
    if dtype == "money":
        cents = draw(st.lists(st.integers(0, 10**6), min_size=n, max_size=n))
        return pd.Series([0 if i % 2 else value / 100 for i, value in enumerate(cents)], dtype="float64")
    if dtype == "mixed":
        pool = st.sampled_from(["a", " a", 1, 2.5, True, None])
        values = draw(st.lists(pool, min_size=n, max_size=n))
        return pd.Series([*values[:-1], "a"], dtype=object)
    pool = draw(st.lists(cells(dtype), min_size=1, max_size=8)) if draw(st.booleans()) else None
    values = draw(st.lists(st.sampled_from(pool) if pool else cells(dtype), min_size=n, max_size=n))
    if dtype not in HOLD_NO_MISSING and draw(st.booleans()):
        values = [None if draw(st.booleans()) else value for value in values[:-1]] + values[-1:]
    if dtype == "ordered":
        return pd.Series(pd.Categorical(values, categories=WORDS[::-1], ordered=True))
    if dtype in FLOATS and dtype[0] == "f":
        values = [np.nan if value is None else value for value in values]
    return pd.Series(values, dtype=dtype)


@st.composite
def frames(draw, min_rows=1):
    n, width = draw(st.one_of(st.integers(min_rows, 12), st.just(25))), draw(st.integers(1, 6))
    repeats = draw(st.sampled_from([1, 1, 6]))
    made = {f"c{j}": draw(columns(n)) for j in range(width)}
    frame = pd.concat([pd.DataFrame(made)] * repeats)
    if draw(st.booleans()):
        frame.index = pd.Index([f"row {i % 3}" for i in range(len(frame))], name="odd")
    return frame


def strip(column: pd.Series) -> list:
    cells = column.astype(object).where(column.notna(), None)
    return [cell.strip() if isinstance(cell, str) else cell for cell in cells]


@settings(max_examples=40)
@given(frames(), st.sampled_from(["keep", "impute"]), st.randoms(use_true_random=False))
def test_decoding_what_was_encoded_gives_the_same_table(frame, missing, random):
    encoder = Encoder(quietly(frame), missing)
    names = random.sample(list(frame.columns), len(frame.columns))
    rows = frame[names].iloc[random.sample(range(len(frame)), len(frame))]
    if missing == "impute":
        rows = rows.dropna()
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    assert torch.isfinite(encoded.x).all()
    assert_frame_equal(encoder.decode(encoded.x, like=rows), rows, check_exact=True)


@settings(max_examples=40)
@given(frames())
def test_levels_and_grids_are_decoded_without_the_rows_they_came_from(frame):
    schema = quietly(frame)
    encoder = Encoder(schema)
    decoded = encoder.decode(encoder.encode(frame).x)
    assert list(decoded.columns) == list(frame.columns)
    assert decoded.index.equals(pd.RangeIndex(len(frame)))
    for feature in schema.features:
        old, new = frame[feature.name].reset_index(drop=True), decoded[feature.name]
        if feature.has_levels:
            assert new.dtype == old.dtype
            assert strip(new) == strip(old)
        elif feature.kind == "integer":
            assert_series_equal(new, old, check_exact=True)
        elif feature.kind == "continuous":
            span = feature.maximum - feature.minimum
            close = 1e-9 if old.dtype in ("float64", "Float64") else 2e-3
            assert_series_equal(new, old, rtol=0, atol=close * max(span, 1e-3))


@settings(max_examples=40)
@given(frames(), st.randoms(use_true_random=False))
def test_encoding_depends_neither_on_the_order_of_columns_nor_on_other_rows(frame, random):
    encoder = Encoder(quietly(frame))
    x = encoder.encode(frame).x
    names = random.sample(list(frame.columns), len(frame.columns))
    assert torch.equal(encoder.encode(frame[names]).x, x)
    row = random.randrange(len(frame))
    assert torch.equal(encoder.encode(frame.iloc[[row]]).x, x[[row]])


@settings(max_examples=40)
@given(frames())
def test_encoded_rows_are_one_hot_on_their_grid_and_at_their_pins(frame):
    encoder = Encoder(quietly(frame))
    layout, x = encoder.layout, encoder.encode(frame).x
    assert x.shape == (len(frame), layout.width)
    for block in layout.with_levels:
        levels = x[:, block.levels.start : block.levels.stop]
        assert (levels.sum(1) == 1).all()
        assert ((levels == 0) | (levels == 1)).all()
        assert len(block.closed) == len(block.levels) == len(encoder.level_names(block.name))
    assert torch.equal(layout.snap(x), x)
    assert torch.equal(layout.with_codes(x, layout.codes(x)), x)
    numbers = x[:, layout.numbers]
    assert ((numbers >= 0) & (numbers <= 1)).all()


@settings(max_examples=40)
@given(frames(min_rows=2), st.integers(0, 2**32))
def test_a_changed_row_is_encoded_to_what_it_was_decoded_from(frame, seed):
    schema = quietly(frame)
    encoder = Encoder(schema)
    layout, generator = encoder.layout, torch.Generator().manual_seed(seed)
    counts = [len(block.levels) for block in layout.with_levels]
    codes = [torch.randint(0, n, (len(frame), 1), generator=generator) for n in counts]
    codes = torch.cat(codes, dim=1) if codes else torch.zeros(len(frame), 0, dtype=torch.long)
    x = layout.with_codes(torch.rand(len(frame), layout.width, generator=generator) * 0.8 + 0.2, codes)
    x = layout.snap(x)
    decoded = encoder.decode(x, like=frame)
    assert_series_equal(decoded.dtypes, frame.dtypes)
    again = encoder.encode(decoded)
    assert again.usable.all()
    for block in layout.blocks:
        feature = schema.feature(block.name)
        columns = block.columns
        if feature.kind != "continuous":
            assert torch.equal(again.x[:, columns], x[:, columns])
        else:
            close = 1e-9 if feature.dtype in ("float64", "Float64") else 2e-3
            offset = max(1.0, abs(feature.minimum / ((feature.maximum - feature.minimum) or 1.0)))
            torch.testing.assert_close(again.x[:, columns], x[:, columns], rtol=0, atol=close * offset)


TABLE = pd.DataFrame(
    {
        "age": [31, 54, 47, 60, 22, 38],
        "rate": [0.1, 0.2, 0.7, 0.3, 0.9, 1.1],
        "score": [0.1234567, 0.7654321, 0.3333333, 0.5050505, 0.9111111, 0.2],
        "sex": ["Male", " Male", "Female", "Male", "Female", "Female"],
        "owns": [True, False, True, True, False, True],
        "debt": [100.0, np.nan, 300.0, 200.0, 500.0, 200.0],
        "job": ["clerk", None, "clerk", "cook", "none", "cook"],
        "size": pd.Categorical(list("SMLSML"), categories=list("SML"), ordered=True),
        "country": ["NL"] * 6,
        "id": [f"k{i}" for i in range(6)],
    }
)
SCHEMA = Schema.infer(TABLE, kinds={"id": "identifier"})


def changed(rows, encoder=None, **numbers):
    """The rows decoded after some features were set: a number, or the number of a level."""
    encoder = encoder or Encoder(SCHEMA)
    x = encoder.encode(rows).x
    for name, value in numbers.items():
        block = encoder.layout.block(name)
        if block.number is not None:
            x[:, block.number] = block.scale.encode(torch.tensor(float(value)))
        if len(block.levels):
            x[:, block.levels.start : block.levels.stop] = 0
            x[:, block.levels.start + (0 if block.number is not None else value)] = 1
    return encoder.decode(x, like=rows)


def test_the_layout_follows_the_schema():
    layout = Encoder(SCHEMA).layout
    assert [block.name for block in layout.blocks] == [
        *("age", "rate", "score", "sex", "owns", "debt", "job", "size")
    ]
    assert layout.width == 1 + 1 + 1 + 2 + 2 + (1 + 2) + 4 + 3
    debt, job, size = (layout.block(name) for name in ("debt", "job", "size"))
    assert (debt.number, debt.levels, debt.closed) == (7, range(8, 10), (False, True))
    assert debt.pinned == (None, (200.0 - 100.0) / 400.0)
    assert (job.number, job.closed, job.ordered) == (None, (False, False, False, True), False)
    assert (size.ordered, size.closed) == (True, (False, False, False))
    assert (layout.block("age").scale.step, layout.block("score").scale.step) == (1.0, 0.0)


def test_levels_have_names():
    frame = pd.DataFrame({"gain": [*range(1, 61), *[0] * 30, None]})
    encoder = Encoder(Schema.infer(frame))
    assert encoder.level_names("gain") == ("positive", "zero", "missing")
    assert Encoder(Schema.infer(frame), "impute").level_names("gain") == ("positive", "zero")
    assert Encoder(SCHEMA).level_names("debt") == ("present", "missing")
    assert Encoder(SCHEMA).level_names("job") == ("clerk", "cook", "none", "missing")
    assert Encoder(SCHEMA).level_names("age") == ()
    with pytest.raises(InvalidInputError, match="Constants and identifiers have no columns"):
        Encoder(SCHEMA).level_names("id")


def test_a_number_that_is_often_zero_is_pinned_at_zero():
    frame = pd.DataFrame({"gain": [*range(10, 70), *[0] * 30, None]})
    encoder = Encoder(Schema.infer(frame))
    block, x = encoder.layout.blocks[0], encoder.encode(frame).x
    assert block.pinned[:2] == (None, 0.0)
    assert x[:, 1:].argmax(1).tolist() == [0] * 60 + [1] * 30 + [2]
    x[0] = torch.tensor([0.9, 0.0, 1.0, 0.0])
    x[1] = torch.tensor([0.9, 0.0, 0.0, 1.0])
    decoded = encoder.decode(x, like=frame)["gain"]
    assert decoded.tolist()[0] == 0
    assert decoded.isna().tolist() == [False, True, *[False] * 88, True]


def test_the_filling_of_a_missing_number_is_on_the_grid():
    frame = pd.DataFrame({"a": [0.1, 0.3, 0.7, None]})
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    assert torch.equal(encoder.layout.snap(x), x)
    assert x[1, 0] == x[3, 0] == encoder.layout.blocks[0].pinned[1]


def test_a_change_touches_its_own_cell_only():
    x = Encoder(SCHEMA).encode(TABLE).x
    x[2, 0] = 1.0
    decoded = Encoder(SCHEMA).decode(x, like=TABLE)
    expected = TABLE.copy()
    expected.loc[2, "age"] = 60
    assert_frame_equal(decoded, expected, check_exact=True)


def test_changed_numbers_are_written_as_people_write_them():
    assert changed(TABLE, rate=0.31)["rate"].tolist() == [0.3] * 6
    assert changed(TABLE, age=40.4)["age"].tolist() == [40] * 6
    assert changed(TABLE, rate=-0.04)["rate"].map(str).tolist() == ["0.0"] * 6
    assert changed(TABLE, score=0.25)["score"].tolist() == [0.25] * 6


def test_a_number_at_the_end_of_its_range_is_that_end():
    values = np.random.default_rng(0).normal(size=(50, 40)) * np.logspace(-6, 6, 40)
    frame = pd.DataFrame(values, columns=[f"c{j}" for j in range(40)])
    encoder = Encoder(Schema.infer(frame))
    x = torch.stack([torch.zeros(40), torch.ones(40)])
    assert_frame_equal(encoder.decode(x), frame.agg(["min", "max"]).reset_index(drop=True), check_exact=True)


def test_changed_levels_have_their_most_common_spelling_and_others_their_own():
    rows = TABLE.iloc[[1, 2]]
    assert changed(rows, sex=1)["sex"].tolist() == [" Male", "Male"]


@pytest.mark.parametrize("floats", [torch.float32, torch.float64])
def test_rows_may_come_in_single_precision(floats):
    encoder = Encoder(SCHEMA)
    x = encoder.encode(TABLE).x.to(floats)
    assert_frame_equal(encoder.decode(x, like=TABLE), TABLE, check_exact=True)
    assert encoder.decode(x)["rate"].tolist() == TABLE["rate"].tolist()


def test_cells_off_the_grid_and_out_of_range_are_kept():
    rows = TABLE.astype({"age": float}).assign(age=25.5, rate=1e6, debt=-3.25, country="BE", id=None)
    encoded = Encoder(SCHEMA).encode(rows)
    assert encoded.usable.all()
    assert_frame_equal(Encoder(SCHEMA).decode(encoded.x, like=rows), rows, check_exact=True)


def test_integers_beyond_a_float_are_kept():
    rows = TABLE.assign(age=2**60 + np.arange(6))
    decoded = changed(rows, rate=0.5)
    assert decoded["age"].tolist() == [2**60 + i for i in range(6)]


OTHER_DTYPES = {
    "integers as floats": ("age", "float64"),
    "integers as objects": ("age", object),
    "integers as text": ("age", "str"),
    "integers as categories": ("age", "category"),
    "small integers": ("age", "int8"),
    "nullable integers": ("age", "Int32"),
    "single precision": ("rate", "float32"),
    "nullable floats": ("rate", "Float64"),
    "booleans as objects": ("owns", object),
    "booleans as integers": ("owns", "int64"),
    "booleans as floats": ("owns", "float64"),
    "nullable booleans": ("owns", "boolean"),
    "text as objects": ("sex", object),
    "text as categories": ("sex", "category"),
    "text as strings": ("job", "string"),
    "categories as text": ("size", "str"),
    "categories as objects": ("size", object),
}


@pytest.mark.parametrize("case", OTHER_DTYPES)
def test_the_same_values_in_another_dtype_are_encoded_alike_and_keep_that_dtype(case):
    name, other = OTHER_DTYPES[case]
    rows = TABLE.astype({name: other})
    encoder = Encoder(SCHEMA)
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    assert torch.equal(encoded.x, encoder.encode(TABLE).x)
    new = {"age": 54, "rate": 0.2, "owns": 0, "sex": 0, "job": 1, "size": 1}[name]
    decoded = changed(rows, **{name: new})
    assert_series_equal(decoded.dtypes, rows.dtypes)
    expected = changed(TABLE, **{name: new})[name].astype(rows[name].dtype)
    assert_series_equal(decoded[name], expected, check_exact=True)
    assert [type(cell) for cell in decoded[name].dropna()] == [type(cell) for cell in expected.dropna()]


@pytest.mark.parametrize(
    ("column", "name", "value", "expected"),
    [
        (pd.Series([30, 40], dtype="int64"), "score", 0.25, pd.Series([0.25, 0.25])),
        (pd.Series([30, None], dtype="Int64"), "debt", 200, pd.Series([200, 200], dtype="Int64")),
        (pd.Series([30, 40], dtype="int8"), "debt", 500, pd.Series([500, 500], dtype="int64")),
        (pd.Series([1, 2**60 + 1], dtype="int64"), "score", 0.25, pd.Series([0.25, 0.25])),
        (pd.Series(pd.Categorical([31, 54])), "age", 60, pd.Series(pd.Categorical([60, 60], [31, 54, 60]))),
        (
            pd.Series(pd.Categorical(["L", "S"], ["S", "L"], ordered=True)),
            "size",
            1,
            pd.Series(pd.Categorical(["M", "M"], list("SML"), ordered=True)),
        ),
        (
            pd.Series(pd.Categorical(["S", "S"], ["x", "S"])),
            "size",
            2,
            pd.Series(pd.Categorical(["L", "L"], ["x", "S", "L"])),
        ),
        (pd.Series(["clerk", 1], dtype=object), "job", 1, pd.Series(["cook", "cook"], dtype=object)),
        (pd.Series(["0.5", 1], dtype=object), "score", 0.25, pd.Series(["0.25", 0.25], dtype=object)),
    ],
)
def test_a_dtype_that_cannot_hold_a_new_value_is_widened(column, name, value, expected):
    rows = TABLE.iloc[:2].assign(**{name: column})
    assert_series_equal(changed(rows, **{name: value})[name], expected, check_names=False, check_exact=True)


def test_widening_leaves_large_integers_exact():
    rows = TABLE.iloc[:2].assign(score=pd.Series([2**60 + 1, 40]))
    encoder = Encoder(SCHEMA)
    x = encoder.encode(rows).x
    x[1, encoder.layout.block("score").number] = 0.0
    assert encoder.decode(x, like=rows)["score"].tolist() == [2**60 + 1, 0.1234567]


def test_missing_values_stay_missing_when_kept():
    decoded = changed(TABLE, age=40)
    assert_series_equal(decoded["debt"], TABLE["debt"], check_exact=True)
    assert_series_equal(decoded["job"], TABLE["job"], check_exact=True)


def test_missing_values_are_filled_with_the_median_or_the_most_common_level():
    rows = TABLE.astype({"age": "Int64"}).copy()
    rows.loc[3, ["age", "rate", "sex", "job", "size", "country", "id"]] = pd.NA
    encoder = Encoder(SCHEMA, missing="impute")
    assert encoder.layout.width == Encoder(SCHEMA).layout.width - 3
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    decoded = encoder.decode(encoded.x, like=rows)
    expected = rows.copy()
    expected.loc[1, ["debt", "job"]] = [200.0, "clerk"]
    expected.loc[3, ["age", "rate", "sex", "job", "size"]] = [38, 0.3, "Female", "clerk", "S"]
    assert_frame_equal(decoded, expected, check_exact=True)


BAD_CELLS = {
    "age": [
        ("old", "`age` is 'old', which is not a number"),
        ([1], "`age` is [1], which is not a number"),
        (pd.Timestamp("2020-01-01"), "which is not a number"),
        (1j, "which is not a number"),
        (10**400, "which is not a number"),
        (10**30, None),
        (np.inf, "`age` is inf, which is infinite"),
        ("-inf", "which is infinite"),
        (None, '`age` is None, which no training row misses; missing="impute" fills it with 38'),
    ],
    "rate": [(np.nan, 'missing="impute" fills it with 0.3'), ("", "`rate` is '', which is not a number")],
    "score": [(1e100, None), (1.7e308, "`score` is 1.7e+308, too far from the training range, 0.12")],
    "sex": [
        ("Other", "`sex` is 'Other', a level that no training row has (known: 'Female', 'Male')"),
        (1, "a level that no training row has"),
        (["Male"], "a level that no training row has"),
        (None, "fills it with 'Female'"),
    ],
    "owns": [("yes", "known: False, True"), (2, "`owns` is 2, a level"), (pd.NA, "no training row misses")],
    "size": [("XL", "`size` is 'XL', a level"), (3, "a level")],
    "debt": [(None, None), ("1e3", None), ("lots", "`debt` is 'lots', which is not a number")],
    "job": [(None, None), ("cook ", None), ("king", "known: 'clerk', 'cook', 'none'")],
    "country": [("BE", None), (np.inf, None), (None, None)],
    "id": [([1], None), (None, None)],
}


@pytest.mark.parametrize(
    ("name", "cell", "reason"), [(n, *case) for n, cases in BAD_CELLS.items() for case in cases]
)
def test_a_bad_cell_is_a_problem_of_its_row_alone(name, cell, reason):
    rows = TABLE.astype({name: object})
    rows.at[4, name] = cell
    encoder = Encoder(SCHEMA)
    encoded = encoder.encode(rows)
    assert torch.isfinite(encoded.x).all()
    others = [0, 1, 2, 3, 5]
    assert encoded.usable[others].all()
    assert torch.equal(encoded.x[others], encoder.encode(TABLE).x[others])
    assert (encoded.problems[4] is None) == (reason is None)
    assert reason is None or reason in encoded.problems[4]
    assert_frame_equal(encoder.decode(encoded.x, like=rows), rows, check_exact=True)


def test_a_row_names_all_its_problems():
    rows = TABLE.astype({"sex": object, "rate": object})
    rows.loc[0, ["sex", "rate"]] = ["Other", np.inf]
    assert Encoder(SCHEMA).encode(rows).problems[0] == (
        "`rate` is inf, which is infinite; "
        "`sex` is 'Other', a level that no training row has (known: 'Female', 'Male')"
    )


def test_a_number_too_far_away_to_be_scaled_is_a_problem():
    encoder = Encoder(Schema.infer(pd.DataFrame({"a": [1e-300, 3e-300, 2.5e-300]})))
    encoded = encoder.encode(pd.DataFrame({"a": [2e-300, 1e200]}))
    assert encoded.problems[0] is None
    assert encoded.problems[1] == "`a` is 1e+200, too far from the training range, 1e-300 to 3e-300"
    assert torch.isfinite(encoded.x).all()


@pytest.mark.parametrize("other", ["datetime64[ns]", "timedelta64[ns]", "complex128"])
def test_a_column_of_a_strange_dtype_is_a_problem_of_every_row(other):
    rows = TABLE.assign(age=TABLE["age"].astype(other))
    assert not Encoder(SCHEMA).encode(rows).usable.any()


BAD_FRAMES = {
    "not a frame": (TABLE.to_dict(), ["expected a pandas DataFrame; got dict"]),
    "columns": (
        TABLE.drop(columns=["age", "id"]).assign(more=1, target=0),
        ["not there: 'age', 'id'", "did not have the columns 'more', 'target'; drop them"],
    ),
    "names": (pd.concat([TABLE, TABLE[["age"]]], axis=1), ["more than once: 'age'"]),
    "numbers as names": (TABLE.rename(columns={"age": 0}), ["must be text; got 0", "not there: 'age'"]),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_one_error_lists_every_problem_of_a_frame(case):
    frame, expected = BAD_FRAMES[case]
    with pytest.raises(InvalidInputError) as error:
        Encoder(SCHEMA).encode(frame)
    assert [text for text in expected if text not in str(error.value)] == []


def test_rows_of_another_shape_or_not_finite_are_not_decoded():
    encoder = Encoder(SCHEMA)
    x = encoder.encode(TABLE).x
    with pytest.raises(ShapeError, match=r"shape \(6, 17\).*got \(6, 16\)"):
        encoder.decode(x[:, 1:], like=TABLE)
    with pytest.raises(ShapeError, match=r"shape \(6, 17\).*got \(5, 17\)"):
        encoder.decode(x[1:], like=TABLE)
    x[2:4, 3] = torch.nan
    with pytest.raises(InvalidInputError, match="2 of 6 rows are not"):
        encoder.decode(x, like=TABLE)


def test_what_to_do_with_missing_values_is_keep_or_impute():
    with pytest.raises(InvalidInputError, match="'keep' or 'impute'; got 'drop'"):
        Encoder(SCHEMA, missing="drop")


def test_no_rows_are_encoded_to_no_rows():
    encoder = Encoder(SCHEMA)
    encoded = encoder.encode(TABLE.iloc[:0])
    assert encoded.x.shape == (0, encoder.layout.width)
    assert_frame_equal(encoder.decode(encoded.x, like=TABLE.iloc[:0]), TABLE.iloc[:0])


def test_rows_made_without_others_have_the_constant_and_no_identifier():
    encoder = Encoder(SCHEMA)
    decoded = encoder.decode(encoder.encode(TABLE).x)
    assert decoded["country"].tolist() == ["NL"] * 6
    assert decoded["id"].isna().all()
    assert encoder.encode(decoded).usable.all()
    assert_frame_equal(
        decoded.drop(columns=["id", "sex"]), TABLE.drop(columns=["id", "sex"]), check_exact=False, rtol=1e-9
    )


def test_encoding_changes_nothing_in_the_table():
    rows = TABLE.copy()
    encoder = Encoder(SCHEMA)
    encoder.decode(encoder.encode(rows).x * 0.5, like=rows)
    assert_frame_equal(rows, TABLE, check_exact=True)


def test_a_restored_schema_encodes_alike():
    restored = Encoder(Schema.from_dict(SCHEMA.to_dict()))
    assert restored.layout == Encoder(SCHEMA).layout
    assert torch.equal(restored.encode(TABLE).x, Encoder(SCHEMA).encode(TABLE).x)


@pytest.mark.parametrize("name", ["german_credit", "adult", "heloc", "law", "audit"])
def test_real_tables_go_through_unchanged(name, data_directory):
    path = data_directory / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    frame = pd.read_csv(path)
    schema = quietly(frame)
    encoder = Encoder(schema)
    encoded = encoder.encode(frame)
    assert encoded.usable.all()
    assert torch.equal(encoder.layout.snap(encoded.x), encoded.x)
    assert_frame_equal(encoder.decode(encoded.x, like=frame), frame, check_exact=True)
    decoded = encoder.decode(encoded.x)
    for feature in schema.features:
        old, new = frame[feature.name], decoded[feature.name]
        if feature.kind == "integer":
            assert_series_equal(new, old, check_exact=True)
        elif feature.kind == "continuous":
            atol = 1e-9 * (feature.maximum - feature.minimum)
            assert_series_equal(new, old, rtol=0, atol=atol)
        elif feature.has_levels and old.dtype in ("str", object):
            assert new.fillna("").str.strip().equals(old.fillna("").str.strip())
        elif feature.has_levels:
            assert_series_equal(new, old, check_exact=True)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_swapping_encoded_rows_swaps_what_they_hold(seed):
    rng = np.random.default_rng(seed)
    frame = TABLE.iloc[rng.integers(0, 6, 30)].reset_index(drop=True)
    encoder = Encoder(SCHEMA)
    order = rng.permutation(30)
    swapped = encoder.decode(encoder.encode(frame).x[order], like=frame)
    expected = frame.iloc[order].reset_index(drop=True).assign(id=frame["id"], country=frame["country"])
    columns = ["sex", "job"]
    assert_frame_equal(swapped.drop(columns=columns), expected.drop(columns=columns), check_exact=True)
    assert strip(swapped["sex"]) == strip(expected["sex"])
    assert strip(swapped["job"]) == strip(expected["job"])


def test_small_integers_as_text_are_read_as_levels():
    encoder = Encoder(Schema.infer(pd.DataFrame({"n": [1, 2, 3] * 9})))
    rows = pd.DataFrame({"n": ["1", "3.0", " 2", "four", "1.5", "nan"]})
    encoded = encoder.encode(rows)
    assert encoded.usable.tolist() == [True, True, True, False, False, False]
    assert encoded.x[:3].argmax(1).tolist() == [0, 2, 1]
    assert encoder.decode(encoded.x.roll(1, 1), like=rows)["n"].tolist()[:3] == ["2", "1", "3"]


def test_text_that_spells_a_number_is_not_taken_for_a_boolean():
    encoder = Encoder(Schema.infer(pd.DataFrame({"a": pd.Series([True, "a", "b"], dtype=object)})))
    assert encoder.encode(pd.DataFrame({"a": ["1", "a"]})).usable.tolist() == [False, True]
