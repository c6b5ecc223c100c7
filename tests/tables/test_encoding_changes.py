"""Encoded rows: their layout, what a change touches when they are decoded, and the dtypes that it keeps."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal, assert_series_equal

from encoded_tables import SCHEMA, TABLE, changed
from plausiflow.errors import InvalidInputError
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema


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
    assert encoder.level_names("gain") == ("number", 0, "missing")
    assert Encoder(Schema.infer(frame), "impute").level_names("gain") == ("number", 0)
    assert Encoder(SCHEMA).level_names("debt") == ("number", "missing")
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
